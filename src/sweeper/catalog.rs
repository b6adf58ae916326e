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

/// Collections are listed once a minute at most.
const LIST_COLLECTIONS: Duration = Duration::from_secs(60);

/// The indexes of a collection are listed so often if nothing seems to be wrong with them.
const LIST_INDEXES: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, Default)]
pub(super) struct Catalog {
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
    /// Lists the collections, unless that was done within the last minute, and says whether it did.
    pub(super) async fn refresh(&mut self, store: &dyn Store) -> Result<bool> {
        if self.listed.is_some_and(|at| at.elapsed() < LIST_COLLECTIONS) {
            return Ok(false);
        }
        self.collections = store.collections().await?;
        self.listed = Some(Instant::now());
        Ok(true)
    }

    /// Forgets what belongs to other indexes than these.
    pub(super) fn keep(&mut self, ids: &HashSet<ObjectId>) {
        self.indexes.retain(|id, _| ids.contains(id));
    }

    pub(super) fn collections(&self) -> &HashMap<String, Collection> {
        &self.collections
    }

    /// Has the indexes of this one listed anew.
    pub(super) fn doubt(&mut self, id: ObjectId) {
        self.indexes.remove(&id);
    }

    /// The collection of an entry as it was listed. One that was made since then is taken for what the entry says of it.
    pub(super) async fn of(&mut self, store: &dyn Store, entry: &Entry) -> Result<Collection> {
        let mut seen = match self.collections.get(entry.definition.collection.as_str()) {
            Some(seen) => seen.clone(),
            None if entry.uuid.is_none() => return Ok(Collection::default()),
            None => Collection { kind: Kind::Ordinary, uuid: entry.uuid.clone(), ..Collection::default() },
        };
        let usable = |listing: &&Listing| listing.at.elapsed() < LIST_INDEXES && listing.state == entry.state;
        if let Some(listing) = self.indexes.get(&entry.id).filter(usable) {
            seen.indexes.clone_from(&listing.indexes);
        } else {
            let at = Instant::now();
            seen.indexes = store.indexes(&entry.definition.collection).await?;
            self.indexes.insert(entry.id, Listing { at, state: entry.state, indexes: seen.indexes.clone() });
        }
        Ok(seen)
    }

    /// Whether the collection was there when the collections were listed.
    pub(super) fn lists(&self, entry: &Entry) -> bool {
        self.collections.contains_key(entry.definition.collection.as_str())
    }
}
