//! `modify_index`, MongoDB's `collMod`.

use std::{future::IntoFuture, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use mongodb::bson::{doc, oid::ObjectId};

use super::{IndexInfo, Slot, Snapshot, TtlRegistry, no_index};
use crate::{
    error::{Code, Error, Refusal, Result},
    index::ExpireAfter,
    lease::{MAX_WAIT, wait_until_acknowledged},
    namespace::CollectionName,
    store::{Change, Store},
};

impl TtlRegistry {
    /// Changes how long after their date the documents of a collection expire.
    ///
    /// # Guarantees
    ///
    /// One atomic change: at no instant is the index missing. After it returns nothing is deleted by the old period any more,
    /// in any process: whoever sweeps has confirmed it at the end of a batch, or its lease is over. An entry of the registry
    /// whose period cannot be understood is mended by this.
    ///
    /// # Errors
    ///
    /// [`Error::NotYetGuaranteed`] if whoever sweeps has not confirmed in time; the period is changed all the same.
    ///
    /// Refused if the collection has no TTL index, or the period is not whole seconds from 0 to 2,147,483,647.
    pub fn modify_index(&self, collection: impl Into<String>, expire_after: Duration) -> ModifyIndex<'_> {
        ModifyIndex { registry: self, collection: collection.into(), expire_after, max_wait: MAX_WAIT }
    }
}

/// Changes a TTL index; see [`TtlRegistry::modify_index`].
#[derive(Debug)]
#[must_use = "nothing happens until it is awaited"]
pub struct ModifyIndex<'a> {
    registry: &'a TtlRegistry,
    collection: String,
    expire_after: Duration,
    max_wait: Duration,
}

impl<'a> IntoFuture for ModifyIndex<'a> {
    type Output = Result<IndexInfo>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let mut name = String::new();
            let modified = self.modify(&mut name).await;
            self.registry.told("modify_index", &self.collection, &name, modified)
        }
        .boxed()
    }
}

impl ModifyIndex<'_> {
    /// How long to wait for whoever sweeps to confirm; 60 s by default.
    pub fn max_wait(mut self, time: Duration) -> Self {
        self.max_wait = time;
        self
    }

    /// Leaves the index's name in `name` as soon as it is known.
    async fn modify(&self, name: &mut String) -> Result<IndexInfo> {
        let collection = CollectionName::parse(&self.collection)?;
        let expire_after = ExpireAfter::from_duration(self.expire_after)?;
        let store = &*self.registry.store;
        let snapshot = Snapshot::load(store).await?;
        let slot = snapshot.find(&collection).ok_or_else(|| no_index(&collection))?;
        slot.name().clone_into(name);
        let id = match slot {
            Slot::Good(entry) => entry.id,
            Slot::Broken(broken) => broken.id.ok_or_else(|| Error::from(broken.refusal()))?,
        };
        let revision = set_period(store, id, expire_after, None).await?.ok_or_else(dropped)?;
        wait_until_acknowledged(&self.registry.store, revision, self.max_wait).await?;
        Ok(IndexInfo::of(Snapshot::load(store).await?.understood(&collection)?))
    }
}

/// None if the index is gone, or the registry no longer at this revision, if one is named.
pub(crate) async fn set_period(
    store: &dyn Store,
    entry: ObjectId,
    period: ExpireAfter,
    revision: Option<i64>,
) -> Result<Option<i64>> {
    let fields = doc! { "expireAfterSeconds": period.seconds(), "ruleSince": store.now().await? };
    store.change_registry(Change::Set { entry, fields, revision }).await
}

pub(super) fn dropped() -> Refusal {
    Refusal::new(Code::IndexNotFound, "the TTL index was dropped while it was being modified")
}
