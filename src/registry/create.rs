//! `create_index`.

use std::future::IntoFuture;

use futures_util::{FutureExt, future::BoxFuture};
use mongodb::bson::{Document, doc, oid::ObjectId};
use tracing::{info, warn};

use super::{IndexInfo, Slot, Snapshot, TtlRegistry, drop::drop_supporting, modify, supporting};
use crate::{
    entry::{Entry, IndexState},
    error::{Code, Error, Refusal, Result},
    expiry::Rule,
    index::{Definition, TtlIndex, same_filter},
    store::{Change, Collection, Kind, MAX_INDEXES, Store},
};

impl TtlRegistry {
    /// Makes a TTL index on a collection, which need not exist.
    ///
    /// Takes a [`TtlIndex`], the driver's [`IndexModel`](mongodb::IndexModel), or a specification document.
    ///
    /// # Guarantees
    ///
    /// One TTL index on a collection, 500 in a database, under any concurrency. An identical definition again is fine,
    /// and finishes what an interrupted creation left undone. Documents that have expired already are deleted from the
    /// next sweep on.
    ///
    /// # Errors
    ///
    /// A [`Refusal`] with MongoDB's code, and nothing is changed: compound keys, `_id`, special kinds, capped
    /// collections, views, time series, a period that is not a whole number of seconds from 0 to 2,147,483,647, a second
    /// TTL index, a 501st, a name or key in use with other options, a native TTL index on the collection, a partial
    /// filter that compares strings where a collation would compare them differently.
    ///
    /// Source: replies of MongoDB 6.0.5; limits from the manual of Firestore.
    pub fn create_index(&self, collection: impl Into<String>, index: impl Into<TtlIndex>) -> CreateIndex<'_> {
        CreateIndex { registry: self, collection: collection.into(), index: index.into(), or_modify: false }
    }
}

/// Makes a TTL index; see [`TtlRegistry::create_index`].
#[derive(Debug)]
#[must_use = "nothing happens until it is awaited"]
pub struct CreateIndex<'a> {
    registry: &'a TtlRegistry,
    collection: String,
    index: TtlIndex,
    or_modify: bool,
}

impl CreateIndex<'_> {
    /// Whether to change the period of the same index with another one, instead of refusing; off by default.
    pub fn or_modify(mut self, value: bool) -> Self {
        self.or_modify = value;
        self
    }
}

impl<'a> IntoFuture for CreateIndex<'a> {
    type Output = Result<IndexInfo>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let created = match Definition::parse(&self.collection, &self.index) {
                Ok(definition) => create(&*self.registry.store, definition, self.or_modify).await,
                Err(refusal) => Err(refusal.into()),
            };
            self.registry.told("create_index", &self.collection, &self.index.presumed_name(), created)
        }
        .boxed()
    }
}

async fn create(store: &dyn Store, definition: Definition, or_modify: bool) -> Result<IndexInfo> {
    let rule = Rule::of(&definition)?;
    loop {
        let snapshot = Snapshot::load(store).await?;
        match snapshot.find(&definition.collection) {
            Some(Slot::Broken(broken)) => return Err(broken.refusal().into()),
            Some(Slot::Good(existing)) => return again(store, existing, &definition, &rule, or_modify).await,
            None if snapshot.slots.len() >= MAX_INDEXES => return Err(limit_reached().into()),
            None => {}
        }
        let collection = store.inspect(&definition.collection).await?;
        check_collection(&definition, &rule, &collection)?;
        let plan = supporting::plan(&definition, None, &collection)?;
        let entry = Entry {
            id: ObjectId::new(),
            definition: definition.clone(),
            rule: rule.clone(),
            state: IndexState::Creating,
            supporting: plan.noted(),
            uuid: collection.uuid,
            created_at: store.now().await?,
        };
        // The registry first: documents written from now on are covered, and a crash leaves a creation to be continued
        // instead of an index that nobody knows.
        if store.change_registry(Change::Add(entry.to_document())).await?.is_some() {
            let finished = finish(store, entry.clone(), plan).await;
            if let Err(error) = &finished {
                undo(store, &entry, error).await;
            }
            return finished;
        }
        // Somebody else was quicker: look again who, and what is left to do.
    }
}

/// The collection has a TTL index already.
async fn again(
    store: &dyn Store,
    existing: &Entry,
    wanted: &Definition,
    rule: &Rule,
    or_modify: bool,
) -> Result<IndexInfo> {
    let relation = compare(&existing.definition, wanted);
    let modified = relation == Relation::OtherPeriod && or_modify;
    if relation != Relation::Identical && !modified {
        return Err(relation.refusal(&existing.definition, wanted).into());
    }
    let collection = store.inspect(&wanted.collection).await?;
    check_collection(wanted, rule, &collection)?;
    let plan = supporting::plan(&existing.definition, existing.supporting.as_ref(), &collection)?;
    if modified {
        modify::set_period(store, existing.id, wanted.expire_after).await?;
    }
    let mut entry = existing.clone();
    entry.definition.expire_after = wanted.expire_after;
    entry.supporting = plan.noted();
    entry.uuid = collection.uuid;
    let done = existing.state == IndexState::Active
        && entry.supporting == existing.supporting
        && entry.uuid == existing.uuid
        && !matches!(plan, supporting::Plan::Build(_));
    if done { Ok(IndexInfo::of(&entry)) } else { finish(store, entry, plan).await }
}

