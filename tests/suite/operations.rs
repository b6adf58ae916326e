//! What is told of creations, repairs and drops, and what outlives the process that began them.
//!
//! - [`interrupted`]: processes killed at every step;
//! - [`left`]: operations and creations whose process is gone, as a sweeper finishes them;
//! - [`repair`]: indexes that need it;
//! - [`program`]: the commands.

#[cfg(feature = "cli")]
mod interrupted;
#[cfg(feature = "test-util")]
mod left;
#[cfg(feature = "cli")]
mod program;
mod repair;

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use ttl_index::{ChangeType, MongoStore, OperationState, TtlIndex, TtlRegistry};

use crate::support::TestDatabase;
use crate::support::mongod::Mongod;
use crate::support::place::Place;

fn on_t() -> TtlIndex {
    TtlIndex::on("t").expire_after(Duration::from_secs(60))
}

fn expired(count: i32) -> Vec<Document> {
    (0..count).map(|id| doc! { "_id": id, "t": DateTime::from_millis(0) }).collect()
}

/// The names of the ordinary indexes of a collection.
async fn ordinary_indexes(it: &TestDatabase, collection: &str) -> Vec<String> {
    it.db.collection::<Document>(collection).list_index_names().await.unwrap()
}

/// The registry's only entry, as it is stored.
async fn stored_entry(it: &TestDatabase) -> Document {
    let registry = it.db.collection::<Document>("ttl_index.registry").find_one(doc! {}).await.unwrap().unwrap();
    let [Bson::Document(entry)] = registry.get_array("indexes").unwrap().as_slice() else { panic!("{registry}") };
    entry.clone()
}

/// Sets fields of the registry's first entry, behind the library's back.
async fn tamper(it: &TestDatabase, fields: Document) {
    let fields: Document = fields.into_iter().map(|(name, value)| (format!("indexes.0.{name}"), value)).collect();
    let update = doc! { "$set": fields, "$inc": { "revision": 1_i64 } };
    let registry = it.db.collection::<Document>("ttl_index.registry");
    assert_eq!(registry.update_one(doc! {}, update).await.unwrap().modified_count, 1);
}

/// A server that takes fail points.
async fn failing_server() -> (Mongod, TestDatabase, TtlRegistry) {
    let server = Mongod::private(&["--setParameter", "enableTestCommands=1"]).await;
    let it = server.database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    (server, it, ttl)
}

async fn fail_point(it: &TestDatabase, name: &str, mode: impl Into<Bson>, data: Document) {
    let command = doc! { "configureFailPoint": name, "mode": mode.into(), "data": data };
    it.client.database("admin").run_command(command).await.unwrap();
}

#[tokio::test]
async fn an_operation_tells_of_each_creation_and_each_drop() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        assert_eq!(ttl.operations().await.unwrap(), []);
        place.insert("c", expired(7)).await;
        let before = ttl.now().await.unwrap();
        ttl.create_index("c", on_t().name("own")).await.unwrap();
        let after = ttl.now().await.unwrap();

        let operations = ttl.operations().await.unwrap();
        let [made] = operations.as_slice() else { panic!("{operations:?}") };
        assert!(made.done());
        assert!(before <= made.start_time && made.start_time <= made.end_time.unwrap(), "{made:?}");
        assert!(made.end_time.unwrap() <= after, "{made:?}");
        let expected = doc! {
            "_id": &made.id,
            "done": true,
            "metadata": {
                "startTime": made.start_time,
                "endTime": made.end_time.unwrap(),
                "state": "SUCCESSFUL",
                "collection": "c",
                "index": "own",
                "field": "t",
                "progressDocuments": { "estimatedWork": 7_i64, "completedWork": 7_i64 },
                "ttlConfigDelta": { "changeType": "ADD" },
            },
            "response": { "ttlConfig": { "state": "ACTIVE" } },
        };
        assert_eq!(made.to_document(), expected);

        ttl.drop_index("c", "own").await.unwrap();
        let operations = ttl.operations().await.unwrap();
        let [dropped, still] = operations.as_slice() else { panic!("{operations:?}") };
        assert_eq!(still, made);
        assert_eq!((dropped.change_type, dropped.state), (ChangeType::Remove, OperationState::Successful));
        assert_eq!((dropped.progress_documents, &dropped.error), (None, &None));
        assert_eq!(dropped.to_document().get("response"), Some(&Bson::Document(doc! {})));
        assert_eq!(ttl.operations().id(&dropped.id).await.unwrap(), std::slice::from_ref(dropped));
        assert_eq!(ttl.operations().id("none").await.unwrap(), []);
    }
}

