//! The background sweeper while its database is away, refuses, or the network fails: it comes back without help, and what
//! it has counted is what is gone.

use std::time::{Duration, Instant};

use futures_util::future::{join, join_all};
use mongodb::Client;
use mongodb::bson::{Bson, DateTime, Document, doc};
use ttl_index::{Activity, Counts, Sweeper, SweeperHandle, TtlRegistry};

use super::{DOCUMENTS, due_behind, gone, silence};
use crate::support::mongod::{Mongod, Stop};
use crate::support::proxy::{Fate, Link, Proxy, nth};
use crate::support::{TestDatabase, wait};

pub(super) const LEASE: Duration = Duration::from_secs(3);

/// What the driver may take to find its server again, as [`due_behind`] has it.
pub(super) const SELECTION: Duration = Duration::from_secs(2);

/// Has the driver notice sooner that its server is not there, or there again: by default that takes up to 20 s.
const WATCHFUL: &str = "&heartbeatFrequencyMS=1000&connectTimeoutMS=1000";

/// A sweeper that takes seconds for a thousand documents, in batches of a hundred.
pub(super) fn start(ttl: &TtlRegistry, name: &str) -> SweeperHandle {
    let sweeper = Sweeper::new(ttl.clone()).name(name).max_rate(400.0).min_rate(400.0).batch_size(100);
    sweeper.interval(Duration::from_millis(200)).lease_time(LEASE).start().unwrap()
}

pub(super) fn counts(ttl: &TtlRegistry) -> Counts {
    ttl.counters().total
}

/// Waits, and looks without waiting for anything that is under way.
pub(super) async fn all_go(it: &TestDatabase, limit: Duration, what: &str) {
    let c = it.db.collection::<Document>("c");
    let due = doc! { "t": { "$lt": DateTime::now() } };
    let none_left = async || c.count_documents(due.clone()).await.is_ok_and(|left| left == 0);
    wait::until(&format!("{what}: all that is due to go"), limit, none_left).await;
}

/// Ends the sweeper; after that nothing is counted any more.
pub(super) async fn end(sweeper: SweeperHandle, ttl: &TtlRegistry, what: &str) -> Counts {
    assert!(!sweeper.is_finished(), "{what}");
    sweeper.shutdown().await.unwrap();
    counts(ttl)
}

/// A client that was made when the server was another run of the same.
async fn afresh(it: TestDatabase) -> TestDatabase {
    let client = Client::with_uri_str(&it.uri).await.unwrap();
    TestDatabase { db: client.database(it.db.name()), client, ..it }
}

async fn insert_more(it: &TestDatabase, documents: u64) {
    let more = (0..documents).map(|_| doc! { "t": DateTime::from_millis(0) });
    it.db.collection("c").insert_many(more).await.unwrap();
}

/// What takes minutes of real time by its nature, side by side.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn minutes_without_a_server_or_without_an_answer_are_survived() {
    join(two_minutes_without_a_server(), silence::wherever_it_waits()).await;
}

