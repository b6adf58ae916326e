//! The planned rate of the background sweeper: what it promises, in virtual time on the embedded store where that will do.

mod congestion;
mod cost;
mod deadlines;
mod fairness;
mod impossible;
mod windows;

use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use tokio::time::{Instant, sleep, sleep_until};
use ttl_index::{EmbeddedStore, IntoStore, ManualClock, PaceStatus, Sweeper, SweeperHandle, TtlIndex, TtlRegistry};

/// Midnight in UTC, on a Thursday.
const MIDNIGHT: i64 = 1_767_225_600_000;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// An embedded store whose clock goes along with tokio's, which must be paused. It begins at midnight.
struct Scene {
    store: EmbeddedStore,
    ttl: TtlRegistry,
    began: Instant,
}

impl Scene {
    /// With a TTL index on `t` of each of these collections, in force from the beginning.
    async fn with(collections: &[&str]) -> Scene {
        Scene::on(collections, |store| store).await
    }

    /// The same behind another store.
    async fn on<S: IntoStore>(collections: &[&str], wrapped: impl FnOnce(EmbeddedStore) -> S) -> Scene {
        let clock = ManualClock::ticking_from(DateTime::from_millis(MIDNIGHT));
        let began = Instant::now();
        let store = EmbeddedStore::in_memory().unwrap().with_clock(clock);
        let ttl = TtlRegistry::open(wrapped(store.clone())).await.unwrap();
        for name in collections {
            ttl.create_index(*name, TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
        }
        Scene { store, ttl, began }
    }

    /// Documents that are due since long ago, so since the rule is in force.
    async fn overdue(&self, collection: &str, documents: u32) {
        self.insert(collection, documents, |_| 0.0).await;
    }

    /// Documents with dates evenly between two instants, in seconds from the beginning.
    async fn spread(&self, collection: &str, documents: u32, (from, until): (f64, f64)) {
        let step = (until - from) / f64::from(documents);
        self.insert(collection, documents, |n| from + step * f64::from(n)).await;
    }

    async fn insert(&self, collection: &str, documents: u32, at: impl Fn(u32) -> f64) {
        #[allow(clippy::cast_possible_truncation)] // some minutes
        let document = |n| doc! { "t": DateTime::from_millis(MIDNIGHT + (at(n) * 1000.0) as i64) };
        let all: Vec<Document> = (0..documents).map(document).collect();
        self.store.collection(collection).insert_many(all).await.unwrap();
    }

    /// A sweeper that plans by this lag, and has no floor that would hide the plan.
    fn sweeper(&self, lag: Duration) -> Sweeper {
        Sweeper::new(self.ttl.clone()).target_lag(lag).min_rate(0.0)
    }

    /// Seconds from the beginning.
    fn time(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    async fn until(&self, seconds: f64) {
        sleep_until(self.began + Duration::from_secs_f64(seconds)).await;
    }

    fn deleted(&self, collection: &str) -> u64 {
        let counters = self.ttl.counters();
        counters.indexes.iter().filter(|index| index.collection == collection).map(|index| index.counts.deleted).sum()
    }

    /// Watches until so many documents of a collection are gone, or until this second.
    async fn course(&self, collection: &str, documents: u64, limit: f64) -> Course {
        let mut course = Course(Vec::new());
        loop {
            let deleted = self.deleted(collection);
            course.0.push((self.time(), deleted));
            if deleted >= documents || self.time() >= limit {
                return course;
            }
            sleep(Duration::from_millis(500)).await;
        }
    }
}

/// After how many seconds how many documents were gone.
struct Course(Vec<(f64, u64)>);

impl Course {
    /// How many were gone at a time.
    fn at(&self, second: f64) -> u64 {
        self.0.iter().take_while(|(at, _)| *at <= second).last().map_or(0, |(_, deleted)| *deleted)
    }

    fn rate(&self, from: f64, until: f64) -> f64 {
        #[allow(clippy::cast_precision_loss)] // some thousands
        let documents = (self.at(until) - self.at(from)) as f64;
        documents / (until - from)
    }

    /// That in every window of this many seconds between two instants the rate was this one, give or take a share.
    #[track_caller]
    fn assert_even(&self, (from, until): (f64, f64), window: f64, rate: f64, tolerance: f64) {
        let mut start = from;
        while start + window <= until {
            let actual = self.rate(start, start + window);
            let fits = (actual / rate - 1.0).abs() <= tolerance;
            assert!(fits, "{actual} a second from second {start} on, instead of {rate}: {self:?}");
            start += window;
        }
    }

    /// When so many were gone.
    #[track_caller]
    fn gone(&self, documents: u64) -> f64 {
        let gone = self.0.iter().find(|(_, deleted)| *deleted >= documents);
        gone.unwrap_or_else(|| panic!("{documents} were never gone: {self:?}")).0
    }
}

impl std::fmt::Debug for Course {
    /// Every thirty seconds is enough to be read.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut next = 0.0;
        let seldom = self.0.iter().filter(|(at, _)| {
            let take = *at >= next;
            next += if take { 30.0 } else { 0.0 };
            take
        });
        f.debug_list().entries(seldom.chain(self.0.last())).finish()
    }
}

fn pace(sweeper: &SweeperHandle) -> PaceStatus {
    sweeper.status().pace.expect("it sweeps")
}

#[track_caller]
fn assert_near(what: &str, actual: f64, expected: f64, tolerance: f64) {
    assert!((actual / expected - 1.0).abs() <= tolerance, "{what}: {actual} instead of {expected}");
}
