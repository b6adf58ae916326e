//! What processes that are gone have left, as a sweeper finds it.

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use ttl_index::{IndexState, MongoStore, OperationState, Sweeper, TtlIndex, TtlRegistry};

use super::{expired, fail_point, failing_server, on_t, ordinary_indexes, tamper};
use crate::support::{TestDatabase, database, wait};

/// So that whoever began what is not finished is taken for gone.
pub(super) async fn a_minute_passes(it: &TestDatabase) {
    passes(it, Duration::from_secs(100)).await;
}

/// Makes what is not finished older by so much.
async fn passes(it: &TestDatabase, time: Duration) {
    let operations = it.db.collection::<Document>("ttl_index.operations");
    let began = DateTime::now().timestamp_millis() - i64::try_from(time.as_millis()).unwrap();
    let earlier = doc! { "$set": { "metadata.startTime": DateTime::from_millis(began) } };
    operations.update_many(doc! { "done": false }, earlier).await.unwrap();
}

pub(super) async fn sweeper_comes(it: &TestDatabase) {
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    ttl.continue_interrupted().await.unwrap();
}

/// Makes the first operation look as if its process had died before it ended.
async fn unfinished(it: &TestDatabase, fields: Document) {
    let mut set = doc! { "done": false, "metadata.state": "PROCESSING" };
    set.extend(fields);
    let operations = it.db.collection::<Document>("ttl_index.operations");
    let operation = doc! { "metadata.collection": "c" };
    assert_eq!(operations.update_one(operation, doc! { "$set": set }).await.unwrap().modified_count, 1);
}

async fn state(ttl: &TtlRegistry) -> OperationState {
    let operations = ttl.operations().await.unwrap();
    operations.iter().rfind(|operation| operation.collection == "c").unwrap().state
}

#[tokio::test]
async fn an_operation_is_ended_by_others_only_after_a_minute() {
    let it = database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    ttl.create_index("c", on_t()).await.unwrap();
    for (seconds, expected) in [(50, OperationState::Processing), (61, OperationState::Successful)] {
        let start = ttl.now().await.unwrap().timestamp_millis() - seconds * 1000;
        unfinished(&it, doc! { "metadata.startTime": DateTime::from_millis(start) }).await;
        ttl.continue_interrupted().await.unwrap();
        assert_eq!(state(&ttl).await, expected);
    }
}

/// The dropper went before the build, the creator before it saw that its entry is gone.
#[tokio::test]
async fn an_index_built_for_an_entry_that_was_dropped_meanwhile_goes() {
    let it = database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    it.db.collection("c").insert_many(expired(3)).await.unwrap();
    ttl.create_index("c", on_t()).await.unwrap();
    let registry = it.db.collection::<Document>("ttl_index.registry");
    registry.update_one(doc! {}, doc! { "$set": { "indexes": [] }, "$inc": { "revision": 1_i64 } }).await.unwrap();
    unfinished(&it, doc! {}).await;
    a_minute_passes(&it).await;
    sweeper_comes(&it).await;
    assert_eq!(state(&ttl).await, OperationState::Cancelled);
    assert_eq!(ordinary_indexes(&it, "c").await, ["_id_"]);
}

