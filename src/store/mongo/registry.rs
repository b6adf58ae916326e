//! The registry document in MongoDB: read whole, changed by one guarded update.

use mongodb::{
    Database,
    bson::{Bson, Document, Uuid, doc, oid::ObjectId},
    options::WriteConcern,
};

use super::modify::{Trouble, find_and_modify};
use crate::{
    error::{Error, Result, server_code},
    store::{Change, MAX_INDEXES},
};

const COLLECTION: &str = "ttl_index.registry";
const ID: &str = "registry";
const DUPLICATE_KEY: i32 = 11000;

fn collection(database: &Database) -> mongodb::Collection<Document> {
    let options = mongodb::options::CollectionOptions::builder().write_concern(WriteConcern::majority()).build();
    database.collection_with_options(COLLECTION, options)
}

fn failed(doing: &str, database: &Database) -> impl FnOnce(mongodb::error::Error) -> Error {
    Error::backend(format!("{doing} the registry of TTL indexes of {}", database.name()))
}

pub(super) async fn load(database: &Database) -> Result<Option<Document>> {
    collection(database).find_one(doc! { "_id": ID }).await.map_err(failed("reading", database))
}

pub(super) async fn revision(database: &Database) -> Result<Option<i64>> {
    let registry = collection(database)
        .find_one(doc! { "_id": ID })
        .projection(doc! { "revision": 1 })
        .await
        .map_err(failed("reading", database))?;
    registry.as_ref().map(read_revision).transpose()
}

fn read_revision(registry: &Document) -> Result<i64> {
    match registry.get("revision") {
        Some(Bson::Int64(revision)) => Ok(*revision),
        Some(Bson::Int32(revision)) => Ok(i64::from(*revision)),
        _ => Err(Error::Unreadable("the registry of TTL indexes has no readable revision".to_owned())),
    }
}

pub(super) async fn change(database: &Database, change: Change) -> Result<Option<i64>> {
    let (guard, update) = guarded(&change);
    loop {
        let fields = Some(doc! { "revision": 1 });
        let updated = find_and_modify(database, COLLECTION, guard.clone(), update.clone(), fields).await;
        match updated {
            Ok(Some(registry)) => return read_revision(&registry).map(Some),
            Ok(None) if makes_registry(&change) && load(database).await?.is_none() => make(database).await?,
            Ok(None) => return Ok(None),
            // The reply may be what was lost, not the change: its identity tells. Whatever the revision is now, the
            // change is in it.
            Err(Trouble::Failed(error)) if server_code(&error).is_none() && is_made(database, &change).await? => {
                return revision(database).await;
            }
            Err(trouble) => return Err(failed("changing", database)(trouble.into_error())),
        }
    }
}

/// Whether there is something to change where there is no registry yet.
fn makes_registry(change: &Change) -> bool {
    matches!(change, Change::Add(_) | Change::Pause(Some(_)))
}

/// The filter under which the change may be made, and the update that makes it.
fn guarded(change: &Change) -> (Document, Document) {
    match change {
        Change::Add(entry) => {
            let mut guard = doc! { "_id": ID, "indexes.collection": { "$ne": entry.get("collection") } };
            guard.insert(format!("indexes.{}", MAX_INDEXES - 1), doc! { "$exists": false });
            (guard, doc! { "$push": { "indexes": entry }, "$inc": { "revision": 1_i64 } })
        }
        Change::Set { entry, fields, revision } => {
            let fields: Document =
                fields.iter().map(|(name, value)| (format!("indexes.$.{name}"), value.clone())).collect();
            let mut guard = doc! { "_id": ID, "indexes.id": entry };
            guard.extend(revision.map(|revision| ("revision".to_owned(), revision.into())));
            (guard, doc! { "$set": fields, "$inc": { "revision": 1_i64 } })
        }
        Change::Rename { entry, to } => (
            // The positional operator needs to know which element; the other condition is on the whole array.
            doc! {
                "_id": ID,
                "indexes": { "$elemMatch": { "id": entry } },
                "$nor": [{ "indexes.collection": to.as_str() }],
            },
            doc! { "$set": { "indexes.$.collection": to.as_str() }, "$inc": { "revision": 1_i64 } },
        ),
        Change::Remove { entry } => (
            doc! { "_id": ID, "indexes.id": entry },
            doc! { "$pull": { "indexes": { "id": entry } }, "$inc": { "revision": 1_i64 } },
        ),
        Change::TakeBack { entry } => (
            doc! { "_id": ID, "indexes": { "$elemMatch": { "id": entry, "state": { "$ne": "ACTIVE" } } } },
            doc! { "$pull": { "indexes": { "id": entry } }, "$inc": { "revision": 1_i64 } },
        ),
        Change::Pause(Some(pause)) => {
            (doc! { "_id": ID }, doc! { "$set": { "paused": pause }, "$inc": { "revision": 1_i64 } })
        }
        Change::Tune { tuning, revision } => {
            let reset = || doc! { "$unset": { "tuning": "" } };
            let how = tuning.as_ref().map_or_else(reset, |tuning| doc! { "$set": { "tuning": tuning } });
            let mut update = doc! { "$inc": { "revision": 1_i64 } };
            update.extend(how);
            (doc! { "_id": ID, "revision": revision }, update)
        }
        Change::Pause(None) => (
            doc! { "_id": ID, "paused": { "$exists": true } },
            doc! { "$unset": { "paused": "" }, "$inc": { "revision": 1_i64 } },
        ),
    }
}

/// Makes an empty registry; another process may be quicker.
async fn make(database: &Database) -> Result<()> {
    // From a number of its own: a pass that began under a registry which was dropped meanwhile must not take this one
    // for it.
    let first = Uuid::new().bytes()[..6].iter().fold(0, |number: i64, byte| number << 8 | i64::from(*byte));
    let empty = doc! { "_id": ID, "revision": first, "indexes": [] };
    match collection(database).insert_one(empty).await {
        Ok(_) => Ok(()),
        Err(error) if server_code(&error) == Some(DUPLICATE_KEY) => Ok(()),
        // Backends differ in the code: what counts is whether it is there now.
        Err(error) => match load(database).await? {
            Some(_) => Ok(()),
            None => Err(failed("making", database)(error)),
        },
    }
}

async fn is_made(database: &Database, change: &Change) -> Result<bool> {
    let Some(registry) = load(database).await? else { return Ok(false) };
    let entries: Vec<&Document> = registry
        .get_array("indexes")
        .map(|entries| entries.iter().filter_map(Bson::as_document).collect())
        .unwrap_or_default();
    let find = |id: ObjectId| entries.iter().find(|entry| entry.get("id") == Some(&Bson::ObjectId(id)));
    Ok(match change {
        Change::Add(entry) => entry.get_object_id("id").is_ok_and(|id| find(id).is_some()),
        Change::Set { entry, fields, .. } => {
            find(*entry).is_some_and(|found| fields.iter().all(|(name, value)| found.get(name) == Some(value)))
        }
        Change::Rename { entry, to } => {
            find(*entry).is_some_and(|found| found.get("collection") == Some(&Bson::from(to.as_str())))
        }
        Change::Remove { entry } | Change::TakeBack { entry } => find(*entry).is_none(),
        Change::Pause(pause) => registry.get_document("paused").ok() == pause.as_ref(),
        Change::Tune { tuning, .. } => registry.get_document("tuning").ok() == tuning.as_ref(),
    })
}
