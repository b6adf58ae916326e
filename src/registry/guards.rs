//! Guards: declaring them, and asking them.

use std::future::IntoFuture;

use futures_util::{FutureExt, future::BoxFuture};
use mongodb::bson::{Bson, DateTime, Document, doc};

use super::{IndexInfo, Slot, Snapshot, TtlRegistry, no_index};
use crate::{
    error::{Code, Error, Refusal, Result},
    guard::{Guards, Hook, Ids, Reference, ReferenceGuard, Veto},
    lease::{MAX_WAIT, wait_until_acknowledged},
    namespace::CollectionName,
    store::{Change, Kind, PhysicalIndex, Store},
};

impl TtlRegistry {
    /// Declares what keeps documents of a collection that are due, instead of what was declared before; nothing, if `guards`
    /// is empty.
    ///
    /// # Guarantees
    ///
    /// One atomic change. After it returns nothing is deleted in any process without these guards having been asked: whoever
    /// sweeps has confirmed it at the end of a batch, or its lease is over. Documents that the former guards kept and these
    /// do not are due from then on, and go with the next visit. An entry of the registry whose guards cannot be understood is
    /// mended by this.
    ///
    /// # Errors
    ///
    /// [`Error::NotYetGuaranteed`] if whoever sweeps has not confirmed in time; the guards are declared all the same.
    ///
    /// Refused if the collection has no TTL index, or a guard cannot be understood; on MongoDB also if the collection of the
    /// children is missing, or has no index on their field, unless the guard does [without](Reference::without_index).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ttl_index::Error> {
    /// # use std::time::Duration;
    /// # use ttl_index::{EmbeddedStore, Reference, TtlIndex, TtlRegistry};
    /// # let ttl = TtlRegistry::open(EmbeddedStore::in_memory()?).await?;
    /// # ttl.create_index("articles", TtlIndex::on("at").expire_after(Duration::ZERO)).await?;
    /// ttl.set_guards("articles", [Reference::by("likes", "article_id")]).await?;
    /// assert_eq!(ttl.list_indexes().await?[0].guards.len(), 1);
    /// ttl.set_guards("articles", [] as [Reference; 0]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_guards(
        &self,
        collection: impl Into<String>,
        guards: impl IntoIterator<Item = impl Into<Document>>,
    ) -> SetGuards<'_> {
        let guards = guards.into_iter().map(Into::into).collect();
        SetGuards { registry: self, collection: collection.into(), guards, max_wait: MAX_WAIT }
    }

    /// The same registry, whose sweeps ask this hook about every batch: those of this handle, its clones, and the sweepers
    /// that are made of it. By default no hook is asked.
    pub fn with_veto(mut self, veto: impl Veto + 'static) -> Self {
        self.veto = Some(Hook(std::sync::Arc::new(veto)));
        self
    }

    /// Which declared guard keeps each of these documents just now, in the order of the `_id`s; none if none does.
    ///
    /// What a hook would decide is not asked, nor whether the document is due.
    ///
    /// # Errors
    ///
    /// Refused if the collection has no TTL index, or one that cannot be understood, or an `_id` cannot be one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ttl_index::Error> {
    /// # use std::time::Duration;
    /// # use ttl_index::{EmbeddedStore, Reference, TtlIndex, TtlRegistry, bson::doc};
    /// # let store = EmbeddedStore::in_memory()?;
    /// # let ttl = TtlRegistry::open(store.clone()).await?;
    /// let articles = TtlIndex::on("at").expire_after(Duration::ZERO);
    /// ttl.create_index("articles", articles.keep_while(Reference::by("likes", "article_id"))).await?;
    /// store.collection("likes").insert_one(doc! { "article_id": 1 }).await?;
    /// let kept = ttl.kept("articles", [1, 2]).await?;
    /// assert_eq!(kept[0].as_ref().unwrap().to_string(), "\"likes\" has one with article_id = its _id");
    /// assert!(kept[1].is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn kept(
        &self,
        collection: impl AsRef<str>,
        ids: impl IntoIterator<Item = impl Into<Bson>>,
    ) -> Result<Vec<Option<Reference>>> {
        let ids: Vec<Bson> = ids.into_iter().map(Into::into).collect();
        check_ids(&ids)?;
        let collection = CollectionName::parse(collection.as_ref())?;
        let snapshot = Snapshot::load(&*self.store).await?;
        let guards = &snapshot.understood(&collection)?.guards;
        let keepers = keepers(&*self.store, guards, &ids, self.store.now().await?).await?;
        let reference = |guard: &ReferenceGuard| Reference::from(guard.to_document());
        Ok(keepers.into_iter().map(|keeper| keeper.map(reference)).collect())
    }
}

/// Declares guards; see [`TtlRegistry::set_guards`].
#[derive(Debug)]
#[must_use = "nothing happens until it is awaited"]
pub struct SetGuards<'a> {
    registry: &'a TtlRegistry,
    collection: String,
    guards: Vec<Document>,
    max_wait: std::time::Duration,
}

