//! Documents put into a collection, and read by `_id`.

use std::collections::HashSet;

use futures_util::TryStreamExt;
use mongodb::{
    Collection, Database,
    bson::{Bson, Document, RawDocumentBuf, doc},
    error::ErrorKind,
    options::{CollectionOptions, WriteConcern},
};

use crate::{
    error::{Error, Result},
    namespace::CollectionName,
    store::{Placed, id_bytes},
};

/// The most bytes of a document that MongoDB stores.
const LARGEST: usize = 16 * 1024 * 1024;

pub(super) async fn insert_missing(
    database: &Database,
    collection: &CollectionName,
    documents: Vec<RawDocumentBuf>,
) -> Result<Vec<Placed>> {
    let options = CollectionOptions::builder().write_concern(WriteConcern::majority()).build();
    let into: Collection<RawDocumentBuf> = database.collection_with_options(collection.as_str(), options);
    let fits = |document: &RawDocumentBuf| document.as_bytes().len() <= LARGEST;
    let mut placed: Vec<Placed> = documents
        .iter()
        .map(|document| if fits(document) { Placed::Inserted } else { Placed::Refused("it is above 16 MB".to_owned()) })
        .collect();
    let mut pieces = vec![(0..documents.len()).filter(|at| fits(&documents[*at])).collect::<Vec<_>>()];
    while let Some(piece) = pieces.pop() {
        if piece.is_empty() {
            continue;
        }
        let inserting = into.insert_many(piece.iter().map(|at| &documents[*at])).ordered(false);
        let Err(error) = inserting.await else { continue };
        if let ErrorKind::InsertMany(failed) = error.kind.as_ref()
            && failed.write_concern_error.is_none()
        {
            for failed in failed.write_errors.iter().flatten() {
                placed[piece[failed.index]] = Placed::Refused(failed.message.clone());
            }
            continue;
        }
        let error = Error::backend(format!("inserting into {collection}"))(error);
        match piece[..] {
            // One that the server does not even read, for being nested too deep, say, shall not keep the others out.
            [only] if error.is_lasting() => placed[only] = Placed::Refused(error.in_full()),
            _ if error.is_lasting() => {
                let (first, second) = piece.split_at(piece.len() / 2);
                pieces.extend([second.to_vec(), first.to_vec()]);
            }
            _ => return Err(error),
        }
    }
    mark_taken(&into, collection, &documents, &mut placed).await?;
    Ok(placed)
}

/// Backends differ in the code for an `_id` that is taken, and another unique index gives the same: what counts is what is
/// there.
async fn mark_taken(
    into: &Collection<RawDocumentBuf>,
    collection: &CollectionName,
    documents: &[RawDocumentBuf],
    placed: &mut [Placed],
) -> Result<()> {
    let refused = |placed: &Placed| matches!(placed, Placed::Refused(_));
    let id = |document: &RawDocumentBuf| Bson::try_from(document.get("_id").ok()??).ok();
    let ids: Vec<Bson> =
        documents.iter().zip(&*placed).filter(|(_, placed)| refused(placed)).filter_map(|(it, _)| id(it)).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let failed = || Error::backend(format!("looking for documents in {collection}"));
    let ids_only = into.clone_with_type::<Document>();
    let found = ids_only.find(doc! { "_id": { "$in": ids } }).projection(doc! { "_id": 1 }).await.map_err(failed())?;
    let there: Vec<Document> = found.try_collect().await.map_err(failed())?;
    let there: HashSet<Vec<u8>> = there.iter().filter_map(|it| it.get("_id")).map(id_bytes).collect();
    for (document, placed) in documents.iter().zip(placed) {
        if refused(placed) && id(document).is_some_and(|id| there.contains(&id_bytes(&id))) {
            *placed = Placed::There;
        }
    }
    Ok(())
}

pub(super) async fn fetch(
    database: &Database,
    collection: &CollectionName,
    ids: Vec<Bson>,
) -> Result<Vec<RawDocumentBuf>> {
    let failed = || Error::backend(format!("reading documents of {collection}"));
    let documents = database.collection::<RawDocumentBuf>(collection.as_str());
    let found = documents.find(doc! { "_id": { "$in": ids } }).await.map_err(failed())?;
    found.try_collect().await.map_err(failed())
}
