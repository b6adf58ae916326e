//! Reports about the background sweeper: on the embedded store in no time, on the real server in real time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, sleep};
use ttl_index::{Activity, Fault, HookedStore, Sweeper, TtlRegistry};

use super::background::{in_no_time, in_real_time};
use super::play::Play;
use super::wire::Wire;
use crate::support::mongod::Mongod;
use crate::support::place::Place;
use crate::support::proxy::{Link, Proxy};
use crate::support::{TestDatabase, wait};

/// A connection is something that the real server has.
#[test]
fn ttl_009_value_type_number_epoch() {
    in_real_time(async {
        let (proxy, wire) = (Proxy::before(Mongod::shared().await.port()), Wire::default());
        let database = TestDatabase::open(&proxy.uri(""), |options| {
            options.server_selection_timeout = Some(Duration::from_millis(500));
            wire.watch(options);
        })
        .await;
        let mut play = Play::on("TTL-009", database).await;
        play.until("start_sweeper_before_connection_ready").await;
        proxy.set(Link::Refuse);
        proxy.cut();
        let sweeper = Sweeper::new(play.ttl.clone()).start().unwrap();
        let away = async || sweeper.status().activity == Activity::Away;
        wait::until("it to see that there is no connection", wait::LONG, away).await;
        play.until("connection_ready").await;
        proxy.set(Link::Pass);
        let swept =
            async || sweeper.status().indexes.iter().any(|it| it.visits.as_ref().is_some_and(|v| v.deleted == 1));
        wait::until("it to sweep", wait::LONG, swept).await;
        sweeper.shutdown().await.unwrap();
        let of_c = |name: &str| -> Vec<Document> {
            let of_c = |command: &Document| command.get_str(name).is_ok_and(|it| it == "c");
            wire.commands(name).into_iter().filter(of_c).collect()
        };
        let delete = of_c("delete").pop().unwrap();
        let filter = delete.get_array("deletes").unwrap()[0].as_document().unwrap().get_document("q").unwrap().clone();
        let find = of_c("find").swap_remove(0).get_document("filter").unwrap().clone();
        for filter in [find, filter] {
            let bound = filter.get_document("expires").unwrap();
            assert!(bound.get_datetime("$lte").is_ok(), "{filter}");
        }
        play.finish().await;
    });
}

/// How far it lags behind is seen where it is counted. Of the report's documents a tenth does, as it is the proportion of
/// the rates that matters.
#[test]
fn ttl_097_load_spike_or_huge_backlog() {
    in_no_time(async {
        let mut play = Play::ticking("TTL-097").await;
        let arriving = arrive(&mut play).await;
        sweep_tenth(&mut play).await;
        let half = Duration::from_secs(play.until("advance_clock").await["seconds"].as_u64().unwrap() / 2);
        sleep(half).await;
        let halfway = lag(&play);
        sleep(half).await;
        let lagging = lag(&play);
        assert!(
            halfway > Duration::from_secs(60) && lagging > halfway + Duration::from_secs(60),
            "{halfway:?} {lagging:?}"
        );
        play.until_prose("warning/metric: backlog growing (arrival 300/s > limit 200/s)").await;
        sweep_tenth(&mut play).await;
        play.until_prose("backlog near 0").await;
        assert!(lag(&play) <= Duration::from_secs(2) && play.place.count("c").await <= 60, "{:?}", lag(&play));
        arriving.abort();
        play.finish().await;
    });
    in_real_time(async {
        let mut play = Play::at_pace("TTL-097", Duration::from_secs(1)).await;
        play.background().set_interval(&json!(1));
        let arriving = arrive(&mut play).await;
        sweep_tenth(&mut play).await;
        for seconds in [1, 2] {
            let lags = async || lag(&play) >= Duration::from_secs(seconds);
            wait::until("the backlog to grow", wait::LONG, lags).await;
        }
        play.until("advance_clock").await;
        play.until_prose("warning/metric: backlog growing (arrival 300/s > limit 200/s)").await;
        sweep_tenth(&mut play).await;
        let caught_up = async || lag(&play) <= Duration::from_secs(1) && play.place.count("c").await <= 60;
        wait::until("the backlog to go", wait::LONG, caught_up).await;
        arriving.abort();
        play.background().shutdown().await;
    });
}

