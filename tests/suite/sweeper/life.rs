//! Starting, visiting, pausing, stopping.

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, doc};
use ttl_index::{Activity, Ended, Sweeper};

use super::{Stage, index, on_both};

on_both! {
    what_expires_goes_and_what_does_not_stays,
    visits_go_on_for_ever,
    a_pause_holds_in_every_process_and_ends_by_itself,
    the_status_tells_any_process_who_sweeps_and_how_it_goes,
    a_sweeper_that_is_dropped_stops,
    an_index_made_or_changed_meanwhile_is_swept_by_as_it_is,
    without_an_index_to_walk_the_rate_holds_in_every_second,
    any_length_of_time_is_taken_or_refused,
}

async fn what_expires_goes_and_what_does_not_stays(stage: Stage) {
    let ttl = stage.registry().await;
    ttl.create_index("c", index()).await.unwrap();
    let due = stage.document(1, -1).await;
    let soon = stage.document(2, 2).await;
    let late = stage.document(3, 1_000_000).await;
    let never = doc! { "_id": 4, "t": Bson::Null };
    stage.place.insert("c", vec![due, soon, late, never]).await;
    let sweeper = stage.start("a").await;
    stage.until("the due ones to go", async || stage.place.count("c").await == 2).await;
    assert!(stage.place.find("c", 3).await.is_some() && stage.place.find("c", 4).await.is_some());
    sweeper.shutdown().await.unwrap();
    assert_eq!(stage.registry().await.status().await.unwrap().activity, Activity::Nobody);
}

async fn visits_go_on_for_ever(stage: Stage) {
    let ttl = stage.registry().await;
    ttl.create_index("c", index()).await.unwrap();
    let sweeper = stage.start("a").await;
    for round in 0..20 {
        let document = stage.document(round, 1).await;
        stage.place.insert("c", vec![document]).await;
        stage.until("the next one to go", async || stage.place.count("c").await == 0).await;
    }
    sweeper.shutdown().await.unwrap();
}

async fn a_pause_holds_in_every_process_and_ends_by_itself(stage: Stage) {
    let ttl = stage.registry().await;
    ttl.create_index("c", index()).await.unwrap();
    let sweeper = stage.start("a").await;
    stage.until("it to sweep", async || sweeper.status().activity == Activity::Sweeping).await;
    let pause = ttl.pause().for_duration(5 * stage.interval).await.unwrap();
    let document = stage.document(1, -1).await;
    stage.place.insert("c", vec![document]).await;
    stage.until("it to be seen", async || sweeper.status().activity == Activity::Paused).await;
    let other = stage.registry().await;
    assert_eq!(other.status().await.unwrap().paused.unwrap(), pause);
    // A pass of another process obeys as well, once it may sweep at all.
    sweeper.shutdown().await.unwrap();
    let report = other.sweep("c").await.unwrap();
    if other.now().await.unwrap() < pause.until.unwrap() {
        assert_eq!((report.ended, report.deleted), (Ended::Paused, 0));
    }
    let sweeper = stage.start("b").await;
    stage.until("the pause to end", async || stage.place.count("c").await == 0).await;
    assert!(other.now().await.unwrap() >= pause.until.unwrap(), "it ended too early");
    sweeper.shutdown().await.unwrap();
    // The registry keeps a pause without an end until it is resumed.
    ttl.pause().await.unwrap();
    assert!(ttl.resume().await.unwrap());
    assert!(!ttl.resume().await.unwrap());
}

