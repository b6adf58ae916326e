//! The background sweeper on both stores: on the embedded one with tokio's clock paused, on a real server in real time.

#[cfg(feature = "cli")]
mod confirmed;
mod drift;
mod fair;
mod handover;
mod idle;
mod ledger;
mod life;
#[cfg(feature = "cli")]
mod process;
#[cfg(feature = "cli")]
mod processes;
#[cfg(feature = "cli")]
mod takeover;

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use tokio::time::Instant;
use ttl_index::{EmbeddedStore, ManualClock, Sweeper, SweeperHandle, TtlIndex, TtlRegistry};

use crate::support::place::Place;
use crate::support::{database, wait};

/// A store with a sweeper's pace that suits it.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) place: Arc<Place>,
    /// How often an index is visited.
    pub(crate) interval: Duration,
    pub(crate) lease_time: Duration,
}

impl Stage {
    /// The embedded store, whose clock goes along with tokio's, which must be paused.
    pub(crate) fn embedded() -> Stage {
        let clock = ManualClock::ticking_from(DateTime::from_millis(1_767_225_600_000));
        let store = EmbeddedStore::in_memory().unwrap().with_clock(clock);
        let hour = Duration::from_secs(3600);
        Stage { place: Arc::new(Place::Embedded(store)), interval: hour, lease_time: hour }
    }

    pub(crate) async fn mongod() -> Stage {
        let (interval, lease_time) = (Duration::from_millis(500), Duration::from_secs(3));
        Stage { place: Arc::new(Place::Mongo(database().await)), interval, lease_time }
    }

    pub(crate) async fn registry(&self) -> TtlRegistry {
        self.place.registry().await
    }

    pub(crate) async fn sweeper(&self, name: &str) -> Sweeper {
        let registry = self.registry().await;
        Sweeper::new(registry).interval(self.interval).lease_time(self.lease_time).name(name)
    }

    pub(crate) async fn start(&self, name: &str) -> SweeperHandle {
        self.sweeper(name).await.start().unwrap()
    }

    /// Waits by this store's clock.
    pub(crate) async fn until(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        match &*self.place {
            Place::Mongo(_) => wait::until(what, wait::LONG, condition).await,
            Place::Embedded(_) => {
                let began = Instant::now();
                while !condition().await {
                    assert!(began.elapsed() < 100 * self.interval, "waited in vain for {what}");
                    tokio::time::sleep(self.interval / 20).await;
                }
            }
        }
    }

    /// A document that expires so many intervals from now; before now if that is negative.
    pub(crate) async fn document(&self, id: i32, intervals: i32) -> Document {
        let now = self.registry().await.now().await.unwrap().timestamp_millis();
        let interval = i64::try_from(self.interval.as_millis()).unwrap();
        doc! { "_id": id, "t": DateTime::from_millis(now + i64::from(intervals) * interval) }
    }
}

pub(crate) fn index() -> TtlIndex {
    TtlIndex::on("t").expire_after(Duration::ZERO)
}

/// Each test of the sweeper is one function, run on both.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name(crate::sweeper::Stage::embedded()).await;
            })*
        }
        mod mongod {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(crate::sweeper::Stage::mongod().await).await;
            })*
        }
    };
}
pub(crate) use on_both;
