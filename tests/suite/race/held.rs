//! Documents that an application's open transaction holds while they are to be deleted.

use std::time::Duration;

use mongodb::{
    ClientSession,
    bson::{DateTime, Document, doc},
};
use ttl_index::{Ended, Fault, HookedStore, MongoStore, TtlRegistry};

use super::{LATER, NO_TIME, assert_adds_up, server_trouble::on_t, unconfirmed};
use crate::support::{TestDatabase, database};

/// A transaction that has changed these documents and is not committed.
async fn holding(it: &TestDatabase, ids: &[i32], change: Document) -> ClientSession {
    let mut session = it.client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let documents = it.db.collection::<Document>("c");
    documents.update_many(doc! { "_id": { "$in": ids } }, change).session(&mut session).await.unwrap();
    session
}

async fn ids(it: &TestDatabase) -> Vec<i32> {
    let mut ids: Vec<i32> = it
        .db
        .collection::<Document>("c")
        .distinct("_id", doc! {})
        .await
        .unwrap()
        .iter()
        .map(|id| id.as_i32().unwrap())
        .collect();
    ids.sort_unstable();
    ids
}

#[tokio::test]
async fn documents_that_a_transaction_holds_stay_behind_and_the_others_go() {
    for supporting in [true, false] {
        let it = database().await;
        let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
        ttl.create_index("c", on_t(supporting)).await.unwrap();
        let due = (0..1_200).map(|id| doc! { "_id": id, "t": DateTime::from_millis(id.into()) });
        it.db.collection("c").insert_many(due).await.unwrap();
        // One of them renews its document, the other only writes beside the date.
        let mut renewing = holding(&it, &[0, 499], doc! { "$set": { "t": LATER } }).await;
        let mut touching = holding(&it, &[700], doc! { "$set": { "x": 1 } }).await;

        let report = ttl.sweep("c").await.unwrap();
        assert_eq!(ids(&it).await, [0, 499, 700], "{report:?}");
        assert_eq!((report.left, report.changed, report.ended), (3, 0, Ended::Drained), "{report:?}");
        assert!(report.oldest_due.is_some(), "{report:?}");
        assert_adds_up(&report, "held");

        renewing.commit_transaction().await.unwrap();
        touching.commit_transaction().await.unwrap();
        let report = ttl.sweep("c").await.unwrap();
        assert_eq!((report.deleted, report.left, report.ended, report.oldest_due), (1, 0, Ended::Drained, None));
        assert_eq!(ids(&it).await, [0, 499]);
    }
}

#[tokio::test]
async fn a_database_that_gets_nothing_done_is_left_alone() {
    let it = database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    ttl.create_index("c", on_t(true)).await.unwrap();
    let due = (0..6).map(|id| doc! { "_id": id, "t": DateTime::from_millis(id.into()) });
    it.db.collection("c").insert_many(due).await.unwrap();
    let mut session = holding(&it, &[0, 1, 2, 3, 4, 5], doc! { "$set": { "x": 1 } }).await;

    let report = ttl.sweep("c").batch_size(2).await.unwrap();
    assert_eq!((report.deleted, report.left, report.ended), (0, 4, Ended::Failed), "{report:?}");
    assert_adds_up(&report, "stalled");
    assert!(report.error.is_some());

    session.abort_transaction().await.unwrap();
    assert_eq!(ttl.sweep("c").await.unwrap().deleted, 6);
}

#[tokio::test]
async fn held_documents_apart_from_each_other_are_each_stepped_over() {
    let it = database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    ttl.create_index("c", on_t(true)).await.unwrap();
    let due = (0..8).map(|id| doc! { "_id": id, "t": DateTime::from_millis(id.into()) });
    it.db.collection("c").insert_many(due).await.unwrap();
    // Whole batches are held, and between them one goes well.
    let mut session = holding(&it, &[0, 1, 4, 5], doc! { "$set": { "x": 1 } }).await;

    let report = ttl.sweep("c").batch_size(2).await.unwrap();
    assert_eq!((report.deleted, report.left, report.ended), (4, 4, Ended::Drained), "{report:?}");
    assert_adds_up(&report, "apart");
    assert_eq!(ids(&it).await, [0, 1, 4, 5]);
    session.abort_transaction().await.unwrap();
}

/// What is tried again in pieces takes long enough for the rule to change: each piece goes by the rule in force.
#[tokio::test]
async fn pieces_of_a_batch_are_not_deleted_under_a_rule_that_was_changed() {
    let it = database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    ttl.create_index("c", on_t(true)).await.unwrap();
    let due = (0..100).map(|id| doc! { "_id": id, "t": DateTime::from_millis(id.into()) });
    it.db.collection("c").insert_many(due).await.unwrap();
    // The first statement meets this one first and deletes nothing.
    let mut session = holding(&it, &[0], doc! { "$set": { "x": 1 } }).await;

    let changing = ttl.clone();
    let hooked = HookedStore::new(MongoStore::new(it.db.clone()), move |_| {
        let ttl = changing.clone();
        async move {
            unconfirmed(&ttl.modify_index("c", Duration::from_secs(2_147_483_647)).max_wait(NO_TIME).await);
            Fault::None
        }
    });
    let report = TtlRegistry::open(hooked).await.unwrap().sweep("c").await.unwrap();
    assert_eq!((report.deleted, report.uncertain, report.ended), (0, 0, Ended::Cancelled), "{report:?}");
    assert_adds_up(&report, "changed");
    assert_eq!(ids(&it).await, (0..100).collect::<Vec<_>>());
    session.abort_transaction().await.unwrap();
}
