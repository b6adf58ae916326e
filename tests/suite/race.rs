//! What becomes of documents that change between being found and being deleted.
//!
//! The hook holds the pass at the very instant at which a document can be rescued, so that nothing here depends on luck.

mod changed_rule;
mod faults;
mod held;
mod lost_answers;
mod odd_documents;
mod server_trouble;

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use mongodb::bson::{Bson, DateTime, Document, doc};
use ttl_index::{Ended, Error, Fault, HookedStore, MongoStore, SweepReport, TtlIndex, TtlRegistry};

use crate::support::{database, place::Place};

const OLD: DateTime = DateTime::from_millis(1_000);
const LATER: DateTime = DateTime::from_millis(4_000_000_000_000);

/// Within a batch nobody can wait for its end.
const NO_TIME: Duration = Duration::ZERO;

/// Asserts of a change made within a batch that it was made, and not confirmed.
#[track_caller]
fn unconfirmed<T: std::fmt::Debug>(outcome: &ttl_index::Result<T>) {
    assert!(matches!(outcome, Err(Error::NotYetGuaranteed { .. })), "{outcome:?}");
}

/// A store, and the way in which a pass finds documents in it.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) place: Arc<Place>,
    pub(crate) portable: bool,
    pub(crate) supporting: bool,
}

impl Setting {
    /// Both stores, and MongoDB without its extensions; each with a supporting index and without.
    pub(crate) async fn all() -> Vec<Setting> {
        let mut all = Vec::new();
        for supporting in [true, false] {
            all.push(Setting { place: Arc::new(Place::embedded()), portable: false, supporting });
            for portable in [false, true] {
                all.push(Setting { place: Arc::new(Place::Mongo(database().await)), portable, supporting });
            }
        }
        all
    }

