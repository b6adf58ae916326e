//! Many indexes: none starves another, and none that fails stops the others.

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use ttl_index::{Fault, HookedStore, MongoStore, Sweeper, TtlRegistry};

use super::{Stage, index};
use crate::support::place::Place;
use crate::support::{database, wait};

const BIG: i32 = 200_000;

/// 500 indexes: one fails always, one has 200,000 documents due. Within two visits everything due elsewhere is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_index_and_a_huge_backlog_hold_nobody_up() {
    let it = database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    let names: Vec<String> = (0..500).map(|n| format!("c{n}")).collect();
    for name in &names {
        ttl.create_index(name, index().supporting_index(name == "c0")).await.unwrap();
    }
    let old = DateTime::from_millis(1_000);
    let big: Vec<Document> = (0..BIG).map(|id| doc! { "_id": id, "t": old }).collect();
    it.db.collection("c0").insert_many(big).await.unwrap();
    for name in &names[1..] {
        let failing = name == "c1";
        it.db
            .collection(name)
            .insert_one(doc! { "_id": if failing { "fails" } else { name }, "t": old })
            .await
            .unwrap();
    }
    let store = HookedStore::new(MongoStore::new(it.db.clone()), |ids: Vec<Bson>| async move {
        if ids.contains(&Bson::from("fails")) { Fault::Fails } else { Fault::None }
    });
    let hooked = TtlRegistry::open(store).await.unwrap();
    let sweeper = Sweeper::new(hooked.clone())
        .interval(Duration::from_secs(30))
        .max_rate(5_000.0)
        .min_rate(5_000.0)
        .start()
        .unwrap();
    wait::until("all others to be gone", 2 * wait::LONG, async || {
        let status = sweeper.status();
        let visited = |name: &str| {
            status.indexes.iter().any(|i| i.collection == name && i.visits.as_ref().is_some_and(|v| v.deleted == 1))
        };
        status.indexes.len() == 500 && names[2..].iter().all(|name| visited(name))
    })
    .await;
    let counters = hooked.counters();
    let of = |name: &str| counters.indexes.iter().find(|index| index.collection == name).unwrap();
    for name in &names[2..] {
        let passes: u64 = of(name).counts.passes.values().sum();
        assert!(passes <= 2, "{name}: {passes} visits");
        assert_eq!(of(name).counts.deleted, 1);
    }
    // The huge one had its share meanwhile, and the failing one is told of.
    assert!(of("c0").counts.deleted > 0);
    let status = sweeper.status();
    let failing = status.indexes.iter().find(|index| index.collection == "c1").unwrap().visits.clone().unwrap();
    assert!(failing.failures > 0 && failing.error.is_some(), "{failing:?}");
    assert_eq!(it.db.collection::<Document>("c1").count_documents(doc! {}).await.unwrap(), 1);
    sweeper.shutdown().await.unwrap();
    it.drop().await;
}

/// More of them than a visit can step over in its turn.
#[tokio::test(start_paused = true)]
async fn documents_that_cannot_be_deleted_do_not_hold_up_those_behind_them() {
    for supporting in [true, false] {
        let stage = Stage::embedded();
        let Place::Embedded(embedded) = &*stage.place else { unreachable!() };
        let store = HookedStore::new(embedded.clone(), |_| async { Fault::None }).sparing((0..5_000).map(Bson::Int32));
        let ttl = TtlRegistry::open(store).await.unwrap();
        ttl.create_index("c", index().supporting_index(supporting)).await.unwrap();
        let due = |id: i32| doc! { "_id": id, "t": DateTime::from_millis(id.into()) };
        stage.place.insert("c", (0..5_100).map(due).collect()).await;
        let sweeper = Sweeper::new(ttl.clone()).interval(stage.interval).lease_time(stage.lease_time).start().unwrap();
        stage.until("those behind to be gone", async || stage.place.count("c").await == 5_000).await;
        sweeper.shutdown().await.unwrap();
        assert_eq!(ttl.counters().total.deleted, 100);
    }
}
