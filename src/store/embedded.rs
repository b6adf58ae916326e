//! A small document store of our own, in one file or in memory: TTL indexes without any server.

mod bytes;
mod census;
mod collection;
mod documents;
mod guard;
mod keys;
mod pass;
mod records;
mod rules;
mod sample;
mod tables;

pub use collection::{Documents, EmbeddedCollection};

use std::{collections::HashMap, fmt, fs, path::Path, sync::Arc};

use futures_util::{FutureExt, future::BoxFuture};
use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, oid::ObjectId};
use tokio::time::Instant;

use self::{pass::EmbeddedPass, tables::Tables};
use super::{
    Census, CensusRange, CensusTarget, Change, Collection, Guard, Judge, Kind, Pass, PhysicalIndex, Placed, Records,
    Sampled, Store, Target, Touched, Wake, sealed,
};
use crate::{
    clock::ManualClock,
    entry::Entry,
    error::{Error, Result},
    expiry::Rule,
    guard::{Ids, ReferenceGuard},
    namespace::CollectionName,
};

/// A document store in one file, or in memory.
///
/// Documents are BSON, found by `_id`, in collections that exist as soon as something is in them. Documents that expire
/// are listed by date, in the same transaction that writes them.
///
/// # Guarantees
///
/// Every write is one durable transaction: after it returns, a crash does not undo it; until then, a crash leaves nothing
/// of it. A file belongs to one process at a time; opening it a second time is an error.
///
/// However large the file is, 16 MiB of it are kept in memory at most, to be at hand.
///
/// # Assumptions
///
/// Used within a tokio runtime with its time enabled (`enable_all`): the file is read and written on its blocking threads, and
/// changes of the registry wait for whoever sweeps.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ttl_index::Error> {
/// use std::time::Duration;
/// use ttl_index::{EmbeddedStore, ManualClock, TtlIndex, TtlRegistry, bson::{DateTime, doc}};
///
/// let clock = ManualClock::at(DateTime::from_millis(0));
/// let store = EmbeddedStore::in_memory()?.with_clock(clock.clone());
/// let ttl = TtlRegistry::open(store.clone()).await?;
/// ttl.create_index("sessions", TtlIndex::on("at").expire_after(Duration::from_secs(60))).await?;
///
/// let sessions = store.collection("sessions");
/// sessions.insert_one(doc! { "_id": 1, "at": clock.now() }).await?;
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(ttl.sweep("sessions").await?.deleted, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EmbeddedStore {
    tables: Arc<Tables>,
    clock: Option<ManualClock>,
}

impl EmbeddedStore {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    ///
    /// If another process has it open, or it cannot be read as a store.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if !path.exists() {
            make(path);
        }
        let tables = Tables::open(path)?;
        // A file belongs to one process: whoever swept it before is gone.
        tables.write(|writing| records::remove(writing, Records::Lease, "lease"))?;
        Ok(Self { tables: Arc::new(tables), clock: None })
    }

    /// A store that is gone with its last handle.
    ///
    /// # Errors
    ///
    /// If the storage engine cannot be started.
    pub fn in_memory() -> Result<Self> {
        Ok(Self { tables: Arc::new(Tables::in_memory()?), clock: None })
    }

    /// Goes by this clock instead of the system's.
    pub fn with_clock(mut self, clock: ManualClock) -> Self {
        self.clock = Some(clock);
        self
    }

    fn clock_now(&self) -> DateTime {
        self.clock.as_ref().map_or_else(DateTime::now, ManualClock::now)
    }

    /// A collection, which need not exist.
    pub fn collection(&self, name: impl Into<String>) -> EmbeddedCollection {
        EmbeddedCollection::new(self.tables.clone(), name.into())
    }
}

/// Makes an empty store beside the path and then links it there, so that a process killed in the making leaves no file
/// that can never be opened.
///
/// Whatever goes wrong is left for opening the path to find, and to tell.
fn make(path: &Path) {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".making-{}", ObjectId::new().to_hex()));
    if Tables::open(beside.as_ref()).map(drop).is_ok() {
        // Not renamed: that would replace the file of a process that was quicker.
        let _ = fs::hard_link(&beside, path);
    }
    let _ = fs::remove_file(&beside);
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl sealed::Sealed for EmbeddedStore {
    fn into_store(self) -> sealed::Erased {
        sealed::Erased(Arc::new(self))
    }
}

