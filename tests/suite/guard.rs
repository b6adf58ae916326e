//! What keeps documents that are due: references, a hook, and dates that are moved on.

mod keeping;
mod many;
mod news;
mod odd;
#[cfg(feature = "cli")]
mod program;
mod race;
mod refusals;
mod sweeper;
mod touch;
mod veto;

use std::time::Duration;

use mongodb::{
    IndexModel,
    bson::{Bson, DateTime, Document, doc},
};
use ttl_index::{Reference, TtlIndex, TtlRegistry};

use crate::support::place::Place;

const OLD: DateTime = DateTime::from_millis(1_000);
const HOUR: Duration = Duration::from_secs(3600);

/// Articles whose date is in `at`.
fn articles() -> TtlIndex {
    TtlIndex::on("at").expire_after(Duration::ZERO)
}

fn due(id: impl Into<Bson>) -> Document {
    doc! { "_id": id.into(), "at": OLD }
}

fn likes() -> Reference {
    Reference::by("likes", "article_id")
}

fn reads() -> Reference {
    Reference::by("reads", "article_id").newer_than("readAt", HOUR)
}

/// What the guards demand of a collection of children, where they do.
async fn index_children(place: &Place, collections: &[&str]) {
    if let Place::Mongo(it) = place {
        for name in collections {
            let index = IndexModel::builder().keys(doc! { "article_id": 1 }).build();
            it.db.collection::<Document>(name).create_index(index).await.unwrap();
        }
    }
}

/// So long before now, by the database's clock; after it, if that is negative.
async fn before_now(ttl: &TtlRegistry, seconds: i64) -> DateTime {
    DateTime::from_millis(ttl.now().await.unwrap().timestamp_millis() - 1000 * seconds)
}

/// The `_id`s that are left, where they are small numbers.
async fn ids(place: &Place, collection: &str) -> Vec<i32> {
    let documents = place.documents(collection).await;
    let mut ids: Vec<i32> = documents.iter().map(|document| document.get_i32("_id").unwrap()).collect();
    ids.sort_unstable();
    ids
}
