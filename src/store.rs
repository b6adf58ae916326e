//! How documents and the registry are reached: one sealed trait, two implementations.
//!
//! - [`mongo`]: any backend that speaks MongoDB's protocol;
//! - [`embedded`]: a document store in one file, or in memory.
//!
//! A store does what it is told. Which documents are due is decided by [`Rule`](crate::Rule), which registry changes are
//! allowed by the registry; a store only holds the guard of a change and the condition of a delete, each in one atomic
//! step.

mod catalog;
mod census;
#[cfg(feature = "embedded")]
pub(crate) mod embedded;
mod fence;
#[cfg(feature = "test-util")]
pub(crate) mod hooked;
pub(crate) mod mongo;
mod position;
mod reading;
mod sample;
mod wake;

pub(crate) use catalog::{Collection, Kind, PhysicalIndex};
pub(crate) use census::{Census, CensusRange, CensusTarget};
pub(crate) use fence::{Bound, Fence, Statement};
pub(crate) use position::Position;
pub(crate) use reading::Reading;
pub use sample::SampledBy;
pub(crate) use sample::{Judge, Sampled};
pub(crate) use wake::Wake;

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use mongodb::bson::{Binary, Bson, DateTime, Document, RawDocumentBuf, oid::ObjectId};
use tokio::time::Instant;

use crate::{
    error::{Refusal, Result},
    expiry::{Dates, Rule},
    guard::{Guards, Ids, ReferenceGuard},
    namespace::CollectionName,
};

/// The most TTL indexes a database may have, as in Firestore.
pub(crate) const MAX_INDEXES: usize = 500;

/// A database that TTL indexes live in: [`MongoStore`](crate::MongoStore) or
/// [`EmbeddedStore`](crate::EmbeddedStore).
///
/// Sealed: what a store must promise may still grow.
pub trait IntoStore: sealed::Sealed {}

/// What every store is behind the public types.
pub(crate) type DynStore = Arc<dyn Store>;

pub(crate) mod sealed {
    /// Keeps [`IntoStore`](super::IntoStore) from being implemented elsewhere.
    pub trait Sealed {
        #[doc(hidden)]
        fn into_store(self) -> Erased;
    }

    /// A store, its type forgotten.
    #[derive(Debug)]
    pub struct Erased(pub(crate) super::DynStore);
}

impl<T: sealed::Sealed> IntoStore for T {}

/// The contract between the registry and the sweep above, and a database below.
pub(crate) trait Store: fmt::Debug + Send + Sync {
    /// What the database is called where things are counted.
    fn name(&self) -> String {
        "embedded".to_owned()
    }

    /// The database's clock. Never runs ahead of it.
    fn now(&self) -> BoxFuture<'_, Result<DateTime>>;

    /// The registry document; none if there is none.
    fn registry(&self) -> BoxFuture<'_, Result<Option<Document>>>;

    /// The registry's revision; none if there is no registry.
    fn revision(&self) -> BoxFuture<'_, Result<Option<i64>>>;

    /// Makes the change in one atomic step if its guard holds, and returns the registry's revision from then on.
    ///
    /// The revision rises with every change made. A change whose reply was lost is looked up before an error is
    /// reported.
    fn change_registry(&self, change: Change) -> BoxFuture<'_, Result<Option<i64>>>;

    /// A record of this library's own.
    fn record<'a>(&'a self, kind: Records, id: &'a str) -> BoxFuture<'a, Result<Option<Document>>>;

    /// All records of a kind, in no promised order.
    fn records(&self, kind: Records) -> BoxFuture<'_, Result<Vec<Document>>>;

