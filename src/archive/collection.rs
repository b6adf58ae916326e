//! An archive in another collection of the same database.

use std::collections::HashMap;

use mongodb::bson::{Bson, DateTime, RawDocumentBuf, oid::ObjectId, rawdoc};

use crate::{
    error::{Error, Result},
    namespace::CollectionName,
    store::{Placed, Store},
};

/// Puts the documents into the collection so that they last, and says which were not put there, and why.
///
/// Each gets a document of its own with an `_id` of its own, so that none is ever in the way of another: not a version that
/// was archived and not deleted, and not a document that was made anew under an `_id` that had been archived.
pub(super) async fn put(
    store: &dyn Store,
    from: &CollectionName,
    into: &CollectionName,
    documents: &[RawDocumentBuf],
    at: DateTime,
) -> Result<Vec<(usize, String)>> {
    let wrap = |document: &RawDocumentBuf| {
        let id = ObjectId::new();
        (id, rawdoc! { "_id": id, "archivedAt": at, "from": from.as_str(), "document": document.clone() })
    };
    let (ids, wrapped): (Vec<ObjectId>, Vec<RawDocumentBuf>) = documents.iter().map(wrap).unzip();
    let placed = store.insert_missing(into, wrapped.clone()).await?;
    if placed.len() != documents.len() {
        return Err(Error::Unreadable(format!("{into} took {} documents of {}", placed.len(), documents.len())));
    }
    // What counts is what can be read there.
    let written = ids.iter().zip(&placed).filter(|(_, placed)| !matches!(placed, Placed::Refused(_)));
    let found = store.fetch(into, written.map(|(id, _)| Bson::ObjectId(*id)).collect()).await?;
    let found: HashMap<ObjectId, &RawDocumentBuf> =
        found.iter().filter_map(|document| Some((document.get_object_id("_id").ok()?, document))).collect();
    let unwritten = (0..).zip(placed).zip(ids.iter().zip(&wrapped)).filter_map(|((at, placed), (id, wrapped))| {
        let why = match (placed, found.get(id)) {
            (Placed::Refused(why), _) => format!("{into} does not take it: {why}"),
            (_, Some(found)) if found.as_bytes() == wrapped.as_bytes() => return None,
            _ => format!("it is not in {into} as it was written"),
        };
        Some((at, why))
    });
    Ok(unwritten.collect())
}
