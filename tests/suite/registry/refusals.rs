//! What is refused has MongoDB's code and changes nothing.

use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use ttl_index::TtlIndex;

use super::{collections, on_t, ordinary_indexes, stored};
use crate::support::place::Place;
use crate::support::{TestDatabase, database};

/// Definitions that no store takes, and the code.
fn impossible() -> Vec<(&'static str, Document, i32)> {
    let with = |name: &str, value: Bson| {
        let mut spec = doc! { "key": { "t": 1 }, "expireAfterSeconds": 60 };
        spec.insert(name, value);
        ("c", spec, 67)
    };
    let keyed = |key: Document, code| ("c", doc! { "key": key, "expireAfterSeconds": 60 }, code);
    let good = || doc! { "key": { "t": 1 }, "expireAfterSeconds": 60 };
    vec![
        keyed(doc! { "t": 1, "u": 1 }, 67),
        keyed(doc! { "_id": 1 }, 197),
        keyed(doc! { "t": "hashed" }, 67),
        keyed(doc! { "t": "text" }, 67),
        keyed(doc! { "t": "2dsphere" }, 67),
        keyed(doc! { "$**": 1 }, 67),
        keyed(doc! { "t": 0 }, 67),
        keyed(doc! {}, 67),
        ("c", doc! { "key": { "t": 1 } }, 67),
        with("expireAfterSeconds", Bson::Int32(-1)),
        with("expireAfterSeconds", Bson::Int64(2_147_483_648)),
        with("expireAfterSeconds", Bson::Double(0.5)),
        with("expireAfterSeconds", Bson::Double(f64::NAN)),
        with("expireAfterSeconds", Bson::String("60".to_owned())),
        with("expireAfterSeconds", Bson::Null),
        with("unique", Bson::Boolean(true)),
        with("partialFilterExpression", doc! { "a": { "$ne": 1 } }.into()),
        ("c", doc! { "key": { "t": 1 }, "expireAfterSeconds": 60, "name": "*" }, 2),
        ("c", doc! { "key": { "t": 1 }, "expireAfterSeconds": 60, "name": 5 }, 14),
        ("c", doc! { "key": { "t": 1 }, "expireAfterSeconds": 60, "expire": 5 }, 197),
        ("", good(), 73),
        ("a$b", good(), 73),
        ("system.profile", good(), 73),
        ("ttl_index.registry", good(), 73),
    ]
}

#[tokio::test]
async fn what_is_refused_for_its_definition_changes_nothing() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        for (collection, spec, code) in impossible() {
            let refused = ttl.create_index(collection, TtlIndex::from(spec.clone())).await.unwrap_err();
            assert!(refused.refusal().is_some(), "{refused:?} of {spec}");
            assert_eq!(refused.code(), Some(code), "{refused} of {spec}");
        }
        for period in [Duration::from_millis(1), Duration::from_secs(2_147_483_648)] {
            let refused = ttl.create_index("c", TtlIndex::on("t").expire_after(period)).await.unwrap_err();
            assert_eq!(refused.code(), Some(67), "{refused}");
        }
        assert!(ttl.list_indexes().await.unwrap().is_empty());
        if let Place::Mongo(test) = &place {
            assert_eq!(collections(test).await, Vec::<String>::new());
        }

        // The same beside an index that is there.
        let there = ttl.create_index("c", on_t()).await.unwrap();
        for (collection, spec, code) in impossible() {
            let refused = ttl.create_index(collection, TtlIndex::from(spec.clone())).await.unwrap_err();
            assert_eq!(refused.code(), Some(code), "{refused} of {spec}");
        }
        for (index, code) in [
            (TtlIndex::on("u").expire_after(Duration::from_secs(60)), 67),
            (on_t().name("other"), 85),
            (on_t().supporting_index(false), 85),
            (TtlIndex::on("u").expire_after(Duration::from_secs(60)).name("t_1"), 86),
            (on_t().partial_filter(doc! { "a": 1 }), 86),
            (on_t().partial_filter(doc! { "a": 1 }).name("other"), 67),
        ] {
            let refused = ttl.create_index("c", index).await.unwrap_err();
            assert_eq!(refused.code(), Some(code), "{refused}");
        }
        for period in [Duration::from_millis(1), Duration::from_secs(2_147_483_648)] {
            assert_eq!(ttl.modify_index("c", period).await.unwrap_err().code(), Some(67));
        }
        assert_eq!(ttl.list_indexes().await.unwrap(), [there]);
    }
}