    /// Sets fields of a record in one atomic step if its guard holds, and returns the record from then on.
    ///
    /// A reply that was lost is an error; the fields may be set then.
    fn set_record<'a>(
        &'a self,
        kind: Records,
        id: &'a str,
        guard: Guard,
        fields: Document,
    ) -> BoxFuture<'a, Result<Option<Document>>>;

    /// Removes a record; one that is gone already is fine.
    fn remove_record<'a>(&'a self, kind: Records, id: &'a str) -> BoxFuture<'a, Result<()>>;

    /// How many documents a collection has, more or less, if that can be said at little cost.
    fn estimated_count<'a>(&'a self, collection: &'a CollectionName) -> BoxFuture<'a, Result<Option<u64>>>;

    /// The database's clock now, as far as is known without asking: it said `told` at the instant `at`.
    fn now_since(&self, told: DateTime, at: Instant) -> DateTime {
        let millis = i64::try_from(at.elapsed().as_millis()).unwrap_or(i64::MAX);
        DateTime::from_millis(told.timestamp_millis().saturating_add(millis))
    }

    /// How long a delete may take effect after the end that it was given.
    fn settle_time(&self) -> BoxFuture<'_, Result<Duration>> {
        Box::pin(std::future::ready(Ok(Duration::ZERO)))
    }

    /// As [`now`](Self::now), without writing anything; none where the database does not tell its time to a reader.
    fn told_time(&self) -> BoxFuture<'_, Result<Option<DateTime>>> {
        Box::pin(async move { self.now().await.map(Some) })
    }

    /// Whether the store itself lists the documents that expire by their dates, so that sweeps need no index.
    fn lists_by_date(&self) -> bool {
        false
    }

    /// Hands some documents of a collection to `judge`, `size` at most, and keeps none of them. Reads only.
    fn sample<'a>(
        &'a self,
        collection: &'a CollectionName,
        size: u32,
        judge: Judge<'a>,
    ) -> BoxFuture<'a, Result<Sampled>>;

    /// How this store wakes a sweeper, if it can.
    fn wake(&self) -> Option<Wake> {
        None
    }

    /// What the collections of the database are, by name, without their indexes.
    fn collections(&self) -> BoxFuture<'_, Result<HashMap<String, Collection>>>;

    /// The ordinary indexes of a collection; none if it is missing.
    fn indexes<'a>(&'a self, collection: &'a CollectionName) -> BoxFuture<'a, Result<Vec<PhysicalIndex>>>;

    /// The same as the database tells them, with options of its own.
    fn index_specs<'a>(&'a self, collection: &'a CollectionName) -> BoxFuture<'a, Result<Vec<Document>>>;

    /// What a collection is, as the database sees it.
    fn inspect<'a>(&'a self, collection: &'a CollectionName) -> BoxFuture<'a, Result<Collection>>;

    /// Builds an ordinary index and says how it came out; the collection is made if it is missing.
    fn build_index<'a>(
        &'a self,
        collection: &'a CollectionName,
        index: PhysicalIndex,
    ) -> BoxFuture<'a, Result<PhysicalIndex>>;

    /// Drops an ordinary index; one that is gone already is fine.
    fn drop_index<'a>(&'a self, collection: &'a CollectionName, name: &'a str) -> BoxFuture<'a, Result<()>>;

    /// Marks the `_id`s that the guard keeps at `now`: that some child references. In doubt it is marked, or an error.
    ///
    /// A collection of children that is missing is an error where collections stay when they are empty: it was renamed, or is
    /// being made anew.
    fn referenced<'a>(&'a self, guard: &'a ReferenceGuard, ids: Ids, now: DateTime) -> BoxFuture<'a, Result<Ids>>;

    /// Whether a guard can do with an index on the field of the children.
    fn indexes_children(&self) -> bool {
        true
    }

    /// Moves the dates of documents so that none of them expires by the rule before `until`; no date becomes earlier, and no
    /// document expires that did not.
    fn touch<'a>(
        &'a self,
        collection: &'a CollectionName,
        rule: &'a Rule,
        ids: Vec<Bson>,
        until: DateTime,
    ) -> BoxFuture<'a, Result<Touched>>;

    /// Inserts those of the documents whose `_id` is not taken yet, so that they last, and says of each what became of it.
    fn insert_missing<'a>(
        &'a self,
        collection: &'a CollectionName,
        documents: Vec<RawDocumentBuf>,
    ) -> BoxFuture<'a, Result<Vec<Placed>>>;

    /// Those of the documents with these `_id`s that are there.
    fn fetch<'a>(
        &'a self,
        collection: &'a CollectionName,
        ids: Vec<Bson>,
    ) -> BoxFuture<'a, Result<Vec<RawDocumentBuf>>>;

    /// Counts documents by their date, by an index alone; none where that cannot be done. Reads only.
    fn census<'a>(&'a self, of: &'a CensusTarget, range: CensusRange) -> BoxFuture<'a, Result<Option<Census>>> {
        let _ = (of, range);
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Makes ready for deleting what is due in a collection. Deletes nothing.
    fn open_pass(&self, target: Target) -> BoxFuture<'_, Result<Box<dyn Pass>>>;
}

/// What became of documents whose dates were to be moved; see [`TtlRegistry::touch`](crate::TtlRegistry::touch).
///
/// Each document is in one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Touched {
    /// Documents that expire later than before.
    pub moved: u64,
    /// Documents that expired late enough already.
    pub later: u64,
    /// Documents that never expire as they stand.
    pub never: u64,
    /// Documents that are not there, or not any more.
    pub missing: u64,
}

/// The records of this library's own, besides the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Records {
    /// Who sweeps the database, and how it goes.
    Lease,
    /// Creations and drops, each with its progress.
    Operations,
    /// When what is pruned now and then was claimed last.
    Prunes,
}

impl Records {
    /// The collection that holds them.
    pub(crate) const fn collection(self) -> &'static str {
        match self {
            Records::Lease => "ttl_index.lease",
            Records::Operations => "ttl_index.operations",
            Records::Prunes => "ttl_index.prunes",
        }
    }
}

/// What became of a document that was to be inserted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    Inserted,
    /// One with its `_id` is there.
    There,
    /// The database does not take it, and why.
    Refused(String),
}