/// A collection that was made anew since is somebody else's, and so is an index in it.
#[tokio::test]
async fn an_index_in_a_collection_made_anew_is_not_dropped_for_an_old_drop() {
    let it = database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    let theirs = doc! { "createIndexes": "c", "indexes": [{ "key": { "t": 1 }, "name": "t_1" }] };
    for identity_known in [true, false] {
        it.db.collection("c").insert_many(expired(3)).await.unwrap();
        ttl.create_index("c", on_t()).await.unwrap();
        ttl.drop_index("c", "t_1").await.unwrap();
        let operations = it.db.collection::<Document>("ttl_index.operations");
        let fields = if identity_known {
            doc! { "done": false }
        } else {
            doc! { "done": false, "entry.collectionUUID": Bson::Null }
        };
        let reopened = doc! { "$set": fields };
        operations.update_one(doc! { "metadata.ttlConfigDelta.changeType": "REMOVE" }, reopened).await.unwrap();
        let initializing = doc! { "$set": { "metadata.state": "INITIALIZING" } };
        operations.update_one(doc! { "done": false }, initializing).await.unwrap();
        it.db.collection::<Document>("c").drop().await.unwrap();
        it.db.run_command(theirs.clone()).await.unwrap();

        a_minute_passes(&it).await;
        sweeper_comes(&it).await;
        assert_eq!(ordinary_indexes(&it, "c").await, ["_id_", "t_1"], "identity known: {identity_known}");
        assert!(ttl.operations().await.unwrap().iter().all(ttl_index::Operation::done));
        it.db.drop().await.unwrap();
    }
}

#[tokio::test]
async fn a_creation_that_cannot_be_finished_needs_repair_and_says_why() {
    let it = database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    it.db.collection("c").insert_many(expired(3)).await.unwrap();
    ttl.create_index("c", on_t()).await.unwrap();
    tamper(&it, doc! { "state": "CREATING" }).await;
    unfinished(&it, doc! {}).await;
    let mut native = doc! { "key": { "other": 1 }, "name": "native" };
    native.insert("expireAfterSeconds", 1_000_000);
    it.db.run_command(doc! { "createIndexes": "c", "indexes": [native] }).await.unwrap();

    // Asked for by somebody it is refused, and nothing is changed.
    assert_eq!(ttl.create_index("c", on_t()).await.unwrap_err().code(), Some(85));
    assert_eq!(ttl.list_indexes().await.unwrap()[0].state, IndexState::Creating);

    assert_eq!(ttl.continue_interrupted().await.unwrap_err().code(), Some(85));
    let index = ttl.list_indexes().await.unwrap().remove(0);
    assert_eq!(index.state, IndexState::NeedsRepair);
    assert!(index.problem.as_ref().unwrap().contains("native"), "{index:?}");
    let operation = ttl.operations().await.unwrap().remove(0);
    assert_eq!((operation.state, operation.error.unwrap().code), (OperationState::Failed, Some(85)));
    assert_eq!(ttl.sweep("c").await.unwrap_err().code(), Some(72));

    it.db.run_command(doc! { "dropIndexes": "c", "index": "native" }).await.unwrap();
    assert_eq!(ttl.repair("c").await.unwrap().state, IndexState::Active);
    assert_eq!(ttl.sweep("c").await.unwrap().deleted, 3);
}

/// Only who asks for the index by name can mean a collection that was made anew.
#[tokio::test]
async fn a_creation_is_not_continued_on_a_collection_that_was_made_anew() {
    let it = database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    ttl.create_index("c", on_t()).await.unwrap();
    tamper(&it, doc! { "state": "CREATING" }).await;
    it.db.collection::<Document>("c").drop().await.unwrap();
    it.db.collection("c").insert_many(expired(3)).await.unwrap();
    assert_eq!(ttl.continue_interrupted().await.unwrap_err().code(), Some(361));
    assert_eq!(ttl.list_indexes().await.unwrap()[0].state, IndexState::NeedsRepair);
    assert_eq!(ordinary_indexes(&it, "c").await, ["_id_"]);
}

