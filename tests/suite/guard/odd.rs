//! References by values of every type, by collations, by thousands, and by collections that are gone.

use std::collections::BTreeSet;

use mongodb::bson::{Binary, Bson, DateTime, Document, doc, oid::ObjectId, spec::BinarySubtype};
use ttl_index::{Ended, MongoStore, TtlRegistry};

use super::{articles, due, ids, index_children, likes};
use crate::{
    race::assert_adds_up,
    support::{database, place::Place},
};

#[tokio::test]
async fn ids_of_every_type_are_compared_as_queries_compare_them() {
    let object = ObjectId::new();
    let binary = |byte| Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![byte; 3] });
    // Each with what references it, if anything does.
    let rows: Vec<(Bson, Option<Bson>)> = vec![
        (Bson::Int32(1), Some(Bson::Double(1.0))),
        (Bson::Int32(2), Some(Bson::String("2".to_owned()))),
        (Bson::Int64(1 << 40), Some(Bson::Array(vec![Bson::Int64(1 << 40), Bson::Null]))),
        (Bson::Double(0.5), Some(Bson::Decimal128("0.50".parse().unwrap()))),
        (Bson::Double(f64::NAN), Some(Bson::Double(f64::NAN))),
        (Bson::String("x".to_owned()), Some(Bson::String("x".to_owned()))),
        (Bson::String("X".to_owned()), None),
        (Bson::ObjectId(object), Some(Bson::ObjectId(object))),
        (Bson::ObjectId(ObjectId::new()), Some(Bson::String(object.to_hex()))),
        (Bson::Document(doc! { "a": 1, "b": 2 }), Some(Bson::Document(doc! { "a": 1.0, "b": 2_i64 }))),
        (Bson::Document(doc! { "b": 2, "a": 1 }), None),
        (Bson::DateTime(DateTime::from_millis(5)), Some(Bson::DateTime(DateTime::from_millis(5)))),
        (Bson::Boolean(true), Some(Bson::Boolean(true))),
        (binary(1), Some(binary(1))),
        (binary(2), None),
        (Bson::Null, None),
    ];
    let stays = ["1", "1099511627776", "0.5", "NaN", "\"x\"", "{ \"a\": 1, \"b\": 2 }", "true"];
    for place in Place::all().await {
        let ttl = place.registry().await;
        index_children(&place, &["likes"]).await;
        ttl.create_index("articles", articles().keep_while(likes())).await.unwrap();
        place.insert("articles", rows.iter().map(|(id, _)| due(id.clone())).collect()).await;
        let children = rows.iter().filter_map(|(_, by)| by.clone()).map(|by| doc! { "article_id": by });
        place.insert("likes", children.collect()).await;
        let report = ttl.sweep("articles").await.unwrap();
        assert_adds_up(&report, "odd");
        let left: BTreeSet<String> =
            place.documents("articles").await.iter().map(|document| document.get("_id").unwrap().to_string()).collect();
        // One of the children holds null.
        assert_eq!((report.kept, left.len()), (11, 11), "{left:?}");
        for id in stays {
            assert!(left.contains(id), "{id} of {left:?}");
        }
    }
}

/// To a query a field that is missing is null.
#[tokio::test]
async fn a_child_without_the_field_references_null() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        index_children(&place, &["likes"]).await;
        ttl.create_index("articles", articles().keep_while(likes())).await.unwrap();
        place.insert("articles", vec![due(Bson::Null), due(1)]).await;
        place.insert("likes", vec![doc! { "_id": 1 }]).await;
        let report = ttl.sweep("articles").await.unwrap();
        assert_eq!((report.deleted, report.kept), (1, 1), "{report:?}");
    }
}