/// Whoever runs with defaults, and a server that is killed.
async fn two_minutes_without_a_server() {
    const MANY: u64 = 20_000;
    let mut server = Mongod::private(&[]).await;
    let it = server.database().await;
    let ttl = due_behind(&it.uri, &it, MANY).await;
    let sweeper = Sweeper::new(ttl.clone()).max_rate(2_000.0).min_rate(2_000.0).start().unwrap();
    wait::until("it to be at it", wait::LONG, async || counts(&ttl).deleted >= 1_000).await;
    server.stop(Stop::Kill).await;
    let before = counts(&ttl).deleted;
    assert!(before < MANY, "it shall be in the middle");
    wait::until("it to notice", wait::LONG, async || sweeper.status().activity == Activity::Away).await;
    // What the test is about.
    tokio::time::sleep(Duration::from_secs(120)).await;
    server.start_again().await;
    let back = Instant::now();
    wait::until("sweeping to go on", wait::LONG, async || counts(&ttl).deleted > before + 500).await;
    let took = back.elapsed();
    let it = afresh(it).await;
    all_go(&it, wait::LONG, "two minutes").await;
    let gone = gone(&it, MANY).await;
    let counted = end(sweeper, &ttl, "two minutes").await;
    assert_eq!(gone, MANY);
    let least_and_most = counted.deleted..=counted.deleted + counted.uncertain;
    assert!(least_and_most.contains(&MANY) && counted.uncertain <= 500, "{counted:?}");
    let promised = Duration::from_secs(15) + SELECTION;
    assert!(took <= promised, "it took {took:?} for sweeping to go on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_under_a_sweeper_and_comes_back_is_swept_on() {
    let scene = async |how: Stop| {
        let what = format!("{how:?}");
        let mut server = Mongod::private(&[]).await;
        let (it, proxy) = (server.database().await, Proxy::before(server.port()));
        let ttl = due_behind(&proxy.uri(it.db.name()), &it, DOCUMENTS).await;
        let mut third = proxy.catch(nth(3, "delete", "c"));
        let sweeper = start(&ttl, "a");
        third.request().await;
        // It shall not be done before the server is, which takes its time to shut down in order.
        proxy.set(Link::Delay(Duration::from_millis(20)));
        third.then(Fate::Pass);
        server.stop(how).await;
        wait::until("it to notice", wait::LONG, async || sweeper.status().activity == Activity::Away).await;
        server.start_again().await;
        proxy.set(Link::Pass);
        let it = afresh(it).await;
        all_go(&it, wait::LONG, &what).await;
        assert_eq!(gone(&it, DOCUMENTS).await, DOCUMENTS, "{what}");
        let counted = end(sweeper, &ttl, &what).await;
        let least_and_most = counted.deleted..=counted.deleted + counted.uncertain;
        assert!(least_and_most.contains(&DOCUMENTS) && counted.uncertain <= 100, "{what}: {counted:?}");
    };
    join(scene(Stop::Kill), scene(Stop::Cleanly)).await;
}

/// As soon as the network is there again the documents are read, so that nothing stays in doubt but what is in doubt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_cut_off_in_the_middle_is_counted_exactly_and_sweeping_goes_on() {
    let server = Mongod::shared().await;
    let scene = async |(fate, uncertain): (Fate, bool)| {
        let what = format!("{fate:?}");
        let (it, proxy) = (server.database().await, Proxy::before(server.port()));
        let ttl = due_behind(&proxy.uri(it.db.name()), &it, DOCUMENTS).await;
        proxy.catch(nth(3, "delete", "c")).then(fate);
        let sweeper = start(&ttl, "a");
        all_go(&it, wait::LONG, &what).await;
        assert_eq!(gone(&it, DOCUMENTS).await, DOCUMENTS, "{what}");
        let counted = end(sweeper, &ttl, &what).await;
        assert_eq!(counted.deleted + counted.uncertain, DOCUMENTS, "{what}: {counted:?}");
        assert_eq!(counted.uncertain > 0, uncertain, "{what}: {counted:?}");
    };
    let fates = [
        (Fate::Lost, false),
        (Fate::ReplyLost, true),
        // Only this connection goes silent.
        (Fate::Swallowed, false),
        (Fate::ReplySwallowed, true),
        (Fate::Late(Duration::from_millis(300)), false),
    ];
    join_all(fates.map(scene)).await;
}

/// Down for longer than the lease lasts, in the middle of a batch: connections refused, or everything silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_comes_back_after_the_lease_has_sweeping_go_on() {
    let server = Mongod::shared().await;
    let scene = async |(down, cut): (Link, bool)| {
        let what = format!("{down:?}");
        let (it, proxy) = (server.database().await, Proxy::before(server.port()));
        let ttl = due_behind(&format!("{}{WATCHFUL}", proxy.uri(it.db.name())), &it, DOCUMENTS).await;
        let mut third = proxy.catch(nth(3, "delete", "c"));
        let sweeper = start(&ttl, "a");
        third.request().await;
        proxy.set(down);
        if cut {
            proxy.cut();
        }
        third.then(Fate::Pass);
        wait::until("it to notice", wait::LONG, async || sweeper.status().activity == Activity::Away).await;
        assert!(!ttl.counters().lease_held, "{what}");
        proxy.set(Link::Pass);
        all_go(&it, wait::LONG, &what).await;
        assert_eq!(gone(&it, DOCUMENTS).await, DOCUMENTS, "{what}");
        // A batch that was left behind is still to be counted.
        wait::until("every batch to be counted", wait::LONG, async || {
            let counted = counts(&ttl);
            counted.deleted + counted.uncertain >= DOCUMENTS
        })
        .await;
        let counted = end(sweeper, &ttl, &what).await;
        let least_and_most = counted.deleted..=counted.deleted + counted.uncertain;
        assert!(least_and_most.contains(&DOCUMENTS) && counted.uncertain <= 100, "{what}: {counted:?}");
    };
    join_all([(Link::Refuse, true), (Link::Swallow, false)].map(scene)).await;
}

