//! The registry, read whole and understood.

use std::collections::HashMap;

use mongodb::bson::{Bson, Document, oid::ObjectId};

use super::{Pause, Tuning, tune::TUNING};
use crate::{
    entry::{Broken, Entry},
    error::{Code, Error, Refusal, Result},
    namespace::CollectionName,
    store::Store,
};

/// The registry at one revision.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) revision: Option<i64>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) paused: Option<Pause>,
    /// What is stored of the pace.
    pub(crate) tuning: Tuning,
}

/// An entry, understood or not.
#[derive(Debug)]
pub(crate) enum Slot {
    Good(Box<Entry>),
    Broken(Box<Broken>),
}

impl Snapshot {
    pub(crate) async fn load(store: &dyn Store) -> Result<Self> {
        Self::of(store.registry().await?.as_ref())
    }

    /// Understands the registry document.
    pub(super) fn of(document: Option<&Document>) -> Result<Self> {
        // No registry means no rules, whatever was there before.
        let Some(document) = document else { return Ok(Self::default()) };
        let unreadable = |what: &str| {
            Error::Unreadable(format!(
                "the registry of TTL indexes has no readable {what}; nothing is swept until it is mended by hand"
            ))
        };
        let revision = match document.get("revision") {
            Some(Bson::Int64(revision)) => *revision,
            Some(Bson::Int32(revision)) => i64::from(*revision),
            _ => return Err(unreadable("revision")),
        };
        let entries = document.get_array("indexes").map_err(|_| unreadable("list of indexes"))?;
        let slot = |entry: &Bson| match Entry::parse(entry.as_document().unwrap_or(&Document::new())) {
            Ok(entry) => Slot::Good(Box::new(entry)),
            Err(broken) => Slot::Broken(broken),
        };
        let paused = document.get("paused").and_then(Pause::parse);
        let tuning = document.get(TUNING).map(Tuning::parse).unwrap_or_default();
        let slots = entries.iter().map(slot).collect();
        Ok(Self { revision: Some(revision), slots: without_ambiguity(slots), paused, tuning })
    }

    /// The entry of a collection, if it can be swept by.
    pub(crate) fn entry(&self, collection: &CollectionName) -> Result<&Entry, Refusal> {
        let entry = self.understood(collection)?;
        entry.check_state().map(|()| entry)
    }

    /// The entry of a collection, if it can be understood, in whatever state.
    pub(super) fn understood(&self, collection: &CollectionName) -> Result<&Entry, Refusal> {
        match self.find(collection) {
            Some(Slot::Good(entry)) => Ok(entry),
            Some(Slot::Broken(broken)) => Err(broken.refusal()),
            None => Err(super::no_index(collection)),
        }
    }

    /// The entry with this identity.
    pub(crate) fn by_id(&self, id: ObjectId) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.id() == Some(id))
    }

    pub(crate) fn find(&self, collection: &CollectionName) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.collection() == collection.as_str())
    }
}

/// Two entries of one collection, or with one identity, as an edit by hand can leave them: which is meant is not guessed.
fn without_ambiguity(slots: Vec<Slot>) -> Vec<Slot> {
    let (mut collections, mut ids) = (HashMap::new(), HashMap::new());
    for slot in &slots {
        *collections.entry(slot.collection().to_owned()).or_insert(0) += 1;
        *ids.entry(slot.id()).or_insert(0) += 1;
    }
    let several = |slot: Slot| {
        // A change goes by the identity and would hit both.
        let shared_id = slot.id().is_some() && ids[&slot.id()] > 1;
        let why = match (shared_id, collections[slot.collection()] > 1) {
            (true, _) => "another entry has the same identity; mend the registry by hand",
            (false, true) => "another entry is for the same collection",
            (false, false) => return slot,
        };
        let id = slot.id().filter(|_| !shared_id);
        Slot::Broken(Box::new(match slot {
            Slot::Good(entry) => {
                let Entry { definition, created_at, .. } = *entry;
                let (collection, key) = (definition.collection.to_string(), definition.key());
                Broken { id, collection, name: definition.name, key, created_at: Some(created_at), why: why.to_owned() }
            }
            Slot::Broken(broken) => Broken { id, ..*broken },
        }))
    };
    slots.into_iter().map(several).collect()
}

impl Slot {
    fn id(&self) -> Option<ObjectId> {
        match self {
            Slot::Good(entry) => Some(entry.id),
            Slot::Broken(broken) => broken.id,
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Slot::Good(entry) => &entry.definition.name,
            Slot::Broken(broken) => &broken.name,
        }
    }

    /// The entry as it is stored, or what is known of it.
    pub(super) fn to_document(&self) -> Document {
        match self {
            Slot::Good(entry) => entry.to_document(),
            Slot::Broken(broken) => broken.to_document(),
        }
    }

    pub(crate) fn collection(&self) -> &str {
        match self {
            Slot::Good(entry) => entry.definition.collection.as_str(),
            Slot::Broken(broken) => &broken.collection,
        }
    }
}

impl Broken {
    /// Why nothing is done with the entry, and what to do.
    pub(crate) fn refusal(&self) -> Refusal {
        Refusal::new(
            Code::InvalidOptions,
            format!(
                "the TTL index {} of {} cannot be understood and deletes nothing: {}; modify its period, or drop it. \
                 Guards that cannot be understood are set anew, and so are a target lag and a rate, by tune",
                self.name, self.collection, self.why
            ),
        )
    }
}