async fn the_status_tells_any_process_who_sweeps_and_how_it_goes(stage: Stage) {
    let ttl = stage.registry().await;
    ttl.create_index("c", index()).await.unwrap();
    let due = [stage.document(1, -1).await, stage.document(2, -1).await];
    stage.place.insert("c", due.to_vec()).await;
    let sweeper = stage.sweeper("the one").await.max_rate(77.0).start().unwrap();
    stage
        .until("visits to be told of", async || {
            let told = ttl.status().await.unwrap();
            told.indexes[0].visits.as_ref().is_some_and(|visits| visits.deleted == 2)
        })
        .await;
    stage.until("the rate to be told", async || ttl.status().await.unwrap().max_rate == Some(77.0)).await;
    let status = ttl.status().await.unwrap();
    assert!(status.holder.as_ref().unwrap().starts_with("the one/"), "{status:?}");
    assert_eq!((status.activity, status.term, status.paused), (Activity::Sweeping, Some(1), None));
    let visits = status.indexes[0].visits.as_ref().unwrap();
    assert_eq!((visits.ended.as_str(), visits.failures, visits.oldest_due), ("drained", 0, None), "{visits:?}");
    assert_eq!(sweeper.status().holder, status.holder);
    sweeper.shutdown().await.unwrap();
}

async fn a_sweeper_that_is_dropped_stops(stage: Stage) {
    let ttl = stage.registry().await;
    drop(stage.start("a").await);
    let sweeper = stage.start("b").await;
    stage
        .until("the lease to be given back or to lapse", async || {
            ttl.status().await.unwrap().holder.is_some_and(|holder| holder.starts_with("b/"))
        })
        .await;
    sweeper.shutdown().await.unwrap();
}

async fn an_index_made_or_changed_meanwhile_is_swept_by_as_it_is(stage: Stage) {
    let ttl = stage.registry().await;
    let sweeper = stage.start("a").await;
    stage.until("it to sweep", async || sweeper.status().activity == Activity::Sweeping).await;
    ttl.create_index("new", index().expire_after(Duration::from_secs(1_000_000_000))).await.unwrap();
    stage.place.insert("new", vec![doc! { "_id": 1, "t": DateTime::from_millis(1_700_000_000_000) }]).await;
    stage.until("a visit", async || sweeper.status().indexes.first().is_some_and(|index| index.visits.is_some())).await;
    assert_eq!(stage.place.count("new").await, 1);
    ttl.modify_index("new", Duration::ZERO).await.unwrap();
    stage.until("the new period to be gone by", async || stage.place.count("new").await == 0).await;
    sweeper.shutdown().await.unwrap();
}

#[tokio::test]
async fn options_out_of_range_are_refused() {
    let stage = Stage::embedded();
    for sweeper in [
        stage.sweeper("a").await.max_rate(0.0),
        stage.sweeper("a").await.max_rate(f64::NAN),
        stage.sweeper("a").await.batch_size(0),
        stage.sweeper("a").await.interval(Duration::ZERO),
        stage.sweeper("a").await.interval(Duration::MAX),
        stage.sweeper("a").await.lease_time(Duration::from_millis(1)),
        stage.sweeper("a").await.lease_time(Duration::MAX),
    ] {
        let refused: ttl_index::Error = Sweeper::start(sweeper).unwrap_err();
        assert_eq!(refused.kind(), "refused");
    }
}

/// Four thousand hours in which a document expires every hour.
#[tokio::test(start_paused = true)]
async fn thousands_of_hours_pass_in_moments() {
    let stage = Stage::embedded();
    let ttl = stage.registry().await;
    ttl.create_index("c", index()).await.unwrap();
    let documents = (0..4000).map(|hour| stage.document(hour, hour + 1));
    let documents = futures_util::future::join_all(documents).await;
    stage.place.insert("c", documents).await;
    let sweeper = stage.sweeper("a").await.lease_time(24 * stage.interval).start().unwrap();
    tokio::time::sleep(2000 * stage.interval + stage.interval / 2).await;
    assert_eq!(stage.place.count("c").await, 2000);
    tokio::time::sleep(2001 * stage.interval).await;
    assert_eq!(stage.place.count("c").await, 0);
    sweeper.shutdown().await.unwrap();
}

