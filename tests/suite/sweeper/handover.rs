//! One sweeps at a time: standing by, taking over, handing over, and what the others are told.

use std::time::Duration;

use ttl_index::{Activity, Code, Ended, SweeperHandle};

use super::{Stage, index, on_both};
use crate::support::place::Place;

on_both! {
    of_many_one_sweeps_and_another_takes_over,
    a_pass_is_refused_while_a_sweeper_lives_and_names_it,
    a_pass_that_waits_is_handed_the_lease_and_gives_it_back,
    a_lease_left_behind_lapses_by_itself,
    changes_are_confirmed_whoever_sweeps,
    a_lease_that_somebody_else_took_is_lost,
}

fn holders(sweepers: &[SweeperHandle]) -> usize {
    sweepers.iter().filter(|sweeper| sweeper.status().activity == Activity::Sweeping).count()
}

async fn of_many_one_sweeps_and_another_takes_over(stage: Stage) {
    let ttl = stage.registry().await;
    ttl.create_index("c", index()).await.unwrap();
    let mut sweepers = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        sweepers.push(stage.start(name).await);
    }
    while !sweepers.is_empty() {
        let due = stage.document(i32::try_from(sweepers.len()).unwrap(), -1).await;
        stage.place.insert("c", vec![due]).await;
        stage
            .until("one of them to delete", async || {
                assert!(holders(&sweepers) <= 1);
                stage.place.count("c").await == 0
            })
            .await;
        let at = sweepers.iter().position(|sweeper| sweeper.status().activity == Activity::Sweeping).unwrap();
        sweepers.remove(at).shutdown().await.unwrap();
    }
    assert_eq!(ttl.status().await.unwrap().holder, None);
}

async fn a_pass_is_refused_while_a_sweeper_lives_and_names_it(stage: Stage) {
    let ttl = stage.registry().await;
    ttl.create_index("c", index()).await.unwrap();
    let sweeper = stage.start("the holder").await;
    stage.until("it to sweep", async || sweeper.status().activity == Activity::Sweeping).await;
    let refused = ttl.sweep("c").await.unwrap_err();
    let refusal = refused.refusal().unwrap();
    assert_eq!(refusal.code(), Code::ConflictingOperationInProgress);
    assert!(refusal.message().contains("the holder"), "{refusal}");
    sweeper.shutdown().await.unwrap();
    assert_eq!(ttl.sweep("c").await.unwrap().ended, Ended::Drained);
}

async fn a_pass_that_waits_is_handed_the_lease_and_gives_it_back(stage: Stage) {
    let ttl = stage.registry().await;
    ttl.create_index("c", index()).await.unwrap();
    let sweeper = stage.start("a").await;
    stage.until("it to sweep", async || sweeper.status().activity == Activity::Sweeping).await;
    let claim = ttl.claim_sweep().wait(true).await.unwrap();
    stage.until("it to stand by", async || sweeper.status().activity == Activity::Standby).await;
    let due = stage.document(1, -1).await;
    stage.place.insert("c", vec![due]).await;
    assert_eq!(ttl.sweep("c").under(&claim).await.unwrap().deleted, 1);
    claim.release().await;
    stage.until("it to sweep again", async || sweeper.status().activity == Activity::Sweeping).await;
    assert!(ttl.status().await.unwrap().term >= Some(3));
    sweeper.shutdown().await.unwrap();
}

/// Whoever claimed it does nothing more, and nobody removes what it left.
async fn a_lease_left_behind_lapses_by_itself(stage: Stage) {
    let ttl = stage.registry().await;
    ttl.create_index("c", index()).await.unwrap();
    let due = stage.document(1, -1).await;
    stage.place.insert("c", vec![due]).await;
    drop(ttl.claim_sweep().await.unwrap());
    let sweeper = stage.start("a").await;
    stage.until("the lease to lapse", async || stage.place.count("c").await == 0).await;
    sweeper.shutdown().await.unwrap();
    // Nor does a change wait for ever for one who is gone.
    drop(ttl.claim_sweep().await.unwrap());
    ttl.drop_index("c", "t_1").await.unwrap();
}

async fn changes_are_confirmed_whoever_sweeps(stage: Stage) {
    let ttl = stage.registry().await;
    let a = stage.start("a").await;
    let b = stage.start("b").await;
    stage.until("one to sweep", async || ttl.status().await.unwrap().holder.is_some()).await;
    for round in 1..20 {
        ttl.create_index("c", index()).await.unwrap();
        ttl.modify_index("c", Duration::from_secs(round)).await.unwrap();
        ttl.drop_index("c", "t_1").await.unwrap();
    }
    a.shutdown().await.unwrap();
    b.shutdown().await.unwrap();
}

/// As after a pause of the whole process that was longer than the lease.
async fn a_lease_that_somebody_else_took_is_lost(stage: Stage) {
    let Place::Mongo(it) = &*stage.place else { return };
    let ttl = stage.registry().await;
    ttl.create_index("c", index()).await.unwrap();
    let sweeper = stage.start("a").await;
    stage.until("it to sweep", async || sweeper.status().activity == Activity::Sweeping).await;
    let lease = it.db.collection::<mongodb::bson::Document>("ttl_index.lease");
    let taken = mongodb::bson::doc! { "$set": { "holder": "somebody", "term": 1_000_i64, "renewal": 1_i64 } };
    lease.update_one(mongodb::bson::doc! { "_id": "lease" }, taken).await.unwrap();
    stage.until("it to notice", async || sweeper.status().activity == Activity::Standby).await;
    stage
        .until("the other to be taken for dead", async || {
            ttl.status().await.unwrap().term.is_some_and(|term| term > 1_000)
        })
        .await;
    sweeper.shutdown().await.unwrap();
}

/// A renewal that was held up on its way and comes after later ones must not make the counter show again what an observer
/// has seen already: its time would have begun then.
#[cfg(feature = "test-util")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_counter_of_renewals_never_shows_a_number_again() {
    use mongodb::bson::{Document, doc};

    use crate::support::mongod::Mongod;
    let server = Mongod::private(&["--setParameter", "enableTestCommands=1"]).await;
    let it = server.database().await;
    let ttl = ttl_index::TtlRegistry::open(ttl_index::MongoStore::new(it.db.clone())).await.unwrap();
    let sweeper = ttl_index::Sweeper::new(ttl).lease_time(Duration::from_secs(5)).start().unwrap();
    let lease = it.db.collection::<Document>("ttl_index.lease");
    let renewal = async || match lease.find_one(doc! { "_id": "lease" }).await.unwrap() {
        Some(record) => record.get_i64("renewal").unwrap(),
        None => -1,
    };
    crate::support::wait::until("renewals", crate::support::wait::LONG, async || renewal().await >= 1).await;
    // Two seconds are waited for an answer; then the next try goes over another connection, and another second later the
    // next renewal.
    let held = doc! {
        "failCommands": ["findAndModify"],
        "namespace": format!("{}.ttl_index.lease", it.db.name()),
        "blockConnection": true,
        "blockTimeMS": 3_100,
    };
    let command = doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": held };
    it.client.database("admin").run_command(command).await.unwrap();
    let mut shown = Vec::new();
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_secs(6) {
        let now = renewal().await;
        if shown.last() != Some(&now) {
            assert!(!shown.contains(&now), "{now} after {shown:?}");
            shown.push(now);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(shown.len() >= 3, "{shown:?}");
    sweeper.shutdown().await.unwrap();
}