impl Store for EmbeddedStore {
    fn now(&self) -> BoxFuture<'_, Result<DateTime>> {
        std::future::ready(Ok(self.clock_now())).boxed()
    }

    fn registry(&self) -> BoxFuture<'_, Result<Option<Document>>> {
        blocking(&self.tables, Tables::registry)
    }

    fn revision(&self) -> BoxFuture<'_, Result<Option<i64>>> {
        blocking(&self.tables, Tables::revision)
    }

    fn change_registry(&self, change: Change) -> BoxFuture<'_, Result<Option<i64>>> {
        blocking(&self.tables, |tables| tables.write(|writing| writing.change_registry(change)))
    }

    fn record<'a>(&'a self, kind: Records, id: &'a str) -> BoxFuture<'a, Result<Option<Document>>> {
        let id = id.to_owned();
        blocking(&self.tables, move |tables| records::get(tables, kind, &id))
    }

    fn records(&self, kind: Records) -> BoxFuture<'_, Result<Vec<Document>>> {
        blocking(&self.tables, move |tables| records::all(tables, kind))
    }

    fn set_record<'a>(
        &'a self,
        kind: Records,
        id: &'a str,
        guard: Guard,
        fields: Document,
    ) -> BoxFuture<'a, Result<Option<Document>>> {
        let id = id.to_owned();
        blocking(&self.tables, move |tables| tables.write(|writing| records::set(writing, kind, &id, &guard, fields)))
    }

    fn remove_record<'a>(&'a self, kind: Records, id: &'a str) -> BoxFuture<'a, Result<()>> {
        let id = id.to_owned();
        blocking(&self.tables, move |tables| tables.write(|writing| records::remove(writing, kind, &id)))
    }

    fn estimated_count<'a>(&'a self, collection: &'a CollectionName) -> BoxFuture<'a, Result<Option<u64>>> {
        let collection = self.collection(collection.as_str());
        async move { collection.count().await.map(Some) }.boxed()
    }

    fn now_since(&self, told: DateTime, at: Instant) -> DateTime {
        let _ = (told, at);
        self.clock_now()
    }

    fn lists_by_date(&self) -> bool {
        true
    }

    fn sample<'a>(
        &'a self,
        collection: &'a CollectionName,
        size: u32,
        judge: Judge<'a>,
    ) -> BoxFuture<'a, Result<Sampled>> {
        sample::sample(&self.tables, collection, size, judge).boxed()
    }

    fn wake(&self) -> Option<Wake> {
        Some(self.tables.wake.clone())
    }

    /// Just those with a TTL index: only they are asked for.
    fn collections(&self) -> BoxFuture<'_, Result<HashMap<String, Collection>>> {
        blocking(&self.tables, |tables| {
            let registry = tables.registry()?.unwrap_or_default();
            let name = |entry: Entry| entry.definition.collection.as_str().to_owned();
            rules::understood(&registry)
                .map(name)
                .filter_map(|name| match exists(tables, &name) {
                    Ok(false) => None,
                    Ok(true) => Some(Ok((name, Collection { kind: Kind::Ordinary, ..Collection::default() }))),
                    Err(error) => Some(Err(error)),
                })
                .collect()
        })
    }

    fn indexes<'a>(&'a self, collection: &'a CollectionName) -> BoxFuture<'a, Result<Vec<PhysicalIndex>>> {
        let name = collection.as_str().to_owned();
        blocking(&self.tables, move |tables| {
            let registry = tables.registry()?.unwrap_or_default();
            let entries = rules::understood(&registry).filter(|entry| entry.definition.collection.as_str() == name);
            Ok(entries.filter_map(|entry| listing(&entry)).collect())
        })
    }

    fn index_specs<'a>(&'a self, collection: &'a CollectionName) -> BoxFuture<'a, Result<Vec<Document>>> {
        async move { Ok(self.indexes(collection).await?.iter().map(PhysicalIndex::to_spec).collect()) }.boxed()
    }

    fn inspect<'a>(&'a self, collection: &'a CollectionName) -> BoxFuture<'a, Result<Collection>> {
        async move {
            let indexes = self.indexes(collection).await?;
            let name = collection.as_str().to_owned();
            let exists = blocking(&self.tables, move |tables| exists(tables, &name)).await?;
            let kind = if exists { Kind::Ordinary } else { Kind::Missing };
            Ok(Collection { kind, indexes, ..Collection::default() })
        }
        .boxed()
    }

    /// The registry entry itself makes the store list the documents.
    fn build_index<'a>(
        &'a self,
        _collection: &'a CollectionName,
        index: PhysicalIndex,
    ) -> BoxFuture<'a, Result<PhysicalIndex>> {
        std::future::ready(Ok(index)).boxed()
    }

    fn drop_index<'a>(&'a self, _collection: &'a CollectionName, _name: &'a str) -> BoxFuture<'a, Result<()>> {
        std::future::ready(Ok(())).boxed()
    }

    fn referenced<'a>(&'a self, guard: &'a ReferenceGuard, ids: Ids, now: DateTime) -> BoxFuture<'a, Result<Ids>> {
        let guard = guard.clone();
        blocking(&self.tables, move |tables| guard::referenced(tables, &guard, ids, now))
    }

    /// There are none, and collections come and go with their documents.
    fn indexes_children(&self) -> bool {
        false
    }

    fn touch<'a>(
        &'a self,
        collection: &'a CollectionName,
        rule: &'a Rule,
        ids: Vec<Bson>,
        until: DateTime,
    ) -> BoxFuture<'a, Result<Touched>> {
        let (name, rule) = (collection.as_str().to_owned(), rule.clone());
        blocking(&self.tables, move |tables| tables.write(|writing| guard::touch(writing, &name, &rule, ids, until)))
    }

    fn insert_missing<'a>(
        &'a self,
        collection: &'a CollectionName,
        documents: Vec<RawDocumentBuf>,
    ) -> BoxFuture<'a, Result<Vec<Placed>>> {
        let name = collection.as_str().to_owned();
        blocking(&self.tables, move |tables| {
            tables.write(|writing| documents::insert_missing(writing, &name, &documents))
        })
    }

    fn fetch<'a>(
        &'a self,
        collection: &'a CollectionName,
        ids: Vec<Bson>,
    ) -> BoxFuture<'a, Result<Vec<RawDocumentBuf>>> {
        let name = collection.as_str().to_owned();
        blocking(&self.tables, move |tables| documents::fetch(tables, &name, &ids))
    }

    fn census<'a>(&'a self, of: &'a CensusTarget, range: CensusRange) -> BoxFuture<'a, Result<Option<Census>>> {
        if of.index.is_none() {
            return std::future::ready(Ok(None)).boxed();
        }
        let entry = of.entry;
        blocking(&self.tables, move |tables| census::count(tables, entry, range).map(Some))
    }

    fn open_pass(&self, target: Target) -> BoxFuture<'_, Result<Box<dyn Pass>>> {
        let pass: Box<dyn Pass> = Box::new(EmbeddedPass::new(self.tables.clone(), target));
        std::future::ready(Ok(pass)).boxed()
    }
}

fn exists(tables: &Tables, collection: &str) -> Result<bool> {
    Ok(!tables.scan(collection, None, 1, |_, _| true)?.is_empty())
}

/// The list of an entry's documents by date, told as the index that it serves as.
fn listing(entry: &Entry) -> Option<PhysicalIndex> {
    let noted = entry.supporting.as_ref()?;
    Some(PhysicalIndex {
        name: noted.name.clone(),
        key: entry.definition.key(),
        partial_filter: entry.definition.partial_filter.clone(),
        hidden: false,
        native_ttl: false,
    })
}

/// Runs `work` where it may block.
fn blocking<T: Send + 'static>(
    tables: &Arc<Tables>,
    work: impl FnOnce(&Tables) -> Result<T> + Send + 'static,
) -> BoxFuture<'static, Result<T>> {
    let tables = tables.clone();
    async move {
        match tokio::task::spawn_blocking(move || work(&tables)).await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => Err(Error::embedded("running on a thread that may block")(error)),
            },
        }
    }
    .boxed()
}
