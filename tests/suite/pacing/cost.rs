//! What planning costs the database, as the driver sees it.

use std::time::{Duration, Instant};

use mongodb::bson::{DateTime, Document, doc};
use ttl_index::{MongoStore, Sweeper, TtlIndex, TtlRegistry};

use super::seconds;
use crate::reports::wire::{Wire, watched};
use crate::support::{TestDatabase, wait};

const INDEXES: usize = 20;

async fn ready(it: &TestDatabase, documents: i64) -> TtlRegistry {
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    for name in names() {
        ttl.create_index(&name, TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
        let mut all: Vec<Document> = (0..documents).map(|n| doc! { "t": DateTime::from_millis(n) }).collect();
        all.push(doc! { "t": DateTime::MAX });
        it.db.collection(&name).insert_many(all).await.unwrap();
    }
    ttl
}

fn names() -> impl Iterator<Item = String> {
    (0..INDEXES).map(|n| format!("c{n}"))
}

/// The counts that were sent: aggregations, but for those by which the library finds out what the backend understands.
fn counts(wire: &Wire) -> usize {
    wire.commands("aggregate").iter().filter(|it| it.get_str("aggregate").is_ok_and(|of| of.starts_with('c'))).count()
}

/// With a target lag of seconds everything is worth counting all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counting_stays_within_sixty_statements_a_minute() {
    let (it, wire) = watched().await;
    let ttl = ready(&it, 400).await;
    let began = Instant::now();
    let sweeper = Sweeper::new(ttl.clone()).target_lag(seconds(20)).min_rate(0.0).start().unwrap();
    wait::until("many counts", 2 * wait::LONG, async || counts(&wire) >= 2 * INDEXES).await;
    for _ in 0..40 {
        // Those of the first minute are there from the beginning; two a second at most.
        let (counted, since) = (counts(&wire), began.elapsed().as_secs_f64());
        #[allow(clippy::cast_precision_loss)]
        let most = (60.0 + since + 1.0).min(2.0 * since + 4.0);
        #[allow(clippy::cast_precision_loss)]
        let within = counted as f64 <= most;
        assert!(within, "{counted} counts in {since} s");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    sweeper.shutdown().await.unwrap();
    it.drop().await;
}

/// Each visit is one find, and what lies ahead is counted once and then left alone for a long time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_indexes_cost_a_find_a_visit_and_a_count_now_and_then() {
    let (it, wire) = watched().await;
    let ttl = ready(&it, 0).await;
    let sweeper = Sweeper::new(ttl.clone()).interval(seconds(1)).start().unwrap();
    let visits = || ttl.counters().total.passes.values().sum::<u64>();
    wait::until("each to be counted", wait::LONG, async || counts(&wire) >= INDEXES).await;
    let (visited, sent, counted) = (visits(), wire.all().len(), counts(&wire));
    wait::until("ten visits to each", wait::LONG, async || visits() >= visited + 10 * INDEXES as u64).await;
    let (visited, sent) = (visits() - visited, wire.all().split_off(sent));
    sweeper.shutdown().await.unwrap();
    let to_an_index = |command: &&Document| {
        let of = command.values().next().and_then(|value| value.as_str());
        of.is_some_and(|of| of.starts_with('c') && of[1..].parse::<usize>().is_ok())
    };
    let named = |name: &str| {
        let named = sent.iter().filter(|command| command.keys().next().is_some_and(|first| first == name));
        named.filter(to_an_index).count() as u64
    };
    assert!(named("find") <= visited + 2, "{} finds for {visited} visits", named("find"));
    assert!(named("aggregate") <= 2, "{} counts, after the first {counted}", named("aggregate"));
    let rest = sent.iter().filter(to_an_index).count() as u64 - named("find") - named("aggregate");
    // The catalog is looked at once in an interval.
    assert!(rest <= visited + visited / 5, "{rest} other commands for {visited} visits");
    it.drop().await;
}
