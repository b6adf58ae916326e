//! `create_index`.

use std::future::IntoFuture;

use futures_util::{FutureExt, future::BoxFuture};
use mongodb::bson::oid::ObjectId;

use super::{IndexInfo, Slot, Snapshot, TtlRegistry, continuation, creation, guards, modify, supporting};
use crate::{
    entry::{Entry, IndexState},
    error::{Code, Refusal, Result},
    expiry::Rule,
    guard::Guards,
    index::{Definition, TtlIndex, same_filter},
    lease::{MAX_WAIT, wait_until_acknowledged},
    store::{Change, DynStore, MAX_INDEXES},
};

impl TtlRegistry {
    /// Makes a TTL index on a collection, which need not exist.
    ///
    /// Takes a [`TtlIndex`], the driver's [`IndexModel`](mongodb::IndexModel), or a specification document.
    ///
    /// # Guarantees
    ///
    /// One TTL index on a collection, 500 in a database, under any concurrency. An identical definition again is fine,
    /// and finishes what an interrupted creation left undone, or [repairs](TtlRegistry::repair) what needs it. How it
    /// goes is told by an [operation](TtlRegistry::operations). Documents that have expired already are deleted from the
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
    ///
    /// After it returns nothing is deleted by the old period any more, as with [`modify_index`](TtlRegistry::modify_index),
    /// and [`Error::NotYetGuaranteed`](crate::Error::NotYetGuaranteed) says that whoever sweeps has not confirmed in time.
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
                Ok(definition) => create(&self.registry.store, definition, self.or_modify).await,
                Err(refusal) => Err(refusal.into()),
            };
            self.registry.told("create_index", &self.collection, &self.index.presumed_name(), created)
        }
        .boxed()
    }
}

async fn create(shared: &DynStore, definition: Definition, or_modify: bool) -> Result<IndexInfo> {
    let (rule, guards, store) = (Rule::of(&definition)?, Guards::parse(&definition.guards)?, &**shared);
    loop {
        let snapshot = Snapshot::load(store).await?;
        match snapshot.find(&definition.collection) {
            Some(Slot::Broken(broken)) => return Err(broken.refusal().into()),
            Some(Slot::Good(existing)) => return again(shared, existing, (&definition, &guards), or_modify).await,
            None if snapshot.slots.len() >= MAX_INDEXES => return Err(limit_reached().into()),
            None => {}
        }
        // What an interrupted drop has left must not be taken for an index of the user's.
        continuation::finish_drops(store, &definition.collection).await;
        let collection = store.inspect(&definition.collection).await?;
        creation::check_collection(&definition, &rule, &collection)?;
        let plan = supporting::plan(&definition, None, &collection)?;
        guards::check_children(store, &guards).await?;
        let now = store.now().await?;
        let entry = Entry {
            id: ObjectId::new(),
            definition: definition.clone(),
            rule: rule.clone(),
            guards: guards.clone(),
            state: IndexState::Creating,
            supporting: plan.noted(),
            uuid: collection.uuid,
            created_at: now,
            rule_since: now,
            target_lag: None,
            max_rate: None,
            problem: None,
        };
        // The registry first: documents written from now on are covered, and a crash leaves a creation to be continued
        // instead of an index that nobody knows.
        if store.change_registry(Change::Add(entry.to_document())).await?.is_some() {
            return creation::carry_out(store, entry, plan).await;
        }
        // Somebody else was quicker: look again who, and what is left to do.
    }
}

/// The collection has a TTL index already.
async fn again(
    shared: &DynStore,
    existing: &Entry,
    (wanted, guards): (&Definition, &Guards),
    or_modify: bool,
) -> Result<IndexInfo> {
    let store = &**shared;
    let relation = match compare(&existing.definition, wanted) {
        Relation::Identical | Relation::OtherPeriod if !existing.guards.same_as(guards) => Relation::OtherGuards,
        relation => relation,
    };
    let modified = relation == Relation::OtherPeriod && or_modify;
    if relation != Relation::Identical && !modified {
        return Err(relation.refusal(&existing.definition, wanted).into());
    }
    let (mut entry, plan) = creation::what_is_left(store, existing).await?;
    if modified {
        let set = modify::set_period(store, existing.id, wanted.expire_after, None).await?;
        let revision = set.ok_or_else(modify::dropped)?;
        wait_until_acknowledged(shared, revision, MAX_WAIT).await?;
        entry.definition.expire_after = wanted.expire_after;
    }
    let done = existing.state == IndexState::Active
        && entry.supporting == existing.supporting
        && entry.uuid == existing.uuid
        && !matches!(plan, supporting::Plan::Build(_));
    if done {
        continuation::finish_telling(store, existing).await;
        return Ok(IndexInfo::of(&entry));
    }
    creation::carry_on(store, entry, plan).await
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
    OtherGuards,
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
            Relation::OtherGuards => (
                Code::IndexOptionsConflict,
                format!(
                    "The same index exists on {collection} with other guards; set its guards instead (set_guards, or the \
                     command guard), or ask for the same"
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
