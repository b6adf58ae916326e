//! Many indexes, one of them with far more than all others and one that always fails.

use std::time::Duration;

use mongodb::bson::{Bson, doc};
use ttl_index::{Fault, HookedStore};

use super::{Scene, seconds};

const INDEXES: usize = 500;

/// The huge one has to take turns all the time until its deadline. Each of the others gets something due twice.
#[tokio::test(start_paused = true)]
async fn of_five_hundred_indexes_none_is_late_because_of_another() {
    const LAG: u64 = 240;
    const HUGE: u32 = 12_000;
    let names: Vec<String> = (0..INDEXES).map(|n| format!("c{n}")).collect();
    let collections: Vec<&str> = names.iter().map(String::as_str).collect();
    let scene = Scene::on(&collections, |store| {
        HookedStore::new(store, |ids: Vec<Bson>| async move {
            if ids.contains(&Bson::from("fails")) { Fault::Fails } else { Fault::None }
        })
    })
    .await;
    scene.ttl.tune().collection("c0").target_lag(seconds(LAG)).await.unwrap();
    let began = scene.time();
    scene.overdue("c0", HUGE).await;
    let failing = scene.store.collection("c1");
    failing.insert_one(doc! { "_id": "fails", "t": mongodb::bson::DateTime::from_millis(0) }).await.unwrap();
    for name in &collections[2..] {
        scene.overdue(name, 5).await;
        scene.spread(name, 5, (120.0, 121.0)).await;
    }
    let sweeper = scene.sweeper(seconds(3_600)).min_rate(50.0).interval(Duration::from_secs(60)).start().unwrap();
    let all_have = |documents: u64| {
        let counters = scene.ttl.counters();
        let of = |name: &str| counters.indexes.iter().find(|index| index.collection == name);
        collections[2..].iter().all(|name| of(name).is_some_and(|index| index.counts.deleted == documents))
    };
    let wait_for = async |documents: u64, limit: f64| {
        while !all_have(documents) {
            assert!(scene.time() < limit, "some wait still");
            tokio::time::sleep(seconds(1)).await;
        }
        println!("{documents} of each gone after {} s", scene.time());
    };
    wait_for(5, 75.0).await;
    // It had its share.
    assert!(scene.deleted("c0") > 500, "{} of the huge one", scene.deleted("c0"));
    scene.until(120.0).await;
    wait_for(10, 195.0).await;
    let gone = scene.course("c0", HUGE.into(), 300.0).await.gone(HUGE.into());
    #[allow(clippy::cast_precision_loss)]
    let deadline = began + LAG as f64;
    assert!(gone <= deadline, "{gone}");
    let status = sweeper.status();
    let failing = status.indexes.iter().find(|index| index.collection == "c1").unwrap().visits.clone().unwrap();
    assert!(failing.failures > 0 && failing.error.is_some(), "{failing:?}");
    assert_eq!(scene.store.collection("c1").count().await.unwrap(), 1);
    sweeper.shutdown().await.unwrap();
}