impl<'a> IntoFuture for SetGuards<'a> {
    type Output = Result<IndexInfo>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let mut name = String::new();
            let set = self.set(&mut name).await;
            self.registry.told("set_guards", &self.collection, &name, set)
        }
        .boxed()
    }
}

impl SetGuards<'_> {
    /// How long to wait for whoever sweeps to confirm; 60 s by default.
    pub fn max_wait(mut self, time: std::time::Duration) -> Self {
        self.max_wait = time;
        self
    }

    /// Leaves the index's name in `name` as soon as it is known.
    async fn set(&self, name: &mut String) -> Result<IndexInfo> {
        let collection = CollectionName::parse(&self.collection)?;
        let guards = Guards::parse(&self.guards)?;
        let store = &*self.registry.store;
        let snapshot = Snapshot::load(store).await?;
        let slot = snapshot.find(&collection).ok_or_else(|| no_index(&collection))?;
        slot.name().clone_into(name);
        let entry = match slot {
            Slot::Good(entry) => entry.id,
            Slot::Broken(broken) => broken.id.ok_or_else(|| Error::from(broken.refusal()))?,
        };
        check_children(store, &guards).await?;
        let specs: Vec<Document> = guards.iter().map(ReferenceGuard::to_document).collect();
        // What was kept until now has not been due for any time.
        let fields = doc! { "guards": specs, "ruleSince": store.now().await? };
        let Some(revision) = store.change_registry(Change::Set { entry, fields, revision: None }).await? else {
            let why = "the TTL index was dropped while its guards were being set";
            return Err(Refusal::new(Code::IndexNotFound, why).into());
        };
        wait_until_acknowledged(&self.registry.store, revision, self.max_wait).await?;
        Ok(IndexInfo::of(Snapshot::load(store).await?.understood(&collection)?))
    }
}

/// Refuses guards whose children cannot be found, or only by reading all of them.
pub(super) async fn check_children(store: &dyn Store, guards: &Guards) -> Result<()> {
    if !store.indexes_children() {
        return Ok(());
    }
    for guard in guards.iter() {
        let (collection, field) = (&guard.collection, guard.field.as_str());
        let children = store.inspect(collection).await?;
        let create = format!("db.getCollection(\"{collection}\").createIndex({{\"{field}\": 1}})");
        let why = match children.kind {
            Kind::Missing => {
                format!("{collection} is not there, so that nothing would be kept; make it first, by {create}")
            }
            _ if guard.without_index || children.indexes.iter().any(|index| serves(index, field)) => continue,
            Kind::View | Kind::TimeSeries => format!(
                "{collection} is not an ordinary collection; whether the children are found by an index cannot be told. Say \
                 so, by withoutIndex"
            ),
            Kind::Ordinary | Kind::Capped => format!(
                "{collection} has no index on {field}, so that every batch would read all of it; make one first, by {create}, \
                 or say that it shall be so, by withoutIndex"
            ),
        };
        return Err(Refusal::new(Code::InvalidOptions, format!("the guard {}: {why}", guard.to_document())).into());
    }
    Ok(())
}

/// Whether the children of a document are found by this index.
pub(crate) fn serves(index: &PhysicalIndex, field: &str) -> bool {
    let first = index.key.keys().next().is_some_and(|first| first == field);
    first && index.partial_filter.is_none() && !index.hidden
}

/// The first guard that keeps each of the documents, in the order of their `_id`s.
pub(crate) async fn keepers<'g>(
    store: &dyn Store,
    guards: &'g Guards,
    ids: &[Bson],
    now: DateTime,
) -> Result<Vec<Option<&'g ReferenceGuard>>> {
    let mut keepers = vec![None; ids.len()];
    for guard in guards.iter() {
        let open = keepers.iter().zip(ids).filter(|(keeper, _)| keeper.is_none());
        let open: Vec<Bson> = open.map(|(_, id)| id.clone()).collect();
        if open.is_empty() {
            break;
        }
        let asked = store.referenced(guard, Ids::new(open), now).await?;
        for (keeper, _) in keepers.iter_mut().zip(ids).filter(|(_, id)| asked.is_referenced(id)) {
            keeper.get_or_insert(guard);
        }
    }
    Ok(keepers)
}

/// Refuses what cannot be an `_id`, and would mean something else to a query.
pub(super) fn check_ids(ids: &[Bson]) -> Result<(), Refusal> {
    let bad = |id: &&Bson| matches!(id, Bson::Array(_) | Bson::RegularExpression(_) | Bson::Undefined);
    match ids.iter().find(bad) {
        None => Ok(()),
        Some(id) => Err(Refusal::new(Code::BadValue, format!("the '_id' value cannot be of this type: {id}"))),
    }
}
