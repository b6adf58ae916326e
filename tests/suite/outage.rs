//! Passes whose database goes away in the middle: the network between them, or the server itself.
//!
//! What a report says is held against what is really gone, which is seen by a client that goes round the fault.

mod busy;
mod silence;
mod sweeper;

use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{DateTime, Document, doc};
use ttl_index::{Ended, MongoStore, SweepReport, TtlIndex, TtlRegistry};

use crate::race::assert_adds_up;
use crate::support::mongod::{Mongod, Stop};
use crate::support::proxy::{Fate, Link, Proxy, nth};
use crate::support::{TestDatabase, wait};

const DOCUMENTS: u64 = 1_000;

/// A registry behind this URI, with documents that are due in `c`, which `it` has put there.
async fn due_behind(uri: &str, it: &TestDatabase, documents: u64) -> TtlRegistry {
    let client = Client::with_uri_str(format!("{uri}&serverSelectionTimeoutMS=2000")).await.unwrap();
    let ttl = TtlRegistry::open(MongoStore::new(client.database(it.db.name()))).await.unwrap();
    ttl.create_index("c", TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
    let ids = 0..i64::try_from(documents).unwrap();
    it.db.collection("c").insert_many(ids.map(|id| doc! { "_id": id, "t": DateTime::from_millis(id) })).await.unwrap();
    it.db.collection("c").insert_one(doc! { "_id": "lives", "t": DateTime::MAX }).await.unwrap();
    ttl
}

/// How many of them are gone, once nothing that the client of the pass has sent is under way on the server.
async fn gone(it: &TestDatabase, documents: u64) -> u64 {
    let admin = it.client.database("admin");
    let namespace = format!("{}.c", it.db.name());
    wait::until("deletes under way to end", wait::LONG, async || {
        let running = admin.run_command(doc! { "currentOp": 1, "ns": &namespace, "op": "remove" }).await.unwrap();
        running.get_array("inprog").unwrap().is_empty()
    })
    .await;
    let c = it.db.collection::<Document>("c");
    assert!(c.find_one(doc! { "_id": "lives" }).await.unwrap().is_some());
    documents + 1 - c.count_documents(doc! {}).await.unwrap()
}

/// The next pass needs no help, though the first attempts of its client may still meet connections that are dead.
async fn next_pass_finishes(ttl: &TtlRegistry, it: &TestDatabase, documents: u64, what: &str) {
    let before = gone(it, documents).await;
    let mut deleted = 0;
    wait::until("a pass to finish the work", wait::LONG, async || match ttl.sweep("c").await {
        Ok(report) => {
            assert_adds_up(&report, what);
            deleted += report.deleted + report.uncertain;
            report.ended == Ended::Drained
        }
        Err(_) => false,
    })
    .await;
    assert_eq!((before + deleted, gone(it, documents).await), (documents, documents), "{what}");
}

fn counts(report: &SweepReport) -> [u64; 5] {
    [report.found, report.deleted, report.changed, report.uncertain, report.left]
}

#[tokio::test]
async fn a_pass_cut_off_in_a_batch_counts_exactly_and_the_next_one_finishes() {
    let server = Mongod::shared().await;
    for (fate, expected) in [
        (Fate::Lost, [300, 200, 0, 0, 100]),
        (Fate::ReplyLost, [300, 200, 0, 100, 0]),
        // The connection stays, and the delete only takes longer.
        (Fate::Late(Duration::from_millis(300)), [DOCUMENTS, DOCUMENTS, 0, 0, 0]),
    ] {
        let what = format!("{fate:?}");
        let (it, proxy) = (server.database().await, Proxy::before(server.port()));
        let ttl = due_behind(&proxy.uri(it.db.name()), &it, DOCUMENTS).await;
        proxy.catch(nth(3, "delete", "c")).then(fate);
        let report = ttl.sweep("c").batch_size(100).await.unwrap();
        let gone = gone(&it, DOCUMENTS).await;
        assert_adds_up(&report, &what);
        assert_eq!(counts(&report), expected, "{what}: {report:?}");
        assert_eq!(report.deleted + report.uncertain, gone, "{what}: {report:?}");
        let failed = report.found < DOCUMENTS;
        assert_eq!((report.ended == Ended::Failed, report.error.is_some()), (failed, failed), "{what}: {report:?}");
        next_pass_finishes(&ttl, &it, DOCUMENTS, &what).await;
    }
}

/// Read again while the server is still at them, documents would be reported as left that are gone a moment later.
#[tokio::test]
async fn a_delete_that_goes_on_behind_the_cut_is_counted_exactly() {
    let server = Mongod::shared().await;
    let (it, proxy) = (server.database().await, Proxy::before(server.port()));
    let ttl = due_behind(&proxy.uri(it.db.name()), &it, DOCUMENTS).await;
    let c = it.db.collection::<Document>("c");
    // The second delete gets as far as this document, and no further until it is let go.
    let mut transaction = it.client.start_session().await.unwrap();
    transaction.start_transaction().await.unwrap();
    let held = doc! { "$set": { "held": true } };
    c.update_one(doc! { "_id": 150_i64 }, held).session(&mut transaction).await.unwrap();

    proxy.catch(nth(2, "delete", "c")).then(Fate::CutBehind);
    let sweep = tokio::spawn(ttl.sweep("c").batch_size(100).into_future());
    wait::until("the delete to be held up", wait::LONG, async || {
        c.count_documents(doc! {}).await.unwrap() == DOCUMENTS + 1 - 150
    })
    .await;
    // Time to read them again too early, and less than the delete may take.
    tokio::time::sleep(Duration::from_millis(500)).await;
    transaction.abort_transaction().await.unwrap();
    let report = sweep.await.unwrap().unwrap();
    let gone = gone(&it, DOCUMENTS).await;
    assert_adds_up(&report, "cut behind");
    assert_eq!((report.ended, report.found, report.deleted), (Ended::Failed, 200, 100), "{report:?}");
    assert_eq!(report.deleted + report.uncertain, gone, "{report:?}");
    next_pass_finishes(&ttl, &it, DOCUMENTS, "cut behind").await;
}

/// Nobody can say what became of the batch as long as the network is down: then it is not taken for deleted.
#[tokio::test]
async fn a_network_that_stays_cut_leaves_the_whole_batch_uncertain() {
    let server = Mongod::shared().await;
    for (fate, really_gone) in [(Fate::Lost, 200), (Fate::ReplyLost, 300)] {
        let what = format!("{fate:?}");
        let (it, proxy) = (server.database().await, Proxy::before(server.port()));
        let ttl = due_behind(&proxy.uri(it.db.name()), &it, DOCUMENTS).await;
        let mut third = proxy.catch(nth(3, "delete", "c"));
        let sweep = tokio::spawn(ttl.sweep("c").batch_size(100).into_future());
        third.request().await;
        proxy.set(Link::Refuse);
        third.then(fate);
        let report = sweep.await.unwrap().unwrap();
        assert_adds_up(&report, &what);
        assert_eq!((counts(&report), report.ended), ([300, 200, 0, 100, 0], Ended::Failed), "{what}: {report:?}");
        assert_eq!(gone(&it, DOCUMENTS).await, really_gone, "{what}: {report:?}");
        ttl.sweep("c").await.expect_err("the network is still down");
        proxy.set(Link::Pass);
        next_pass_finishes(&ttl, &it, DOCUMENTS, &what).await;
    }
}

/// Cut anywhere: between batches, in a find, in a delete, in the first word of a connection.
#[tokio::test]
async fn a_network_cut_at_any_moment_never_makes_a_count_wrong() {
    let server = Mongod::shared().await;
    for cut_after in (0..60).step_by(4) {
        let what = format!("cut after {cut_after} requests");
        let (it, proxy) = (server.database().await, Proxy::before(server.port()));
        let ttl = due_behind(&proxy.uri(it.db.name()), &it, DOCUMENTS).await;
        let mut requests = 0;
        // Of the pass itself: the driver looks after its server with other commands.
        let mut caught = proxy.catch(move |request| {
            requests += usize::from(request.get("hello").is_none() && request.get("ping").is_none());
            requests > cut_after
        });
        let sweep = tokio::spawn(ttl.sweep("c").batch_size(50).into_future());
        caught.request().await;
        proxy.cut();
        let Ok(report) = sweep.await.unwrap() else {
            assert_eq!(gone(&it, DOCUMENTS).await, 0, "{what}");
            continue;
        };
        assert_adds_up(&report, &what);
        // A find may be sent once more by the driver.
        assert!(matches!(report.ended, Ended::Failed | Ended::Drained), "{what}: {report:?}");
        assert_eq!(report.deleted + report.uncertain, gone(&it, DOCUMENTS).await, "{what}: {report:?}");
        next_pass_finishes(&ttl, &it, DOCUMENTS, &what).await;
    }
}

#[tokio::test]
async fn a_server_that_ends_in_a_batch_and_comes_back_has_deleted_what_was_counted() {
    let mut server = Mongod::private(&[]).await;
    for how in [Stop::Kill, Stop::Cleanly] {
        let what = format!("{how:?}");
        let (it, proxy) = (server.database().await, Proxy::before(server.port()));
        let ttl = due_behind(&proxy.uri(it.db.name()), &it, DOCUMENTS).await;
        let mut third = proxy.catch(nth(3, "delete", "c"));
        let sweep = tokio::spawn(ttl.sweep("c").batch_size(10).into_future());
        third.request().await;
        // It shall not be done before the server is, which takes its time to shut down in order.
        proxy.set(Link::Delay(Duration::from_millis(20)));
        third.then(Fate::Pass);
        server.stop(how).await;
        let report = sweep.await.unwrap().unwrap();
        server.start_again().await;
        proxy.set(Link::Pass);
        let it = TestDatabase { client: Client::with_uri_str(&it.uri).await.unwrap(), ..it };
        let it = TestDatabase { db: it.client.database(it.db.name()), ..it };
        let gone = gone(&it, DOCUMENTS).await;
        assert_adds_up(&report, &what);
        assert_eq!((report.ended, report.error.is_some()), (Ended::Failed, true), "{what}: {report:?}");
        let counted = report.deleted..=report.deleted + report.uncertain;
        assert!(report.deleted >= 20 && counted.contains(&gone), "{what}: {gone} are gone: {report:?}");
        next_pass_finishes(&ttl, &it, DOCUMENTS, &what).await;
    }
}

#[tokio::test]
async fn a_server_that_is_frozen_in_a_batch_is_waited_for() {
    let server = Mongod::private(&[]).await;
    let (it, proxy) = (server.database().await, Proxy::before(server.port()));
    let ttl = due_behind(&proxy.uri(it.db.name()), &it, DOCUMENTS).await;
    let mut third = proxy.catch(nth(3, "delete", "c"));
    let mut sweep = tokio::spawn(ttl.sweep("c").batch_size(100).into_future());
    third.request().await;
    server.freeze().await;
    third.then(Fate::Pass);
    tokio::time::timeout(Duration::from_millis(500), &mut sweep).await.expect_err("it is frozen");
    server.thaw().await;
    let report = sweep.await.unwrap().unwrap();
    assert_eq!((counts(&report), report.ended), ([DOCUMENTS, DOCUMENTS, 0, 0, 0], Ended::Drained), "{report:?}");
}
