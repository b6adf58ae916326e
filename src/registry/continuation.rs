//! What processes that are gone have left: drops that were begun, and operations that nobody has ended.

use std::time::Duration;

use mongodb::bson::{DateTime, doc};
use tracing::{info, warn};

use super::{Slot, Snapshot, drop::drop_supporting};
use crate::{
    entry::{Entry, IndexState},
    error::{Error, Result},
    namespace::CollectionName,
    operation::{self, ChangeType, Operation, Running},
    store::{Change, Store},
};

/// After so long an index of the name and shape that an operation noted is not taken for the one that it was: its process
/// may have dropped that one, and the user may have made another.
const TOO_OLD: Duration = Duration::from_secs(3600);

/// How old an operation is before whoever began it is taken for gone.
const GONE_AFTER: Duration = Duration::from_secs(60);

#[cfg(feature = "test-util")]
impl super::TtlRegistry {
    /// Finishes what processes that are gone have left, as a sweeper does. For tests; unstable.
    #[doc(hidden)]
    pub async fn continue_interrupted(&self) -> Result<()> {
        for slot in &Snapshot::load(&*self.store).await?.slots {
            if let Slot::Good(entry) = slot
                && entry.state == IndexState::Creating
            {
                super::continue_creation(&*self.store, entry).await?;
            }
        }
        continue_operations(&*self.store).await.map(drop)
    }
}

/// Ends the operations that were left by processes that are gone, and finishes their drops. Says whether any were under way.
///
/// Creations are left to [`continue_creation`](super::continue_creation), which ends their operations as well. One that
/// cannot be ended does not keep the others.
pub(crate) async fn continue_operations(store: &dyn Store) -> Result<bool> {
    let mut unfinished = operation::all(store).await?;
    unfinished.retain(|operation| !operation.done());
    if unfinished.is_empty() {
        return Ok(false);
    }
    let now = store.now().await?;
    for operation in unfinished.iter().filter(|operation| age(operation, now) >= GONE_AFTER) {
        if let Err(error) = continue_one(store, operation).await {
            warn!(id = operation.id, error = error.in_full(), "an operation that was left could not be ended");
        }
    }
    Ok(true)
}

/// Whatever the end, the registry was read after the operation.
async fn continue_one(store: &dyn Store, operation: &Operation) -> Result<()> {
    let Some(id) = operation.entry_id() else { return Ok(()) };
    let snapshot = Snapshot::load(store).await?;
    let telling = Running::taken_over(operation.clone());
    match (operation.change_type, snapshot.by_id(id)) {
        (_, None) => return clear_away(store, operation).await,
        (ChangeType::Remove, Some(_)) => {
            telling.cancelled(store, "the process that began the drop was gone before it dropped anything").await;
        }
        (ChangeType::Add, Some(Slot::Good(entry))) => match entry.state {
            IndexState::Active => telling.succeeded(store).await,
            // A repair that was interrupted goes on with the next one.
            IndexState::NeedsRepair if operation.id == id.to_hex() => {
                if let Err(why) = entry.check_state() {
                    telling.failed(store, &why.into()).await;
                }
            }
            IndexState::Creating | IndexState::NeedsRepair => {}
        },
        (ChangeType::Add, Some(Slot::Broken(_))) => {}
    }
    Ok(())
}

/// Ends an operation whose entry is gone, dropped or taken back: so is the supporting index after this.
async fn clear_away(store: &dyn Store, operation: &Operation) -> Result<()> {
    let gone = match operation.entry_id() {
        Some(id) => Snapshot::load(store).await?.by_id(id).is_none(),
        None => false,
    };
    if !gone {
        return Ok(());
    }
    let_go_of_noted(store, operation).await?;
    let telling = Running::taken_over(operation.clone());
    match operation.change_type {
        ChangeType::Remove => {
            info!(
                collection = operation.collection,
                index = operation.index,
                "a drop that was interrupted is finished"
            );
            telling.succeeded(store).await;
        }
        ChangeType::Add => telling.cancelled(store, "the TTL index was dropped while it was being made").await,
    }
    Ok(())
}

/// Clears away what interrupted drops and creations have left on a collection. That it could not be done is no failure of who comes after.
pub(super) async fn finish_drops(store: &dyn Store, collection: &CollectionName) {
    let finished = async {
        let left = |it: &&Operation| !it.done() && it.collection == collection.as_str();
        for operation in operation::all(store).await?.iter().filter(left) {
            clear_away(store, operation).await?;
        }
        Ok::<_, Error>(())
    };
    if let Err(error) = finished.await {
        warn!(%collection, error = error.in_full(), "whether a drop was interrupted could not be found out");
    }
}

/// Ends the operation of a creation whose process was gone when everything but this was done.
pub(super) async fn finish_telling(store: &dyn Store, entry: &Entry) {
    let told = async {
        let left = |it: &&Operation| it.change_type == ChangeType::Add && !it.done() && it.entry_id() == Some(entry.id);
        for operation in operation::all(store).await?.iter().filter(left) {
            Running::taken_over(operation.clone()).succeeded(store).await;
        }
        Ok::<_, Error>(())
    };
    if let Err(error) = told.await {
        warn!(collection = %entry.definition.collection, error = error.in_full(), "an operation could not be ended");
    }
}

/// Lets go of the supporting index that an operation notes, in the collection that it notes.
async fn let_go_of_noted(store: &dyn Store, operation: &Operation) -> Result<()> {
    if age(operation, store.now().await?) > TOO_OLD {
        let (collection, index) = (&operation.collection, &operation.index);
        warn!(
            collection,
            index, "the supporting index of an operation that was left long ago stays: it may be another's by now"
        );
        return Ok(());
    }
    // Of an entry that was not understood nothing was built that is known of.
    let Ok(entry) = Entry::parse(&operation.entry) else { return Ok(()) };
    let seen = store.inspect(&entry.definition.collection).await?;
    // By now the collection may be another one.
    if entry.uuid.is_none() && seen.uuid.is_some() {
        return Ok(());
    }
    let_go(store, &entry).await
}

/// Drops the supporting index of an entry that is gone, or hands it over to the TTL index that walks it by now.
pub(super) async fn let_go(store: &dyn Store, entry: &Entry) -> Result<()> {
    let Some(index) = entry.supporting.as_ref().filter(|index| index.created) else { return Ok(()) };
    loop {
        let snapshot = Snapshot::load(store).await?;
        let next = match snapshot.find(&entry.definition.collection) {
            None => return drop_supporting(store, entry).await,
            // It may walk the index.
            Some(Slot::Broken(_)) => return Ok(()),
            Some(Slot::Good(next)) => next,
        };
        let walked = next.supporting.as_ref().filter(|walked| walked.name == index.name);
        if walked.is_none() {
            return drop_supporting(store, entry).await;
        }
        if walked.is_some_and(|walked| walked.created) || next.uuid != entry.uuid {
            return Ok(());
        }
        let mut next = (**next).clone();
        next.supporting = Some(index.clone());
        let fields = doc! { "supportingIndex": next.supporting_document() };
        let change = Change::Set { entry: next.id, fields, revision: snapshot.revision };
        if store.change_registry(change).await?.is_some() {
            return Ok(());
        }
    }
}

fn age(operation: &Operation, now: DateTime) -> Duration {
    let millis = now.timestamp_millis().saturating_sub(operation.start_time.timestamp_millis());
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}
