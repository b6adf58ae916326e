//! Lets a test act between the steps of a pass on a real store, or make a step fail.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf};
use tokio::time::Instant;

use super::{
    Census, CensusRange, CensusTarget, Change, Collection, Deletion, DynStore, Found, Guard, IntoStore, Judge, Pass,
    PhysicalIndex, Placed, Position, Records, Sampled, Store, Target, Touched, Wake, id_bytes, sealed,
};
use crate::{
    entry::Entry,
    error::{Error, Result},
    expiry::Rule,
    guard::{Ids, ReferenceGuard},
    namespace::CollectionName,
};

/// What a hook does to the delete it was called before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing: the delete is carried out, and its reply arrives.
    #[default]
    None,
    /// The delete is carried out and its reply is lost.
    ReplyLost,
    /// The delete is carried out and its reply claims this count.
    Count(u64),
    /// The delete is not carried out; the reply says that nothing was deleted.
    Ineffective,
    /// The delete is not carried out and fails.
    Fails,
    /// As before, and nothing tells whether it was sent.
    Breaks,
    /// The delete is not carried out, nor can it be read what became of the documents.
    Blinds,
}

type BeforeGuard = Arc<dyn Fn(Vec<Bson>) -> BoxFuture<'static, ()> + Send + Sync>;
type BeforeDelete = Arc<dyn Fn(Vec<Bson>) -> BoxFuture<'static, Fault> + Send + Sync>;

/// A real store, with a hook between finding documents and deleting them. For tests; unstable.
#[derive(Clone)]
pub struct HookedStore {
    inner: DynStore,
    before_guard: Option<BeforeGuard>,
    before_delete: BeforeDelete,
    spared: Arc<HashSet<Vec<u8>>>,
}

impl HookedStore {
    /// Calls `hook` with the `_id`s of each batch, after they were found and before they are deleted.
    pub fn new<F>(store: impl IntoStore, hook: impl Fn(Vec<Bson>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Fault> + Send + 'static,
    {
        let before_delete = Arc::new(move |ids| hook(ids).boxed());
        Self { inner: store.into_store().0, before_guard: None, before_delete, spared: Arc::default() }
    }

    /// Calls `hook` with the `_id`s of each batch, after they were found and before a guard is asked about them.
    pub fn before_guard<F>(mut self, hook: impl Fn(Vec<Bson>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.before_guard = Some(Arc::new(move |ids| hook(ids).boxed()));
        self
    }

    /// Leaves the documents with these `_id`s out of every delete, as if the database could not delete them.
    pub fn sparing(mut self, ids: impl IntoIterator<Item = Bson>) -> Self {
        self.spared = Arc::new(ids.into_iter().map(|id| id_bytes(&id)).collect());
        self
    }
}

/// What was counted: each slice with documents, up to where everything was if the limit came first, and how many documents
/// have several dates.
pub type CountedByDate = (Vec<(DateTime, u64)>, Option<DateTime>, u64);

impl HookedStore {
    /// Counts the documents of a TTL index by their date, beyond `from` and up to `until`, as the sweeper does to plan.
    ///
    /// # Errors
    ///
    /// If the database is away, or the collection has no TTL index.
    pub async fn count_by_date(
        &self,
        collection: &str,
        (from, until): (Option<DateTime>, DateTime),
        slice: Duration,
        limit: u64,
    ) -> Result<Option<CountedByDate>> {
        let registry = self.inner.registry().await?.unwrap_or_default();
        let entries = registry.get_array("indexes").map(Vec::as_slice).unwrap_or_default();
        let mut entries = entries.iter().filter_map(|entry| Entry::parse(entry.as_document()?).ok());
        let entry = entries.find(|entry| entry.definition.collection.as_str() == collection);
        let entry = entry.ok_or_else(|| Error::Unreadable(format!("{collection} has no TTL index")))?;
        let indexes = self.inner.indexes(&entry.definition.collection).await?;
        let index = indexes.into_iter().find(|index| Some(&index.name) == entry.supporting.as_ref().map(|it| &it.name));
        let of = CensusTarget { entry: entry.id, collection: entry.definition.collection, rule: entry.rule, index };
        // As a sweeper counts: the backend is known by then.
        self.inner.settle_time().await?;
        let census = self.inner.census(&of, CensusRange { from, until, slice, limit }).await?;
        Ok(census.map(|census| (census.slices, census.reached, census.several)))
    }
}

impl fmt::Debug for HookedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookedStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl sealed::Sealed for HookedStore {
    fn into_store(self) -> sealed::Erased {
        sealed::Erased(Arc::new(self))
    }
}

impl Store for HookedStore {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn now(&self) -> BoxFuture<'_, Result<DateTime>> {
        self.inner.now()
    }

    fn registry(&self) -> BoxFuture<'_, Result<Option<Document>>> {
        self.inner.registry()
    }

    fn revision(&self) -> BoxFuture<'_, Result<Option<i64>>> {
        self.inner.revision()
    }