/// Builds what is to be built and notes that the index is active.
async fn finish(store: &dyn Store, mut entry: Entry, plan: supporting::Plan) -> Result<IndexInfo> {
    let collection = entry.definition.collection.clone();
    if let supporting::Plan::Build(index) = plan {
        store.build_index(&collection, index).await?;
        // Building may have made the collection, and with it its identity.
        entry.uuid = store.inspect(&collection).await?.uuid;
    }
    entry.state = IndexState::Active;
    let mut fields: Document = doc! { "state": entry.state.as_str(), "supportingIndex": entry.supporting_document() };
    fields.extend(entry.uuid.clone().map(|uuid| ("collectionUUID".to_owned(), uuid.into())));
    if store.change_registry(Change::Set { entry: entry.id, fields, revision: None }).await?.is_none() {
        if let Some(index) = entry.supporting.filter(|index| index.created) {
            store.drop_index(&collection, &index.name).await?;
        }
        return Err(Refusal::new(
            Code::IndexNotFound,
            format!("the TTL index {} of {collection} was dropped while it was being made", entry.definition.name),
        )
        .into());
    }
    info!(%collection, index = entry.definition.name, "TTL index active");
    Ok(IndexInfo::of(&entry))
}

/// Takes a failed creation back, first the supporting index and then the entry. If that fails too, the entry stays
/// `CREATING`, to be finished or dropped: without it nobody would know whose the index is.
async fn undo(store: &dyn Store, entry: &Entry, after: &Error) {
    let conflicts = [Code::IndexOptionsConflict, Code::IndexKeySpecsConflict].map(|code| Some(code.number()));
    let undone = async {
        // An index that stood in the way is somebody else's.
        if !conflicts.contains(&after.code()) {
            drop_supporting(store, entry).await?;
        }
        // Unless an identical creation finished it meanwhile.
        store.change_registry(Change::TakeBack { entry: entry.id }).await
    };
    if let Err(error) = undone.await {
        warn!(collection = %entry.definition.collection, %error, "a failed creation could not be taken back");
    }
}

fn check_collection(definition: &Definition, rule: &Rule, collection: &Collection) -> Result<(), Refusal> {
    collection.kind.check(&definition.collection)?;
    if let Some(native) = collection.indexes.iter().find(|index| index.native_ttl) {
        return Err(Refusal::new(
            Code::IndexOptionsConflict,
            format!(
                "{} has the database's own TTL index {} already, which deletes by its own rule; drop that one first",
                definition.collection, native.name
            ),
        ));
    }
    rule.check_collation(collection.default_collation)?;
    debug_assert!(matches!(collection.kind, Kind::Missing | Kind::Ordinary));
    Ok(())
}

fn limit_reached() -> Refusal {
    Refusal::new(
        Code::CannotCreateIndex,
        format!("this database has {MAX_INDEXES} TTL indexes, the most there may be; drop one first"),
    )
}

/// How a wanted definition stands to the one that is there.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Relation {
    Identical,
    OtherPeriod,
    OtherName,
    OtherSupport,
    SameNameOnly,
    Another,
}

fn compare(existing: &Definition, wanted: &Definition) -> Relation {
    let same_index = existing.field == wanted.field
        && existing.direction == wanted.direction
        && same_filter(existing.partial_filter.as_ref(), wanted.partial_filter.as_ref());
    match (same_index, existing.name == wanted.name) {
        (true, true) if existing.expire_after != wanted.expire_after => Relation::OtherPeriod,
        (true, true) if existing.supporting_index != wanted.supporting_index => Relation::OtherSupport,
        (true, true) => Relation::Identical,
        (true, false) => Relation::OtherName,
        (false, true) => Relation::SameNameOnly,
        (false, false) => Relation::Another,
    }
}

impl Relation {
    fn refusal(self, existing: &Definition, wanted: &Definition) -> Refusal {
        let collection = &existing.collection;
        let show = |d: &Definition| {
            format!("{{ key: {}, name: \"{}\", expireAfterSeconds: {} }}", d.key(), d.name, d.expire_after.seconds())
        };
        let both = format!("Requested index: {}, existing index: {}", show(wanted), show(existing));
        let (code, message) = match self {
            Relation::Identical | Relation::OtherPeriod => (
                Code::IndexOptionsConflict,
                format!(
                    "An equivalent index already exists with the same name but different options; \
                     modify its period instead. {both}"
                ),
            ),
            Relation::OtherName => (
                Code::IndexOptionsConflict,
                format!("Index already exists with a different name: {}. {both}", existing.name),
            ),
            Relation::OtherSupport => (
                Code::IndexOptionsConflict,
                format!(
                    "The same index exists on {collection} with another choice of supporting index; \
                     drop it first, or ask for the same"
                ),
            ),
            Relation::SameNameOnly => (
                Code::IndexKeySpecsConflict,
                format!("An existing index has the same name as the requested index. {both}"),
            ),
            Relation::Another => (
                Code::CannotCreateIndex,
                format!(
                    "{collection} has the TTL index \"{}\" already, and a collection has one at most; \
                     drop it first. {both}",
                    existing.name
                ),
            ),
        };
        Refusal::new(code, message)
    }
}
