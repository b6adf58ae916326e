//! Which documents a declared reference keeps, and for how long.

use mongodb::bson::doc;
use ttl_index::{Ended, Reference, TtlRegistry};

use super::{HOUR, articles, before_now, due, ids, index_children, likes, reads};
use crate::{
    race::{Setting, assert_adds_up},
    support::place::Place,
};

async fn registry(setting: &Setting) -> TtlRegistry {
    match &*setting.place {
        Place::Mongo(it) => TtlRegistry::open(setting.mongo_store(it.db.clone())).await.unwrap(),
        Place::Embedded(store) => TtlRegistry::open(store.clone()).await.unwrap(),
    }
}

#[tokio::test]
async fn a_document_stays_as_long_as_it_is_referenced() {
    for setting in Setting::all().await {
        let (what, place, ttl) = (setting.describe(), &setting.place, registry(&setting).await);
        index_children(place, &["likes", "reads"]).await;
        let index = setting.on("at").keep_while(likes()).keep_while(reads());
        ttl.create_index("articles", index).await.unwrap();
        place.insert("articles", (0..7).map(due).collect()).await;
        let liked = [doc! { "_id": 1, "article_id": 1 }, doc! { "_id": 2, "article_id": [2, 3_i64, 99] }];
        place.insert("likes", [&liked[..], &[doc! { "_id": 4, "article_id": 4.0 }]].concat()).await;
        let (recent, old) = (before_now(&ttl, 60).await, before_now(&ttl, 3601).await);
        place
            .insert(
                "reads",
                vec![
                    doc! { "_id": 0, "article_id": 0, "readAt": old },
                    doc! { "_id": 5, "article_id": 5, "readAt": recent },
                    doc! { "_id": 6, "article_id": 6, "readAt": "lately" },
                ],
            )
            .await;

        let report = ttl.sweep("articles").batch_size(2).await.unwrap();
        assert_eq!((report.deleted, report.kept, report.ended), (1, 6, Ended::Drained), "{what}: {report:?}");
        assert_eq!(report.oldest_due, None, "{what}");
        assert_adds_up(&report, &what);
        assert_eq!(ids(place, "articles").await, [1, 2, 3, 4, 5, 6], "{what}");
        let counted = ttl.counters().indexes[0].clone();
        assert_eq!((counted.counts.kept, counted.oldest_due), (6, None), "{what}");
        let kept = ttl.kept("articles", [0, 1, 5]).await.unwrap();
        assert_eq!(kept, [None, Some(likes()), Some(reads_as_stored())], "{what}");

        // Children are left to themselves, and with them goes what keeps their parents.
        assert_eq!((place.count("likes").await, place.count("reads").await), (3, 3), "{what}");
        place.delete("likes", 2).await;
        place.update("reads", 5, doc! { "$set": { "readAt": old } }).await;
        let report = ttl.sweep("articles").await.unwrap();
        assert_eq!((report.deleted, report.kept), (3, 3), "{what}: {report:?}");
        assert_eq!(ids(place, "articles").await, [1, 4, 6], "{what}");

        ttl.set_guards("articles", [] as [Reference; 0]).await.unwrap();
        assert_eq!(ttl.sweep("articles").await.unwrap().deleted, 3, "{what}");
    }
}

/// A number of seconds has one type in the database.
fn reads_as_stored() -> Reference {
    let seconds = i32::try_from(HOUR.as_secs()).unwrap();
    doc! { "collection": "reads", "field": "article_id", "date": "readAt", "newerThanSeconds": seconds }.into()
}

#[tokio::test]
async fn a_limited_pass_leaves_what_is_kept_out_of_what_is_still_due() {
    for setting in Setting::all().await {
        let (what, place, ttl) = (setting.describe(), &setting.place, registry(&setting).await);
        index_children(place, &["likes"]).await;
        ttl.create_index("articles", setting.on("at").keep_while(likes())).await.unwrap();
        // The older half is liked.
        place.insert("articles", (0..20).map(|id| doc! { "_id": id, "at": date(id) }).collect()).await;
        place.insert("likes", vec![doc! { "_id": 0, "article_id": (0..10).collect::<Vec<i32>>() }]).await;
        let report = ttl.sweep("articles").batch_size(5).max_batches(1).await.unwrap();
        // Batches of which all is kept do not count.
        assert!(report.ended == Ended::LimitReached && (1..=5).contains(&report.deleted), "{what}: {report:?}");
        assert!(report.oldest_due >= Some(date(10)), "{what}: {report:?}");
        let report = ttl.sweep("articles").batch_size(5).await.unwrap();
        assert_eq!((report.kept, report.ended, report.oldest_due), (10, Ended::Drained, None), "{what}: {report:?}");
        assert_eq!(ids(place, "articles").await, (0..10).collect::<Vec<_>>(), "{what}");
    }
}

fn date(second: i32) -> mongodb::bson::DateTime {
    mongodb::bson::DateTime::from_millis(1000 * i64::from(second))
}

/// A thread of comments, each of which stays until there is no answer to it any more.
#[tokio::test]
async fn documents_of_one_collection_can_keep_each_other() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        index_children(&place, &["comments"]).await;
        ttl.create_index("comments", articles().keep_while(Reference::by("comments", "article_id"))).await.unwrap();
        let answer = |id: i32| doc! { "_id": id, "at": date(id), "article_id": id - 1 };
        place.insert("comments", (0..3).map(answer).collect()).await;
        for left in [2, 1, 0] {
            ttl.sweep("comments").await.unwrap();
            assert_eq!(ids(&place, "comments").await, (0..left).collect::<Vec<_>>());
        }
    }
}
