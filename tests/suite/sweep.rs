//! How a pass goes and how it ends, on both stores.

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use ttl_index::{Ended, TtlIndex};

use crate::support::place::Place;

fn expired(ids: std::ops::Range<i32>) -> Vec<Document> {
    ids.map(|id| doc! { "_id": id, "t": DateTime::from_millis(i64::from(id)) }).collect()
}

fn index() -> TtlIndex {
    TtlIndex::on("t").expire_after(Duration::ZERO)
}

#[tokio::test]
async fn a_drained_pass_is_told_from_one_that_reached_its_limit() {
    for place in Place::all().await {
        for supporting in [true, false] {
            let ttl = place.registry().await;
            let name = if supporting { "walked" } else { "scanned" };
            ttl.create_index(name, index().supporting_index(supporting)).await.unwrap();
            place.insert(name, expired(0..1000)).await;
            place.insert(name, vec![doc! { "_id": "stays", "t": DateTime::MAX }, doc! { "_id": "never" }]).await;

            let report = ttl.sweep(name).batch_size(500).max_batches(1).await.unwrap();
            assert_eq!((report.found, report.deleted, report.batches), (500, 500, 1), "{report:?}");
            assert_eq!(report.ended, Ended::LimitReached);
            assert!(report.oldest_due.is_some());

            place.insert(name, expired(1000..1500)).await;
            let report = ttl.sweep(name).batch_size(500).await.unwrap();
            assert_eq!((report.found, report.deleted, report.batches), (1000, 1000, 2), "{report:?}");
            assert_eq!((report.ended, report.oldest_due, report.changed, report.left), (Ended::Drained, None, 0, 0));
            assert_eq!(place.count(name).await, 2);

            // The limit falls together with the last document: drained, and said so.
            place.insert(name, expired(0..1000)).await;
            let report = ttl.sweep(name).batch_size(500).max_batches(2).await.unwrap();
            assert_eq!((report.deleted, report.batches, report.ended), (1000, 2, Ended::Drained), "{report:?}");
        }
    }
}

#[tokio::test]
async fn arrays_nested_paths_and_partial_filters_are_swept_by_the_rule() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        let index =
            TtlIndex::on("a.t").expire_after(Duration::from_secs(60)).partial_filter(doc! { "n": { "$gt": 5 } });
        ttl.create_index("c", index).await.unwrap();
        let old = DateTime::from_millis(0);
        place
            .insert(
                "c",
                vec![
                    doc! { "_id": "array", "n": 6, "a": [{ "t": DateTime::MAX }, { "t": [Bson::Null, old] }] },
                    doc! { "_id": "plain", "n": 6, "a": { "t": old } },
                    doc! { "_id": "filtered", "n": 5, "a": { "t": old } },
                    doc! { "_id": "literal", "n": 6, "a.t": old },
                    doc! { "_id": "string", "n": 6, "a": { "t": "1970-01-01" } },
                ],
            )
            .await;
        let report = ttl.sweep("c").await.unwrap();
        assert_eq!((report.deleted, report.ended), (2, Ended::Drained), "{report:?}");
        assert_eq!(place.count("c").await, 3);
    }
}

/// On a paused clock, which the embedded store's threads do not move.
#[tokio::test(start_paused = true)]
async fn waiting_for_the_rate_ends_with_the_time_allowed() {
    let place = Place::embedded();
    let ttl = place.registry().await;
    ttl.create_index("c", index()).await.unwrap();
    place.insert("c", expired(0..1000)).await;
    let began = tokio::time::Instant::now();
    let report = ttl.sweep("c").rate(10.0).max_time(Duration::from_millis(2500)).await.unwrap();
    // A second's worth at once, at 0, 1 and 2 seconds.
    assert_eq!((report.deleted, report.batches, report.ended), (30, 3, Ended::LimitReached), "{report:?}");
    assert_eq!(began.elapsed(), Duration::from_millis(2500));
    let report = ttl.sweep("c").rate(0.001).max_time(Duration::from_secs(1)).await.unwrap();
    assert_eq!((report.deleted, report.batches, report.ended), (1, 1, Ended::LimitReached), "{report:?}");
}