#[tokio::test]
async fn what_changes_nothing_is_not_told_of() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        ttl.create_index("c", on_t()).await.unwrap();
        let told = ttl.operations().await.unwrap();
        ttl.create_index("c", on_t()).await.unwrap();
        ttl.modify_index("c", Duration::from_secs(5)).await.unwrap();
        ttl.create_index("c", on_t()).await.unwrap_err();
        ttl.create_index("d", TtlIndex::on("_id").expire_after(Duration::ZERO)).await.unwrap_err();
        ttl.drop_index("c", "other").await.unwrap_err();
        ttl.drop_index("d", "t_1").await.unwrap_err();
        ttl.repair("d").await.unwrap_err();
        assert_eq!(ttl.operations().await.unwrap(), told);
    }
}

#[tokio::test]
async fn the_last_hundred_are_kept_and_all_that_run() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        ttl.create_index("first", on_t().supporting_index(false)).await.unwrap();
        if let Place::Mongo(it) = &place {
            // As a process that is gone leaves it.
            let operations = it.db.collection::<Document>("ttl_index.operations");
            let unfinished = doc! { "$set": { "done": false, "metadata.state": "PROCESSING" } };
            operations.update_one(doc! {}, unfinished).await.unwrap();
        }
        for _ in 0..55 {
            ttl.create_index("c", on_t().supporting_index(false)).await.unwrap();
            ttl.drop_index("c", "t_1").await.unwrap();
        }
        let operations = ttl.operations().await.unwrap();
        assert_eq!(operations.len(), 100);
        assert!(operations.is_sorted_by(|a, b| a.start_time >= b.start_time));
        assert_eq!(operations[0].change_type, ChangeType::Remove);
        let first = operations.iter().find(|operation| operation.collection == "first");
        assert_eq!(first.is_some(), matches!(place, Place::Mongo(_)));
    }
}

#[tokio::test]
async fn a_creation_that_fails_is_told_of_with_the_reason() {
    let (_server, it, ttl) = failing_server().await;
    let refusing = doc! { "failCommands": ["createIndexes"], "errorCode": 67 };
    fail_point(&it, "failCommand", doc! { "times": 1 }, refusing).await;
    let error = ttl.create_index("c", on_t()).await.unwrap_err();
    assert_eq!(error.code(), Some(67));
    assert!(ttl.list_indexes().await.unwrap().is_empty());
    let operations = ttl.operations().await.unwrap();
    let [failed] = operations.as_slice() else { panic!("{operations:?}") };
    assert_eq!(failed.state, OperationState::Failed);
    assert_eq!(failed.progress_documents.unwrap().completed_work, 0);
    let told = failed.error.as_ref().unwrap();
    assert_eq!(told.code, Some(67));
    assert!(told.message.starts_with("building the supporting index t_1 on c failed"), "{told:?}");
    assert!(failed.to_document().contains_key("error") && !failed.to_document().contains_key("response"));
}

#[tokio::test]
async fn what_cannot_be_written_down_fails_and_undoes_nothing() {
    let (_server, it, ttl) = failing_server().await;
    for commands in [&["find"][..], &["insert"], &["findAndModify"], &["find", "insert", "findAndModify"]] {
        let namespace = format!("{}.ttl_index.operations", it.db.name());
        let failing = doc! { "failCommands": commands, "errorCode": 8, "namespace": namespace };
        fail_point(&it, "failCommand", "alwaysOn", failing).await;
        let made = ttl.create_index("c", on_t()).await.unwrap();
        assert_eq!(ttl.list_indexes().await.unwrap(), [made]);
        assert_eq!(ordinary_indexes(&it, "c").await, ["_id_", "t_1"]);
        ttl.drop_index("c", "t_1").await.unwrap();
        assert_eq!(ttl.list_indexes().await.unwrap(), []);
        assert_eq!(ordinary_indexes(&it, "c").await, ["_id_"]);
        fail_point(&it, "failCommand", "off", doc! {}).await;
    }
}

#[tokio::test]
async fn a_rule_is_in_force_since_it_was_made_or_modified() {
    let Place::Mongo(it) = &Place::Mongo(crate::support::database().await) else { panic!() };
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    let made = ttl.create_index("c", on_t()).await.unwrap();
    let entry = stored_entry(it).await;
    assert_eq!(entry.get_datetime("ruleSince").ok().copied(), made.created_at);
    let before = ttl.now().await.unwrap();
    let modified = ttl.modify_index("c", Duration::from_secs(5)).await.unwrap();
    let since = *stored_entry(it).await.get_datetime("ruleSince").unwrap();
    assert!(before <= since, "{since}");
    assert_eq!(modified.created_at, made.created_at);
}