#[tokio::test]
async fn parents_with_hundreds_of_children_each_are_told_from_those_without() {
    let place = Place::Mongo(database().await);
    let ttl = place.registry().await;
    index_children(&place, &["likes"]).await;
    ttl.create_index("articles", articles().keep_while(likes())).await.unwrap();
    place.insert("articles", (0..60).map(due).collect()).await;
    let children = (0..50).flat_map(|parent| (0..250).map(move |_| doc! { "article_id": parent }));
    place.insert("likes", children.collect()).await;
    let report = ttl.sweep("articles").await.unwrap();
    assert_eq!((report.deleted, report.kept), (10, 50), "{report:?}");
    assert_eq!(ids(&place, "articles").await, (0..50).collect::<Vec<_>>());
}

/// The server finds by a collation what the values alone do not say, and neither hides the other within one child.
#[tokio::test]
async fn children_with_a_collation_keep_what_it_takes_for_referenced_and_no_more() {
    let apart = vec![doc! { "article_id": "A" }, doc! { "article_id": "b" }];
    let together = vec![doc! { "article_id": ["b", "A"] }];
    for children in [apart, together] {
        let it = database().await;
        let likes_collection = doc! { "create": "likes", "collation": { "locale": "en", "strength": 2 } };
        it.db.run_command(likes_collection).await.unwrap();
        let place = Place::Mongo(it);
        let ttl = place.registry().await;
        index_children(&place, &["likes"]).await;
        ttl.create_index("articles", articles().keep_while(likes())).await.unwrap();
        place.insert("articles", ["a", "b", "c"].map(due).to_vec()).await;
        place.insert("likes", children).await;
        let report = ttl.sweep("articles").await.unwrap();
        assert_eq!((report.deleted, report.kept), (1, 2), "{report:?}");
        for id in ["a", "b"] {
            assert!(place.find("articles", id).await.is_some(), "{id}");
        }
    }
}

/// Renamed or dropped: nobody can tell what it would have kept.
#[tokio::test]
async fn a_collection_of_children_that_is_gone_deletes_nothing() {
    for portable in [false, true] {
        let it = database().await;
        let store = MongoStore::new(it.db.clone());
        let ttl = TtlRegistry::open(if portable { store.portable_only() } else { store }).await.unwrap();
        let place = Place::Mongo(it);
        index_children(&place, &["likes"]).await;
        ttl.create_index("articles", articles().keep_while(likes())).await.unwrap();
        place.insert("articles", (0..5).map(due).collect()).await;
        place.drop_collection("likes").await;

        let report = ttl.sweep("articles").await.unwrap();
        assert_eq!((report.ended, report.deleted, report.left), (Ended::Failed, 0, 5), "{report:?}");
        assert_adds_up(&report, "gone");
        assert!(report.oldest_due.is_some(), "{report:?}");
        let error = report.error.unwrap();
        assert_eq!(error.code(), Some(26));
        assert!(error.to_string().contains("the collection likes is not there"), "{error}");
        assert_eq!(place.count("articles").await, 5);

        place.insert("likes", vec![doc! { "article_id": 1 }]).await;
        let report = ttl.sweep("articles").await.unwrap();
        assert_eq!((report.deleted, report.kept), (4, 1), "{report:?}");
    }
}

#[tokio::test]
async fn a_view_can_be_looked_at_if_that_is_said() {
    let it = database().await;
    it.db
        .run_command(doc! { "create": "unread", "viewOn": "mail", "pipeline": [{ "$match": { "read": false } }] })
        .await
        .unwrap();
    it.db.collection::<Document>("mail").insert_one(doc! { "article_id": 1, "read": false }).await.unwrap();
    it.db.collection::<Document>("mail").insert_one(doc! { "article_id": 2, "read": true }).await.unwrap();
    let place = Place::Mongo(it);
    let ttl = place.registry().await;
    let unread = ttl_index::Reference::by("unread", "article_id");
    let refused = ttl.create_index("articles", articles().keep_while(unread.clone())).await.unwrap_err();
    assert!(refused.to_string().contains("withoutIndex"), "{refused}");
    ttl.create_index("articles", articles().keep_while(unread.without_index())).await.unwrap();
    place.insert("articles", vec![due(1), due(2)]).await;
    ttl.sweep("articles").await.unwrap();
    assert_eq!(ids(&place, "articles").await, [1]);
}
