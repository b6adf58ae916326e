//! A database that becomes slow, and the word of a hook: less is done, told why, and deadlines still hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Bson, DateTime, doc};
use ttl_index::{Fault, HookedStore, MongoStore, Signal, Sweeper, TtlIndex, TtlRegistry};

use super::{Scene, pace, seconds};
use crate::support::mongod::Mongod;
use crate::support::proxy::{Link, Proxy};
use crate::support::wait;

/// A scene whose deletes take so many milliseconds longer, and how many.
async fn slowed() -> (Scene, Arc<AtomicU64>) {
    let slow = Arc::new(AtomicU64::new(5));
    let takes = slow.clone();
    let scene = Scene::on(&["c"], |store| {
        HookedStore::new(store, move |_: Vec<Bson>| {
            let takes = Duration::from_millis(takes.load(Ordering::SeqCst));
            async move {
                tokio::time::sleep(takes).await;
                Fault::None
            }
        })
    })
    .await;
    (scene, slow)
}

#[tokio::test(start_paused = true)]
async fn while_batches_take_longer_less_is_done_and_it_rises_slowly_again() {
    let (scene, slow) = slowed().await;
    scene.overdue("c", 40_000).await;
    let sweeper = scene.sweeper(seconds(1_800)).start().unwrap();
    scene.until(200.0).await;
    let healthy = pace(&sweeper);
    assert!(healthy.held_back.is_none() && healthy.rate > 20.0, "{healthy:?}");

    slow.store(50, Ordering::SeqCst);
    scene.until(210.0).await;
    let held = pace(&sweeper);
    let why = held.held_back.clone().expect("it is held back");
    assert_eq!(why.cause, "latency");
    assert!(why.factor < 0.5 && held.rate < 0.5 * healthy.rate && held.planned >= healthy.rate * 0.9, "{held:?}");
    assert!(why.why.contains("instead of"), "{why:?}");
    // Others hear of it.
    let told = scene.ttl.status().await.unwrap().pace.unwrap().held_back.expect("it is told");
    assert_eq!(told.cause, "latency");
    scene.until(240.0).await;

    slow.store(5, Ordering::SeqCst);
    let mut last = pace(&sweeper).rate;
    let mut steps = 0;
    let recovered = loop {
        scene.until(scene.time().floor() + 1.0).await;
        let now = pace(&sweeper);
        // 5 % a second, as sampled.
        assert!(now.rate <= last * 1.12 + 0.1, "from {last} to {now:?}");
        steps += u32::from(now.rate > last);
        last = now.rate;
        if now.held_back.is_none() {
            break scene.time();
        }
        assert!(scene.time() < 600.0, "{now:?}");
    };
    assert!(steps >= 8 && recovered >= 250.0, "{steps} steps until second {recovered}");
    let gone = scene.course("c", 40_000, 1_900.0).await.gone(40_000);
    assert!(gone <= 1_800.0, "{gone}");
    sweeper.shutdown().await.unwrap();
}

/// It stays slow: the nearer the deadline the less it is spared.
#[tokio::test(start_paused = true)]
async fn a_database_that_stays_slow_is_spared_until_the_deadline_comes_near() {
    let (scene, slow) = slowed().await;
    scene.overdue("c", 20_000).await;
    let sweeper = scene.sweeper(seconds(900)).start().unwrap();
    scene.until(150.0).await;
    let healthy = pace(&sweeper).rate;
    slow.store(60, Ordering::SeqCst);
    scene.until(165.0).await;
    assert!(pace(&sweeper).rate < 0.5 * healthy, "{:?}", pace(&sweeper));
    let course = scene.course("c", 20_000, 1_000.0).await;
    assert!(course.gone(20_000) <= 900.0, "{course:?}");
    assert!(course.rate(800.0, 880.0) > healthy, "{course:?}");
    sweeper.shutdown().await.unwrap();
}

const HEALTHY: u8 = 0;
const HALF: u8 = 1;
const STOP: u8 = 2;
const SILENT: u8 = 3;

