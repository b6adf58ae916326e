//! An archive in another collection of the same database.

use std::{collections::HashMap, sync::OnceLock};

use mongodb::bson::{Binary, Bson, DateTime, RawDocumentBuf, oid::ObjectId, rawdoc};

use crate::{
    error::{Code, Error, Refusal, Result},
    namespace::CollectionName,
    store::{Placed, Store},
};

/// That the collection is still the one that the pass archives to: what was put there before went with that.
async fn check_identity(store: &dyn Store, into: &CollectionName, meant: &OnceLock<Binary>) -> Result<()> {
    let uuid = store.inspect(into).await?.uuid;
    let meant = uuid.clone().map_or_else(|| meant.get(), |uuid| Some(meant.get_or_init(|| uuid)));
    if uuid.as_ref() == meant {
        return Ok(());
    }
    let why = format!(
        "{into} is not the collection that the pass began to archive to: it was dropped, or another was made or renamed in its \
         place meanwhile, and what the pass had put there may be gone; nothing more is deleted"
    );
    Err(Refusal::new(Code::CollectionUuidMismatch, why).into())
}

/// Puts the documents into the collection so that they last, and says which were not put there, and why.
///
/// Each gets a document of its own with an `_id` of its own, so that none is ever in the way of another: not a version that
/// was archived and not deleted, and not a document that was made anew under an `_id` that had been archived.
pub(super) async fn put(
    store: &dyn Store,
    from: &CollectionName,
    (into, meant): (&CollectionName, &OnceLock<Binary>),
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
    check_identity(store, into, meant).await?;
    // What counts is what can be read there.
    let written = ids.iter().zip(&placed).filter(|(_, placed)| !matches!(placed, Placed::Refused(_)));
    let found = store.fetch(into, written.map(|(id, _)| Bson::ObjectId(*id)).collect()).await?;
    check_identity(store, into, meant).await?;
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