pub(super) async fn fail(server: &Client, mode: impl Into<Bson>, data: Document) {
    let command = doc! { "configureFailPoint": "failCommand", "mode": mode.into(), "data": data };
    server.database("admin").run_command(command).await.unwrap();
}

/// Each of them is counted under its code, and none leaves more than a batch in doubt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_refuses_is_counted_by_its_code_and_survived() {
    let server = Mongod::private(&["--setParameter", "enableTestCommands=1"]).await;
    let it = server.database().await;
    let ttl = due_behind(&format!("{}{WATCHFUL}", it.uri), &it, 100).await;
    let sweeper = start(&ttl, "a");
    all_go(&it, wait::LONG, "at first").await;
    let mut put = 100;
    let mut faults = 1;
    // The driver tries a read once more by itself.
    for (command, code, times) in [
        ("delete", 10107, 1), // NotWritablePrimary
        ("delete", 11600, 1), // InterruptedAtShutdown
        ("delete", 91, 1),    // ShutdownInProgress
        ("find", 10107, 2),
        ("find", 50, 1), // MaxTimeMSExpired
        ("find", 43, 1), // CursorNotFound
    ] {
        faults += 1;
        let what = format!("{code} for a {command}");
        let told = |ttl: &TtlRegistry| counts(ttl).errors.get(&("backend", Some(code))).copied().unwrap_or_default();
        let before = told(&ttl);
        let namespace = format!("{}.c", it.db.name());
        let data = doc! { "failCommands": [command], "errorCode": code, "namespace": namespace };
        fail(&it.client, doc! { "times": times }, data).await;
        insert_more(&it, 300).await;
        put += 300;
        wait::until(&format!("{what} to be counted"), wait::LONG, async || told(&ttl) > before).await;
        all_go(&it, wait::LONG, &what).await;
    }
    let stepping_down = doc! { "replSetStepDown": 2, "secondaryCatchUpPeriodSecs": 0, "force": true };
    insert_more(&it, 300).await;
    put += 300;
    it.client.database("admin").run_command(stepping_down).await.unwrap();
    all_go(&it, wait::LONG, "stepped down").await;
    let counted = end(sweeper, &ttl, "refused").await;
    let least_and_most = counted.deleted..=counted.deleted + counted.uncertain;
    assert!(least_and_most.contains(&put) && counted.uncertain <= 100 * faults, "{put} were put there: {counted:?}");
    assert_eq!(it.db.collection::<Document>("c").count_documents(doc! {}).await.unwrap(), 1);
}

/// Without the lease nothing may go, though the deletes themselves would.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_deleted_after_a_lease_that_cannot_be_renewed() {
    let server = Mongod::private(&["--setParameter", "enableTestCommands=1"]).await;
    let it = server.database().await;
    let ttl = due_behind(&it.uri, &it, DOCUMENTS).await;
    let sweeper = Sweeper::new(ttl.clone()).max_rate(50.0).lease_time(LEASE).start().unwrap();
    wait::until("it to be at it", wait::LONG, async || counts(&ttl).deleted > 0).await;
    let namespace = format!("{}.ttl_index.lease", it.db.name());
    let data = doc! { "failCommands": ["findAndModify"], "errorCode": 8000, "namespace": namespace };
    fail(&it.client, "alwaysOn", data).await;
    let deleted = counts(&ttl).deleted;
    wait::until("deletes to go on meanwhile", wait::LONG, async || counts(&ttl).deleted > deleted).await;
    wait::until("the lease to be lost", wait::LONG, async || !ttl.counters().lease_held).await;
    let at_the_end = gone(&it, DOCUMENTS).await;
    // The database answers, and does not let it have the lease.
    let refused = || counts(&ttl).errors.get(&("backend", Some(8000))).copied().unwrap_or_default();
    wait::until("it to try again", wait::LONG, async || refused() >= 2).await;
    let counted = counts(&ttl);
    assert_eq!((gone(&it, DOCUMENTS).await, counted.deleted), (at_the_end, at_the_end), "{counted:?}");
    assert_eq!(counted.passes.get("lease_lost"), Some(&1), "{counted:?}");
    fail(&it.client, "off", doc! {}).await;
    wait::until("it to come back", wait::LONG, async || counts(&ttl).deleted > at_the_end).await;
    let counted = end(sweeper, &ttl, "lease").await;
    assert_eq!((counted.deleted, counted.uncertain), (gone(&it, DOCUMENTS).await, 0), "{counted:?}");
}
