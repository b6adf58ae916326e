//! More kept documents than a pass remembers do not hold up those behind them.

use mongodb::bson::{DateTime, doc};
use ttl_index::{EmbeddedStore, Ended, TtlRegistry};

use super::{OLD, articles, index_children, likes};
use crate::{
    race::Setting,
    support::{database, place::Place},
};

/// All at one instant.
const KEPT: i32 = 12_000;

async fn are_passed_by(setting: Setting) {
    let (what, place) = (setting.describe(), &setting.place);
    let ttl = match &**place {
        Place::Mongo(it) => TtlRegistry::open(setting.mongo_store(it.db.clone())).await.unwrap(),
        Place::Embedded(store) => TtlRegistry::open(store.clone()).await.unwrap(),
    };
    index_children(place, &["likes"]).await;
    ttl.create_index("articles", articles().keep_while(likes())).await.unwrap();
    place.insert("articles", (0..KEPT).map(|id| doc! { "_id": id, "at": OLD }).collect()).await;
    let behind = DateTime::from_millis(OLD.timestamp_millis() + 1);
    place.insert("articles", (KEPT..KEPT + 10).map(|id| doc! { "_id": id, "at": behind }).collect()).await;
    let likes = (0..KEPT / 1000).map(|k| doc! { "article_id": (1000 * k..1000 * (k + 1)).collect::<Vec<i32>>() });
    place.insert("likes", likes.collect()).await;
    for deleted in [10, 0] {
        let report = ttl.sweep("articles").await.unwrap();
        assert_eq!(
            (report.ended, report.deleted, report.kept),
            (Ended::Drained, deleted, 12_000),
            "{what}: {report:?}"
        );
        assert_eq!(report.oldest_due, None, "{what}");
    }
    assert_eq!(place.count("articles").await, 12_000, "{what}");
}

#[tokio::test]
async fn thousands_at_one_instant_are_passed_by_on_mongodb() {
    are_passed_by(Setting { place: Place::Mongo(database().await).into(), portable: false, supporting: true }).await;
}

#[tokio::test]
async fn thousands_at_one_instant_are_passed_by_with_the_portable_subset() {
    are_passed_by(Setting { place: Place::Mongo(database().await).into(), portable: true, supporting: true }).await;
}

#[tokio::test]
async fn thousands_at_one_instant_are_passed_by_in_the_embedded_store() {
    let place = Place::Embedded(EmbeddedStore::in_memory().unwrap());
    are_passed_by(Setting { place: place.into(), portable: false, supporting: true }).await;
}
