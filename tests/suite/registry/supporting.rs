//! The ordinary index that sweeps walk: built, or reused, and dropped only by who made it.

use mongodb::bson::{Document, doc};
use ttl_index::{MongoStore, SupportingIndex, TtlIndex, TtlRegistry};

use super::{on_t, ordinary_indexes};
use crate::support::{TestDatabase, database};

async fn registry(test: &TestDatabase) -> TtlRegistry {
    TtlRegistry::open(MongoStore::new(test.db.clone())).await.unwrap()
}

async fn build(test: &TestDatabase, index: Document) {
    test.db.run_command(doc! { "createIndexes": "c", "indexes": [index] }).await.unwrap();
}

fn noted(index: Option<&SupportingIndex>) -> Option<(&str, bool)> {
    index.map(|index| (index.name.as_str(), index.created))
}

#[tokio::test]
async fn one_that_was_built_goes_with_the_ttl_index() {
    let test = database().await;
    let ttl = registry(&test).await;
    let made = ttl.create_index("c", on_t()).await.unwrap();
    assert_eq!(noted(made.supporting_index.as_ref()), Some(("t_1", true)));
    assert_eq!(ordinary_indexes(&test, "c").await, ["_id_", "t_1"]);
    ttl.drop_index("c", "t_1").await.unwrap();
    assert_eq!(ordinary_indexes(&test, "c").await, ["_id_"]);
    test.drop().await;
}

#[tokio::test]
async fn one_of_the_users_is_reused_and_stays() {
    for direction in [1, -1] {
        let test = database().await;
        let ttl = registry(&test).await;
        build(&test, doc! { "key": { "t": direction }, "name": "mine" }).await;
        let made = ttl.create_index("c", on_t()).await.unwrap();
        assert_eq!(noted(made.supporting_index.as_ref()), Some(("mine", false)));
        assert_eq!(ordinary_indexes(&test, "c").await, ["_id_", "mine"]);
        ttl.drop_index("c", "t_1").await.unwrap();
        assert_eq!(ordinary_indexes(&test, "c").await, ["_id_", "mine"]);
        test.drop().await;
    }
}

#[tokio::test]
async fn one_that_lists_other_documents_is_left_alone() {
    let test = database().await;
    let ttl = registry(&test).await;
    build(&test, doc! { "key": { "t": 1 }, "name": "t_1", "partialFilterExpression": { "s": 1 } }).await;
    build(&test, doc! { "key": { "t": 1, "u": 1 }, "name": "both" }).await;
    let made = ttl.create_index("c", on_t()).await.unwrap();
    assert_eq!(noted(made.supporting_index.as_ref()), Some(("t_1_ttl_index", true)));
    ttl.drop_index("c", "t_1").await.unwrap();
    assert_eq!(ordinary_indexes(&test, "c").await, ["_id_", "t_1", "both"]);
    test.drop().await;
}

#[tokio::test]
async fn none_is_built_where_none_is_wanted() {
    let test = database().await;
    let ttl = registry(&test).await;
    test.db.create_collection("c").await.unwrap();
    let made = ttl.create_index("c", on_t().supporting_index(false)).await.unwrap();
    assert_eq!(made.supporting_index, None);
    assert_eq!(ordinary_indexes(&test, "c").await, ["_id_"]);
    test.drop().await;
}

#[tokio::test]
async fn that_of_a_partial_filter_has_the_filter() {
    let test = database().await;
    let ttl = registry(&test).await;
    let filter = doc! { "state": "draft", "n": { "$gte": 3 } };
    ttl.create_index("c", on_t().partial_filter(filter.clone())).await.unwrap();
    let reply = test.db.run_command(doc! { "listIndexes": "c" }).await.unwrap();
    let indexes = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let built = indexes[1].as_document().unwrap();
    assert_eq!(built.get_document("key").unwrap(), &doc! { "t": 1 });
    assert_eq!(built.get_document("partialFilterExpression").unwrap(), &filter);
    assert!(!built.contains_key("expireAfterSeconds"), "the server must not expire anything itself: {built}");
    test.drop().await;
}

#[tokio::test]
async fn one_that_was_dropped_behind_the_library_is_built_again_by_the_same_creation() {
    let test = database().await;
    let ttl = registry(&test).await;
    ttl.create_index("c", on_t()).await.unwrap();
    test.db.run_command(doc! { "dropIndexes": "c", "index": "t_1" }).await.unwrap();
    let again = ttl.create_index("c", on_t()).await.unwrap();
    assert_eq!(noted(again.supporting_index.as_ref()), Some(("t_1", true)));
    assert_eq!(ordinary_indexes(&test, "c").await, ["_id_", "t_1"]);
    test.drop().await;
}

/// A failure to build takes the registry entry back.
#[tokio::test]
async fn a_creation_that_fails_leaves_no_rule() {
    let test = database().await;
    let ttl = registry(&test).await;
    // A collection has 64 indexes at most.
    for number in 0..63 {
        build(&test, doc! { "key": { format!("f{number}"): 1 }, "name": format!("f{number}") }).await;
    }
    let failed = ttl.create_index("c", TtlIndex::from(doc! { "t": 1, "expireAfterSeconds": 60 })).await.unwrap_err();
    assert_eq!(failed.code(), Some(67), "{failed}");
    assert!(ttl.list_indexes().await.unwrap().is_empty());
    assert_eq!(ordinary_indexes(&test, "c").await.len(), 64);
    ttl.create_index("c", on_t().supporting_index(false)).await.unwrap();
    test.drop().await;
}