    fn change_registry(&self, change: Change) -> BoxFuture<'_, Result<Option<i64>>> {
        self.inner.change_registry(change)
    }

    fn record<'a>(&'a self, kind: Records, id: &'a str) -> BoxFuture<'a, Result<Option<Document>>> {
        self.inner.record(kind, id)
    }

    fn records(&self, kind: Records) -> BoxFuture<'_, Result<Vec<Document>>> {
        self.inner.records(kind)
    }

    fn set_record<'a>(
        &'a self,
        kind: Records,
        id: &'a str,
        guard: Guard,
        fields: Document,
    ) -> BoxFuture<'a, Result<Option<Document>>> {
        self.inner.set_record(kind, id, guard, fields)
    }

    fn remove_record<'a>(&'a self, kind: Records, id: &'a str) -> BoxFuture<'a, Result<()>> {
        self.inner.remove_record(kind, id)
    }

    fn estimated_count<'a>(&'a self, collection: &'a CollectionName) -> BoxFuture<'a, Result<Option<u64>>> {
        self.inner.estimated_count(collection)
    }

    fn now_since(&self, told: DateTime, at: Instant) -> DateTime {
        self.inner.now_since(told, at)
    }

    fn settle_time(&self) -> BoxFuture<'_, Result<Duration>> {
        self.inner.settle_time()
    }

    fn told_time(&self) -> BoxFuture<'_, Result<Option<DateTime>>> {
        self.inner.told_time()
    }

    fn lists_by_date(&self) -> bool {
        self.inner.lists_by_date()
    }

    fn sample<'a>(
        &'a self,
        collection: &'a CollectionName,
        size: u32,
        judge: Judge<'a>,
    ) -> BoxFuture<'a, Result<Sampled>> {
        self.inner.sample(collection, size, judge)
    }

    fn wake(&self) -> Option<Wake> {
        self.inner.wake()
    }

    fn collections(&self) -> BoxFuture<'_, Result<HashMap<String, Collection>>> {
        self.inner.collections()
    }

    fn indexes<'a>(&'a self, collection: &'a CollectionName) -> BoxFuture<'a, Result<Vec<PhysicalIndex>>> {
        self.inner.indexes(collection)
    }

    fn index_specs<'a>(&'a self, collection: &'a CollectionName) -> BoxFuture<'a, Result<Vec<Document>>> {
        self.inner.index_specs(collection)
    }

    fn inspect<'a>(&'a self, collection: &'a CollectionName) -> BoxFuture<'a, Result<Collection>> {
        self.inner.inspect(collection)
    }

    fn build_index<'a>(
        &'a self,
        collection: &'a CollectionName,
        index: PhysicalIndex,
    ) -> BoxFuture<'a, Result<PhysicalIndex>> {
        self.inner.build_index(collection, index)
    }

    fn drop_index<'a>(&'a self, collection: &'a CollectionName, name: &'a str) -> BoxFuture<'a, Result<()>> {
        self.inner.drop_index(collection, name)
    }

    fn referenced<'a>(&'a self, guard: &'a ReferenceGuard, ids: Ids, now: DateTime) -> BoxFuture<'a, Result<Ids>> {
        async move {
            if let Some(hook) = &self.before_guard {
                hook(ids.unreferenced()).await;
            }
            self.inner.referenced(guard, ids, now).await
        }
        .boxed()
    }

    fn indexes_children(&self) -> bool {
        self.inner.indexes_children()
    }

    fn touch<'a>(
        &'a self,
        collection: &'a CollectionName,
        rule: &'a Rule,
        ids: Vec<Bson>,
        until: DateTime,
    ) -> BoxFuture<'a, Result<Touched>> {
        self.inner.touch(collection, rule, ids, until)
    }

    fn insert_missing<'a>(
        &'a self,
        collection: &'a CollectionName,
        documents: Vec<RawDocumentBuf>,
    ) -> BoxFuture<'a, Result<Vec<Placed>>> {
        self.inner.insert_missing(collection, documents)
    }

    fn fetch<'a>(
        &'a self,
        collection: &'a CollectionName,
        ids: Vec<Bson>,
    ) -> BoxFuture<'a, Result<Vec<RawDocumentBuf>>> {
        self.inner.fetch(collection, ids)
    }

    fn census<'a>(&'a self, of: &'a CensusTarget, range: CensusRange) -> BoxFuture<'a, Result<Option<Census>>> {
        self.inner.census(of, range)
    }

    fn open_pass(&self, target: Target) -> BoxFuture<'_, Result<Box<dyn Pass>>> {
        async move {
            let inner = self.inner.open_pass(target).await?;
            let hooks = self.clone();
            Ok(Box::new(HookedPass { inner, hooks, blind: false }) as Box<dyn Pass>)
        }
        .boxed()
    }
}

