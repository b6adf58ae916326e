//! `list_indexes`.

use std::{future::IntoFuture, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use mongodb::bson::{DateTime, Document};

use super::{Slot, Snapshot, TtlRegistry};
use crate::{
    entry::{Broken, Entry, IndexState, SupportingIndex},
    error::Result,
    guard::Reference,
};

impl TtlRegistry {
    /// Lists the TTL indexes of the database, in the order of their making.
    pub fn list_indexes(&self) -> ListIndexes<'_> {
        ListIndexes { registry: self, collection: None }
    }
}

/// Lists TTL indexes; see [`TtlRegistry::list_indexes`].
#[derive(Debug)]
#[must_use = "nothing happens until it is awaited"]
pub struct ListIndexes<'a> {
    registry: &'a TtlRegistry,
    collection: Option<String>,
}

impl ListIndexes<'_> {
    /// Only that of this collection; by default all.
    pub fn collection(mut self, collection: impl Into<String>) -> Self {
        self.collection = Some(collection.into());
        self
    }
}

impl<'a> IntoFuture for ListIndexes<'a> {
    type Output = Result<Vec<IndexInfo>>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let snapshot = Snapshot::load(&*self.registry.store).await?;
            let wanted = |slot: &&Slot| self.collection.as_deref().is_none_or(|c| c == slot.collection());
            Ok(snapshot.slots.iter().filter(wanted).map(IndexInfo::of_slot).collect())
        }
        .boxed()
    }
}

/// A TTL index of the database.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct IndexInfo {
    /// The collection.
    pub collection: String,
    /// The name, as in `expireAt_1`.
    pub name: String,
    /// The key document, as in `{expireAt: 1}`.
    pub key: Document,
    /// How long after its date a document expires; none if the stored period cannot be understood.
    pub expire_after: Option<Duration>,
    /// Only documents matching it expire.
    pub partial_filter: Option<Document>,
    /// What keeps documents that are due.
    pub guards: Vec<Reference>,
    /// Within which a document shall be gone that is due; none if that goes by the database's.
    pub target_lag: Option<Duration>,
    /// The most documents a second, if the index has a limit of its own.
    pub max_rate: Option<f64>,
    /// The state.
    pub state: IndexState,
    /// The ordinary index that sweeps walk.
    pub supporting_index: Option<SupportingIndex>,
    /// When it was made, by the database's clock; none if that cannot be understood.
    pub created_at: Option<DateTime>,
    /// Why it is not swept, in state [`NeedsRepair`](IndexState::NeedsRepair); in another state, a warning.
    pub problem: Option<String>,
}

impl IndexInfo {
    pub(super) fn of(entry: &Entry) -> Self {
        let definition = &entry.definition;
        Self {
            collection: definition.collection.to_string(),
            name: definition.name.clone(),
            key: definition.key(),
            expire_after: Some(definition.expire_after.duration()),
            partial_filter: definition.partial_filter.clone(),
            guards: entry.guards.iter().map(|guard| guard.to_document().into()).collect(),
            target_lag: entry.target_lag,
            max_rate: entry.max_rate,
            state: entry.state,
            supporting_index: entry.supporting.clone(),
            created_at: Some(entry.created_at),
            problem: entry.problem.clone(),
        }
    }

    fn of_slot(slot: &Slot) -> Self {
        match slot {
            Slot::Good(entry) => Self::of(entry),
            Slot::Broken(broken) => Self::of_broken(broken),
        }
    }

    fn of_broken(broken: &Broken) -> Self {
        Self {
            collection: broken.collection.clone(),
            name: broken.name.clone(),
            key: broken.key.clone(),
            expire_after: None,
            partial_filter: None,
            guards: Vec::new(),
            target_lag: None,
            max_rate: None,
            state: IndexState::NeedsRepair,
            supporting_index: None,
            created_at: broken.created_at,
            problem: Some(broken.why.clone()),
        }
    }
}