#[tokio::test]
async fn trouble_that_passes_leaves_a_creation_to_be_continued() {
    let (_server, it, ttl) = failing_server().await;
    it.db.collection("c").insert_many(expired(3)).await.unwrap();
    // A lost connection; a server that stops; a user who may not: another one may.
    for trouble in [doc! { "closeConnection": true }, doc! { "errorCode": 11600 }, doc! { "errorCode": 13 }] {
        ttl.create_index("c", on_t()).await.unwrap();
        it.db.run_command(doc! { "dropIndexes": "c", "index": "t_1" }).await.unwrap();
        tamper(&it, doc! { "state": "CREATING" }).await;
        let mut data = doc! { "failCommands": ["createIndexes"] };
        data.extend(trouble.clone());
        fail_point(&it, "failCommand", "alwaysOn", data).await;
        ttl.continue_interrupted().await.unwrap_err();
        assert_eq!(ttl.list_indexes().await.unwrap()[0].state, IndexState::Creating, "{trouble}");
        assert!(!ttl.operations().await.unwrap()[0].done(), "{trouble}");
        fail_point(&it, "failCommand", "off", doc! {}).await;
        ttl.continue_interrupted().await.unwrap();
        assert_eq!(ttl.list_indexes().await.unwrap()[0].state, IndexState::Active, "{trouble}");
        assert_eq!(ttl.operations().await.unwrap()[0].state, OperationState::Successful, "{trouble}");
        ttl.drop_index("c", "t_1").await.unwrap();
    }
    // And trouble that does not.
    let index = TtlIndex::on("t").expire_after(std::time::Duration::ZERO);
    ttl.create_index("c", index).await.unwrap();
    it.db.run_command(doc! { "dropIndexes": "c", "index": "t_1" }).await.unwrap();
    tamper(&it, doc! { "state": "CREATING" }).await;
    fail_point(&it, "failCommand", doc! { "times": 1 }, doc! { "failCommands": ["createIndexes"], "errorCode": 67 })
        .await;
    assert_eq!(ttl.continue_interrupted().await.unwrap_err().code(), Some(67));
    assert_eq!(ttl.list_indexes().await.unwrap()[0].state, IndexState::NeedsRepair);
}

/// On a database where nothing else changes.
#[tokio::test]
async fn a_sweeper_ends_what_is_left_while_it_runs() {
    let it = database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    it.db.collection("c").insert_many(expired(3)).await.unwrap();
    ttl.create_index("c", on_t()).await.unwrap();
    let sweeper = Sweeper::new(ttl.clone()).interval(Duration::from_millis(500)).start().unwrap();
    wait::until("it to sweep", wait::LONG, async || {
        it.db.collection::<Document>("c").count_documents(doc! {}).await.unwrap() == 0
    })
    .await;
    // Whatever has changed by now is gone by as well.
    tokio::time::sleep(Duration::from_secs(2)).await;
    unfinished(&it, doc! {}).await;
    a_minute_passes(&it).await;
    wait::until("it to be ended", Duration::from_secs(20), async || state(&ttl).await == OperationState::Successful)
        .await;
    sweeper.shutdown().await.unwrap();
}

/// A registry of another process, which the server holds for two seconds before this change of the registry.
async fn slow_process(it: &TestDatabase, before_change: i32, then: Document) -> TtlRegistry {
    const NAME: &str = "slow";
    let mut data = doc! {
        "failCommands": ["findAndModify"],
        "namespace": format!("{}.ttl_index.registry", it.db.name()),
        "appName": NAME,
        "blockConnection": true,
        "blockTimeMS": 2_000,
    };
    data.extend(then);
    fail_point(it, "failCommand", doc! { "skip": before_change }, data).await;
    let uri = format!("{}&appName={NAME}", it.uri);
    let client = mongodb::Client::with_uri_str(&uri).await.unwrap();
    TtlRegistry::open(MongoStore::new(client.database(it.db.name()))).await.unwrap()
}