async fn without_an_index_to_walk_the_rate_holds_in_every_second(stage: Stage) {
    let ttl = stage.registry().await;
    ttl.create_index("c", index().supporting_index(false)).await.unwrap();
    let mut due = Vec::new();
    for id in 0..1000 {
        due.push(stage.document(id, -1).await);
    }
    stage.place.insert("c", due).await;
    let sweeper = stage.sweeper("a").await.max_rate(10.0).start().unwrap();
    let mut before = 1000;
    for _ in 0..15 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = stage.place.count("c").await;
        assert!(before - now <= 15, "{before} documents, and a second later {now}");
        before = now;
    }
    assert!(before < 900, "{before}");
    sweeper.shutdown().await.unwrap();
}

async fn any_length_of_time_is_taken_or_refused(stage: Stage) {
    let ttl = stage.registry().await;
    ttl.create_index("c", index()).await.unwrap();
    ttl.modify_index("c", Duration::from_secs(1)).max_wait(Duration::MAX).await.unwrap();
    ttl.pause().for_duration(Duration::MAX).max_wait(Duration::MAX).await.unwrap();
    ttl.resume().await.unwrap();
    let with = [
        Sweeper::new(ttl.clone()).interval(Duration::MAX),
        Sweeper::new(ttl.clone()).lease_time(Duration::MAX),
        Sweeper::new(ttl.clone()).interval(Duration::from_secs(u64::MAX / 4)),
        Sweeper::new(ttl.clone()).lease_time(Duration::from_secs(u64::MAX / 8)),
    ];
    for sweeper in with {
        if let Ok(sweeper) = sweeper.start() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(!sweeper.is_finished());
            sweeper.shutdown().await.unwrap();
        }
    }
    ttl.drop_index("c", "t_1").max_wait(Duration::MAX).await.unwrap();
}

/// Until it is heard of no more, nobody can tell a dead holder from a live one; after that everybody can.
#[tokio::test(start_paused = true)]
async fn a_holder_that_is_gone_is_not_said_to_sweep() {
    let stage = Stage::embedded();
    let ttl = stage.registry().await;
    drop(ttl.claim_sweep().await.unwrap());
    assert_eq!(ttl.status().await.unwrap().activity, Activity::Sweeping);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let status = ttl.status().await.unwrap();
    assert_eq!(status.activity, Activity::Nobody);
    assert!(status.silent_since.is_some() && status.holder.is_some(), "{status:?}");
}

#[tokio::test]
async fn a_pause_that_ends_later_is_kept() {
    let stage = Stage::embedded();
    let ttl = stage.registry().await;
    let hour = ttl.pause().for_duration(Duration::from_secs(3600)).await.unwrap();
    assert_eq!(ttl.pause().for_duration(Duration::from_secs(1)).await.unwrap(), hour);
    assert_eq!(ttl.pause().await.unwrap().until, None);
    assert_eq!(ttl.pause().for_duration(Duration::from_secs(1)).await.unwrap().until, None);
    assert_eq!(ttl.status().await.unwrap().paused.unwrap().until, None);
}

/// Neither a pass nor a sweeper keeps a file for itself once it has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_can_be_opened_again_at_once() {
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("documents");
    for round in 0..50 {
        let store = ttl_index::EmbeddedStore::open(&file).unwrap();
        let ttl = ttl_index::TtlRegistry::open(store).await.unwrap();
        ttl.create_index("c", index()).await.unwrap();
        if round % 2 == 0 {
            ttl.sweep("c").await.unwrap();
        } else {
            let sweeper = Sweeper::new(ttl.clone()).start().unwrap();
            visited(&sweeper).await;
            sweeper.shutdown().await.unwrap();
        }
    }
}

async fn visited(sweeper: &ttl_index::SweeperHandle) {
    let seen = async || sweeper.status().indexes.first().is_some_and(|index| index.visits.is_some());
    crate::support::wait::until("a visit", crate::support::wait::LONG, seen).await;
}
