//! TTL indexes that need repair.

use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use ttl_index::{ChangeType, IndexState, MongoStore, OperationState, TtlRegistry};

use super::{expired, fail_point, failing_server, on_t, ordinary_indexes, stored_entry, tamper};
use crate::support::place::Place;
use crate::support::{TestDatabase, database};

/// A TTL index on three expired documents that needs repair because its supporting index is gone.
async fn in_need(it: &TestDatabase, ttl: &TtlRegistry) {
    it.db.collection("c").insert_many(expired(3)).await.unwrap();
    ttl.create_index("c", on_t()).await.unwrap();
    it.db.run_command(doc! { "dropIndexes": "c", "index": "t_1" }).await.unwrap();
    tamper(it, doc! { "state": "NEEDS_REPAIR", "problem": "the supporting index is gone" }).await;
}

async fn registry(it: &TestDatabase) -> TtlRegistry {
    TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap()
}

#[tokio::test]
async fn an_index_that_needs_repair_is_not_swept_until_it_is_repaired() {
    let it = database().await;
    let ttl = registry(&it).await;
    in_need(&it, &ttl).await;
    let listed = ttl.list_indexes().await.unwrap().remove(0);
    assert_eq!(
        (listed.state, listed.problem.as_deref()),
        (IndexState::NeedsRepair, Some("the supporting index is gone"))
    );
    for refused in [ttl.sweep("c").await.unwrap_err(), ttl.rule("c").await.unwrap_err()] {
        assert_eq!(refused.code(), Some(72), "{refused}");
        let words = refused.to_string();
        assert!(words.contains("the supporting index is gone; repair it"), "{words}");
    }
    let modified = ttl.modify_index("c", Duration::from_secs(5)).await.unwrap();
    assert_eq!((modified.state, modified.expire_after), (IndexState::NeedsRepair, Some(Duration::from_secs(5))));
    assert_eq!(it.db.collection::<Document>("c").count_documents(doc! {}).await.unwrap(), 3);

    let before = ttl.now().await.unwrap();
    let repaired = ttl.repair("c").await.unwrap();
    assert_eq!((repaired.state, &repaired.problem), (IndexState::Active, &None));
    assert_eq!(ttl.list_indexes().await.unwrap(), [repaired]);
    assert_eq!(ordinary_indexes(&it, "c").await, ["_id_", "t_1"]);
    assert!(*stored_entry(&it).await.get_datetime("ruleSince").unwrap() >= before);
    assert_eq!(ttl.sweep("c").await.unwrap().deleted, 3);

    let operations = ttl.operations().await.unwrap();
    assert_eq!(operations.len(), 2);
    assert_eq!((operations[0].change_type, operations[0].state), (ChangeType::Add, OperationState::Successful));
    assert!(operations[0].start_time >= before && operations[0].id != operations[1].id);
}

#[tokio::test]
async fn the_same_definition_again_repairs_and_a_drop_needs_no_repair() {
    let it = database().await;
    let ttl = registry(&it).await;
    in_need(&it, &ttl).await;
    assert_eq!(ttl.create_index("c", on_t()).await.unwrap().state, IndexState::Active);
    assert_eq!(ttl.list_indexes().await.unwrap()[0].problem, None);
    assert_eq!(ordinary_indexes(&it, "c").await, ["_id_", "t_1"]);
    tamper(&it, doc! { "state": "NEEDS_REPAIR" }).await;
    assert!(ttl.sweep("c").await.unwrap_err().to_string().contains("repair it"));
    ttl.drop_index("c", "t_1").await.unwrap();
    assert_eq!(ttl.list_indexes().await.unwrap(), []);
    assert_eq!(ordinary_indexes(&it, "c").await, ["_id_"]);
}

