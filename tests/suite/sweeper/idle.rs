//! What a sweeper costs that has nothing to do.

use std::time::Duration;

use mongodb::bson::{DateTime, doc};
use ttl_index::{MongoStore, Sweeper, TtlRegistry};

use super::index;
use crate::{reports::wire::watched, support::wait};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visit_that_finds_nothing_costs_one_command() {
    let (it, wire) = watched().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    ttl.create_index("c", index()).await.unwrap();
    it.db.collection("c").insert_one(doc! { "t": DateTime::MAX }).await.unwrap();
    let sweeper = Sweeper::new(ttl.clone()).interval(Duration::from_millis(20)).start().unwrap();
    let visits = || ttl.counters().total.passes.values().sum::<u64>();
    wait::until("the first visits", wait::LONG, async || visits() >= 10).await;
    let (before, commands) = (visits(), wire.all().len());
    wait::until("many visits", wait::LONG, async || visits() >= before + 200).await;
    let (visited, sent) = (visits() - before, wire.all().split_off(commands));
    sweeper.shutdown().await.unwrap();
    let named = |name: &str| sent.iter().filter(|command| command.keys().next().is_some_and(|it| it == name)).count();
    let finds = sent.iter().filter(|command| command.get_str("find").is_ok_and(|of| of == "c")).count() as u64;
    assert!(finds <= visited + 2, "{finds} finds for {visited} visits");
    let revisions = sent.iter().filter(|command| {
        command.get_str("find").is_ok_and(|of| of == "ttl_index.registry")
            && command.get_document("projection").is_ok_and(|fields| fields.contains_key("revision"))
    });
    let revisions = revisions.count() as u64;
    // The registry and the catalog are read once in an interval, the lease is renewed now and then; each visit asks neither for
    // the time nor for the revision of the registry.
    assert!((named("hello") as u64) < visited / 10, "{} times for {visited} visits", named("hello"));
    assert!(revisions < visited / 2, "{revisions} times for {visited} visits");
}