/// What a refused request must leave as it was: the registry to the byte, the collections and the indexes.
async fn everything(test: &TestDatabase, collection: &str) -> (Option<Vec<u8>>, Vec<String>, Vec<Document>) {
    let registry = stored(test).await.map(|document| {
        let mut bytes = Vec::new();
        document.to_writer(&mut bytes).unwrap();
        bytes
    });
    let reply = test.db.run_command(doc! { "listIndexes": collection }).await;
    let indexes = reply.map(|reply| {
        let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        batch.iter().map(|index| index.as_document().unwrap().clone()).collect()
    });
    // A view has no indexes to list.
    (registry, collections(test).await, indexes.unwrap_or_default())
}

async fn refused(test: &TestDatabase, collection: &str, index: TtlIndex, code: i32, says: &str) {
    let place = ttl_index::TtlRegistry::open(ttl_index::MongoStore::new(test.db.clone())).await.unwrap();
    let before = everything(test, collection).await;
    let refused = place.create_index(collection, index).await.unwrap_err();
    assert!(refused.refusal().is_some(), "{refused:?}");
    assert_eq!(refused.code(), Some(code), "{refused}");
    assert!(refused.to_string().contains(says), "{refused}");
    assert_eq!(everything(test, collection).await, before, "{refused}");
}

#[tokio::test]
async fn what_is_no_ordinary_collection_has_no_ttl_index() {
    let test = database().await;
    let create = async |command: Document| test.db.run_command(command).await.unwrap();
    create(doc! { "create": "capped", "capped": true, "size": 4096 }).await;
    create(doc! { "create": "base" }).await;
    create(doc! { "create": "view", "viewOn": "base", "pipeline": [] }).await;
    create(doc! { "create": "series", "timeseries": { "timeField": "t" } }).await;
    // Once without a registry and once with one.
    for round in 0..2 {
        refused(&test, "capped", on_t(), 67, "capped").await;
        refused(&test, "view", on_t(), 166, "view").await;
        refused(&test, "series", on_t(), 72, "time-series").await;
        assert_eq!(stored(&test).await.is_some(), round == 1);
        let place = ttl_index::TtlRegistry::open(ttl_index::MongoStore::new(test.db.clone())).await.unwrap();
        place.create_index("base", on_t()).await.unwrap();
    }
    test.drop().await;
}

#[tokio::test]
async fn a_collection_that_the_server_expires_itself_has_no_second_rule() {
    let test = database().await;
    let native = doc! { "key": { "u": 1 }, "name": "native", "expireAfterSeconds": 86_400 };
    test.db.run_command(doc! { "createIndexes": "c", "indexes": [native] }).await.unwrap();
    refused(&test, "c", on_t(), 85, "native").await;
    refused(&test, "c", TtlIndex::on("u").expire_after(Duration::from_secs(86_400)), 85, "native").await;
    test.db.run_command(doc! { "dropIndexes": "c", "index": "native" }).await.unwrap();
    let place = ttl_index::TtlRegistry::open(ttl_index::MongoStore::new(test.db.clone())).await.unwrap();
    place.create_index("c", on_t()).await.unwrap();
    test.drop().await;
}

#[tokio::test]
async fn a_collation_and_a_filter_that_compares_strings_do_not_go_together() {
    let test = database().await;
    test.db.run_command(doc! { "create": "c", "collation": { "locale": "en", "strength": 2 } }).await.unwrap();
    for filter in
        [doc! { "s": "x" }, doc! { "s": { "$gt": "x" } }, doc! { "$or": [{ "n": 1 }, { "s": { "$in": ["x"] } }] }]
    {
        refused(&test, "c", on_t().partial_filter(filter), 67, "collation").await;
    }
    // The index's own collation matters as much.
    let own = doc! {
        "key": { "t": 1 }, "expireAfterSeconds": 60, "collation": { "locale": "en" },
        "partialFilterExpression": { "s": "x" },
    };
    refused(&test, "plain", TtlIndex::from(own), 67, "collation").await;
    // A filter that compares no strings is the same under every collation.
    let place = ttl_index::TtlRegistry::open(ttl_index::MongoStore::new(test.db.clone())).await.unwrap();
    place.create_index("c", on_t().partial_filter(doc! { "n": { "$gt": 5 } })).await.unwrap();
    test.drop().await;
}

#[tokio::test]
async fn a_hidden_index_on_the_field_is_not_worked_around() {
    let test = database().await;
    let hidden = doc! { "key": { "t": 1 }, "name": "mine", "hidden": true };
    test.db.run_command(doc! { "createIndexes": "c", "indexes": [hidden] }).await.unwrap();
    refused(&test, "c", on_t(), 85, "mine").await;
    let place = ttl_index::TtlRegistry::open(ttl_index::MongoStore::new(test.db.clone())).await.unwrap();
    place.create_index("c", on_t().supporting_index(false)).await.unwrap();
    assert_eq!(ordinary_indexes(&test, "c").await, ["_id_", "mine"]);
    test.drop().await;
}
