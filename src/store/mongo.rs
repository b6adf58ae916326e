//! Any backend that speaks MongoDB's protocol, through the official driver.
//!
//! Portable by default: what only some backends have sits behind a named [`Extensions`] flag, which is set by trying it
//! out ([`probe`]) before the first deletion.

mod answer;
mod catalog;
mod census;
mod documents;
mod guard;
mod modify;
mod pass;
mod probe;
mod records;
mod registry;
mod sample;
mod touch;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use mongodb::{
    Database,
    bson::{Bson, DateTime, Document, RawDocumentBuf, doc},
    options::{DatabaseOptions, ReadPreference, SelectionCriteria},
};
use tokio::sync::OnceCell;

use self::{
    answer::{ANSWER, STATEMENT, answered},
    census::Uncounted,
    pass::MongoPass,
    probe::Extensions,
};
use super::{
    Census, CensusRange, CensusTarget, Change, Collection, Guard, Judge, Pass, PhysicalIndex, Placed, Reading, Records,
    Sampled, Store, Target, Touched, sealed,
};
use crate::{
    error::{Code, Error, Refusal, Result},
    expiry::Rule,
    guard::{Ids, ReferenceGuard},
    namespace::CollectionName,
};

/// How long the server may work on one statement, where it takes a limit.
const STATEMENT_LIMIT: Duration = Duration::from_secs(60);

/// How long a delete is taken for under way whose reply was lost, on backends that do not take a limit of time and compare
/// with their own clock.
const UNBOUNDED: Duration = Duration::from_secs(60);

/// A database on MongoDB, or on a backend that speaks its protocol.
///
/// # Guarantees
///
/// Making one does nothing. The registry lives in the database itself, in collections named `ttl_index.…`. No
/// transactions and no server-side code are used.
///
/// # Assumptions
///
/// The user has the privileges that `ttl-index role` prints; before the first deletion scratch documents are written to
/// `ttl_index.probe` and deleted again. Reads go to the primary, whatever the client prefers.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use ttl_index::{MongoStore, TtlRegistry};
///
/// let client = mongodb::Client::with_uri_str("mongodb://localhost").await?;
/// let ttl = TtlRegistry::open(MongoStore::new(client.database("app"))).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MongoStore {
    database: Database,
    portable_only: bool,
}

impl MongoStore {
    /// TTL indexes for the collections of this database.
    pub fn new(database: Database) -> Self {
        Self { database, portable_only: false }
    }

    /// Uses no more of MongoDB than every compatible backend has, without trying what this one offers; off by default.
    pub fn portable_only(mut self) -> Self {
        self.portable_only = true;
        self
    }
}

impl sealed::Sealed for MongoStore {
    fn into_store(self) -> sealed::Erased {
        // Whatever the application prefers for its own reads: a rule read from a lagging secondary may not be in force.
        let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
        let options = DatabaseOptions::builder().selection_criteria(primary).build();
        sealed::Erased(Arc::new(Mongo {
            database: self.database.client().database_with_options(self.database.name(), options),
            portable_only: self.portable_only,
            extensions: OnceCell::new(),
            assumed: OnceCell::new(),
            uncounted: Uncounted::default(),
        }))
    }
}

#[derive(Debug)]
struct Mongo {
    database: Database,
    portable_only: bool,
    extensions: OnceCell<Extensions>,
    /// The same as far as reading tells.
    assumed: OnceCell<Extensions>,
    uncounted: Uncounted,
}

impl Mongo {
    /// What the backend can do beyond the portable subset; found out once, before the first deletion.
    async fn extensions(&self) -> Result<&Extensions> {
        self.extensions.get_or_try_init(|| probe::run(&self.database, self.portable_only)).await
    }

    /// What the backend can do, for whoever may only read: the probe writes. Too much may be assumed, which the backend refuses.
    async fn readable(&self) -> Result<&Extensions> {
        match self.extensions.get() {
            Some(probed) => Ok(probed),
            None => self.assumed.get_or_try_init(|| probe::assume(&self.database, self.portable_only)).await,
        }
    }

    /// The time at which the server answered: behind its clock by the way of the answer, never ahead of it.
    async fn server_time(&self) -> Result<DateTime> {
        match self.hello_time().await? {
            Some(time) if !self.portable_only => Ok(time),
            _ => self.stamped_time().await,
        }
    }

    async fn hello_time(&self) -> Result<Option<DateTime>> {
        let reply = self
            .database
            .run_command(doc! { "hello": 1 })
            .await
            .map_err(Error::backend("asking the server for its time"))?;
        Ok(match reply.get("localTime") {
            Some(Bson::DateTime(time)) => Some(*time),
            _ => None,
        })
    }

    /// The time that the server stamps on a write, for backends whose `hello` tells none.
    async fn stamped_time(&self) -> Result<DateTime> {
        let stamped = self
            .database
            .collection::<Document>("ttl_index.clock")
            .find_one_and_update(doc! { "_id": "clock" }, doc! { "$currentDate": { "now": true } })
            .upsert(true)
            .return_document(mongodb::options::ReturnDocument::After)
            .await
            .map_err(Error::backend("having the server stamp its time"))?;
        match stamped.as_ref().and_then(|document| document.get("now")) {
            Some(Bson::DateTime(time)) => Ok(*time),
            _ => Err(Error::Unfit("it tells its time neither in `hello` nor by `$currentDate`".to_owned())),
        }
    }
}

fn inexact(collection: &CollectionName) -> Refusal {
    let why = format!(
        "this backend cannot be told to delete a document of {collection} only as it was archived; nothing is deleted. \
         Archive without this, by matching dates only, if a change between archiving and deleting may be lost"
    );
    Refusal::new(Code::InvalidOptions, why)
}

