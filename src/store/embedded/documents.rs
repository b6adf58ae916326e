//! Documents put into a collection, and read by `_id`, by the library itself.

use mongodb::bson::{Bson, RawDocumentBuf};

use super::{
    keys::id_key,
    tables::{Tables, Writing},
};
use crate::{error::Result, store::Placed};

pub(super) fn insert_missing(
    writing: &mut Writing,
    collection: &str,
    documents: &[RawDocumentBuf],
) -> Result<Vec<Placed>> {
    let insert = |document: &RawDocumentBuf| {
        let id = document.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok());
        let key = match id.map(|id| id_key(&id)) {
            Some(Ok(key)) => key,
            Some(Err(refusal)) => return Ok(Placed::Refused(refusal.to_string())),
            None => return Ok(Placed::Refused("it has no readable _id".to_owned())),
        };
        if writing.get(collection, &key)?.is_some() {
            return Ok(Placed::There);
        }
        writing.put(collection, &key, Some(document))?;
        Ok(Placed::Inserted)
    };
    documents.iter().map(insert).collect()
}

pub(super) fn fetch(tables: &Tables, collection: &str, ids: &[Bson]) -> Result<Vec<RawDocumentBuf>> {
    let keys = ids.iter().map(id_key).collect::<Result<Vec<_>, _>>()?;
    keys.iter().filter_map(|key| tables.get(collection, key).transpose()).collect()
}
