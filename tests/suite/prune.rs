//! Pruning without cron: who prunes, when, and what of it is seen from outside.

mod applied;
mod beside;
mod crash;
mod due;
mod many;
#[cfg(feature = "cli")]
mod service;
mod worker;

use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use ttl_index::{CollectionPass, EmbeddedStore, Ended, ManualClock, Pruned, TtlIndex, TtlRegistry};

use crate::support::{TestDatabase, database, place::Place};

const HOUR: Duration = Duration::from_secs(3600);
const HOUR_MS: i64 = 3_600_000;

fn index() -> TtlIndex {
    TtlIndex::on("t").expire_after(Duration::ZERO)
}

fn expired(ids: std::ops::Range<i32>) -> Vec<Document> {
    ids.map(|id| doc! { "_id": id, "t": DateTime::from_millis(i64::from(id)) }).collect()
}

/// A store whose intervals pass when the test says so.
struct Timed {
    place: Place,
    clock: ManualClock,
}

impl Timed {
    async fn all() -> [Timed; 2] {
        let clock = ManualClock::at(DateTime::from_millis(1_767_225_600_000));
        let embedded = EmbeddedStore::in_memory().unwrap().with_clock(clock.clone());
        [Place::Embedded(embedded), Place::Mongo(database().await)].map(|place| Timed { place, clock: clock.clone() })
    }

    /// As in another process, which remembers nothing.
    async fn registry(&self) -> TtlRegistry {
        self.place.registry().await
    }

    /// So many milliseconds pass since the last claim; less than none if the clock was set back.
    async fn pass(&self, millis: i64) {
        match &self.place {
            Place::Embedded(_) => {
                self.clock.set(DateTime::from_millis(self.clock.now().timestamp_millis() + millis));
            }
            Place::Mongo(it) => move_claim(it, "all", millis).await,
        }
    }
}

/// Has the last claim be so much older than it was.
async fn move_claim(it: &TestDatabase, id: &str, millis: i64) {
    let records = it.db.collection::<Document>("ttl_index.prunes");
    let claimed = *records.find_one(doc! { "_id": id }).await.unwrap().unwrap().get_datetime("claimedAt").unwrap();
    let before = DateTime::from_millis(claimed.timestamp_millis() - millis);
    records.update_one(doc! { "_id": id }, doc! { "$set": { "claimedAt": before } }).await.unwrap();
}

/// What was deleted in which collection, of a prune that swept; an error's code in the place of a pass.
#[track_caller]
fn swept(pruned: Pruned) -> Vec<(String, Result<(u64, Ended), i32>)> {
    let Pruned::Swept { passes, .. } = pruned else { panic!("not swept: {pruned:?}") };
    let row = |CollectionPass { collection, pass, .. }| {
        let came_to = pass.map(|report| (report.deleted, report.ended)).map_err(|error| error.code().unwrap());
        (collection, came_to)
    };
    passes.into_iter().map(row).collect()
}

fn drained(collection: &str, deleted: u64) -> (String, Result<(u64, Ended), i32>) {
    (collection.to_owned(), Ok((deleted, Ended::Drained)))
}

fn is_not_due(pruned: &Pruned) -> bool {
    matches!(pruned, Pruned::NotDue { .. })
}