/// Starts the next sweeper of the report.
async fn sweep_tenth(play: &mut Play) {
    let mut limits = play.until("sweeper").await.clone();
    limits["max_deletes_per_second"] = json!(limits["max_deletes_per_second"].as_f64().unwrap() / 10.0);
    play.play(&limits).await;
}

/// Has a tenth of the report's documents arrive every second.
async fn arrive(play: &mut Play) -> tokio::task::JoinHandle<()> {
    let step = play.until("insert_rate").await;
    let (count, place, ttl) = (step["per_second"].as_u64().unwrap() / 10, play.place.clone(), play.ttl.clone());
    tokio::spawn(async move {
        let mut seconds = interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            seconds.tick().await;
            let now = ttl.now().await.unwrap();
            place.insert("c", (0..count).map(|_| doc! { "ts": now }).collect()).await;
        }
    })
}

fn lag(play: &Play) -> Duration {
    play.ttl.counters().indexes.first().and_then(|index| index.oldest_due).unwrap_or_default()
}

#[test]
fn ttl_109_fairness_or_no_progress() {
    in_no_time(async {
        let play = Play::ticking("TTL-109").await.finish().await;
        assert!(play.place.count("big").await > 90_000);
    });
    in_real_time(async {
        let play = Play::at_pace("TTL-109", Duration::from_millis(100)).await.finish().await;
        assert!(play.place.count("big").await > 0);
    });
}

/// What an index gets in its turn is a second's worth, however many batches that are.
#[test]
fn ttl_111_fairness_or_no_progress() {
    for real in [false, true] {
        let fair = async {
            let mut play = if real {
                Play::at_pace("TTL-111", Duration::from_secs(1)).await
            } else {
                Play::ticking("TTL-111").await
            };
            play.until_prose("deleted counts of the three differ by at most one batch").await;
            let deleted = || play.ttl.counters().indexes.iter().map(|it| it.counts.deleted).collect::<Vec<_>>();
            let enough = async || deleted().iter().sum::<u64>() >= 2_000;
            wait::until("ten seconds' worth", wait::LONG, enough).await;
            let deleted = deleted();
            let (most, least) = (deleted.iter().max().unwrap(), deleted.iter().min().unwrap());
            assert!(deleted.len() == 3 && most - least <= 300, "{deleted:?}");
            play.finish().await;
        };
        if real { in_real_time(fair) } else { in_no_time(fair) }
    }
}

#[test]
fn ttl_127_startup_or_worker_missing() {
    in_no_time(async { Play::ticking("TTL-127").await.finish().await });
    in_real_time(async { Play::at_pace("TTL-127", Duration::from_millis(10)).await.finish().await });
}

