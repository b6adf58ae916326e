//! `repair`: an index that needs it, made good.

use std::future::IntoFuture;

use futures_util::{FutureExt, future::BoxFuture};
use mongodb::bson::doc;
use tracing::warn;

use super::{IndexInfo, Slot, Snapshot, TtlRegistry, continuation, creation, no_index};
use crate::{
    entry::{Entry, IndexState},
    error::{Code, Refusal, Result},
    namespace::CollectionName,
    store::{Change, Store},
};

impl TtlRegistry {
    /// Makes good what the TTL index of a collection lacks, so that it is `ACTIVE` again.
    ///
    /// Looks at the collection as it is now: rebuilds the supporting index if it is gone, takes a collection that was
    /// dropped and made again under the name for the one that is meant, follows one that was renamed, and clears the problem. From then on documents
    /// expire by the rule; what has expired already is deleted from the next sweep on.
    ///
    /// # Guarantees
    ///
    /// Nothing is swept by the index before it is `ACTIVE`. An index that lacks nothing stays as it is. How it goes is told
    /// by an [operation](TtlRegistry::operations).
    ///
    /// # Errors
    ///
    /// Refused, and nothing is changed, if the collection has no TTL index; if its entry cannot be understood, with what to
    /// do; and for what [`create_index`](TtlRegistry::create_index) refuses of a collection: a view, or a native TTL index
    /// on it, say. If the supporting index cannot be built the index needs repair as before.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ttl_index::Error> {
    /// use std::time::Duration;
    /// use ttl_index::{EmbeddedStore, IndexState, TtlIndex, TtlRegistry};
    ///
    /// let ttl = TtlRegistry::open(EmbeddedStore::in_memory()?).await?;
    /// ttl.create_index("sessions", TtlIndex::on("expireAt").expire_after(Duration::ZERO)).await?;
    /// assert_eq!(ttl.repair("sessions").await?.state, IndexState::Active);
    /// # Ok(())
    /// # }
    /// ```
    pub fn repair(&self, collection: impl Into<String>) -> Repair<'_> {
        Repair { registry: self, collection: collection.into() }
    }
}

/// Repairs a TTL index; see [`TtlRegistry::repair`].
#[derive(Debug)]
#[must_use = "nothing happens until it is awaited"]
pub struct Repair<'a> {
    registry: &'a TtlRegistry,
    collection: String,
}

impl<'a> IntoFuture for Repair<'a> {
    type Output = Result<IndexInfo>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let collection = CollectionName::parse(&self.collection)?;
            let store = &*self.registry.store;
            match Snapshot::load(store).await?.find(&collection) {
                Some(Slot::Good(entry)) => {
                    let entry = followed(store, entry).await?;
                    let (as_it_is, plan) = creation::what_is_left(store, &entry).await?;
                    creation::carry_on(store, as_it_is, plan).await
                }
                Some(Slot::Broken(broken)) => Err(broken.refusal().into()),
                None => {
                    continuation::finish_drops(store, &collection).await;
                    Err(no_index(&collection).into())
                }
            }
        }
        .boxed()
    }
}

/// The entry under the name that its collection has now, if there is none any more under the one that it had.
pub(super) async fn followed(store: &dyn Store, entry: &Entry) -> Result<Entry> {
    let (mut entry, collections) = (entry.clone(), store.collections().await?);
    if entry.uuid.is_none() || collections.contains_key(entry.definition.collection.as_str()) {
        return Ok(entry);
    }
    let Some((name, _)) = collections.iter().find(|(_, collection)| collection.uuid == entry.uuid) else {
        return Ok(entry);
    };
    let to = CollectionName::parse(name)?;
    if store.change_registry(Change::Rename { entry: entry.id, to: to.clone() }).await?.is_none() {
        let message = format!("{} was renamed to {to}, which has a TTL index of its own", entry.definition.collection);
        return Err(Refusal::new(Code::IndexOptionsConflict, message).into());
    }
    entry.definition.collection = to;
    Ok(entry)
}

/// Notes the state of an index and what is wrong with it, if the registry is still at this revision; returns the one from
/// then on.
pub(crate) async fn mark(
    store: &dyn Store,
    entry: &Entry,
    revision: i64,
    state: IndexState,
    problem: Option<&str>,
) -> Result<Option<i64>> {
    if entry.state == state && entry.problem.as_deref() == problem {
        return Ok(Some(revision));
    }
    let fields = doc! { "state": state.as_str(), "problem": problem };
    let change = Change::Set { entry: entry.id, fields, revision: Some(revision) };
    let marked = store.change_registry(change).await?;
    if let Some(problem) = problem.filter(|_| marked.is_some()) {
        warn!(collection = %entry.definition.collection, state = state.as_str(), problem, "TTL index");
    }
    Ok(marked)
}
