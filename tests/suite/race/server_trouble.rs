//! What a server may do in the middle of a pass: run out of time, lack a majority, forget a cursor, build an index.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use mongodb::{
    Client,
    bson::{Bson, DateTime, Document, doc},
    event::{EventHandler, command::CommandEvent},
};
use ttl_index::{Ended, Fault, HookedStore, MongoStore, TtlIndex, TtlRegistry};

use super::{LATER, OLD, assert_adds_up};
use crate::support::{TestDatabase, database, database_with, mongod::Mongod};

pub(super) fn due(count: i32) -> Vec<Document> {
    (0..count).map(|id| doc! { "_id": id, "t": DateTime::from_millis(id.into()) }).collect()
}

pub(super) fn on_t(supporting: bool) -> TtlIndex {
    TtlIndex::on("t").expire_after(Duration::ZERO).supporting_index(supporting)
}

/// A server that can be made to fail, and a database on it with 1,000 due documents.
pub(super) async fn failing_server() -> (Mongod, TestDatabase, TtlRegistry) {
    let server = Mongod::private(&["--setParameter", "enableTestCommands=1"]).await;
    let it = server.database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    ttl.create_index("c", on_t(true)).await.unwrap();
    it.db.collection("c").insert_many(due(1_000)).await.unwrap();
    (server, it, ttl)
}

pub(super) async fn fail_point(client: &Client, name: &str, mode: impl Into<Bson>, data: Document) {
    let command = doc! { "configureFailPoint": name, "mode": mode.into(), "data": data };
    client.database("admin").run_command(command).await.unwrap();
}

async fn count(it: &TestDatabase) -> u64 {
    it.db.collection::<Document>("c").count_documents(doc! {}).await.unwrap()
}

#[tokio::test]
async fn a_delete_without_a_majority_behind_it_is_uncertain_and_ends_the_pass() {
    let (_server, it, ttl) = failing_server().await;
    // The first pass probes the backend; the fault is for a batch.
    assert_eq!(ttl.sweep("c").batch_size(100).max_batches(1).await.unwrap().deleted, 100);
    let lacking = doc! { "code": 64, "errmsg": "waiting for replication timed out" };
    let data = doc! { "failCommands": ["delete"], "writeConcernError": lacking };
    fail_point(&it.client, "failCommand", doc! { "times": 1 }, data).await;
    let report = ttl.sweep("c").batch_size(100).await.unwrap();
    assert_eq!((report.deleted, report.uncertain, report.ended), (0, 100, Ended::Failed), "{report:?}");
    assert_adds_up(&report, "majority");
    assert_eq!(count(&it).await, 800);
    let report = ttl.sweep("c").batch_size(100).await.unwrap();
    assert_eq!((report.deleted, report.ended), (800, Ended::Drained), "{report:?}");
}

#[tokio::test]
async fn a_connection_lost_in_a_delete_is_uncertain_and_ends_the_pass() {
    let (_server, it, ttl) = failing_server().await;
    assert_eq!(ttl.sweep("c").batch_size(100).max_batches(1).await.unwrap().deleted, 100);
    let data = doc! { "failCommands": ["delete"], "closeConnection": true };
    fail_point(&it.client, "failCommand", doc! { "times": 1 }, data).await;
    let report = ttl.sweep("c").batch_size(100).await.unwrap();
    assert_eq!((report.deleted, report.left, report.ended), (0, 100, Ended::Failed), "{report:?}");
    assert_adds_up(&report, "connection");
    assert_eq!(ttl.sweep("c").await.unwrap().deleted, 900);
}

/// The time limit strikes at some check for it: in finding, or in the middle of deleting.
#[tokio::test]
async fn a_statement_that_runs_out_of_time_loses_nothing() {
    let (_server, it, ttl) = failing_server().await;
    assert_eq!(ttl.sweep("c").batch_size(1).max_batches(1).await.unwrap().deleted, 1);
    // Checked every ten documents.
    let often = doc! { "setParameter": 1, "internalQueryExecYieldIterations": 10 };
    it.client.database("admin").run_command(often).await.unwrap();
    let (mut left, mut halfway) = (999, 0);
    for skip in (0..60).step_by(3) {
        fail_point(&it.client, "maxTimeAlwaysTimeOut", doc! { "skip": skip }, doc! {}).await;
        let report = ttl.sweep("c").batch_size(100).max_batches(1).await.unwrap();
        fail_point(&it.client, "maxTimeAlwaysTimeOut", "off", doc! {}).await;
        assert_adds_up(&report, "time");
        let gone = left - count(&it).await;
        assert_eq!(report.deleted + report.uncertain, gone, "{report:?}");
        assert_eq!(report.ended == Ended::Failed, report.error.is_some(), "{report:?}");
        halfway += u64::from(report.uncertain > 0 && report.left > 0);
        left -= gone;
        it.db.collection("c").insert_one(doc! { "t": LATER }).await.unwrap();
        left += 1;
    }
    assert!(halfway > 0, "no delete was interrupted halfway, so that this showed nothing");
    assert_eq!(ttl.sweep("c").await.unwrap().ended, Ended::Drained);
    assert_eq!(count(&it).await, 20);
}

/// What a pass takes for now must not be later than it is, however long the answer takes.
#[tokio::test]
async fn a_slow_answer_does_not_set_the_clock_ahead() {
    let server = Mongod::private(&["--setParameter", "enableTestCommands=1"]).await;
    let it = server.database().await;
    for portable in [false, true] {
        let store = MongoStore::new(it.db.clone());
        let ttl = TtlRegistry::open(if portable { store.portable_only() } else { store }).await.unwrap();
        let slow = ["hello", "findAndModify", "find", "update"];
        let data = doc! { "failCommands": slow.to_vec(), "blockConnection": true, "blockTimeMS": 1_000 };
        fail_point(&it.client, "failCommand", "alwaysOn", data).await;
        let taken_for_now = ttl.now().await.unwrap();
        fail_point(&it.client, "failCommand", "off", doc! {}).await;
        let hello = it.db.run_command(doc! { "hello": 1 }).await.unwrap();
        let now = *hello.get_datetime("localTime").unwrap();
        assert!(taken_for_now <= now, "portable {portable}: {taken_for_now} is ahead of {now}");
    }
}

