//! This library's own records besides the registry.

use mongodb::bson::Document;

use super::tables::{Tables, Writing};
use crate::{
    error::Result,
    store::{Guard, Records},
};

/// Where a record stands among the others of the store's own.
fn key(kind: Records, id: &str) -> String {
    format!("{}/{id}", kind.collection())
}

pub(super) fn get(tables: &Tables, kind: Records, id: &str) -> Result<Option<Document>> {
    tables.own(&key(kind, id))
}

pub(super) fn all(tables: &Tables, kind: Records) -> Result<Vec<Document>> {
    tables.own_with_prefix(&key(kind, ""))
}

/// In a transaction: nothing comes between the guard and the setting.
pub(super) fn set(
    writing: &mut Writing,
    kind: Records,
    id: &str,
    guard: &Guard,
    fields: Document,
) -> Result<Option<Document>> {
    let key = key(kind, id);
    let mut record = match (guard, writing.own(&key)?) {
        (Guard::Missing, None) => [("_id".to_owned(), id.into())].into_iter().collect::<Document>(),
        (Guard::Has(guard), Some(record)) if guard.iter().all(|(field, value)| record.get(field) == Some(value)) => {
            record
        }
        _ => return Ok(None),
    };
    record.extend(fields);
    writing.put_own(&key, Some(&record))?;
    Ok(Some(record))
}

pub(super) fn remove(writing: &mut Writing, kind: Records, id: &str) -> Result<()> {
    writing.put_own(&key(kind, id), None)
}
