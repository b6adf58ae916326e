//! `drop_index`.

use std::{future::IntoFuture, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use mongodb::bson::{Bson, Document, oid::ObjectId};
use tracing::info;

use super::{Slot, Snapshot, TtlRegistry, continuation, no_index, walkable};
use crate::{
    entry::Entry,
    error::{Code, Error, Refusal, Result},
    index::default_name,
    lease::{MAX_WAIT, wait_until_acknowledged},
    namespace::CollectionName,
    operation::{self, ChangeType},
    store::{Change, Store},
};

/// Which index of a collection: its name, or its key document.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum IndexRef {
    /// As in `"expireAt_1"`.
    Name(String),
    /// As in `{expireAt: 1}`.
    Key(Document),
}

impl From<&str> for IndexRef {
    fn from(name: &str) -> Self {
        IndexRef::Name(name.to_owned())
    }
}

impl From<String> for IndexRef {
    fn from(name: String) -> Self {
        IndexRef::Name(name)
    }
}

impl From<Document> for IndexRef {
    fn from(key: Document) -> Self {
        IndexRef::Key(key)
    }
}

impl TtlRegistry {
    /// Drops a TTL index, by name or by key document; documents no longer expire.
    ///
    /// # Guarantees
    ///
    /// After it returns nothing is deleted by the TTL index any more, in any process: whoever sweeps has confirmed it at the
    /// end of a batch, or its lease is over. The supporting index goes too if it was made for this TTL index, and stays if it
    /// was there before.
    ///
    /// # Errors
    ///
    /// [`Error::NotYetGuaranteed`] if whoever sweeps has not confirmed in time; the TTL index is dropped all the same.
    ///
    /// Refused with [`Code::IndexNotFound`] if the collection has no such TTL index. If the supporting index cannot be
    /// dropped the error says so; the TTL index is gone then. If the process is killed between the two, the
    /// [operation](TtlRegistry::operations) that tells of the drop stays under way, and the next process that makes or drops
    /// a TTL index on the collection finishes it.
    pub fn drop_index(&self, collection: impl Into<String>, index: impl Into<IndexRef>) -> DropIndex<'_> {
        DropIndex { registry: self, collection: collection.into(), index: index.into(), max_wait: MAX_WAIT }
    }
}

/// Drops a TTL index; see [`TtlRegistry::drop_index`].
#[derive(Debug)]
#[must_use = "nothing happens until it is awaited"]
pub struct DropIndex<'a> {
    registry: &'a TtlRegistry,
    collection: String,
    index: IndexRef,
    max_wait: Duration,
}

impl<'a> IntoFuture for DropIndex<'a> {
    type Output = Result<()>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let dropped = self.drop().await;
            self.registry.told("drop_index", &self.collection, &self.index.presumed_name(), dropped)
        }
        .boxed()
    }
}

impl DropIndex<'_> {
    /// How long to wait for whoever sweeps to confirm; 60 s by default.
    pub fn max_wait(mut self, time: Duration) -> Self {
        self.max_wait = time;
        self
    }

    async fn drop(&self) -> Result<()> {
        let collection = CollectionName::parse(&self.collection)?;
        let store = &*self.registry.store;
        let snapshot = Snapshot::load(store).await?;
        let Some(slot) = snapshot.find(&collection) else {
            continuation::finish_drops(store, &collection).await;
            return Err(no_index(&collection).into());
        };
        let id = matching(slot, &collection, &self.index)?;
        // Told before it is done: whoever comes after a crash finds what is left to do.
        let telling = operation::begin(store, ChangeType::Remove, to_be_dropped(store, slot).await?).await;
        let Some(revision) = store.change_registry(Change::Remove { entry: id }).await? else {
            telling.withdraw(store).await;
            return Err(no_index(&collection).into());
        };
        self.registry.meter.forget(&self.collection);
        info!(%collection, "TTL index dropped");
        let guaranteed = wait_until_acknowledged(&self.registry.store, revision, self.max_wait).await;
        // After that, as a pass that walks the index would stumble.
        let let_go = match slot {
            Slot::Good(entry) => continuation::let_go(store, entry).await,
            Slot::Broken(_) => Ok(()),
        };
        match &let_go {
            Ok(()) => telling.succeeded(store).await,
            Err(error) if error.is_lasting() => telling.failed(store, error).await,
            // Somebody else may finish it.
            Err(_) => {}
        }
        let_go.map_err(though_dropped)?;
        guaranteed
    }
}

impl IndexRef {
    /// What the index is called, unless somebody named it who is not asked here.
    fn presumed_name(&self) -> String {
        match self {
            IndexRef::Name(name) => name.clone(),
            IndexRef::Key(key) => default_name(key),
        }
    }
}

/// The entry, with the identity of the collection that it has now.
async fn to_be_dropped(store: &dyn Store, slot: &Slot) -> Result<Document> {
    let mut document = slot.to_document();
    if let Slot::Good(entry) = slot
        && entry.uuid.is_none()
        && let Some(uuid) = store.inspect(&entry.definition.collection).await?.uuid
    {
        document.insert("collectionUUID", uuid);
    }
    Ok(document)
}

fn matching(slot: &Slot, collection: &CollectionName, index: &IndexRef) -> Result<ObjectId> {
    let (id, name, key) = match slot {
        Slot::Good(entry) => (Some(entry.id), &entry.definition.name, entry.definition.key()),
        Slot::Broken(broken) => (broken.id, &broken.name, broken.key.clone()),
    };
    let (found, missing) = match index {
        IndexRef::Name(wanted) => (wanted == name, format!("index not found with name [{wanted}]")),
        IndexRef::Key(wanted) => (same_key(wanted, &key), format!("can't find index with key: {wanted}")),
    };
    if !found {
        let message = format!("{missing}; the TTL index of {collection} is {name}");
        return Err(Refusal::new(Code::IndexNotFound, message).into());
    }
    id.ok_or_else(|| {
        Error::Unreadable(format!("the registry entry of {collection} has no identity; remove it from the registry"))
    })
}

/// Says what is done all the same when the supporting index cannot be dropped.
fn though_dropped(error: Error) -> Error {
    match error {
        Error::Backend { action, source } => {
            Error::Backend { action: format!("the TTL index is dropped; after that, {action}"), source }
        }
        other => other,
    }
}

/// The same fields in the same order and directions, whatever the types of the numbers.
fn same_key(a: &Document, b: &Document) -> bool {
    let number = |value: &Bson| match value {
        Bson::Int32(n) => Some(f64::from(*n)),
        #[allow(clippy::cast_precision_loss)] // directions are small
        Bson::Int64(n) => Some(*n as f64),
        Bson::Double(n) => Some(*n),
        _ => None,
    };
    let same = |((a_field, a), (b_field, b)): ((&String, &Bson), (&String, &Bson))| {
        a_field == b_field && (a == b || number(a).is_some_and(|n| Some(n) == number(b)))
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

pub(super) async fn drop_supporting(store: &dyn Store, entry: &Entry) -> Result<()> {
    let Some(index) = entry.supporting.as_ref().filter(|index| index.created) else { return Ok(()) };
    let seen = store.inspect(&entry.definition.collection).await?;
    // In a collection that was re-created under the name, an index of this name is somebody else's.
    let same_collection = entry.uuid.is_none() || seen.uuid == entry.uuid;
    let ours = |found: &&crate::store::PhysicalIndex| {
        found.name == index.name && walkable(&entry.definition, found) && !found.native_ttl
    };
    if same_collection && seen.indexes.iter().any(|found| ours(&found)) {
        store.drop_index(&entry.definition.collection, &index.name).await?;
    }
    Ok(())
}
