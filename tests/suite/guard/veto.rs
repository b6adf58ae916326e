//! A hook of the program that sweeps.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mongodb::bson::doc;
use ttl_index::{Batch, Decision, EmbeddedStore, Ended, MongoStore, Sweeper, TtlRegistry, Veto, VetoFuture};

use super::{articles, due, ids, index_children, likes};
use crate::{
    race::{Setting, assert_adds_up},
    support::{database, place::Place, wait},
    sweeper::Stage,
};

/// Keeps what has a hold, and notes what it was asked about.
#[derive(Clone, Default)]
struct Hold(Arc<Mutex<Vec<String>>>);

impl Veto for Hold {
    fn veto<'a>(&'a self, batch: Batch<'a>) -> VetoFuture<'a> {
        Box::pin(async move {
            let held = batch.documents.iter().map(|document| matches!(document.get_bool("hold"), Ok(true)));
            let words = batch.documents.iter().map(|document| document.get_str("word").unwrap().to_owned());
            self.0.lock().unwrap().extend(words);
            assert_eq!((batch.collection, batch.index), ("articles", "at_1"));
            Ok(held.map(|held| if held { Decision::Keep } else { Decision::Delete }).collect())
        })
    }
}

fn article(id: i32) -> mongodb::bson::Document {
    let mut article = due(id);
    article.extend(doc! { "word": format!("w{id}"), "hold": id % 3 == 0 });
    article
}

#[tokio::test]
async fn a_hook_sees_whole_documents_and_keeps_some_of_them() {
    for place in Place::all().await {
        let hold = Hold::default();
        let ttl = place.registry().await.with_veto(hold.clone());
        index_children(&place, &["likes"]).await;
        ttl.create_index("articles", articles().keep_while(likes())).await.unwrap();
        place.insert("articles", (0..9).map(article).collect()).await;
        place.insert("likes", vec![doc! { "article_id": 1 }]).await;
        let report = ttl.sweep("articles").batch_size(4).await.unwrap();
        assert_eq!((report.deleted, report.kept, report.ended), (5, 4, Ended::Drained), "{report:?}");
        assert_adds_up(&report, "veto");
        assert_eq!(ids(&place, "articles").await, [0, 1, 3, 6]);
        // It is asked before the guards.
        let mut asked = hold.0.lock().unwrap().clone();
        asked.sort();
        assert_eq!(asked, ["w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8"]);
        // A handle without the hook does not know of it.
        assert_eq!(place.registry().await.sweep("articles").await.unwrap().deleted, 3);
    }
}

/// What goes wrong with a hook.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Error,
    Panic,
    TooFew,
    TooMany,
    Silence,
}

impl Veto for Trouble {
    fn veto<'a>(&'a self, batch: Batch<'a>) -> VetoFuture<'a> {
        Box::pin(async move {
            match self {
                Trouble::Error => Err("the archive is away".into()),
                Trouble::Panic => panic!("in a hook"),
                Trouble::TooFew => Ok(Vec::new()),
                Trouble::TooMany => Ok(vec![Decision::Delete; batch.documents.len() + 1]),
                Trouble::Silence => std::future::pending().await,
            }
        })
    }
}

async fn deletes_nothing(place: &Place, trouble: Trouble, words: &str) {
    let ttl = place.registry().await.with_veto(trouble);
    let report = ttl.sweep("articles").await.unwrap();
    assert_eq!((report.ended, report.deleted, report.left), (Ended::Failed, 0, 4), "{trouble:?}: {report:?}");
    assert_adds_up(&report, "trouble");
    let error = report.error.unwrap();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(error.kind() == "veto" && source.contains(words), "{trouble:?}: {error}: {source}");
    assert_eq!(place.count("articles").await, 4);
}

