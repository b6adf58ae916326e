//! A process that is killed in the middle of a backlog: the next one plans anew, and the deadline is what it was.

use mongodb::bson::{DateTime, Document, doc};
use ttl_index::{MongoStore, TtlRegistry};

use super::index;
use super::process::{Process, at_work, deletes, profile};
use crate::support::mongod::Mongod;
use crate::support::wait;

const DOCUMENTS: i32 = 12_000;
const LAG_MS: i64 = 60_000;

#[tokio::test]
async fn the_next_holder_keeps_the_deadline_of_a_backlog_that_another_left() {
    let it = Mongod::shared().await.database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    let c = it.db.collection::<Document>("c");
    let due = (0..DOCUMENTS).map(|id| doc! { "_id": id, "t": DateTime::from_millis(i64::from(id)) });
    c.insert_many(due).await.unwrap();
    profile(&it.db).await;
    ttl.create_index("c", index()).await.unwrap();
    // Due since the rule is in force, whatever their dates say.
    let deadline = ttl.now().await.unwrap().timestamp_millis() + LAG_MS;
    let arguments = ["--target-lag", "60s", "--min-rate", "0", "--lease-time", "5s"];
    let mut first = Process::start(&it.uri, "first", &arguments);
    wait::until("it to be in the middle", wait::LONG, async || {
        c.count_documents(doc! {}).await.unwrap() < u64::from(DOCUMENTS.unsigned_abs()) * 3 / 4
    })
    .await;
    first.kill();
    let killed_at = DateTime::now().timestamp_millis();
    let second = Process::start(&it.uri, "second", &arguments);
    assert_eq!(at_work(&it.db, "c", killed_at).await, "second");
    wait::until("all to go", 2 * wait::LONG, async || c.count_documents(doc! {}).await.unwrap() == 0).await;
    let deletes = deletes(&it.db, "c").await;
    let own: Vec<_> = deletes.iter().filter(|delete| delete.by == "second" && delete.documents > 0).collect();
    let (from, until) = (own[0].begun, own[own.len() - 1].ended);
    println!("taken over {} ms before the deadline, done {} ms before it", deadline - from, deadline - until);
    assert!(until <= deadline, "{} ms late", until - deadline);
    // Not in a rush either: what it left, spread over the time that is left.
    let left: i64 = own.iter().map(|delete| delete.documents).sum();
    let fair = left * 10_000 / (deadline - from);
    for first in &own {
        let window = own.iter().filter(|delete| (0..10_000).contains(&(delete.ended - first.ended)));
        let sum: i64 = window.map(|delete| delete.documents).sum();
        assert!(sum <= fair * 3 / 2, "{sum} instead of {fair} in 10 s from {} on", first.ended - from);
    }
    assert_eq!(second.stop().await.code, Some(0));
    it.drop().await;
}
