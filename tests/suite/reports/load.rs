//! Reports about how much is done at once, and what an idle pass costs.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use tokio::sync::Notify;
use tokio::time::Instant;
use ttl_index::{Ended, Fault, HookedStore, Reason, Sweeper, TtlIndex, TtlRegistry};

use super::play::Play;
use super::steps;
use super::wire::{cost, profile, profiled, watched};
use crate::support::place::Place;

#[tokio::test]
async fn ttl_015_missing_or_null_field() {
    for mut play in Play::mongod("TTL-015").await {
        let sweep = play.until("sweep_until_idle").await;
        profile(play.database()).await;
        play.play(sweep).await;
        play.until_prose(
            "1000 documents left; one sweep costs at most one bounded indexed query, no collection scan; \
             a diagnostic can show 0 eligible of 1000",
        )
        .await;
        assert_eq!(play.place.count("jobs").await, 1000);
        let queries = profiled(play.database(), "query", "jobs").await;
        assert_eq!(queries.len(), 1, "{queries:?}");
        assert_eq!(cost(&queries[0], "docsExamined"), 0, "{queries:?}");
        assert!(queries[0].get_str("planSummary").unwrap().starts_with("IXSCAN"), "{queries:?}");
        assert!(profiled(play.database(), "remove", "jobs").await.is_empty());
        let (rule, now) = (play.ttl.rule("jobs").await.unwrap(), play.ttl.now().await.unwrap());
        for document in play.place.documents("jobs").await {
            let verdict = rule.judge(&RawDocumentBuf::try_from(&document).unwrap(), now);
            assert!(!verdict.due && verdict.expires_at.is_none(), "{verdict:?}");
            assert!(matches!(verdict.reason, Reason::Missing { .. }), "{verdict:?}");
        }
        play.finish().await;
    }
}

/// A pass over documents that are not due reads the end of the index and no document.
#[tokio::test]
async fn ttl_107_rate_limiter_design() {
    for mut play in Play::mongod("TTL-107").await {
        play.until("sweeper").await;
        profile(play.database()).await;
        for _ in 0..3 {
            steps::sweep_until_idle(&play, &serde_json::Value::Null).await;
        }
        play.until_prose("with nothing expired each pass examines about 0 index keys and 0 documents").await;
        let queries = profiled(play.database(), "query", "c").await;
        assert_eq!(queries.len(), 3, "{queries:?}");
        for query in &queries {
            assert_eq!(cost(query, "docsExamined"), 0, "{query}");
            assert!(cost(query, "keysExamined") <= 1, "{query}");
        }
        play.finish().await;
    }
}

/// Whether or not the server would stop a long statement: none is long, as none works on more than its batch.
#[tokio::test]
async fn ttl_095_load_spike_or_huge_backlog() {
    for mut play in Play::mongod("TTL-095").await {
        play.until("backend").await;
        profile(play.database()).await;
        let play = play.finish().await;
        for op in ["query", "remove"] {
            for statement in profiled(play.database(), op, "a").await {
                assert!(cost(&statement, "keysExamined") <= 3 * 500, "{statement}");
                assert!(cost(&statement, "docsExamined") <= 3 * 500, "{statement}");
                assert!(cost(&statement, "ndeleted") <= 500, "{statement}");
            }
        }
    }
}

/// The clock is tokio's, paused: it moves on when everybody waits.
#[tokio::test(start_paused = true)]
async fn ttl_071_unintended_or_leftover_index() {
    for mut play in Play::embedded("TTL-071").await {
        let mut sweep = play.until("sweep_until_idle").await.clone();
        // Where the size of batches is found out, one that is larger than the one before may go beyond it.
        sweep["batch"] = 100.into();
        let began = Instant::now();
        play.play(&sweep).await;
        play.until_prose("all 10000 gone, in at least 20 s of simulated time, at most 500 in any one-second window")
            .await;
        assert_eq!(play.place.count("c").await, 0);
        assert!(began.elapsed() >= Duration::from_secs(20), "{:?}", began.elapsed());
        assert!(most_in_a_second(&play) <= 500);
        play.finish().await;
    }
}

/// Before each batch an application writes. The embedded store has one writer at a time: a transaction that spanned
/// batches would never let it in.
#[tokio::test(start_paused = true)]
async fn ttl_101_load_spike_or_huge_backlog() {
    for mut play in Play::embedded("TTL-101").await {
        let sweep = play.until("sweep_until_idle").await;
        let Place::Embedded(store) = &*play.place else { panic!() };
        let other = store.collection("other");
        let hook = move |ids: Vec<Bson>| {
            let other = other.clone();
            async move {
                assert!(ids.len() <= 1000);
                other.insert_one(doc! {}).await.unwrap();
                Fault::None
            }
        };
        play.ttl = TtlRegistry::open(HookedStore::new(store.clone(), hook)).await.unwrap();
        play.play(sweep).await;
        play.until_prose("each batch is its own short operation; no transaction spans batches").await;
        assert_eq!(play.place.count("c").await, 0);
        assert_eq!(play.place.count("other").await, 200);
        assert!(play.stage.batches.lock().unwrap().iter().all(|(_, deleted)| *deleted == 1000));
        assert!(most_in_a_second(&play) <= 2000);
        play.finish().await;
    }
}