/// A whole collection may take longer to read than any limit on a statement; cut off, a pass would never get further.
#[tokio::test]
async fn reading_a_whole_collection_is_not_cut_off() {
    let finds = Arc::new(Mutex::new(Vec::new()));
    let seen = finds.clone();
    let it = database_with(move |options| {
        options.command_event_handler = Some(EventHandler::callback(move |event| {
            if let CommandEvent::Started(started) = event
                && started.command.get_str("find").is_ok_and(|name| name == "c")
            {
                seen.lock().unwrap().push(started.command);
            }
        }));
    })
    .await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    ttl.create_index("c", on_t(false)).await.unwrap();
    it.db.collection("c").insert_many(due(10)).await.unwrap();
    assert_eq!(ttl.sweep("c").await.unwrap().deleted, 10);
    let finds = finds.lock().unwrap();
    assert!(!finds.is_empty());
    assert!(finds.iter().all(|find| !find.contains_key("maxTimeMS")), "{finds:?}");
}

/// A client that prefers secondaries for its reads must not make a sweep believe what is no longer so.
#[tokio::test]
async fn a_pass_reads_from_the_primary_whatever_the_client_prefers() {
    let it = Mongod::shared().await.database().await;
    let uri = it
        .uri
        .replace("directConnection=true", "replicaSet=ttl&readPreference=secondary&serverSelectionTimeoutMS=3000");
    let client = Client::with_uri_str(uri).await.unwrap();
    let ttl = TtlRegistry::open(MongoStore::new(client.database(it.db.name()))).await.unwrap();
    ttl.create_index("c", on_t(true)).await.unwrap();
    it.db.collection("c").insert_many(due(10)).await.unwrap();
    let report = ttl.sweep("c").await.unwrap();
    assert_eq!((report.deleted, report.ended), (10, Ended::Drained), "{report:?}");
}

#[tokio::test]
async fn a_cursor_that_the_server_forgot_is_opened_again() {
    for portable in [false, true] {
        let it = database().await;
        let db = it.db.clone();
        let admin = it.client.database("admin");
        let store = MongoStore::new(it.db.clone());
        let store = if portable { store.portable_only() } else { store };
        let forgetful = HookedStore::new(store, move |_| {
            let (admin, db) = (admin.clone(), db.clone());
            async move {
                kill_cursors(&admin, &db).await;
                Fault::None
            }
        });
        let ttl = TtlRegistry::open(forgetful.sparing((0..30).map(Bson::Int32))).await.unwrap();
        ttl.create_index("c", on_t(false)).await.unwrap();
        it.db.collection("c").insert_many(due(1_000)).await.unwrap();
        it.db.collection("c").insert_one(doc! { "t": LATER }).await.unwrap();
        let report = ttl.sweep("c").batch_size(100).await.unwrap();
        assert_adds_up(&report, "cursor");
        assert_eq!((report.deleted, report.left, report.ended), (970, 30, Ended::Drained), "{report:?}");
    }
}

/// Kills the cursors that are open on the collection `c`.
async fn kill_cursors(admin: &mongodb::Database, db: &mongodb::Database) {
    use futures_util::TryStreamExt;
    let namespace = format!("{}.c", db.name());
    let idle = doc! { "$currentOp": { "idleCursors": true, "allUsers": true } };
    let found = doc! { "$match": { "type": "idleCursor", "ns": &namespace } };
    let found: Vec<Document> = admin.aggregate([idle, found]).await.unwrap().try_collect().await.unwrap();
    let ids: Vec<Bson> =
        found.iter().filter_map(|cursor| cursor.get_document("cursor").ok()?.get("cursorId").cloned()).collect();
    if !ids.is_empty() {
        db.run_command(doc! { "killCursors": "c", "cursors": ids }).await.unwrap();
    }
}

/// An index that is still being built is listed like any other, and cannot be walked.
#[tokio::test]
async fn documents_expire_while_the_supporting_index_is_being_built() {
    let server = Mongod::private(&["--setParameter", "enableTestCommands=1"]).await;
    let it = server.database().await;
    it.db.collection("c").insert_many(due(100)).await.unwrap();
    it.db.collection("c").insert_one(doc! { "_id": "lives", "t": LATER }).await.unwrap();
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    fail_point(&it.client, "hangAfterStartingIndexBuild", "alwaysOn", doc! {}).await;
    let creating = tokio::spawn({
        let ttl = ttl.clone();
        async move { ttl.create_index("c", on_t(true)).await }
    });
    crate::support::wait::until("the index build to begin", crate::support::wait::LONG, async || {
        let reply = it.db.run_command(doc! { "listIndexes": "c" }).await.unwrap();
        reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len() == 2
    })
    .await;
    let report = ttl.sweep("c").batch_size(30).await;
    fail_point(&it.client, "hangAfterStartingIndexBuild", "off", doc! {}).await;
    let report = report.unwrap();
    assert_eq!((report.deleted, report.ended), (100, Ended::Drained), "{report:?}");
    creating.await.unwrap().unwrap();
    it.db.collection("c").insert_one(doc! { "t": OLD }).await.unwrap();
    assert_eq!(ttl.sweep("c").await.unwrap().deleted, 1);
}