impl Store for Mongo {
    fn name(&self) -> String {
        self.database.name().to_owned()
    }

    fn now(&self) -> BoxFuture<'_, Result<DateTime>> {
        answered(ANSWER, self.server_time())
    }

    fn registry(&self) -> BoxFuture<'_, Result<Option<Document>>> {
        answered(ANSWER, registry::load(&self.database))
    }

    fn revision(&self) -> BoxFuture<'_, Result<Option<i64>>> {
        answered(ANSWER, registry::revision(&self.database))
    }

    fn change_registry(&self, change: Change) -> BoxFuture<'_, Result<Option<i64>>> {
        answered(ANSWER, registry::change(&self.database, change))
    }

    fn record<'a>(&'a self, kind: Records, id: &'a str) -> BoxFuture<'a, Result<Option<Document>>> {
        answered(ANSWER, records::get(&self.database, kind, id))
    }

    fn records(&self, kind: Records) -> BoxFuture<'_, Result<Vec<Document>>> {
        answered(ANSWER, records::all(&self.database, kind))
    }

    fn set_record<'a>(
        &'a self,
        kind: Records,
        id: &'a str,
        guard: Guard,
        fields: Document,
    ) -> BoxFuture<'a, Result<Option<Document>>> {
        answered(ANSWER, records::set(&self.database, kind, id, guard, fields))
    }

    fn remove_record<'a>(&'a self, kind: Records, id: &'a str) -> BoxFuture<'a, Result<()>> {
        answered(ANSWER, records::remove(&self.database, kind, id))
    }

    fn estimated_count<'a>(&'a self, collection: &'a CollectionName) -> BoxFuture<'a, Result<Option<u64>>> {
        answered(ANSWER, async move {
            let documents = self.database.collection::<Document>(collection.as_str());
            let counted = documents.estimated_document_count().await;
            counted.map(Some).map_err(Error::backend(format!("counting the documents of {collection}")))
        })
    }

    fn told_time(&self) -> BoxFuture<'_, Result<Option<DateTime>>> {
        answered(ANSWER, self.hello_time())
    }

    fn sample<'a>(
        &'a self,
        collection: &'a CollectionName,
        size: u32,
        judge: Judge<'a>,
    ) -> BoxFuture<'a, Result<Sampled>> {
        answered(STATEMENT, sample::sample(&self.database, self.portable_only, collection, size, judge))
    }

    fn settle_time(&self) -> BoxFuture<'_, Result<Duration>> {
        answered(STATEMENT, async move {
            Ok(if self.extensions().await?.ends_in_time() { Duration::ZERO } else { UNBOUNDED })
        })
    }

    fn collections(&self) -> BoxFuture<'_, Result<HashMap<String, Collection>>> {
        answered(ANSWER, catalog::collections(&self.database))
    }

    fn indexes<'a>(&'a self, collection: &'a CollectionName) -> BoxFuture<'a, Result<Vec<PhysicalIndex>>> {
        answered(ANSWER, catalog::list_indexes(&self.database, collection))
    }

    fn index_specs<'a>(&'a self, collection: &'a CollectionName) -> BoxFuture<'a, Result<Vec<Document>>> {
        answered(ANSWER, catalog::index_specs(&self.database, collection))
    }

    fn inspect<'a>(&'a self, collection: &'a CollectionName) -> BoxFuture<'a, Result<Collection>> {
        answered(ANSWER, catalog::inspect(&self.database, collection))
    }

    fn build_index<'a>(
        &'a self,
        collection: &'a CollectionName,
        index: PhysicalIndex,
    ) -> BoxFuture<'a, Result<PhysicalIndex>> {
        // It may take hours.
        catalog::build_index(&self.database, collection, index).boxed()
    }

    fn drop_index<'a>(&'a self, collection: &'a CollectionName, name: &'a str) -> BoxFuture<'a, Result<()>> {
        // The server first waits for whoever is at the collection.
        answered(STATEMENT, catalog::drop_index(&self.database, collection, name))
    }

    fn referenced<'a>(&'a self, guard: &'a ReferenceGuard, ids: Ids, now: DateTime) -> BoxFuture<'a, Result<Ids>> {
        guard::referenced(&self.database, guard, ids, now).boxed()
    }

    fn touch<'a>(
        &'a self,
        collection: &'a CollectionName,
        rule: &'a Rule,
        ids: Vec<Bson>,
        until: DateTime,
    ) -> BoxFuture<'a, Result<Touched>> {
        touch::touch(&self.database, collection, rule, ids, until).boxed()
    }

    fn insert_missing<'a>(
        &'a self,
        collection: &'a CollectionName,
        documents: Vec<RawDocumentBuf>,
    ) -> BoxFuture<'a, Result<Vec<Placed>>> {
        answered(STATEMENT, documents::insert_missing(&self.database, collection, documents))
    }

    fn fetch<'a>(
        &'a self,
        collection: &'a CollectionName,
        ids: Vec<Bson>,
    ) -> BoxFuture<'a, Result<Vec<RawDocumentBuf>>> {
        answered(STATEMENT, documents::fetch(&self.database, collection, ids))
    }

    fn census<'a>(&'a self, of: &'a CensusTarget, range: CensusRange) -> BoxFuture<'a, Result<Option<Census>>> {
        self.count_by_date(of, range).boxed()
    }

    fn open_pass(&self, target: Target) -> BoxFuture<'_, Result<Box<dyn Pass>>> {
        answered(STATEMENT, async move {
            let extensions = self.extensions().await?.clone();
            if target.reading == Reading::Exact && !extensions.exact {
                return Err(inexact(&target.collection).into());
            }
            Ok(Box::new(MongoPass::new(self.database.clone(), target, extensions)) as Box<dyn Pass>)
        })
    }
}
