//! How documents and the registry are reached: one sealed trait, two implementations.
//!
//! - [`mongo`]: any backend that speaks MongoDB's protocol;
//! - [`embedded`]: a document store in one file, or in memory.
//!
//! A store does what it is told. Which documents are due is decided by [`Rule`](crate::Rule), which registry changes are
//! allowed by the registry; a store only holds the guard of a change and the condition of a delete, each in one atomic
//! step.

#[cfg(feature = "embedded")]
pub(crate) mod embedded;
#[cfg(feature = "test-util")]
pub(crate) mod hooked;
pub(crate) mod mongo;
mod position;

pub(crate) use position::Position;

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;
use mongodb::bson::{Binary, Bson, DateTime, Document, RawDocumentBuf, oid::ObjectId};

use crate::{
    error::{Code, Refusal, Result},
    expiry::{Dates, Rule},
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
    /// The database's clock. Never runs ahead of it.
    fn now(&self) -> BoxFuture<'_, Result<DateTime>>;

    /// The registry document; none if there is none.
    fn registry(&self) -> BoxFuture<'_, Result<Option<Document>>>;

    /// The registry's revision; none if there is no registry.
    fn revision(&self) -> BoxFuture<'_, Result<Option<i64>>>;

    /// Makes the change in one atomic step if its guard holds, and says whether it did.
    ///
    /// The revision rises with every change made. A change whose reply was lost is looked up before an error is
    /// reported.
    fn change_registry(&self, change: Change) -> BoxFuture<'_, Result<bool>>;

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

    /// Makes ready for deleting what is due in a collection. Deletes nothing.
    fn open_pass(&self, target: Target) -> BoxFuture<'_, Result<Box<dyn Pass>>>;
}

/// What a pass deletes.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The identity of the registry entry.
    pub(crate) entry: ObjectId,
    pub(crate) collection: CollectionName,
    pub(crate) rule: Rule,
    /// The latest date that is due, fixed for the pass.
    pub(crate) cutoff: DateTime,
    /// The ordinary index to walk, if there is one.
    pub(crate) index: Option<PhysicalIndex>,
    /// The identity of the collection, where the backend gives one.
    pub(crate) uuid: Option<Binary>,
}

/// The database's side of one pass.
pub(crate) trait Pass: Send {
    /// At most `limit` documents that may be due; there may be false ones among them, but none is left out for ever.
    ///
    /// Empty means that there is nothing beyond `position`.
    fn find<'a>(&'a mut self, position: &'a Position, limit: u32) -> BoxFuture<'a, Result<Vec<Found>>>;

    /// Whether `find` hands documents over in the order of their dates, so that a position can move on.
    fn ordered(&self) -> bool;

    /// Gives up walking an index, if the error says that it cannot be walked; then everything is read instead.
    fn without_index(&mut self, after: &crate::error::Error) -> bool {
        let _ = after;
        false
    }

    /// Deletes those of `doomed` that are *still* due, with a date no later than `until`; the check and the deletion are
    /// one atomic step for each document.
    fn delete<'a>(&'a mut self, doomed: &'a [Found], until: DateTime) -> BoxFuture<'a, Result<Deletion>>;

    /// Those of the documents that are still there, as they are now.
    fn read_again(&mut self, ids: Vec<Bson>) -> BoxFuture<'_, Result<Vec<RawDocumentBuf>>>;
}

/// A document that `find` handed over.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) id: Bson,
    /// The dates by the pure rule; none if the rule keeps the document.
    pub(crate) dates: Option<Dates>,
}

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
    /// The reply was lost, or says that the deletion may not last: some may be gone.
    Uncertain(crate::error::Error),
}

/// A change to the registry, with the guard under which it may be made.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Adds an entry, if its collection has none and the limit is not reached.
    Add(Document),
    /// Sets fields of the entry with this identity, if it is there.
    Set { entry: ObjectId, fields: Document },
    /// Removes the entry with this identity, if it is there.
    Remove { entry: ObjectId },
    /// The same, if it is still being made.
    TakeBack { entry: ObjectId },
}

/// A collection, as the database sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collection {
    pub(crate) kind: Kind,
    /// Its identity, where the backend gives one: a collection re-created under the same name has another.
    pub(crate) uuid: Option<Binary>,
    /// Whether strings in it are compared by a collation unless a query says otherwise.
    pub(crate) default_collation: bool,
    pub(crate) indexes: Vec<PhysicalIndex>,
}

/// What stands under a collection's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Missing,
    Ordinary,
    Capped,
    View,
    TimeSeries,
}

impl Kind {
    /// Refuses what cannot have a TTL index.
    pub(crate) fn check(self, collection: &CollectionName) -> Result<(), Refusal> {
        match self {
            Kind::Missing | Kind::Ordinary => Ok(()),
            Kind::Capped => Err(Refusal::new(
                Code::CannotCreateIndex,
                format!("Cannot create TTL index on a capped collection: {collection}"),
            )),
            Kind::View => Err(Refusal::new(
                Code::CommandNotSupportedOnView,
                format!("{collection} is a view, not a collection; make the TTL index on the collection behind it"),
            )),
            Kind::TimeSeries => Err(Refusal::new(
                Code::InvalidOptions,
                format!(
                    "TTL indexes are not supported on time-series collections: {collection}; \
                     use the collection's own 'expireAfterSeconds'"
                ),
            )),
        }
    }
}

/// An ordinary index of the database.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PhysicalIndex {
    pub(crate) name: String,
    pub(crate) key: Document,
    pub(crate) partial_filter: Option<Document>,
    pub(crate) hidden: bool,
    /// The server's own TTL option.
    pub(crate) native_ttl: bool,
}