    /// A registry whose passes call `hook` before each delete.
    pub(crate) async fn hooked<F>(&self, hook: impl Fn(Vec<Bson>) -> F + Send + Sync + 'static) -> TtlRegistry
    where
        F: Future<Output = Fault> + Send + 'static,
    {
        TtlRegistry::open(self.hooked_store(hook)).await.unwrap()
    }

    pub(crate) fn hooked_store<F>(&self, hook: impl Fn(Vec<Bson>) -> F + Send + Sync + 'static) -> HookedStore
    where
        F: Future<Output = Fault> + Send + 'static,
    {
        match &*self.place {
            Place::Mongo(it) => HookedStore::new(self.mongo_store(it.db.clone()), hook),
            Place::Embedded(store) => HookedStore::new(store.clone(), hook),
        }
    }

    pub(crate) fn mongo_store(&self, db: mongodb::Database) -> MongoStore {
        let store = MongoStore::new(db);
        if self.portable { store.portable_only() } else { store }
    }

    /// A registry whose passes call `act` before their first delete, and nothing afterwards.
    pub(crate) async fn disturbed<F>(&self, act: impl Fn(Arc<Place>) -> F + Send + Sync + 'static) -> TtlRegistry
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (place, done) = (self.place.clone(), AtomicBool::new(false));
        self.hooked(move |_| {
            let act = (!done.swap(true, Ordering::SeqCst)).then(|| act(place.clone()));
            async move {
                if let Some(act) = act {
                    act.await;
                }
                Fault::None
            }
        })
        .await
    }

    pub(crate) fn on(&self, field: &str) -> TtlIndex {
        TtlIndex::on(field).expire_after(Duration::ZERO).supporting_index(self.supporting)
    }

    /// What a failed assertion says of where it failed.
    pub(crate) fn describe(&self) -> String {
        let store = match &*self.place {
            Place::Mongo(_) if self.portable => "portable",
            Place::Mongo(_) => "mongod",
            Place::Embedded(_) => "embedded",
        };
        format!("{store}, {}", if self.supporting { "with a supporting index" } else { "without" })
    }
}

/// Each document found has one fate.
pub(crate) fn assert_adds_up(report: &SweepReport, what: &str) {
    let fates = report.deleted + report.changed + report.uncertain + report.left + report.kept;
    assert_eq!(report.found, fates, "{what}: {report:?}");
}

#[tokio::test]
async fn a_document_rescued_between_being_found_and_being_deleted_survives() {
    for setting in Setting::all().await {
        let what = setting.describe();
        let ttl = setting.disturbed(rescue_all).await;
        ttl.create_index("c", setting.on("t").partial_filter(doc! { "s": 1 })).await.unwrap();
        let mut documents: Vec<Document> =
            RESCUED.iter().map(|id| doc! { "_id": *id, "t": OLD, "s": 1, "v": "first" }).collect();
        documents.push(doc! { "_id": "array", "t": [LATER, OLD], "s": 1 });
        documents.push(doc! { "_id": "gone", "t": OLD, "s": 1 });
        documents.extend((0..20).map(|id| doc! { "_id": id, "t": OLD, "s": 1 }));
        setting.place.insert("c", documents).await;

        let report = ttl.sweep("c").await.unwrap();
        for id in RESCUED.iter().chain(&["array"]) {
            assert!(setting.place.find("c", *id).await.is_some(), "{what}: \"{id}\" was deleted: {report:?}");
        }
        assert_adds_up(&report, &what);
        let rescued = RESCUED.len() as u64 + 2;
        assert_eq!((report.found, report.deleted, report.changed), (rescued + 20, 20, rescued), "{what}: {report:?}");
        assert_eq!((report.left, report.uncertain, report.ended), (0, 0, Ended::Drained), "{what}: {report:?}");
        assert_eq!(setting.place.count("c").await, rescued - 1, "{what}");
    }
}

const RESCUED: [&str; 7] = ["later", "null", "unset", "string", "filtered", "replaced", "reinserted"];

async fn rescue_all(place: Arc<Place>) {
    place.update("c", "later", doc! { "$set": { "t": LATER } }).await;
    place.update("c", "null", doc! { "$set": { "t": Bson::Null } }).await;
    place.update("c", "unset", doc! { "$unset": { "t": "" } }).await;
    place.update("c", "string", doc! { "$set": { "t": "1970-01-01T00:00:01Z" } }).await;
    place.update("c", "filtered", doc! { "$set": { "s": 2 } }).await;
    place.replace("c", "replaced", doc! { "t": LATER, "s": 1, "v": "second" }).await;
    place.delete("c", "reinserted").await;
    place.insert("c", vec![doc! { "_id": "reinserted", "t": LATER, "s": 1, "v": "second" }]).await;
    place.update("c", "array", doc! { "$set": { "t": [LATER] } }).await;
    place.delete("c", "gone").await;
}

#[tokio::test]
async fn a_rescue_below_a_nested_path_holds_as_well() {
    for setting in Setting::all().await {
        let what = setting.describe();
        let ttl = setting
            .disturbed(async |place: Arc<Place>| {
                place.update("c", "plain", doc! { "$set": { "a": { "b": LATER } } }).await;
                place.update("c", "array", doc! { "$set": { "a": [{ "b": LATER }, { "b": [LATER] }] } }).await;
                place.update("c", "cut", doc! { "$set": { "a": 5 } }).await;
                place.update("c", "literal", doc! { "$set": { "a": [[{ "b": OLD }]] } }).await;
            })
            .await;
        ttl.create_index("c", setting.on("a.b")).await.unwrap();
        let old = |id: &str| doc! { "_id": id, "a": { "b": OLD } };
        let array = doc! { "_id": "array", "a": [{ "b": LATER }, { "b": [LATER, OLD] }] };
        setting.place.insert("c", vec![old("plain"), array, old("cut"), old("literal"), old("due")]).await;

        let report = ttl.sweep("c").await.unwrap();
        assert_adds_up(&report, &what);
        assert_eq!((report.found, report.deleted, report.changed), (5, 1, 4), "{what}: {report:?}");
        assert_eq!(setting.place.count("c").await, 4, "{what}");
    }
}

#[tokio::test]
async fn a_document_that_stays_due_is_deleted_whichever_way_its_date_moved() {
    for setting in Setting::all().await {
        let what = setting.describe();
        let ttl = setting
            .disturbed(async |place: Arc<Place>| {
                let earlier = doc! { "$set": { "t": DateTime::from_millis(-5) } };
                place.update("c", 1, earlier).await;
                // Later than any other in its batch, and later than all of them, but past.
                place.update("c", 2, doc! { "$set": { "t": DateTime::from_millis(4_500) } }).await;
                place.update("c", 3, doc! { "$set": { "t": DateTime::from_millis(1_600_000_000_000) } }).await;
            })
            .await;
        ttl.create_index("c", setting.on("t")).await.unwrap();
        let documents = (0..40).map(|id| doc! { "_id": id, "t": DateTime::from_millis(1_000 + i64::from(id) * 100) });
        setting.place.insert("c", documents.collect()).await;

        let report = ttl.sweep("c").batch_size(10).await.unwrap();
        assert_adds_up(&report, &what);
        assert_eq!((report.deleted, report.ended), (40, Ended::Drained), "{what}: {report:?}");
        assert_eq!(setting.place.count("c").await, 0, "{what}");
    }
}

#[tokio::test]
async fn the_oldest_documents_go_first_where_there_is_a_supporting_index() {
    for setting in Setting::all().await.into_iter().filter(|setting| setting.supporting) {
        let what = setting.describe();
        let ttl = setting.hooked(|_| std::future::ready(Fault::None)).await;
        ttl.create_index("c", setting.on("t")).await.unwrap();
        let documents = (0..50).map(|id| doc! { "_id": id, "t": DateTime::from_millis(1_000 - i64::from(id)) });
        setting.place.insert("c", documents.collect()).await;
        let report = ttl.sweep("c").batch_size(5).max_batches(2).await.unwrap();
        assert_eq!((report.deleted, report.ended), (10, Ended::LimitReached), "{what}");
        assert!(setting.place.find("c", 40).await.is_none() && setting.place.find("c", 0).await.is_some(), "{what}");
        assert_eq!(report.oldest_due, Some(DateTime::from_millis(961)), "{what}: {report:?}");
    }
}
