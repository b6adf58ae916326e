//! The registry, read whole and understood.

use mongodb::bson::Bson;

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
}

/// An entry, understood or not.
#[derive(Debug)]
pub(crate) enum Slot {
    Good(Box<Entry>),
    Broken(Box<Broken>),
}

impl Snapshot {
    pub(crate) async fn load(store: &dyn Store) -> Result<Self> {
        // No registry means no rules, whatever was there before.
        let Some(document) = store.registry().await? else { return Ok(Self::default()) };
        let unreadable = |what: &str| {
            Error::Unreadable(format!("the registry of TTL indexes has no readable {what}; nothing is swept"))
        };
        let revision = match document.get("revision") {
            Some(Bson::Int64(revision)) => *revision,
            Some(Bson::Int32(revision)) => i64::from(*revision),
            _ => return Err(unreadable("revision")),
        };
        let entries = document.get_array("indexes").map_err(|_| unreadable("list of indexes"))?;
        let slot = |entry: &Bson| match entry.as_document().map(Entry::parse) {
            Some(Ok(entry)) => Ok(Slot::Good(Box::new(entry))),
            Some(Err(broken)) => Ok(Slot::Broken(broken)),
            None => Err(unreadable("entry")),
        };
        Ok(Self { revision: Some(revision), slots: entries.iter().map(slot).collect::<Result<_>>()? })
    }

    /// The entry of a collection, if it can be swept by.
    pub(crate) fn entry(&self, collection: &CollectionName) -> Result<&Entry, Refusal> {
        match self.find(collection) {
            Some(Slot::Good(entry)) => Ok(entry),
            Some(Slot::Broken(broken)) => Err(broken.refusal()),
            None => Err(super::no_index(collection)),
        }
    }

    pub(crate) fn find(&self, collection: &CollectionName) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.collection() == collection.as_str())
    }
}

impl Slot {
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
                "the TTL index {} of {} cannot be understood and deletes nothing: {}; modify its period, or drop it",
                self.name, self.collection, self.why
            ),
        )
    }
}