#[tokio::test(start_paused = true)]
async fn the_word_of_a_hook_is_heeded() {
    let scene = Scene::with(&["c"]).await;
    scene.overdue("c", 60_000).await;
    let word = Arc::new(AtomicU8::new(HEALTHY));
    let hook = {
        let word = word.clone();
        move || {
            let word = word.load(Ordering::SeqCst);
            async move {
                match word {
                    HEALTHY => Ok(Signal::healthy()),
                    HALF => Ok(Signal::factor(0.5, "a secondary is behind")),
                    STOP => Ok(Signal::stop("it is on fire")),
                    _ => Err("nobody knows".into()),
                }
            }
        }
    };
    let sweeper = scene.sweeper(seconds(3_600)).health(hook).start().unwrap();
    let after = async |seconds: f64| scene.until(scene.time() + seconds).await;
    scene.until(60.0).await;
    let planned = pace(&sweeper).planned;
    assert!(pace(&sweeper).held_back.is_none());

    word.store(HALF, Ordering::SeqCst);
    after(10.0).await;
    let told = pace(&sweeper);
    let held = told.held_back.clone().expect("it is held back");
    assert_eq!((&*held.cause, &*held.why), ("signal", "a secondary is behind"));
    super::assert_near("half", told.rate, planned / 2.0, 0.05);

    word.store(STOP, Ordering::SeqCst);
    after(10.0).await;
    let stopped = scene.deleted("c");
    after(600.0).await;
    let told = pace(&sweeper);
    assert_eq!((scene.deleted("c"), told.rate), (stopped, 0.0), "{told:?}");
    assert_eq!(told.held_back.unwrap().why, "it is on fire");

    // Not at once all of what was put off.
    word.store(HEALTHY, Ordering::SeqCst);
    after(10.0).await;
    let told = pace(&sweeper);
    assert!(told.rate < told.planned / 4.0, "{told:?}");
    after(200.0).await;
    assert!(pace(&sweeper).held_back.is_none(), "{:?}", pace(&sweeper));

    // Silence: what was said last, then no more than half, then it is ignored with a warning.
    word.store(SILENT, Ordering::SeqCst);
    after(20.0).await;
    assert!(pace(&sweeper).held_back.is_none());
    after(20.0).await;
    let held = pace(&sweeper).held_back.expect("it is in doubt");
    assert!(held.cause == "signal" && held.why.contains("nobody knows"), "{held:?}");
    after(700.0).await;
    let told = pace(&sweeper);
    assert!(told.held_back.is_none() && told.warning.is_some(), "{told:?}");
    let gone = scene.course("c", 60_000, 3_700.0).await.gone(60_000);
    assert!(gone <= 3_600.0, "{gone}");
    sweeper.shutdown().await.unwrap();
}

/// However urgent: it is late already.
#[tokio::test(start_paused = true)]
async fn a_stop_holds_beyond_the_deadline() {
    let scene = Scene::with(&["c"]).await;
    scene.overdue("c", 3_000).await;
    let hook = || async { Ok(Signal::stop("it is on fire")) };
    let sweeper = scene.sweeper(seconds(60)).health(hook).start().unwrap();
    scene.until(10.0).await;
    let stopped = scene.deleted("c");
    for _ in 0..30 {
        scene.until(scene.time() + 10.0).await;
        assert_eq!(scene.deleted("c"), stopped);
    }
    let told = pace(&sweeper);
    assert!(told.rate == 0.0 && told.shortfall.is_some(), "{told:?}");
    sweeper.shutdown().await.unwrap();
}

/// In real time, as a real driver sees it. What is usual is known after a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_becomes_slow_holds_it_back_on_a_real_server() {
    let server = Mongod::shared().await;
    let (it, proxy) = (server.database().await, Proxy::before(server.port()));
    let client = Client::with_uri_str(proxy.uri(it.db.name())).await.unwrap();
    let ttl = TtlRegistry::open(MongoStore::new(client.database(it.db.name()))).await.unwrap();
    let other = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    ttl.create_index("c", TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
    let due = (0..60_000).map(|id| doc! { "_id": id, "t": DateTime::from_millis(id) });
    it.db.collection("c").insert_many(due).await.unwrap();
    let sweeper = Sweeper::new(ttl.clone()).target_lag(seconds(600)).min_rate(0.0).start().unwrap();
    let deleted = || ttl.counters().total.deleted;
    wait::until("it to know what is usual", 5 * wait::LONG, async || deleted() > 100 * 75).await;
    let healthy = pace(&sweeper);
    proxy.set(Link::Delay(Duration::from_millis(150)));
    wait::until("it to be held back", wait::LONG, async || {
        let told = pace(&sweeper);
        told.held_back.is_some_and(|held| held.cause == "latency") && told.rate < 0.7 * healthy.planned
    })
    .await;
    wait::until("others to hear of it", wait::LONG, async || {
        let told = other.status().await.unwrap().pace.and_then(|pace| pace.held_back);
        told.is_some_and(|held| held.cause == "latency" && held.why.contains("instead of"))
    })
    .await;
    proxy.set(Link::Pass);
    let lowest = pace(&sweeper).rate;
    let mut seen = vec![lowest];
    wait::until("it to recover", 2 * wait::LONG, async || {
        seen.push(pace(&sweeper).rate);
        seen.last().is_some_and(|rate| *rate > 2.0 * lowest)
    })
    .await;
    seen.dedup();
    // Step by step.
    assert!(seen.len() >= 5, "{seen:?}");
    sweeper.shutdown().await.unwrap();
    it.drop().await;
}