#[tokio::test]
async fn a_hook_that_fails_keeps_the_whole_batch() {
    for place in Place::all().await {
        place.registry().await.create_index("articles", articles()).await.unwrap();
        place.insert("articles", (0..4).map(article).collect()).await;
        deletes_nothing(&place, Trouble::Error, "the archive is away").await;
        deletes_nothing(&place, Trouble::Panic, "panicked").await;
        deletes_nothing(&place, Trouble::TooFew, "0 times about 4 documents").await;
        deletes_nothing(&place, Trouble::TooMany, "5 times about 4 documents").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_does_not_answer_keeps_the_whole_batch() {
    let place = Place::embedded();
    place.registry().await.create_index("articles", articles()).await.unwrap();
    place.insert("articles", (0..4).map(article).collect()).await;
    deletes_nothing(&place, Trouble::Silence, "not answered within 30s").await;
}

/// Fails twice, and keeps everything from then on.
#[derive(Default)]
struct Recovering(Arc<AtomicUsize>);

impl Veto for Recovering {
    fn veto<'a>(&'a self, batch: Batch<'a>) -> VetoFuture<'a> {
        let before = self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if before < 2 { Err("not yet".into()) } else { Ok(vec![Decision::Keep; batch.documents.len()]) }
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweeper_asks_the_hook_of_its_registry_and_survives_its_failures() {
    let store = EmbeddedStore::in_memory().unwrap();
    let hook = Recovering::default();
    let ttl = TtlRegistry::open(store.clone()).await.unwrap().with_veto(Recovering(hook.0.clone()));
    ttl.create_index("articles", articles()).await.unwrap();
    store.collection("articles").insert_many((0..4).map(article)).await.unwrap();
    let sweeper = Sweeper::new(ttl).start().unwrap();
    wait::until("the kept ones to be told of", wait::LONG, async || {
        let status = sweeper.status();
        status.indexes.first().and_then(|index| index.visits.clone()).is_some_and(|visits| visits.kept == 4)
    })
    .await;
    let visits = sweeper.status().indexes[0].visits.clone().unwrap();
    assert_eq!((visits.deleted, visits.failures, visits.oldest_due), (0, 0, None), "{visits:?}");
    sweeper.shutdown().await.unwrap();
    assert_eq!(store.collection("articles").count().await.unwrap(), 4);
}

/// While it decides for the first time, 1 gets a hold and 2 a child.
struct Overtaken(Arc<Place>, AtomicUsize);

impl Veto for Overtaken {
    fn veto<'a>(&'a self, batch: Batch<'a>) -> VetoFuture<'a> {
        Box::pin(async move {
            if self.1.fetch_add(1, Ordering::SeqCst) == 0 {
                self.0.update("articles", 1, doc! { "$set": { "hold": true } }).await;
                self.0.insert("likes", vec![doc! { "article_id": 2 }]).await;
            }
            let held = batch.documents.iter().map(|document| matches!(document.get_bool("hold"), Ok(true)));
            Ok(held.map(|held| if held { Decision::Keep } else { Decision::Delete }).collect())
        })
    }
}

#[tokio::test]
async fn what_is_written_while_the_hook_decides_is_not_overtaken() {
    for setting in Setting::all().await {
        let what = setting.describe();
        index_children(&setting.place, &["likes"]).await;
        let ttl = setting.hooked(|_| async { ttl_index::Fault::None }).await;
        let ttl = ttl.with_veto(Overtaken(setting.place.clone(), AtomicUsize::new(0)));
        ttl.create_index("articles", setting.on("at").keep_while(likes())).await.unwrap();
        setting.place.insert("articles", (0..4).map(due).collect()).await;
        let report = ttl.sweep("articles").await.unwrap();
        assert_adds_up(&report, &what);
        assert_eq!(report.ended, Ended::Drained, "{what}: {report:?}");
        let left = ids(&setting.place, "articles").await;
        if setting.portable {
            // There nothing but the date is compared. The guard is asked after the hook all the same.
            assert_eq!((report.deleted, report.kept, left), (3, 1, vec![2]), "{what}: {report:?}");
        } else {
            assert_eq!((report.changed, report.kept, left), (1, 2, vec![1, 2]), "{what}: {report:?}");
        }
    }
}

/// All get a hold between two slices of a pass: at most the batch under way is not seen to have one.
async fn a_hold_counts_in_the_next_slice(place: &Place, ttl: TtlRegistry) {
    const BATCH: u64 = 50;
    let ttl = ttl.with_veto(Hold::default());
    ttl.create_index("articles", articles()).await.unwrap();
    let free = |id| doc! { "_id": id, "at": super::OLD, "word": "free", "hold": false };
    place.insert("articles", (0..300).map(free).collect()).await;
    #[allow(clippy::cast_precision_loss)] // it is small
    let sweeper = Sweeper::new(ttl.clone()).interval(Duration::from_secs(1)).max_rate(BATCH as f64).start().unwrap();
    let done = || {
        let counts = ttl.counters().indexes.first().map(|index| index.counts.clone()).unwrap_or_default();
        counts.deleted + counts.kept
    };
    while done() < 2 * BATCH {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for document in place.documents("articles").await {
        place.update("articles", document.get("_id").unwrap().clone(), doc! { "$set": { "hold": true } }).await;
    }
    let held = place.count("articles").await;
    assert!(held > 2 * BATCH, "{held}");
    while done() < 300 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    sweeper.shutdown().await.unwrap();
    let left = place.count("articles").await;
    assert!(held - left <= BATCH, "{} of {held}", held - left);
}

#[tokio::test(start_paused = true)]
async fn in_the_embedded_store_a_hold_counts_in_the_next_slice() {
    let stage = Stage::embedded();
    a_hold_counts_in_the_next_slice(&stage.place, stage.registry().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_mongodb_a_hold_counts_in_the_next_slice_even_where_nothing_compares() {
    let place = Place::Mongo(database().await);
    let Place::Mongo(it) = &place else { unreachable!() };
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone()).portable_only()).await.unwrap();
    a_hold_counts_in_the_next_slice(&place, ttl).await;
}

#[tokio::test]
async fn documents_behind_many_that_are_kept_go_in_a_limited_pass() {
    for place in Place::all().await {
        let ttl = place.registry().await.with_veto(Hold::default());
        ttl.create_index("articles", articles()).await.unwrap();
        let document = |id: i32| {
            let at = mongodb::bson::DateTime::from_millis(id.into());
            doc! { "_id": id, "at": at, "word": "w", "hold": id < 50 }
        };
        place.insert("articles", (0..70).map(document).collect()).await;
        let report = ttl.sweep("articles").batch_size(10).max_batches(1).await.unwrap();
        assert_eq!((report.deleted, report.kept, report.batches), (10, 50, 6), "{report:?}");
        assert_eq!(report.ended, Ended::LimitReached, "{report:?}");
    }
}