/// The most documents deleted within any second.
fn most_in_a_second(play: &Play) -> u64 {
    let batches = play.stage.batches.lock().unwrap();
    let within = |start: Instant| {
        let second = start..start + Duration::from_secs(1);
        batches.iter().filter(|(at, _)| second.contains(at)).map(|(_, deleted)| deleted).sum()
    };
    batches.iter().map(|(at, _)| within(*at)).max().unwrap_or(0)
}

/// The backlog drains at the rate that was planned, and whoever looks something up meanwhile is answered at once.
#[tokio::test(start_paused = true)]
async fn ttl_103_load_spike_or_huge_backlog() {
    const LAG: Duration = Duration::from_secs(3_600);
    let mut play = Play::ticking("TTL-103").await;
    play.until("start_layer_with_index").await;
    play.ttl.create_index("c", TtlIndex::on("exp").expire_after(Duration::ZERO)).await.unwrap();
    play.place.insert("c", vec![doc! { "_id": "foreground" }]).await;
    let began = Instant::now();
    let sweeper = Sweeper::new(play.ttl.clone()).target_lag(LAG).start().unwrap();
    play.until_prose("foreground find by _id stays under 50 ms p99 while the backlog drains").await;
    let (mut deleted, mut highest) = (0, 0.0_f64);
    while deleted < 200_000 {
        assert!(began.elapsed() <= LAG, "{deleted} by now");
        let asked = Instant::now();
        assert!(play.place.find("c", "foreground").await.is_some());
        assert!(asked.elapsed() < Duration::from_millis(50));
        tokio::time::sleep(Duration::from_secs(1)).await;
        highest = highest.max(sweeper.status().pace.unwrap().rate);
        let now = play.ttl.counters().total.deleted;
        // A batch is half a second's worth.
        let most = 1.5 * highest.max(50.0) + 1.0;
        #[allow(clippy::cast_precision_loss)]
        let within = (now - deleted) as f64 <= most;
        assert!(within, "{} within a second, at a rate of {highest}", now - deleted);
        deleted = now;
    }
    assert!(highest <= 200_000.0 / LAG.as_secs_f64() * 1.05, "{highest}");
    sweeper.shutdown().await.unwrap();
    play.finish().await;
}

/// The first batch goes at once and is paid for afterwards: the first wait is the one behind it. What is still there
/// then from the report's 50 on is renewed while the sweep waits, which it does without holding a transaction: the
/// embedded store has one writer at a time.
#[tokio::test(start_paused = true)]
async fn ttl_105_rate_limiter_design() {
    for mut play in Play::embedded("TTL-105").await {
        let limits = play.until("sweeper").await;
        let hook = play.until("on_hook").await;
        assert_eq!(hook["hook"], "while_waiting_for_rate_tokens");
        let renew = &hook["steps"][0];
        let waiting = Arc::new(Notify::new());
        let sweep = {
            let waiting = waiting.clone();
            let size = u32::try_from(limits["batch"].as_u64().unwrap()).unwrap();
            let sweep = play.ttl.sweep("c").batch_size(size).rate(limits["max_deletes_per_second"].as_f64().unwrap());
            sweep.on_batch(move |_| waiting.notify_one())
        };
        let renewing = async {
            waiting.notified().await;
            let ids = steps::matching_ids(&play.place, "c", &renew["filter"]["_id"]).await;
            steps::write(&play.place, &play.stage, renew).await;
            ids
        };
        let (report, renewed) = tokio::join!(sweep, renewing);
        let report = report.unwrap();
        play.until_prose(
            "ids >= 50 all survive although they were selected before the wait; no session or transaction is open during \
             the wait",
        )
        .await;
        let mut renewed: Vec<String> = renewed.iter().map(ToString::to_string).collect();
        renewed.sort_unstable();
        assert!(renewed.len() >= 850, "{}", renewed.len());
        assert_eq!(steps::ids(&play.place, "c").await, renewed);
        assert_eq!((report.changed, report.ended), (0, Ended::Drained), "nothing was found before a wait: {report:?}");
        play.finish().await;
    }
}

#[tokio::test]
async fn ttl_113_memory_or_big_documents() {
    let (database, wire) = watched().await;
    let mut play = Play::on("TTL-113", database).await;
    play.until_prose("first delete is sent before the 1001st candidate id is fetched").await;
    profile(play.database()).await;
    let report = play.ttl.sweep("c").max_batches(2).await.unwrap();
    assert_eq!((report.batches, report.ended), (2, Ended::LimitReached), "{report:?}");
    // The first two statements on the collection are one find and one delete, and the find handed over a batch.
    let of_c =
        |command: &Document| ["find", "delete"].iter().any(|name| command.get_str(name).is_ok_and(|it| it == "c"));
    let statements: Vec<String> = wire
        .all()
        .iter()
        .filter(|command| of_c(command))
        .filter_map(|command| command.keys().next().cloned())
        .collect();
    assert_eq!(statements[..2], ["find", "delete"], "{statements:?}");
    let found = profiled(play.database(), "query", "c").await;
    assert!(cost(&found[0], "nreturned") <= 1000, "{}", found[0]);
    play.finish().await;
}