/// Who comes too late with a creation takes no index from the one made after it.
#[tokio::test]
async fn a_creation_that_was_dropped_leaves_the_index_of_the_next_one() {
    let (_server, it, ttl) = failing_server().await;
    ttl.create_index("other", on_t()).await.unwrap();
    it.db.collection("c").insert_many(expired(3)).await.unwrap();
    let slow = slow_process(&it, 1, doc! {}).await;
    let late = tokio::spawn(async move { slow.create_index("c", on_t()).await });
    wait::until("it to be built", wait::LONG, async || ordinary_indexes(&it, "c").await.len() == 2).await;
    // It is listed while it is being built.
    tokio::time::sleep(Duration::from_millis(300)).await;
    ttl.drop_index("c", "t_1").await.unwrap();
    assert_eq!(ordinary_indexes(&it, "c").await, ["_id_"]);
    ttl.create_index("c", on_t()).await.unwrap();
    assert!(!late.is_finished());
    let error = late.await.unwrap().unwrap_err();
    assert_eq!(error.code(), Some(27), "{error}");
    assert_eq!(ordinary_indexes(&it, "c").await, ["_id_", "t_1"]);
}

/// Nor from the same one, if somebody else has finished it.
#[tokio::test]
async fn a_creation_that_fails_at_its_end_leaves_the_index_of_who_finished_it() {
    let (_server, it, ttl) = failing_server().await;
    ttl.create_index("other", on_t()).await.unwrap();
    it.db.collection("c").insert_many(expired(3)).await.unwrap();
    let slow = slow_process(&it, 1, doc! { "errorCode": 8 }).await;
    let late = tokio::spawn(async move { slow.create_index("c", on_t()).await });
    wait::until("it to be built", wait::LONG, async || ordinary_indexes(&it, "c").await.len() == 2).await;
    // It is listed while it is being built.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(ttl.create_index("c", on_t()).await.unwrap().state, IndexState::Active);
    assert!(!late.is_finished());
    assert_eq!(late.await.unwrap().unwrap_err().code(), Some(8));
    assert_eq!(ttl.list_indexes().collection("c").await.unwrap()[0].state, IndexState::Active);
    assert_eq!(ordinary_indexes(&it, "c").await, ["_id_", "t_1"]);
}

/// The collection that is meant is not the empty one that a build would make under the old name.
#[tokio::test]
async fn a_creation_is_continued_on_the_collection_that_was_renamed_meanwhile() {
    let it = database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    it.db.collection("c").insert_many(expired(3)).await.unwrap();
    ttl.create_index("c", on_t()).await.unwrap();
    tamper(&it, doc! { "state": "CREATING" }).await;
    unfinished(&it, doc! {}).await;
    let (from, to) = (format!("{}.c", it.db.name()), format!("{}.d", it.db.name()));
    it.client.database("admin").run_command(doc! { "renameCollection": from, "to": to }).await.unwrap();
    a_minute_passes(&it).await;
    sweeper_comes(&it).await;
    let names = it.db.list_collection_names().await.unwrap();
    assert!(!names.contains(&"c".to_owned()), "{names:?}");
    let index = ttl.list_indexes().await.unwrap().remove(0);
    assert_eq!((index.collection.as_str(), index.state), ("d", IndexState::Active));
    assert_eq!(ttl.sweep("d").await.unwrap().deleted, 3);
}

/// Whoever began the drop may have done with it, and the user may have made an index of that name since.
#[tokio::test]
async fn an_index_is_not_dropped_for_a_drop_of_long_ago() {
    let it = database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    ttl.create_index("c", on_t()).await.unwrap();
    ttl.drop_index("c", "t_1").await.unwrap();
    let operations = it.db.collection::<Document>("ttl_index.operations");
    let drop = doc! { "metadata.ttlConfigDelta.changeType": "REMOVE" };
    let left = doc! { "$set": { "done": false, "metadata.state": "PROCESSING" } };
    operations.update_one(drop.clone(), left).await.unwrap();
    let own = mongodb::IndexModel::builder().keys(doc! { "t": 1 }).build();
    it.db.collection::<Document>("c").create_index(own).await.unwrap();
    passes(&it, Duration::from_secs(2 * 3600)).await;
    sweeper_comes(&it).await;
    assert_eq!(ordinary_indexes(&it, "c").await, ["_id_", "t_1"]);
    assert!(operations.find_one(drop).await.unwrap().unwrap().get_bool("done").unwrap());
}
