//! The collections and their indexes, as they were listed not long ago: listing them costs more than a visit.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use mongodb::bson::oid::ObjectId;
use tokio::time::Instant;

use crate::{
    entry::{Entry, IndexState},
    error::Result,
    store::{Collection, Kind, PhysicalIndex, Store},
};

/// Collections are listed as often as indexes are visited, but once a minute at most.
const LIST_COLLECTIONS: Duration = Duration::from_secs(60);

/// The indexes of a collection are listed once in so many times, if nothing seems to be wrong with them.
const LIST_INDEXES: u32 = 15;

#[derive(Debug)]
pub(super) struct Catalog {
    period: Duration,
    listed: Option<Instant>,
    collections: HashMap<String, Collection>,
    indexes: HashMap<ObjectId, Listing>,
}

#[derive(Debug)]
struct Listing {
    at: Instant,
    /// How the entry stood then: with it the indexes change.
    state: IndexState,
    indexes: Vec<PhysicalIndex>,
}

impl Catalog {
    /// For indexes that are visited so often.
    pub(super) fn new(interval: Duration) -> Self {
        let period = interval.min(LIST_COLLECTIONS);
        Self { period, listed: None, collections: HashMap::new(), indexes: HashMap::new() }
    }

    /// Lists the collections, unless that was done a short while ago, and says whether it did.
    pub(super) async fn refresh(&mut self, store: &dyn Store) -> Result<bool> {
        let recent = self.listed.is_some_and(|at| at.elapsed() < self.period);
        if !recent {
            self.list(store).await?;
        }
        Ok(!recent)
    }

    pub(super) async fn list(&mut self, store: &dyn Store) -> Result<()> {
        self.collections = store.collections().await?;
        self.listed = Some(Instant::now());
        Ok(())
    }

    /// Has the collections listed anew.
    pub(super) fn forget(&mut self) {
        self.listed = None;
    }

    /// Forgets what belongs to other indexes than these.
    pub(super) fn keep(&mut self, ids: &HashSet<ObjectId>) {
        self.indexes.retain(|id, _| ids.contains(id));
    }

    pub(super) fn collections(&self) -> &HashMap<String, Collection> {
        &self.collections
    }

    /// The indexes of this one, if they were listed.
    pub(super) fn listed(&self, id: ObjectId) -> Option<&[PhysicalIndex]> {
        self.indexes.get(&id).map(|listing| &*listing.indexes)
    }

    /// Has the indexes of this one listed anew.
    pub(super) fn doubt(&mut self, id: ObjectId) {
        self.indexes.remove(&id);
    }

    /// The collection of an entry as it was listed. One that was made since then is taken for what the entry says of it.
    pub(super) async fn of(&mut self, store: &dyn Store, entry: &Entry) -> Result<Collection> {
        let listed = self.collections.get(entry.definition.collection.as_str());
        let mut seen = match listed {
            Some(seen) => seen.clone(),
            None if entry.uuid.is_none() => return Ok(Collection::default()),
            None => Collection { kind: Kind::Ordinary, uuid: entry.uuid.clone(), ..Collection::default() },
        };
        let age = self.period * LIST_INDEXES;
        let usable = |listing: &&Listing| listing.at.elapsed() < age && listing.state == entry.state;
        if let Some(listing) = self.indexes.get(&entry.id).filter(usable) {
            seen.indexes.clone_from(&listing.indexes);
        } else {
            let at = Instant::now();
            seen.indexes = store.indexes(&entry.definition.collection).await?;
            self.indexes.insert(entry.id, Listing { at, state: entry.state, indexes: seen.indexes.clone() });
        }
        // A collection has at least the index on `_id`.
        let gone = listed.is_none() && seen.indexes.is_empty();
        Ok(if gone { Collection::default() } else { seen })
    }
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    use super::*;
    use crate::store::{embedded::EmbeddedStore, sealed::Sealed};

    #[tokio::test(start_paused = true)]
    async fn collections_are_listed_once_a_minute_at_most() {
        let store = EmbeddedStore::in_memory().unwrap().into_store().0;
        for (interval, period) in [(1, 1), (60, 60), (3600, 60)] {
            let mut catalog = Catalog::new(Duration::from_secs(interval));
            for _ in 0..3 {
                assert!(catalog.refresh(&*store).await.unwrap());
                tokio::time::advance(Duration::from_millis(1000 * period - 1)).await;
                assert!(!catalog.refresh(&*store).await.unwrap());
                tokio::time::advance(Duration::from_millis(1)).await;
            }
        }
    }
}
