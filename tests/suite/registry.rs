//! The verbs on TTL indexes, on both stores.
//!
//! - [`refusals`]: what is refused, and that it changes nothing;
//! - [`supporting`]: the ordinary index that sweeps walk;
//! - [`repair`]: creations that were interrupted, entries that cannot be understood, collections that are not the same;
//! - [`file`]: an embedded file.

mod file;
mod refusals;
mod repair;
mod supporting;

use std::time::Duration;

use mongodb::IndexModel;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::IndexOptions;
use ttl_index::{IndexState, TtlIndex};

use crate::support::TestDatabase;
use crate::support::place::Place;

fn on_t() -> TtlIndex {
    TtlIndex::on("t").expire_after(Duration::from_secs(60))
}

/// The registry document of a database on the server.
async fn stored(test: &TestDatabase) -> Option<Document> {
    test.db.collection("ttl_index.registry").find_one(doc! { "_id": "registry" }).await.unwrap()
}

/// Sets fields of the registry document's first entry, behind the library's back.
async fn tamper(test: &TestDatabase, fields: Document) {
    let fields: Document = fields.into_iter().map(|(name, value)| (format!("indexes.0.{name}"), value)).collect();
    let registry = test.db.collection::<Document>("ttl_index.registry");
    let update = doc! { "$set": fields, "$inc": { "revision": 1_i64 } };
    assert_eq!(registry.update_one(doc! { "_id": "registry" }, update).await.unwrap().modified_count, 1);
}

/// The names of the collections in a database on the server, in order.
async fn collections(test: &TestDatabase) -> Vec<String> {
    let mut names = test.db.list_collection_names().await.unwrap();
    names.sort_unstable();
    names
}

/// The ordinary indexes of a collection on the server.
async fn ordinary_indexes(test: &TestDatabase, collection: &str) -> Vec<String> {
    test.db.collection::<Document>(collection).list_index_names().await.unwrap()
}

#[tokio::test]
async fn opening_and_looking_write_nothing() {
    let place = Place::Mongo(crate::support::database().await);
    let ttl = place.registry().await;
    ttl.now().await.unwrap();
    assert!(ttl.list_indexes().await.unwrap().is_empty());
    assert_eq!(ttl.rule("c").await.unwrap_err().code(), Some(27));
    assert_eq!(ttl.sweep("c").await.unwrap_err().code(), Some(27));
    assert_eq!(ttl.drop_index("c", "t_1").await.unwrap_err().code(), Some(27));
    let Place::Mongo(test) = place else { panic!() };
    assert_eq!(collections(&test).await, Vec::<String>::new());
}

#[tokio::test]
async fn an_index_is_created_listed_modified_and_dropped_by_name_or_by_key() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        let created = ttl.create_index("a.b", on_t()).await.unwrap();
        assert_eq!((created.collection.as_str(), created.name.as_str()), ("a.b", "t_1"));
        assert_eq!((created.key.clone(), created.state), (doc! { "t": 1 }, IndexState::Active));
        ttl.create_index("other", TtlIndex::on("x").expire_after(Duration::ZERO).name("mine")).await.unwrap();
        let listed = ttl.list_indexes().await.unwrap();
        assert_eq!(listed.len(), 2);
        assert_eq!(listed[0], created);
        assert_eq!(ttl.list_indexes().collection("other").await.unwrap(), listed[1..]);

        let modified = ttl.modify_index("a.b", Duration::from_secs(5)).await.unwrap();
        assert_eq!(modified.expire_after, Some(Duration::from_secs(5)));
        assert_eq!(ttl.list_indexes().await.unwrap()[0], modified);

        // Neither another name nor another key will do.
        for wrong in [doc! { "t": -1 }, doc! { "t": 1, "u": 1 }, doc! { "x": 1 }] {
            assert_eq!(ttl.drop_index("a.b", wrong).await.unwrap_err().code(), Some(27));
        }
        assert_eq!(ttl.drop_index("a.b", "mine").await.unwrap_err().code(), Some(27));
        assert_eq!(ttl.list_indexes().await.unwrap().len(), 2);
        ttl.drop_index("a.b", doc! { "t": Bson::Double(1.0) }).await.unwrap();
        ttl.drop_index("other", "mine").await.unwrap();
        assert!(ttl.list_indexes().await.unwrap().is_empty());
        assert_eq!(ttl.modify_index("a.b", Duration::ZERO).await.unwrap_err().code(), Some(27));
    }
}

#[tokio::test]
async fn the_drivers_model_and_googles_key_form_are_taken() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        let options = IndexOptions::builder()
            .expire_after(Duration::from_secs(60))
            .partial_filter_expression(doc! { "s": "old" })
            .name("model".to_owned());
        let model = IndexModel::builder().keys(doc! { "a.b": -1 }).options(options.build()).build();
        let made = ttl.create_index("model", model).await.unwrap();
        assert_eq!(
            (made.name.as_str(), made.key, made.expire_after),
            ("model", doc! { "a.b": -1 }, Some(Duration::from_secs(60)))
        );
        assert_eq!(made.partial_filter, Some(doc! { "s": "old" }));

        let made = ttl.create_index("google", doc! { "ts": 1, "expireAfterSeconds": 3600 }).await.unwrap();
        assert_eq!(
            (made.name.as_str(), made.key, made.expire_after),
            ("ts_1", doc! { "ts": 1 }, Some(Duration::from_secs(3600)))
        );
    }
}

#[tokio::test]
async fn the_same_again_is_fine_and_another_period_only_if_asked_for() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        let first = ttl.create_index("c", on_t()).await.unwrap();
        assert_eq!(ttl.create_index("c", on_t()).await.unwrap(), first);
        let longer = TtlIndex::on("t").expire_after(Duration::from_secs(120));
        let refused = ttl.create_index("c", longer.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Some(85), "{refused}");
        assert!(refused.to_string().contains("modify its period"), "{refused}");
        assert_eq!(ttl.list_indexes().await.unwrap(), [first]);
        let modified = ttl.create_index("c", longer).or_modify(true).await.unwrap();
        assert_eq!(modified.expire_after, Some(Duration::from_secs(120)));
        assert_eq!(ttl.list_indexes().await.unwrap(), [modified]);
        // Nothing but the period is modified.
        let elsewhere = TtlIndex::on("u").expire_after(Duration::from_secs(120));
        assert_eq!(ttl.create_index("c", elsewhere).or_modify(true).await.unwrap_err().code(), Some(67));
    }
}

#[tokio::test]
async fn no_registry_means_no_rules_whatever_was_known() {
    let test = crate::support::database().await;
    let place = Place::Mongo(test);
    let ttl = place.registry().await;
    ttl.create_index("c", TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
    let Place::Mongo(test) = &place else { panic!() };
    test.db.drop().await.unwrap();
    place.insert("c", vec![doc! { "t": mongodb::bson::DateTime::from_millis(0) }]).await;
    assert!(ttl.list_indexes().await.unwrap().is_empty());
    assert_eq!(ttl.sweep("c").await.unwrap_err().code(), Some(27));
    assert_eq!(place.count("c").await, 1);
    assert_eq!(collections(test).await, ["c"], "the registry must not come back by itself");
}
