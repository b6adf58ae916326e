//! This library's own records besides the registry: read one by one, set under a guard.

use futures_util::TryStreamExt;
use mongodb::{
    Collection, Database,
    bson::{Document, doc},
    options::{CollectionOptions, WriteConcern},
};

use super::modify::find_and_modify;
use crate::{
    error::{Error, Result},
    store::{Guard, Records},
};

fn collection(database: &Database, kind: Records) -> Collection<Document> {
    let options = CollectionOptions::builder().write_concern(WriteConcern::majority()).build();
    database.collection_with_options(kind.collection(), options)
}

fn failed(doing: &str, kind: Records) -> impl FnOnce(mongodb::error::Error) -> Error {
    Error::backend(format!("{doing} {}", kind.collection()))
}

pub(super) async fn get(database: &Database, kind: Records, id: &str) -> Result<Option<Document>> {
    collection(database, kind).find_one(doc! { "_id": id }).await.map_err(failed("reading", kind))
}

pub(super) async fn all(database: &Database, kind: Records) -> Result<Vec<Document>> {
    let found = collection(database, kind).find(doc! {}).await.map_err(failed("reading", kind))?;
    found.try_collect().await.map_err(failed("reading", kind))
}

pub(super) async fn set(
    database: &Database,
    kind: Records,
    id: &str,
    guard: Guard,
    fields: Document,
) -> Result<Option<Document>> {
    let records = collection(database, kind);
    match guard {
        Guard::Has(guard) => {
            let mut filter = doc! { "_id": id };
            filter.extend(guard);
            find_and_modify(database, kind.collection(), filter, doc! { "$set": fields }, None)
                .await
                .map_err(|trouble| failed("changing a record of", kind)(trouble.into_error()))
        }
        Guard::Missing => {
            let mut record = doc! { "_id": id };
            record.extend(fields);
            match records.insert_one(&record).await {
                Ok(_) => Ok(Some(record)),
                // Backends differ in the code for what is there already: what counts is what is there now.
                Err(error) => match get(database, kind, id).await? {
                    Some(found) => Ok((found == record).then_some(record)),
                    None => Err(failed("adding a record to", kind)(error)),
                },
            }
        }
    }
}

pub(super) async fn remove(database: &Database, kind: Records, id: &str) -> Result<()> {
    let removed = collection(database, kind).delete_one(doc! { "_id": id }).await;
    removed.map(drop).map_err(failed("removing a record of", kind))
}