/// Whatever goes wrong, for as long as it does: then it goes on.
#[test]
fn ttl_137_connection_failure_or_retry() {
    in_no_time(async {
        let mut play = Play::ticking("TTL-137").await;
        let fails = play.until("backend_fail_next").await;
        let Place::Embedded(store) = &*play.place else { panic!() };
        let left = Arc::new(AtomicUsize::new(fails["errors"].as_array().unwrap().len()));
        let hook = move |_: Vec<Bson>| {
            let fails = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
            std::future::ready(if fails { Fault::Fails } else { Fault::None })
        };
        play.ttl = TtlRegistry::open(HookedStore::new(store.clone(), hook)).await.unwrap();
        play.background().start(&play.ttl, &Value::Null).await;
        let insert = play.until("insert").await;
        play.play(insert).await;
        sleep(Duration::from_secs(2)).await;
        let failures = || play.ttl.counters().indexes[0].consecutive_failures;
        assert_eq!(failures(), 2);
        let registry = play.ttl.clone();
        let play = play.finish().await;
        assert_eq!((registry.counters().indexes[0].consecutive_failures, play.place.count("c").await), (0, 0));
    });
    in_real_time(async {
        let server = Mongod::private(&["--setParameter", "enableTestCommands=1"]).await;
        let mut play = Play::on("TTL-137", server.database().await).await;
        play.until("backend_fail_next").await;
        let sweeper = Sweeper::new(play.ttl.clone()).interval(Duration::from_millis(200)).start().unwrap();
        let gone = async || play.place.count("c").await == 0;
        let fail = async |mode: Bson, mut data: Document| {
            data.insert("failCommands", vec!["find", "delete", "findAndModify"]);
            data.insert("namespace", format!("{}.c", play.database().db.name()));
            let command = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data };
            let answer = play.database().client.database("admin").run_command(command).await.unwrap();
            answer.get("count").and_then(|count| count.as_i64().or(count.as_i32().map(i64::from))).unwrap()
        };
        let due = async || play.place.insert("c", vec![doc! { "t": DateTime::from_millis(0) }]).await;
        // The pool that is lost, another primary, and a network that takes too long, a few times each.
        for data in [doc! { "closeConnection": true }, doc! { "errorCode": 10107 }, doc! { "errorCode": 89 }] {
            let before = fail(doc! { "times": 3 }.into(), data.clone()).await;
            due().await;
            wait::until("it to go all the same", wait::LONG, gone).await;
            let failed = fail("off".into(), doc! {}).await - before;
            assert!(failed > 0, "{data} did not happen");
        }
        // What is the index's own fault is counted as long as it lasts.
        let failures = || play.ttl.counters().indexes[0].consecutive_failures;
        fail("alwaysOn".into(), doc! { "errorCode": 8 }).await;
        due().await;
        wait::until("two failures in a row", wait::LONG, async || failures() >= 2).await;
        fail("off".into(), doc! {}).await;
        wait::until("none any more", wait::LONG, async || failures() == 0 && gone().await).await;
        sweeper.shutdown().await.unwrap();
    });
}

/// On the real server the period is two seconds and the interval one: never early, and later than an interval only if the
/// machine is.
#[test]
fn ttl_145_timing_expectation() {
    in_no_time(async {
        let mut play = Play::ticking("TTL-145").await;
        let create = play.until("create_index").await;
        play.play(create).await;
        play.background().start(&play.ttl, &Value::Null).await;
        play.finish().await;
    });
    in_real_time(async {
        let mut play = Play::at_pace("TTL-145", Duration::from_secs(1) / 60).await;
        let create = play.until("create_index").await;
        let mut shorter = create.clone();
        shorter["options"]["expireAfterSeconds"] = json!(2);
        play.play(&shorter).await;
        play.background().start(&play.ttl, &Value::Null).await;
        let created = play.ttl.now().await.unwrap();
        play.place.insert("c", vec![doc! { "_id": 1, "createdAt": created }]).await;
        wait::until("it to go", wait::LONG, async || play.place.count("c").await == 0).await;
        assert!(play.ttl.now().await.unwrap().timestamp_millis() >= created.timestamp_millis() + 2_000);
        play.background().shutdown().await;
        let delays = play.ttl.counters().total.delays;
        assert_eq!(delays.count, 1);
    });
}

#[test]
fn ttl_155_cancellation() {
    let ends_well = async |mut play: Play| {
        play.until_prose("returns Ok within the time limit; join result is not an error").await;
        assert_eq!(play.ttl.status().await.unwrap().activity, Activity::Nobody);
    };
    in_no_time(async { ends_well(Play::ticking("TTL-155").await).await });
    in_real_time(async { ends_well(Play::at_pace("TTL-155", Duration::from_secs(1)).await).await });
}
