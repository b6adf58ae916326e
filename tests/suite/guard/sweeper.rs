//! The background sweeper looks again at what is kept, once an hour.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mongodb::bson::{Bson, DateTime, doc};
use ttl_index::{EmbeddedStore, Fault, HookedStore, ManualClock, Reference, Sweeper, TtlRegistry};

use super::{articles, due, index_children, likes};
use crate::sweeper::Stage;

const MINUTE: Duration = Duration::from_secs(60);

/// By a virtual clock, in which the sweeper visits every minute.
#[tokio::test(start_paused = true)]
async fn kept_documents_are_asked_about_once_an_hour_and_new_ones_every_minute() {
    let clock = ManualClock::ticking_from(DateTime::from_millis(1_767_225_600_000));
    let store = EmbeddedStore::in_memory().unwrap().with_clock(clock);
    let asked = Arc::new(AtomicUsize::new(0));
    let counting = asked.clone();
    let hooked = HookedStore::new(store.clone(), |_| async { Fault::None }).before_guard(move |ids| {
        let kept = ids.iter().filter(|id| **id == Bson::Int32(1)).count();
        counting.fetch_add(kept, Ordering::SeqCst);
        std::future::ready(())
    });
    let ttl = TtlRegistry::open(hooked).await.unwrap();
    ttl.create_index("articles", articles().keep_while(likes())).await.unwrap();
    let (articles, likes) = (store.collection("articles"), store.collection("likes"));
    articles.insert_one(due(1)).await.unwrap();
    likes.insert_one(doc! { "_id": 1, "article_id": 1 }).await.unwrap();
    let sweeper = Sweeper::new(ttl.clone()).interval(MINUTE).start().unwrap();

    tokio::time::sleep(180 * MINUTE + MINUTE / 2).await;
    assert_eq!(asked.load(Ordering::SeqCst), 4);
    assert_eq!(sweeper.status().indexes[0].visits.as_ref().unwrap().kept, 1);
    let counted = ttl.counters().indexes[0].clone();
    assert_eq!((counted.counts.kept, counted.counts.deleted, counted.oldest_due), (4, 0, None));

    // What becomes due meanwhile goes within a minute, or is kept as well.
    let now = ttl.now().await.unwrap();
    let soon = DateTime::from_millis(now.timestamp_millis() + 5_000);
    likes.insert_one(doc! { "_id": 3, "article_id": 3 }).await.unwrap();
    articles.insert_many([doc! { "_id": 2, "at": soon }, doc! { "_id": 3, "at": soon }]).await.unwrap();
    tokio::time::sleep(MINUTE + MINUTE / 10).await;
    assert!(articles.find_one(2).await.unwrap().is_none());
    assert_eq!(sweeper.status().indexes[0].visits.as_ref().unwrap().kept, 2);
    assert_eq!(asked.load(Ordering::SeqCst), 4);

    // Without its child it goes within the hour.
    likes.delete_one(1).await.unwrap();
    tokio::time::sleep(30 * MINUTE).await;
    assert!(articles.find_one(1).await.unwrap().is_some());
    tokio::time::sleep(31 * MINUTE).await;
    assert!(articles.find_one(1).await.unwrap().is_none());

    // Without its guard, at the next visit.
    ttl.set_guards("articles", [] as [Reference; 0]).await.unwrap();
    tokio::time::sleep(MINUTE + MINUTE / 10).await;
    assert_eq!(articles.count().await.unwrap(), 0);
    sweeper.shutdown().await.unwrap();
}

/// Thousands, for which one slice of a visit is too short, are counted once.
#[tokio::test(start_paused = true)]
async fn a_look_that_takes_many_slices_is_one_look() {
    let stage = Stage::embedded();
    let ttl = stage.registry().await;
    ttl.create_index("articles", articles().keep_while(likes())).await.unwrap();
    stage.place.insert("articles", (0..3000).map(due).collect()).await;
    stage.place.insert("likes", vec![doc! { "_id": 1, "article_id": (0..3000).collect::<Vec<i32>>() }]).await;
    // Fifteen seconds' worth.
    let sweeper = stage.sweeper("a").await.interval(MINUTE).max_rate(200.0).min_rate(200.0).start().unwrap();
    tokio::time::sleep(50 * MINUTE).await;
    assert_eq!(ttl.status().await.unwrap().indexes[0].visits.as_ref().unwrap().kept, 3000);
    sweeper.shutdown().await.unwrap();
}

async fn a_drop_of_the_guard_lets_everything_go(stage: Stage) {
    let ttl = stage.registry().await;
    index_children(&stage.place, &["likes"]).await;
    ttl.create_index("articles", articles().keep_while(likes())).await.unwrap();
    stage.place.insert("likes", vec![doc! { "article_id": [1, 2] }]).await;
    stage.place.insert("articles", vec![due(1), due(2), due(3)]).await;
    let sweeper = stage.start("a").await;
    stage.until("the free one to go", async || stage.place.count("articles").await == 2).await;
    ttl.set_guards("articles", [] as [Reference; 0]).await.unwrap();
    stage.until("the others to go", async || stage.place.count("articles").await == 0).await;
    sweeper.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn in_the_embedded_store_a_drop_of_the_guard_lets_everything_go() {
    a_drop_of_the_guard_lets_everything_go(Stage::embedded()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_mongodb_a_drop_of_the_guard_lets_everything_go() {
    a_drop_of_the_guard_lets_everything_go(Stage::mongod().await).await;
}

/// Whatever is kept beside it.
#[tokio::test(start_paused = true)]
async fn what_could_not_be_deleted_goes_with_the_next_visit() {
    let clock = ManualClock::ticking_from(DateTime::from_millis(1_767_225_600_000));
    let store = EmbeddedStore::in_memory().unwrap().with_clock(clock);
    let deletes = AtomicUsize::new(0);
    let hooked = HookedStore::new(store.clone(), move |_| {
        let first = deletes.fetch_add(1, Ordering::SeqCst) == 0;
        async move { if first { Fault::Ineffective } else { Fault::None } }
    });
    let ttl = TtlRegistry::open(hooked).await.unwrap();
    ttl.create_index("articles", articles().keep_while(likes())).await.unwrap();
    store.collection("articles").insert_many([due(1), due(2)]).await.unwrap();
    store.collection("likes").insert_one(doc! { "article_id": 1 }).await.unwrap();
    let sweeper = Sweeper::new(ttl.clone()).interval(MINUTE).start().unwrap();
    tokio::time::sleep(MINUTE / 2).await;
    assert_eq!(store.collection("articles").count().await.unwrap(), 2);
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(store.collection("articles").count().await.unwrap(), 1);
    assert_eq!(sweeper.status().indexes[0].visits.as_ref().unwrap().kept, 1);
    sweeper.shutdown().await.unwrap();
}
