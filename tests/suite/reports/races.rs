//! Reports about what happens between finding and deleting, and of several that sweep.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, DateTime};
use tokio::sync::Notify;
use ttl_index::{Ended, Fault, HookedStore, MongoStore, TtlIndex, TtlRegistry};

use super::play::Play;
use super::steps;
use crate::support::place::Place;

#[tokio::test]
async fn ttl_073_race_with_update() {
    for mut play in Play::both("TTL-073").await {
        play.until_prose("metric skipped_recheck == 1, deleted == 0").await;
        let report = play.last_sweep();
        assert_eq!((report.found, report.changed, report.deleted), (1, 1, 0), "{report:?}");
        play.finish().await;
    }
}

#[tokio::test]
async fn ttl_075_race_with_update() {
    for mut play in Play::both("TTL-075").await {
        play.until_prose("v == 2").await;
        assert_eq!(play.place.find("c", "k").await.unwrap().get_i32("v").unwrap(), 2);
        play.finish().await;
    }
}

/// The index that is created meanwhile goes on a collection of its own, a second one on this being refused.
#[tokio::test]
async fn ttl_077_race_with_update() {
    for mut play in Play::both("TTL-077").await {
        play.until_prose("ids 0..99 remain").await;
        let mut expected: Vec<String> = (0..100).map(|id| Bson::Int32(id).to_string()).collect();
        expected.sort_unstable();
        assert_eq!(steps::ids(&play.place, "c").await, expected);

        let step = play.until("concurrently").await;
        let [sweep, list, create] = step["steps"].as_array().unwrap().as_slice() else { panic!("{step}") };
        let spec = TtlIndex::from(steps::specification(create));
        let concurrently = async {
            tokio::join!(
                steps::play(&play, sweep),
                steps::play(&play, list),
                async { play.ttl.create_index("z", spec.clone()).await.unwrap() },
                async { assert_eq!(play.ttl.create_index("c", spec.clone()).await.unwrap_err().code(), Some(67)) },
            );
        };
        // More than the report's time, so that a slow machine is not taken for a deadlock.
        tokio::time::timeout(Duration::from_secs(60), concurrently).await.expect("a deadlock");
        play.until_prose("no deadlock within 5 s").await;
        play.finish().await;
    }
}

#[tokio::test]
async fn ttl_079_race_with_update() {
    for mut play in Play::both("TTL-079").await {
        play.until_prose("exactly the 1000 new documents remain").await;
        let mut expected: Vec<String> = (5000..6000).map(|id| Bson::Int32(id).to_string()).collect();
        expected.sort_unstable();
        assert_eq!(steps::ids(&play.place, "c").await, expected);
        play.finish().await;
    }
}

/// On the embedded store the database's clock is the one that was set, and this process's own is far ahead of it.
#[tokio::test]
async fn ttl_085_clock_skew() {
    for mut play in Play::embedded("TTL-085").await {
        play.until("set_clock").await;
        let lease = play.place.find("c", "lease").await.unwrap();
        assert!(*lease.get_datetime("expiresAt").unwrap() < DateTime::now());
        play.finish().await;
    }
}

/// One sweeper is held between finding and deleting for as long as the others need to delete everything: nobody waits
/// for it, and it finds afterwards that there was nothing left to do.
#[tokio::test]
async fn ttl_091_duplicate_sweepers() {
    for mut play in Play::both("TTL-091").await {
        let sweepers = play.until("run_sweepers").await;
        assert_eq!(sweepers["count"], 3);
        let (found, others_done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let held = {
            let (found, others_done) = (found.clone(), others_done.clone());
            move |_ids: Vec<Bson>| {
                let (found, others_done) = (found.clone(), others_done.clone());
                async move {
                    found.notify_one();
                    others_done.notified().await;
                    Fault::None
                }
            }
        };
        let held = match &*play.place {
            Place::Mongo(database) => HookedStore::new(MongoStore::new(database.db.clone()), held),
            Place::Embedded(store) => HookedStore::new(store.clone(), held),
        };
        let held = TtlRegistry::open(held).await.unwrap();
        let others = async {
            found.notified().await;
            let (second, third) = tokio::join!(play.place.registry(), play.place.registry());
            let (second, third) = tokio::join!(
                second.sweep("c").batch_size(100).without_lease(),
                third.sweep("c").batch_size(100).without_lease()
            );
            assert_eq!(play.place.count("c").await, 0);
            others_done.notify_one();
            [second.unwrap(), third.unwrap()]
        };
        let (held, [second, third]) = tokio::join!(held.sweep("c").batch_size(100).without_lease(), others);
        let held = held.unwrap();
        assert_eq!((held.found, held.changed, held.deleted), (100, 100, 0), "{held:?}");
        assert_eq!(second.deleted + third.deleted, 1000, "{second:?} {third:?}");
        for report in [held, second, third] {
            assert_eq!((report.ended, report.left, report.uncertain), (Ended::Drained, 0, 0), "{report:?}");
        }
        play.until_prose("no operation waits longer than 1 s on another sweeper").await;
        play.finish().await;
    }
}

/// What an application deleted itself is not counted as expired.
#[tokio::test]
async fn ttl_149_change_visibility() {
    for mut play in Play::both("TTL-149").await {
        // Which client deletes is told by the `appName` of the client that the user hands over.
        play.until("sweeper").await;
        play.until_prose("layer's event/metric lists only _id 1 as expired by rule t_1").await;
        let report = play.last_sweep();
        assert_eq!(
            (report.index.as_str(), report.found, report.deleted, report.changed),
            ("t_1", 2, 1, 1),
            "{report:?}"
        );
        assert_eq!(play.place.count("c").await, 0);
        play.finish().await;
    }
}
