//! From the entry of the registry to the index that is in force, by whoever began it or by whoever continues.

use mongodb::bson::{Bson, Document, doc};
use tracing::{info, warn};

use super::{IndexInfo, Slot, Snapshot, continuation, repair, supporting};
use crate::{
    entry::{Entry, IndexState},
    error::{Code, Error, Refusal, Result},
    expiry::Rule,
    index::Definition,
    operation::{self, ChangeType},
    store::{Change, Collection, Kind, Store},
};

/// Carries out a creation whose entry was added just now; if it fails it is taken back.
pub(super) async fn carry_out(store: &dyn Store, entry: Entry, plan: supporting::Plan) -> Result<IndexInfo> {
    let mut telling = operation::begin(store, ChangeType::Add, entry.to_document()).await;
    telling.processing(store, documents(store, &entry).await).await;
    let finished = finish(store, entry.clone(), plan).await;
    match &finished {
        Ok(_) => telling.succeeded(store).await,
        Err(error) if undo(store, &entry, error).await => telling.failed(store, error).await,
        Err(error) if was_dropped(error) => telling.cancelled(store, &error.in_full()).await,
        // The entry is still there: the operation ends with whoever finishes it.
        Err(_) => {}
    }
    finished
}

/// Carries on with a creation that was interrupted, or makes good what an index lacks.
///
/// A creation that fails stays to be continued.
pub(super) async fn carry_on(store: &dyn Store, entry: Entry, plan: supporting::Plan) -> Result<IndexInfo> {
    let creating = entry.state == IndexState::Creating;
    let mut telling = operation::begin(store, ChangeType::Add, entry.to_document()).await;
    telling.processing(store, documents(store, &entry).await).await;
    let finished = finish(store, entry, plan).await;
    match &finished {
        Ok(_) => telling.succeeded(store).await,
        Err(error) if was_dropped(error) => telling.cancelled(store, &error.in_full()).await,
        Err(error) if !creating => telling.failed(store, error).await,
        Err(_) => {}
    }
    finished
}

/// Finishes a creation whose process is gone.
///
/// If it cannot be finished before somebody mends something the index needs repair from then on. It is an error as well.
pub(crate) async fn continue_creation(store: &dyn Store, entry: &Entry) -> Result<IndexInfo> {
    let continued = async {
        // A build would make the old name anew, empty, and take that for the collection that is meant.
        let entry = repair::followed(store, entry).await?;
        let (as_it_is, plan) = what_is_left(store, &entry).await?;
        // Only who asks for the index on this collection can mean another collection of that name.
        entry.check_identity(as_it_is.uuid.as_ref())?;
        carry_on(store, as_it_is, plan).await
    };
    let continued = continued.await;
    if let Err(error) = &continued
        && error.is_lasting()
        && !was_dropped(error)
        && let Err(unmarked) = give_up(store, entry, error).await
    {
        warn!(collection = %entry.definition.collection, error = %unmarked, "that a creation failed could not be noted");
    }
    continued
}

/// Notes that a creation cannot be finished, if nobody has finished it meanwhile.
async fn give_up(store: &dyn Store, entry: &Entry, why: &Error) -> Result<()> {
    let snapshot = Snapshot::load(store).await?;
    let (Some(Slot::Good(now)), Some(revision)) = (snapshot.by_id(entry.id), snapshot.revision) else {
        return Ok(());
    };
    let needs_repair = IndexState::NeedsRepair;
    if now.state == IndexState::Creating
        && repair::mark(store, now, revision, needs_repair, Some(&why.in_full())).await?.is_some()
    {
        operation::begin(store, ChangeType::Add, now.to_document()).await.failed(store, why).await;
    }
    Ok(())
}

/// The entry as it must become for the collection as it is now, and what is to be built for that.
pub(super) async fn what_is_left(store: &dyn Store, entry: &Entry) -> Result<(Entry, supporting::Plan)> {
    let collection = store.inspect(&entry.definition.collection).await?;
    check_collection(&entry.definition, &entry.rule, &collection)?;
    // In a collection that was made anew nothing was made for the TTL index.
    let same_collection = entry.check_identity(collection.uuid.as_ref()).is_ok();
    let noted = entry.supporting.as_ref().filter(|_| same_collection);
    let plan = supporting::plan(&entry.definition, noted, &collection)?;
    let mut entry = entry.clone();
    entry.supporting = plan.noted();
    entry.uuid = collection.uuid;
    Ok((entry, plan))
}