struct HookedPass {
    inner: Box<dyn Pass>,
    hooks: HookedStore,
    blind: bool,
}

impl Pass for HookedPass {
    fn find<'a>(&'a mut self, position: &'a Position, limit: u32) -> BoxFuture<'a, Result<Vec<Found>>> {
        self.inner.find(position, limit)
    }

    fn ordered(&self) -> bool {
        self.inner.ordered()
    }

    fn reads_ahead(&self) -> bool {
        self.inner.reads_ahead()
    }

    fn without_index(&mut self, after: &Error) -> bool {
        self.inner.without_index(after)
    }

    fn delete<'a>(&'a mut self, doomed: &'a [Found], until: DateTime) -> BoxFuture<'a, Result<Deletion>> {
        async move {
            let lost = || Error::Unreadable("a fault was asked for".to_owned());
            let fault = (self.hooks.before_delete)(doomed.iter().map(|found| found.id.clone()).collect()).await;
            let spared = |found: &&Found| self.hooks.spared.contains(&id_bytes(&found.id));
            let deletable: Vec<Found> = doomed.iter().filter(|found| !spared(found)).cloned().collect();
            match fault {
                Fault::None => self.inner.delete(&deletable, until).await,
                Fault::ReplyLost => self.inner.delete(&deletable, until).await.map(|_| Deletion::Uncertain(lost())),
                Fault::Count(count) => self.inner.delete(&deletable, until).await.map(|_| Deletion::Done(count)),
                Fault::Ineffective => Ok(Deletion::Done(0)),
                Fault::Fails => Ok(Deletion::Uncertain(lost())),
                Fault::Breaks => Err(lost()),
                Fault::Blinds => {
                    self.blind = true;
                    Ok(Deletion::Done(0))
                }
            }
        }
        .boxed()
    }

    fn unrepeatable(&self, found: &Found) -> Option<String> {
        self.inner.unrepeatable(found)
    }

    fn next_date(&mut self) -> BoxFuture<'_, Result<Option<DateTime>>> {
        self.inner.next_date()
    }

    fn read_again(&mut self, ids: Vec<Bson>) -> BoxFuture<'_, Result<Vec<RawDocumentBuf>>> {
        if self.blind {
            let error = Error::Unreadable("a fault was asked for".to_owned());
            return std::future::ready(Err(error)).boxed();
        }
        self.inner.read_again(ids)
    }
}
