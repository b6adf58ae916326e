//! The proxy itself, between the driver and the shared server.

use std::time::{Duration, Instant};

use mongodb::bson::{Document, doc};
use mongodb::{Client, Collection};

use super::super::{TestDatabase, mongod::Mongod, wait};
use super::{Fate, Link, Proxy, nth};

/// A proxy, a collection seen through it, and the same database without.
async fn through_a_proxy() -> (Proxy, Collection<Document>, TestDatabase) {
    let server = Mongod::shared().await;
    let it = server.database().await;
    let proxy = Proxy::before(server.port());
    let uri = format!("{}&retryReads=false&retryWrites=false&serverSelectionTimeoutMS=1000", proxy.uri(it.db.name()));
    let client = Client::with_uri_str(uri).await.unwrap();
    let collection = client.default_database().unwrap().collection("c");
    (proxy, collection, it)
}

async fn count(it: &TestDatabase) -> u64 {
    it.db.collection::<Document>("c").count_documents(doc! {}).await.unwrap()
}

#[tokio::test]
async fn what_it_carries_arrives_whole() {
    let (_proxy, c, it) = through_a_proxy().await;
    let large = "x".repeat(1_000_000);
    c.insert_many((0..20).map(|id| doc! { "_id": id, "large": &large })).await.unwrap();
    assert_eq!(count(&it).await, 20);
    let read = c.find_one(doc! { "_id": 19 }).await.unwrap().unwrap();
    assert!(read.get_str("large").is_ok_and(|text| text == large));
}

#[tokio::test]
async fn a_delay_is_added_and_taken_away() {
    let (proxy, c, _it) = through_a_proxy().await;
    c.insert_one(doc! {}).await.unwrap();
    let delay = Duration::from_millis(300);
    proxy.set(Link::Delay(delay));
    let began = Instant::now();
    c.find_one(doc! {}).await.unwrap().unwrap();
    // The request and the reply.
    assert!(began.elapsed() >= 2 * delay, "{:?}", began.elapsed());
    proxy.set(Link::Pass);
    wait::until("the delay to be gone", wait::LONG, async || {
        let began = Instant::now();
        c.find_one(doc! {}).await.unwrap().unwrap();
        began.elapsed() < delay
    })
    .await;
}

#[tokio::test]
async fn a_cut_network_refuses_until_it_is_mended() {
    let (proxy, c, it) = through_a_proxy().await;
    let insert = async |id: &str| c.insert_one(doc! { "_id": id }).await;
    insert("before").await.unwrap();
    proxy.set(Link::Refuse);
    insert("on a connection that is open").await.unwrap();
    proxy.cut();
    insert("into a dead connection").await.unwrap_err();
    insert("without a connection").await.unwrap_err();
    proxy.set(Link::Pass);
    let mut tries = 0;
    wait::until("the driver to come back", wait::LONG, async || {
        tries += 1;
        insert(&format!("after {tries}")).await.is_ok()
    })
    .await;
    assert_eq!(count(&it).await, 3);
}

#[tokio::test]
async fn a_silent_network_swallows_what_is_sent() {
    let (proxy, c, it) = through_a_proxy().await;
    c.insert_one(doc! {}).await.unwrap();
    proxy.set(Link::Swallow);
    let mut silent = tokio::spawn({
        let c = c.clone();
        async move { c.insert_one(doc! {}).await }
    });
    tokio::time::timeout(Duration::from_millis(500), &mut silent).await.expect_err("no answer");
    proxy.set(Link::Pass);
    // A connection of its own, as the first waits for an answer for ever.
    wait::until("a new connection", wait::LONG, async || c.insert_one(doc! {}).await.is_ok()).await;
    assert_eq!(count(&it).await, 2);
    assert!(!silent.is_finished());
    proxy.cut();
    silent.await.unwrap().unwrap_err();
}

#[tokio::test]
async fn a_request_that_is_caught_meets_its_fate() {
    let (proxy, c, it) = through_a_proxy().await;
    let insert = async |id: i32| it.db.collection("c").insert_one(doc! { "_id": id }).await.unwrap();
    let delete = async |id: i32| {
        // A command, as those of a sweep: the driver never sends it twice.
        let deletes = vec![doc! { "q": { "_id": id }, "limit": 1 }];
        c.client().database(it.db.name()).run_command(doc! { "delete": "c", "deletes": deletes }).await
    };
    for (fate, answered, carried_out) in [
        (Fate::Pass, true, true),
        (Fate::Late(Duration::from_millis(200)), true, true),
        (Fate::Lost, false, false),
        (Fate::CutBehind, false, true),
        (Fate::ReplyLost, false, true),
    ] {
        insert(1).await;
        insert(2).await;
        let caught = proxy.catch(nth(2, "delete", "c"));
        delete(1).await.unwrap();
        caught.then(fate);
        assert_eq!(delete(2).await.is_ok(), answered, "{fate:?}");
        if carried_out {
            wait::until("the delete", wait::LONG, async || count(&it).await == 0).await;
        }
        assert_eq!(count(&it).await, u64::from(!carried_out), "{fate:?}");
        delete(2).await.expect("the next passes");
    }
}

#[tokio::test]
async fn a_request_that_vanishes_takes_its_connection_along_and_no_other() {
    let (proxy, c, it) = through_a_proxy().await;
    for (fate, carried_out) in [(Fate::Swallowed, false), (Fate::ReplySwallowed, true)] {
        it.db.collection("c").insert_one(doc! {}).await.unwrap();
        let mut caught = proxy.catch(nth(1, "delete", "c"));
        let mut silent = tokio::spawn({
            let c = c.clone();
            async move { c.delete_one(doc! {}).await }
        });
        caught.request().await;
        caught.then(fate);
        tokio::time::timeout(Duration::from_millis(300), &mut silent).await.expect_err("no answer");
        assert_eq!(count(&it).await, u64::from(!carried_out), "{fate:?}");
        c.count_documents(doc! {}).await.expect("the others live");
        assert!(!silent.is_finished(), "{fate:?}");
        proxy.cut();
        silent.await.unwrap().unwrap_err();
        it.db.collection::<Document>("c").delete_many(doc! {}).await.unwrap();
        wait::until("the driver to come back", wait::LONG, async || c.count_documents(doc! {}).await.is_ok()).await;
    }
}

#[tokio::test]
async fn a_request_that_is_held_reaches_the_server_after_the_client_has_gone() {
    let (proxy, c, it) = through_a_proxy().await;
    c.insert_one(doc! { "_id": 1 }).await.unwrap();
    let mut caught = proxy.catch(nth(1, "delete", "c"));
    let client = std::thread::spawn({
        let uri = proxy.uri(it.db.name());
        move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let client = runtime.block_on(Client::with_uri_str(uri)).unwrap();
            let c = client.default_database().unwrap().collection::<Document>("c");
            let deleting = async { tokio::time::timeout(Duration::from_millis(500), c.delete_one(doc! {})).await };
            runtime.block_on(deleting).expect_err("it is held");
            runtime.shutdown_background();
        }
    });
    assert!(caught.request().await.contains_key("delete"));
    wait::until("the client to be gone", wait::LONG, async || client.is_finished()).await;
    assert_eq!(count(&it).await, 1);
    caught.then(Fate::Pass);
    wait::until("the delete", wait::LONG, async || count(&it).await == 0).await;
}
