//! Collections and ordinary indexes, by the commands that every compatible backend has.

use std::{collections::HashMap, time::Duration};

use futures_util::TryStreamExt;
use mongodb::{
    Database,
    bson::{Binary, Bson, Document, doc},
};
use tokio::time::Instant;
use tracing::debug;

use crate::{
    error::{Code, Error, Refusal, Result, server_code},
    namespace::CollectionName,
    store::{Collection, Kind, PhysicalIndex},
};

/// Server codes after which trying again without the partial filter would be wrong.
const NOT_ABOUT_THE_FILTER: [i32; 5] = [
    13, // Unauthorized
    BUILD_IN_PROGRESS,
    Code::IndexOptionsConflict.number(),
    Code::IndexKeySpecsConflict.number(),
    Code::InvalidNamespace.number(),
];

/// The code of backends that build one index at a time on a collection, such as DocumentDB, for any other meanwhile.
const BUILD_IN_PROGRESS: i32 = 40333;

/// How long a build waits for another one, and the pause between two tries.
const BUILD_PATIENCE: Duration = Duration::from_secs(600);
const BUILD_PAUSE: Duration = Duration::from_millis(500);

pub(super) async fn inspect(database: &Database, collection: &CollectionName) -> Result<Collection> {
    let found = listed(database).await?.into_iter().find(|found| name(found) == Some(collection.as_str()));
    let mut seen = found.as_ref().map(as_seen).unwrap_or_default();
    if seen.kind == Kind::Ordinary {
        seen.indexes = list_indexes(database, collection).await?;
    }
    Ok(seen)
}

pub(super) async fn collections(database: &Database) -> Result<HashMap<String, Collection>> {
    let listed = listed(database).await?;
    Ok(listed.iter().filter_map(|found| Some((name(found)?.to_owned(), as_seen(found)))).collect())
}

/// What `listCollections` says of a collection.
pub(super) async fn find_collection(database: &Database, wanted: &str) -> Result<Option<Document>> {
    Ok(listed(database).await?.into_iter().find(|found| name(found) == Some(wanted)))
}

async fn listed(database: &Database) -> Result<Vec<Document>> {
    let list = || Error::backend(format!("listing the collections of {}", database.name()));
    // Without a filter, which not every backend takes, and as plain documents, which not every backend fills.
    let command = doc! { "listCollections": 1 };
    database.run_cursor_command(command).await.map_err(list())?.try_collect().await.map_err(list())
}

fn name(found: &Document) -> Option<&str> {
    found.get_str("name").ok()
}

/// Without its indexes.
fn as_seen(found: &Document) -> Collection {
    let options = found.get_document("options").cloned().unwrap_or_default();
    let kind = match found.get_str("type") {
        Ok("view") => Kind::View,
        Ok("timeseries") => Kind::TimeSeries,
        _ if matches!(options.get("capped"), Some(Bson::Boolean(true))) => Kind::Capped,
        _ => Kind::Ordinary,
    };
    let default_collation = options
        .get_document("collation")
        .is_ok_and(|collation| collation.get_str("locale").is_ok_and(|locale| locale != "simple"));
    Collection { kind, uuid: identity(found), default_collation, indexes: Vec::new() }
}

/// The identity that the backend gives a collection.
pub(super) fn identity(found: &Document) -> Option<Binary> {
    match found.get_document("info").ok()?.get("uuid")? {
        Bson::Binary(uuid) => Some(uuid.clone()),
        _ => None,
    }
}

pub(super) async fn list_indexes(database: &Database, collection: &CollectionName) -> Result<Vec<PhysicalIndex>> {
    Ok(index_specs(database, collection).await?.iter().filter_map(PhysicalIndex::of_spec).collect())
}

/// As `listIndexes` tells them; none if the collection is missing.
pub(super) async fn index_specs(database: &Database, collection: &CollectionName) -> Result<Vec<Document>> {
    let list = || Error::backend(format!("listing the indexes of {collection}"));
    let command = doc! { "listIndexes": collection.as_str() };
    let cursor = match database.run_cursor_command(command).await {
        Ok(cursor) => cursor,
        Err(error) if server_code(&error) == Some(Code::NamespaceNotFound.number()) => return Ok(Vec::new()),
        Err(error) => return Err(list()(error)),
    };
    cursor.try_collect().await.map_err(list())
}

/// Builds the index, without its partial filter where the backend has no partial indexes, and reads back what came of
/// it: some backends accept the command and build something else, or nothing.
pub(super) async fn build_index(
    database: &Database,
    collection: &CollectionName,
    wanted: PhysicalIndex,
) -> Result<PhysicalIndex> {
    match create(database, collection, &wanted, wanted.partial_filter.as_ref()).await {
        Err(error)
            if wanted.partial_filter.is_some()
                && server_code(&error).is_some_and(|code| !NOT_ABOUT_THE_FILTER.contains(&code)) =>
        {
            create(database, collection, &wanted, None).await
        }
        other => other,
    }
    .map_err(Error::backend(format!("building the supporting index {} on {collection}", wanted.name)))?;
    let indexes = list_indexes(database, collection).await?;
    let built = indexes.into_iter().find(|index| index.name == wanted.name && index.key == wanted.key);
    built.ok_or_else(|| {
        Refusal::new(
            Code::CannotCreateIndex,
            format!(
                "{collection}: the backend accepted the supporting index {} and did not build it; \
                 turn the supporting index off",
                wanted.name
            ),
        )
        .into()
    })
}

async fn create(
    database: &Database,
    collection: &CollectionName,
    index: &PhysicalIndex,
    partial_filter: Option<&Document>,
) -> mongodb::error::Result<Document> {
    let mut spec = doc! { "key": &index.key, "name": &index.name };
    if let Some(filter) = partial_filter {
        spec.insert("partialFilterExpression", filter);
    }
    let command = doc! { "createIndexes": collection.as_str(), "indexes": [spec] };
    let began = Instant::now();
    loop {
        match database.run_command(command.clone()).await {
            Err(error) if server_code(&error) == Some(BUILD_IN_PROGRESS) && began.elapsed() < BUILD_PATIENCE => {
                debug!(%collection, index = index.name, "another index is being built there; trying again");
                tokio::time::sleep(BUILD_PAUSE).await;
            }
            other => return other,
        }
    }
}

pub(super) async fn drop_index(database: &Database, collection: &CollectionName, name: &str) -> Result<()> {
    let gone = [Code::NamespaceNotFound.number(), Code::IndexNotFound.number()];
    match database.run_command(doc! { "dropIndexes": collection.as_str(), "index": name }).await {
        Err(error) if server_code(&error).is_some_and(|code| gone.contains(&code)) => Ok(()),
        Err(error) => Err(Error::backend(format!("dropping the index {name} of {collection}"))(error)),
        Ok(_) => Ok(()),
    }
}
