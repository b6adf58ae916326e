//! What cannot be guarded by is refused, and changes nothing.

use mongodb::{
    IndexModel,
    bson::{Bson, Document, doc},
    options::IndexOptions,
};
use ttl_index::{Ended, Reference, TtlIndex};

use super::{articles, due, ids, index_children, likes, reads};
use crate::support::{database, place::Place};

#[tokio::test]
async fn children_must_be_found_by_an_index() {
    let it = database().await;
    let index = |options| IndexModel::builder().keys(doc! { "article_id": 1 }).options(options).build();
    let partial = IndexOptions::builder().partial_filter_expression(doc! { "x": 1 }).build();
    it.db.collection::<Document>("partial").create_index(index(partial)).await.unwrap();
    it.db
        .collection::<Document>("hidden")
        .create_index(index(IndexOptions::builder().hidden(true).build()))
        .await
        .unwrap();
    let second = IndexModel::builder().keys(doc! { "x": 1, "article_id": 1 }).build();
    it.db.collection::<Document>("second").create_index(second).await.unwrap();
    let compound = IndexModel::builder().keys(doc! { "article_id": 1, "x": 1 }).build();
    it.db.collection::<Document>("compound").create_index(compound).await.unwrap();
    let place = Place::Mongo(it);
    let ttl = place.registry().await;
    for collection in ["missing", "partial", "hidden", "second"] {
        let guard = Reference::by(collection, "article_id");
        let refused = ttl.create_index("articles", articles().keep_while(guard)).await.unwrap_err();
        let wanted = format!("db.getCollection(\"{collection}\").createIndex({{\"article_id\": 1}})");
        assert!(refused.to_string().contains(&wanted), "{refused}");
        assert_eq!(refused.code(), Some(72));
        assert!(ttl.list_indexes().await.unwrap().is_empty());
    }
    ttl.create_index("articles", articles()).await.unwrap();
    let refused = ttl.set_guards("articles", [Reference::by("partial", "article_id")]).await.unwrap_err();
    assert_eq!(refused.code(), Some(72));
    assert!(ttl.list_indexes().await.unwrap()[0].guards.is_empty());
    let found = [Reference::by("compound", "article_id"), Reference::by("partial", "article_id").without_index()];
    let info = ttl.set_guards("articles", found.clone()).await.unwrap();
    assert_eq!(info.guards, found);
}

#[tokio::test]
async fn what_cannot_be_understood_is_refused_on_both_stores() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        index_children(&place, &["likes"]).await;
        ttl.create_index("articles", articles().keep_while(likes())).await.unwrap();
        for guard in [
            doc! {},
            doc! { "collection": "reads" },
            doc! { "collection": "ttl_index.lease", "field": "x" },
            doc! { "collection": "likes", "field": "article_id", "newerThanSeconds": 5 },
            doc! { "collection": "likes", "field": "article_id", "date": "at", "newerThanSeconds": f64::NAN },
            doc! { "collection": "likes", "field": "article_id", "typo": true },
        ] {
            let refused = ttl.set_guards("articles", [guard.clone()]).await.unwrap_err();
            assert_eq!(refused.code(), Some(2), "{guard}: {refused}");
            let refused = ttl.create_index("others", articles().keep_while(guard)).await.unwrap_err();
            assert_eq!(refused.code(), Some(2), "{refused}");
        }
        let spec = doc! { "key": { "at": 1 }, "expireAfterSeconds": 0, "guards": "likes" };
        assert_eq!(ttl.create_index("others", TtlIndex::from(spec)).await.unwrap_err().code(), Some(14));
        assert_eq!(ttl.set_guards("others", [likes()]).await.unwrap_err().code(), Some(27));
        let indexes = ttl.list_indexes().await.unwrap();
        assert_eq!((indexes.len(), &indexes[0].guards), (1, &vec![likes()]));
    }
}

#[tokio::test]
async fn the_same_index_with_other_guards_is_a_conflict() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        index_children(&place, &["likes", "reads"]).await;
        let guarded = articles().keep_while(likes()).keep_while(reads());
        ttl.create_index("articles", guarded.clone()).await.unwrap();
        // In another order they keep the same.
        ttl.create_index("articles", articles().keep_while(reads()).keep_while(likes())).await.unwrap();
        for other in [articles(), articles().keep_while(likes()), guarded.keep_while(Reference::by("likes", "x"))] {
            let refused = ttl.create_index("articles", other).or_modify(true).await.unwrap_err();
            assert_eq!(refused.code(), Some(85));
            assert!(refused.to_string().contains("set_guards"), "{refused}");
        }
        assert_eq!(ttl.list_indexes().await.unwrap()[0].guards.len(), 2);
    }
}

/// Written by hand, or by a version that knows more.
#[tokio::test]
async fn guards_that_cannot_be_understood_delete_nothing_until_they_are_set_anew() {
    let it = database().await;
    let db = it.db.clone();
    let place = Place::Mongo(it);
    let ttl = place.registry().await;
    ttl.create_index("articles", articles()).await.unwrap();
    place.insert("articles", vec![due(1)]).await;
    let registry = db.collection::<Document>("ttl_index.registry");
    for guards in
        [Bson::from("likes"), doc! { "collection": "likes" }.into(), vec![doc! { "kind": "hold" }].into(), Bson::Null]
    {
        let change = doc! { "$set": { "indexes.0.guards": &guards }, "$inc": { "revision": 1_i64 } };
        registry.update_one(doc! {}, change).await.unwrap();
        let refused = ttl.sweep("articles").await.unwrap_err();
        assert!(refused.to_string().contains("set anew"), "{guards}: {refused}");
        assert_eq!(ids(&place, "articles").await, [1], "{guards}");
    }
    ttl.set_guards("articles", [] as [Reference; 0]).await.unwrap();
    assert_eq!(ttl.sweep("articles").await.unwrap().ended, Ended::Drained);
    assert_eq!(place.count("articles").await, 0);
}
