//! One connection goes silent while the others live, as behind a firewall that has forgotten it. The driver waits for ever.

use std::time::Duration;

use futures_util::future::join_all;
use mongodb::bson::{Document, doc};
use ttl_index::{Activity, Error, MongoStore, SweeperHandle, TtlRegistry};

use super::sweeper::{LEASE, all_go, counts, end, start};
use super::{DOCUMENTS, due_behind, gone};
use crate::support::mongod::Mongod;
use crate::support::proxy::{Caught, Fate, Proxy, nth};
use crate::support::{TestDatabase, wait};

type Request = Box<dyn FnMut(&Document) -> bool + Send>;

/// Whatever is never answered holds a sweeper up for a while only, and does not cost it the lease.
pub(super) async fn wherever_it_waits() {
    let server = Mongod::shared().await;
    let scene = async |(what, request): (&str, Request)| {
        let (it, proxy) = (server.database().await, Proxy::before(server.port()));
        let ttl = due_behind(&proxy.uri(it.db.name()), &it, DOCUMENTS).await;
        let mut silent = proxy.catch(request);
        let sweeper = start(&ttl, "a");
        silent.request().await;
        silent.then(Fate::Swallowed);
        all_go(&it, 3 * wait::LONG, what).await;
        let counted = end(sweeper, &ttl, what).await;
        assert_eq!((counted.deleted, gone(&it, DOCUMENTS).await), (DOCUMENTS, DOCUMENTS), "{what}: {counted:?}");
        assert_eq!(ttl.counters().lease_term, 1, "{what}: it was lost meanwhile");
    };
    let scenes: [(&str, Request); 7] = [
        ("finding what is due", Box::new(nth(3, "find", "c"))),
        ("the registry's revision", Box::new(nth(12, "find", "ttl_index.registry"))),
        ("the lease, standing by", Box::new(nth(1, "find", "ttl_index.lease"))),
        ("taking the lease", Box::new(nth(1, "insert", "ttl_index.lease"))),
        ("a renewal", Box::new(nth(3, "findAndModify", "ttl_index.lease"))),
        ("the operations", Box::new(nth(2, "find", "ttl_index.operations"))),
        ("listing the collections", Box::new(|request| request.contains_key("listCollections"))),
    ];
    join_all(scenes.map(scene)).await;
}

/// Whatever hangs, stopping takes about the lease time and no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweeper_stops_in_time_whatever_hangs() {
    let server = Mongod::shared().await;
    let scene = async |(what, request, stop_first): (&str, Request, bool)| {
        let (it, proxy) = (server.database().await, Proxy::before(server.port()));
        let ttl = due_behind(&proxy.uri(it.db.name()), &it, DOCUMENTS).await;
        let mut silent = proxy.catch(request);
        let sweeper = start(&ttl, "a");
        if stop_first {
            wait::until("it to sweep", wait::LONG, async || counts(&ttl).deleted > 0).await;
            silent.then(Fate::Swallowed);
        } else {
            silent.request().await;
            silent.then(Fate::Swallowed);
        }
        stops_in_time(sweeper, what).await;
        // What was left behind deletes nothing, and holds nobody up.
        let before = gone(&it, DOCUMENTS).await;
        let next = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
        let sweeper = start(&next, "b");
        all_go(&it, wait::LONG, what).await;
        assert_eq!(end(sweeper, &next, what).await.deleted, DOCUMENTS - before, "{what}");
    };
    let giving_back = |request: &Document| {
        request.get_str("findAndModify").is_ok_and(|name| name == "ttl_index.lease")
            && request.get_document("update").unwrap().get_document("$set").unwrap().contains_key("vacate")
    };
    let scenes: [(&str, Request, bool); 4] = [
        ("a delete", Box::new(nth(2, "delete", "c")), false),
        ("a find", Box::new(nth(2, "find", "c")), false),
        ("the lease, standing by", Box::new(nth(1, "find", "ttl_index.lease")), false),
        ("giving the lease back", Box::new(giving_back), true),
    ];
    join_all(scenes.map(scene)).await;
}

async fn stops_in_time(sweeper: SweeperHandle, what: &str) {
    let stopped = tokio::time::timeout(2 * LEASE, sweeper.shutdown()).await;
    stopped.unwrap_or_else(|_| panic!("{what}: it has not stopped in twice the lease time")).unwrap();
}

/// How often somebody has written to `c`, in vain or not.
async fn writes(it: &TestDatabase) -> i64 {
    let latencies = vec![doc! { "$collStats": { "latencyStats": {} } }];
    let mut stats = it.db.collection::<Document>("c").aggregate(latencies).await.unwrap();
    assert!(stats.advance().await.unwrap());
    let stats = stats.deserialize_current().unwrap();
    stats.get_document("latencyStats").unwrap().get_document("writes").unwrap().get_i64("ops").unwrap()
}

/// A batch that nobody hears of may be on its way all the same. `drop_index` says so, or waits until it can do nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_is_guaranteed_only_once_a_silent_batch_can_do_nothing() {
    let server = Mongod::shared().await;
    let (it, proxy) = (server.database().await, Proxy::before(server.port()));
    let ttl = due_behind(&proxy.uri(it.db.name()), &it, DOCUMENTS).await;
    let mut held: Caught = proxy.catch(nth(3, "delete", "c"));
    let sweeper = start(&ttl, "a");
    held.request().await;
    let other = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    let soon = other.drop_index("c", "t_1").max_wait(Duration::from_millis(300)).await;
    assert!(matches!(soon, Err(Error::NotYetGuaranteed { .. })), "{soon:?}");
    other.create_index("d", ttl_index::TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
    // A change that is waited for: the drop before it is in force as well.
    other.drop_index("d", "t_1").await.unwrap();
    let (left, before) = (gone(&it, DOCUMENTS).await, writes(&it).await);
    assert_eq!(left, 200);
    held.then(Fate::Pass);
    wait::until("the batch to arrive", wait::LONG, async || writes(&it).await > before).await;
    assert_eq!(gone(&it, DOCUMENTS).await, left);
    wait::until("it to sweep on", wait::LONG, async || sweeper.status().activity == Activity::Sweeping).await;
    assert_eq!(end(sweeper, &ttl, "drop").await.deleted, left);
}