/// Under which condition a record is set.
#[derive(Clone, Debug)]
pub(crate) enum Guard {
    /// It is not there yet.
    Missing,
    /// It is there, and these fields have these values.
    Has(Document),
}

/// What a pass deletes.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The identity of the registry entry.
    pub(crate) entry: ObjectId,
    pub(crate) collection: CollectionName,
    pub(crate) rule: Rule,
    /// What the pass asks before it deletes; a store that can tell deletes nothing if there are others by now.
    #[cfg_attr(not(feature = "embedded"), allow(dead_code))] // only a store of our own can tell
    pub(crate) guards: Guards,
    /// The latest date that is due, fixed for the pass.
    pub(crate) cutoff: DateTime,
    /// The ordinary index to walk, if there is one.
    pub(crate) index: Option<PhysicalIndex>,
    /// The identity of the collection, where the backend gives one.
    pub(crate) uuid: Option<Binary>,
    /// Whether strings in it are compared by a collation unless a query says otherwise.
    pub(crate) collated: bool,
    /// Until when deletes may take effect.
    pub(crate) fence: Fence,
    pub(crate) reading: Reading,
    /// Whether documents may be kept although they are due: then each is found once, however many stay.
    pub(crate) screened: bool,
}

/// The database's side of one pass.
pub(crate) trait Pass: Send {
    /// At most `limit` documents that may be due; there may be false ones among them, but none is left out for ever.
    ///
    /// Empty means that there is nothing beyond `position`.
    fn find<'a>(&'a mut self, position: &'a Position, limit: u32) -> BoxFuture<'a, Result<Vec<Found>>>;

    /// Whether a position can move on: `find` looks from it anew each time, and hands documents over in the order of their
    /// dates.
    fn ordered(&self) -> bool;

    /// Whether `find` may hand over documents as they were a while ago.
    fn reads_ahead(&self) -> bool {
        false
    }

    /// Gives up walking an index, if the error says that it cannot be walked; then everything is read instead.
    fn without_index(&mut self, after: &crate::error::Error) -> bool {
        let _ = after;
        false
    }

    /// Deletes those of `doomed` that are *still* due, with a date no later than `until`, and that are still the same, if the
    /// pass reads them exactly; the check and the deletion are one atomic step for each document. Nothing is deleted beyond
    /// the fence.
    fn delete<'a>(&'a mut self, doomed: &'a [Found], until: DateTime) -> BoxFuture<'a, Result<Deletion>>;

    /// Why this document cannot be deleted exactly as it was read, if that can be told without trying.
    fn unrepeatable(&self, found: &Found) -> Option<String> {
        let _ = found;
        None
    }

    /// The earliest date beyond the cutoff, on stores that can tell at no cost.
    fn next_date(&mut self) -> BoxFuture<'_, Result<Option<DateTime>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Those of the documents that are still there, as they are now, as much of them as the pass reads.
    fn read_again(&mut self, ids: Vec<Bson>) -> BoxFuture<'_, Result<Vec<RawDocumentBuf>>>;
}

/// A document that `find` handed over.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) id: Bson,
    /// The dates by the pure rule; none if the rule keeps the document.
    pub(crate) dates: Option<Dates>,
    /// All of it, if the pass reads all of it.
    pub(crate) whole: Option<RawDocumentBuf>,
}

/// How many bytes of documents a batch may have that is read whole: about what a statement can name of them.
pub(crate) const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// An `_id` as bytes, to tell documents apart by: in print different ones look alike, and NaN does not equal itself.
pub(crate) fn id_bytes(id: &Bson) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to memory fails for no value that was read from a document.
    let _ = mongodb::bson::doc! { "": id }.to_writer(&mut bytes);
    bytes
}

/// What became of a delete.
#[derive(Debug)]
pub(crate) enum Deletion {
    /// The database deleted this many.
    Done(u64),
    /// The database deleted this many for certain, perhaps more, and gave up on the others.
    InPart(u64, crate::error::Error),
    /// The database refused, and deleted nothing.
    Refused(Refusal),
    /// This many were deleted, and the fence came before the others.
    Fenced(u64),
    /// The reply was lost, or says that the deletion may not last: some may be gone.
    Uncertain(crate::error::Error),
}

/// A change to the registry, with the guard under which it may be made.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Adds an entry, if its collection has none and the limit is not reached.
    Add(Document),
    /// Sets fields of the entry with this identity, if it is there and the registry is still at this revision, if one is
    /// named.
    Set { entry: ObjectId, fields: Document, revision: Option<i64> },
    /// Moves the entry with this identity to another collection, if that has none.
    Rename { entry: ObjectId, to: CollectionName },
    /// Removes the entry with this identity, if it is there.
    Remove { entry: ObjectId },
    /// The same, if its making is not finished.
    TakeBack { entry: ObjectId },
    /// Has every sweeper pause, as the document says, or no longer.
    Pause(Option<Document>),
    /// Sets how fast the sweeper may go, or leaves that to it, if the registry is there and still at this revision.
    Tune { tuning: Option<Document>, revision: i64 },
}