/// How many documents there are; that it cannot be said is no failure.
async fn documents(store: &dyn Store, entry: &Entry) -> Option<u64> {
    store.estimated_count(&entry.definition.collection).await.ok().flatten()
}

/// Builds what is to be built and notes that the index is active.
async fn finish(store: &dyn Store, mut entry: Entry, plan: supporting::Plan) -> Result<IndexInfo> {
    let collection = entry.definition.collection.clone();
    if let supporting::Plan::Build(index) = plan {
        store.build_index(&collection, index).await?;
        // Building may have made the collection, and with it its identity.
        entry.uuid = store.inspect(&collection).await?.uuid;
    }
    let mut fields: Document = doc! { "supportingIndex": entry.supporting_document() };
    if entry.state == IndexState::NeedsRepair {
        // Nothing was deleted by the rule until now.
        entry.rule_since = store.now().await?;
        fields.insert("ruleSince", entry.rule_since);
    }
    if entry.problem.take().is_some() {
        fields.insert("problem", Bson::Null);
    }
    entry.state = IndexState::Active;
    fields.insert("state", entry.state.as_str());
    fields.extend(entry.uuid.clone().map(|uuid| ("collectionUUID".to_owned(), uuid.into())));
    if store.change_registry(Change::Set { entry: entry.id, fields, revision: None }).await?.is_none() {
        // Unless another TTL index walks it by now.
        continuation::let_go(store, &entry).await?;
        return Err(Refusal::new(
            Code::IndexNotFound,
            format!("the TTL index {} of {collection} was dropped while it was being made", entry.definition.name),
        )
        .into());
    }
    info!(%collection, index = entry.definition.name, "TTL index active");
    Ok(IndexInfo::of(&entry))
}

/// Whether this is what [`finish`] says when the entry is gone.
fn was_dropped(error: &Error) -> bool {
    error.refusal().is_some_and(|refusal| refusal.code() == Code::IndexNotFound)
}

/// Takes a failed creation back, first the entry and then the supporting index, and says whether it did.
///
/// The index only if the entry is gone: somebody else may have finished the creation, and walk it. If the index cannot be
/// dropped the operation stays under way, and whoever continues it drops the index.
async fn undo(store: &dyn Store, entry: &Entry, after: &Error) -> bool {
    let conflicts = [Code::IndexOptionsConflict, Code::IndexKeySpecsConflict].map(|code| Some(code.number()));
    let undone = async {
        // Unless an identical creation finished it meanwhile.
        let taken_back = store.change_registry(Change::TakeBack { entry: entry.id }).await?.is_some();
        // An index that stood in the way is somebody else's.
        let ours = !conflicts.contains(&after.code());
        if ours && (taken_back || Snapshot::load(store).await?.by_id(entry.id).is_none()) {
            continuation::let_go(store, entry).await?;
        }
        Ok::<_, Error>(taken_back)
    };
    match undone.await {
        Ok(taken_back) => taken_back,
        Err(error) => {
            warn!(collection = %entry.definition.collection, %error, "a failed creation could not be taken back");
            false
        }
    }
}

/// Refuses a collection that cannot have a TTL index, or not this one.
pub(super) fn check_collection(definition: &Definition, rule: &Rule, collection: &Collection) -> Result<(), Refusal> {
    collection.kind.check(&definition.collection)?;
    if let Some(native) = collection.indexes.iter().find(|index| index.native_ttl) {
        return Err(Refusal::new(
            Code::IndexOptionsConflict,
            format!(
                "{} has the database's own TTL index {} already, which deletes by its own rule; drop that one first",
                definition.collection, native.name
            ),
        ));
    }
    rule.check_collation(collection.default_collation)?;
    debug_assert!(matches!(collection.kind, Kind::Missing | Kind::Ordinary));
    Ok(())
}
