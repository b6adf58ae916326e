//! Reports about several that would sweep.

use std::time::Duration;

use ttl_index::Sweeper;

use super::background::{in_no_time, in_real_time};
use super::play::Play;
use crate::support::place::Place;
use crate::support::program::Program;
use crate::support::wait;

/// One of them does all the work, in no more batches than it takes.
#[test]
fn ttl_089_duplicate_sweepers() {
    in_no_time(async { one_does_the_work(Play::ticking("TTL-089").await).await });
    in_real_time(async { one_does_the_work(Play::at_pace("TTL-089", Duration::from_secs(1)).await).await });
}

async fn one_does_the_work(mut play: Play) {
    let sweepers = play.until("run_sweepers").await;
    let size = u32::try_from(sweepers["batch"].as_u64().unwrap()).unwrap();
    let mut running = Vec::new();
    for _ in 0..sweepers["count"].as_u64().unwrap() {
        let ttl = play.place.registry().await;
        running.push((
            Sweeper::new(ttl.clone()).batch_size(size).max_rate(5_000.0).min_rate(5_000.0).start().unwrap(),
            ttl,
        ));
    }
    let gone = async || play.place.count("c").await == 0;
    match &*play.place {
        Place::Mongo(_) => wait::until("all to be gone", wait::LONG, gone).await,
        Place::Embedded(_) => {
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert!(gone().await);
        }
    }
    let mut workers = Vec::new();
    for (sweeper, ttl) in running {
        sweeper.shutdown().await.unwrap();
        let counted = ttl.counters().total;
        if counted.batches > 0 {
            workers.push((counted.deleted, counted.changed, counted.batches));
        }
    }
    play.until_prose(
        "all deleted once; sum of deleted metrics over 4 sweepers == 10000; total delete statements under 2x the need, or \
         only one leader works",
    )
    .await;
    let [(deleted, changed, batches)] = workers[..] else { panic!("several have deleted: {workers:?}") };
    assert_eq!((deleted, changed), (10_000, 0));
    // Batches are smaller where they take long.
    assert!((100..=1_000).contains(&batches), "{batches} batches");
    play.finish().await;
}

/// On the real server the owner is another process, and it is killed.
#[test]
fn ttl_093_duplicate_sweepers() {
    in_no_time(async {
        let mut play = Play::ticking("TTL-093").await;
        play.until("acquire_sweeper_lease").await;
        play.until("kill_owner").await;
        drop(play.ttl.claim_sweep().await.unwrap());
        play.finish().await;
    });
    in_real_time(async {
        let mut play = Play::at_pace("TTL-093", Duration::from_millis(1)).await;
        play.until("acquire_sweeper_lease").await;
        play.until("kill_owner").await;
        let mut owner = Program::at(&play.database().uri).start(&["run", "--lease-time", "2s", "--name", "dead"]);
        let holder = async || play.ttl.status().await.unwrap().holder.is_some_and(|holder| holder.starts_with("dead/"));
        wait::until("it to hold the lease", wait::LONG, holder).await;
        owner.kill().unwrap();
        owner.wait().unwrap();
        assert!(holder().await, "it gave the lease back");
        play.finish().await;
    });
}