#[tokio::test]
async fn a_warning_beside_an_active_index_stops_nothing() {
    let it = database().await;
    let ttl = registry(&it).await;
    it.db.collection("c").insert_many(expired(3)).await.unwrap();
    ttl.create_index("c", on_t()).await.unwrap();
    tamper(&it, doc! { "problem": "beside it" }).await;
    let listed = ttl.list_indexes().await.unwrap().remove(0);
    assert_eq!((listed.state, listed.problem.as_deref()), (IndexState::Active, Some("beside it")));
    assert_eq!(ttl.sweep("c").await.unwrap().deleted, 3);
}

#[tokio::test]
async fn a_sound_index_stays_as_it_is() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        let made = ttl.create_index("c", on_t()).await.unwrap();
        assert_eq!(ttl.repair("c").await.unwrap(), made);
        assert_eq!(ttl.list_indexes().await.unwrap(), [made]);
        assert_eq!(ttl.repair("none").await.unwrap_err().code(), Some(27));
    }
}

/// What is there in a collection that was made anew is its maker's, also under the name that was noted.
#[tokio::test]
async fn an_index_in_a_collection_made_anew_is_walked_and_not_taken_for_ours() {
    for repaired in [true, false] {
        let it = database().await;
        let ttl = registry(&it).await;
        in_need(&it, &ttl).await;
        let old = stored_entry(&it).await.get("collectionUUID").cloned();
        it.db.collection::<Document>("c").drop().await.unwrap();
        let theirs = doc! { "key": { "t": 1 }, "name": "t_1" };
        it.db.run_command(doc! { "createIndexes": "c", "indexes": [theirs] }).await.unwrap();
        it.db.collection("c").insert_many(expired(3)).await.unwrap();

        let bound = if repaired { ttl.repair("c").await } else { ttl.create_index("c", on_t()).await }.unwrap();
        assert!(!bound.supporting_index.unwrap().created);
        let new = stored_entry(&it).await.get("collectionUUID").cloned();
        assert!(matches!((&old, &new), (Some(Bson::Binary(_)), Some(Bson::Binary(_)))) && old != new);
        assert_eq!(ttl.sweep("c").await.unwrap().deleted, 3);
        ttl.drop_index("c", "t_1").await.unwrap();
        assert_eq!(ordinary_indexes(&it, "c").await, ["_id_", "t_1"]);
    }
}

#[tokio::test]
async fn what_cannot_be_repaired_is_refused_and_stays_as_it_is() {
    let it = database().await;
    let ttl = registry(&it).await;
    in_need(&it, &ttl).await;
    let mut native = doc! { "key": { "other": 1 }, "name": "native" };
    native.insert("expireAfterSeconds", 1_000_000);
    it.db.run_command(doc! { "createIndexes": "c", "indexes": [native] }).await.unwrap();
    let (before, told) = (stored_entry(&it).await, ttl.operations().await.unwrap());
    let refused = ttl.repair("c").await.unwrap_err();
    assert_eq!(refused.code(), Some(85), "{refused}");
    tamper(&it, doc! { "expireAfterSeconds": f64::NAN }).await;
    let refused = ttl.repair("c").await.unwrap_err();
    assert!(refused.to_string().contains("modify its period, or drop it"), "{refused}");
    tamper(&it, doc! { "expireAfterSeconds": before.get("expireAfterSeconds").cloned() }).await;
    assert_eq!((stored_entry(&it).await, ttl.operations().await.unwrap()), (before, told));
}

#[tokio::test]
async fn a_repair_that_fails_is_told_of_and_the_index_still_needs_it() {
    let (_server, it, ttl) = failing_server().await;
    in_need(&it, &ttl).await;
    let before = stored_entry(&it).await;
    let failing = doc! { "failCommands": ["createIndexes"], "errorCode": 67 };
    fail_point(&it, "failCommand", doc! { "times": 1 }, failing).await;
    assert_eq!(ttl.repair("c").await.unwrap_err().code(), Some(67));
    assert_eq!(stored_entry(&it).await, before);
    assert_eq!(ttl.operations().await.unwrap()[0].state, OperationState::Failed);
    assert_eq!(ttl.repair("c").await.unwrap().state, IndexState::Active);
}
