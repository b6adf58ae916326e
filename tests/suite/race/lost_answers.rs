//! What a server says, or fails to say, around a pass: while a definition changes, and while it is tried out what it can.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use mongodb::{
    bson::{Document, doc},
    event::{EventHandler, command::CommandEvent},
};
use ttl_index::{Ended, MongoStore, TtlRegistry};

use super::server_trouble::{due, fail_point, failing_server, on_t};
use crate::support::mongod::Mongod;

/// Rolled back, a longer period that was reported as set would be the shorter one again, and delete by it.
#[tokio::test]
async fn a_change_without_a_majority_behind_it_is_not_reported_as_made() {
    let (_server, it, ttl) = failing_server().await;
    let lacking = doc! { "code": 64, "errmsg": "waiting for replication timed out" };
    let data = doc! { "failCommands": ["findAndModify"], "writeConcernError": lacking };
    fail_point(&it.client, "failCommand", "alwaysOn", data).await;
    let month = Duration::from_secs(30 * 86_400);
    ttl.modify_index("c", month).await.unwrap_err();
    ttl.create_index("d", on_t(true)).await.unwrap_err();
    ttl.drop_index("c", "t_1").await.unwrap_err();
    fail_point(&it.client, "failCommand", "off", doc! {}).await;
    ttl.create_index("d", on_t(true)).await.unwrap();
}

#[tokio::test]
async fn a_creation_that_fails_behind_the_build_takes_the_supporting_index_back() {
    let (_server, it, ttl) = failing_server().await;
    for (command, fault) in [
        ("listCollections", doc! { "errorCode": 13 }),
        ("listIndexes", doc! { "errorCode": 13 }),
        ("listCollections", doc! { "errorCode": 8000 }),
    ] {
        it.db.create_collection("d").await.unwrap();
        let mut data = doc! { "failCommands": [command] };
        data.extend(fault);
        // The first is the look before, the second the one behind the build.
        fail_point(&it.client, "failCommand", doc! { "skip": 1 }, data.clone()).await;
        let creating = ttl.create_index("d", on_t(true)).await;
        fail_point(&it.client, "failCommand", "off", doc! {}).await;
        creating.unwrap_err();
        let indexes = it.db.collection::<Document>("d").list_index_names().await.unwrap();
        let entries = ttl.list_indexes().collection("d").await.unwrap();
        // Either nothing is left, or an entry or an operation that knows whose the index is.
        let operations = ttl.operations().await.unwrap();
        let knows = operations.iter().any(|it| it.collection == "d" && !it.done());
        assert!(indexes.len() <= 1 + entries.len() + usize::from(knows), "{command}: {indexes:?} {entries:?}");
        let made = ttl.create_index("d", on_t(true)).await.unwrap();
        assert!(made.supporting_index.unwrap().created, "{command}");
        ttl.drop_index("d", "t_1").await.unwrap();
        assert_eq!(it.db.collection::<Document>("d").list_index_names().await.unwrap(), ["_id_"], "{command}");
        it.db.collection::<Document>("d").drop().await.unwrap();
    }
}

/// Taken for "the server cannot", a lost connection would leave every later delete of this store without its guards.
#[tokio::test]
async fn a_connection_lost_while_the_server_is_tried_out_switches_no_safeguard_off() {
    let server = Mongod::private(&["--setParameter", "enableTestCommands=1"]).await;
    let deletes = Arc::new(Mutex::new(Vec::new()));
    let seen = deletes.clone();
    let it = server
        .database_with(move |options| {
            // The driver looks for the server that often after each fault; it waits ten seconds by default.
            options.heartbeat_freq = Some(Duration::from_millis(500));
            options.command_event_handler = Some(EventHandler::callback(move |event| {
                if let CommandEvent::Started(started) = event
                    && started.command.get_str("delete").is_ok_and(|name| name == "c")
                {
                    seen.lock().unwrap().push(started.command);
                }
            }));
        })
        .await;
    // The deletes of the probe: one for the condition, then one for each question, and two for the identity.
    for answered in 0..5 {
        for fault in [doc! { "closeConnection": true }, doc! { "errorCode": 11600 }] {
            let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
            ttl.create_index("c", on_t(true)).await.unwrap();
            it.db.collection("c").insert_many(due(10)).await.unwrap();
            let mut data = doc! { "failCommands": ["delete"] };
            data.extend(fault.clone());
            let mode = if answered == 0 { "alwaysOn".into() } else { mongodb::bson::bson!({ "skip": answered }) };
            fail_point(&it.client, "failCommand", mode, data).await;
            ttl.sweep("c").await.unwrap_err();
            fail_point(&it.client, "failCommand", "off", doc! {}).await;
            assert_eq!(it.db.collection::<Document>("c").count_documents(doc! {}).await.unwrap(), 10);
            deletes.lock().unwrap().clear();
            let report = ttl.sweep("c").await.unwrap();
            assert_eq!((report.deleted, report.ended), (10, Ended::Drained), "{answered} {fault}: {report:?}");
            for delete in deletes.lock().unwrap().iter() {
                assert!(delete.contains_key("collectionUUID"), "{answered} {fault}: {delete}");
                assert!(delete.contains_key("maxTimeMS"), "{answered} {fault}: {delete}");
            }
        }
    }
}
