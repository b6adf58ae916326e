//! A clock that tests hold.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use mongodb::bson::DateTime;
use tokio::time::Instant;

/// From one instant to another; none at all if that is earlier.
///
/// BSON's own subtraction overflows between the ends of its range.
pub(crate) fn between(earlier: DateTime, later: DateTime) -> Duration {
    let millis = i128::from(later.timestamp_millis()) - i128::from(earlier.timestamp_millis());
    Duration::from_millis(u64::try_from(millis.max(0)).unwrap_or(u64::MAX))
}

/// A clock that stands still until it is moved, or that ticks along with tokio's.
///
/// Hand it to [`EmbeddedStore::with_clock`](crate::EmbeddedStore::with_clock) to see in a moment what would take days.
/// Clones are the same clock.
///
/// ```
/// use std::time::Duration;
/// use ttl_index::{ManualClock, bson::DateTime};
///
/// let clock = ManualClock::at(DateTime::from_millis(0));
/// clock.advance(Duration::from_secs(86_400));
/// assert_eq!(clock.now(), DateTime::from_millis(86_400_000));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    millis: Arc<AtomicI64>,
    /// Since when it ticks, if it does.
    ticking: Option<Instant>,
}

impl ManualClock {
    /// A clock that shows this instant, and stands still.
    pub fn at(now: DateTime) -> Self {
        Self { millis: Arc::new(AtomicI64::new(now.timestamp_millis())), ticking: None }
    }

    /// A clock that shows this instant and goes on from there with tokio's clock, which tests can pause (tokio's feature
    /// `test-util`, `start_paused`): then hours pass in seconds. Most of them is spent on renewing the lease; with a
    /// [`lease_time`](crate::Sweeper::lease_time) of a day a sweeper runs through thousands of hours.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ttl_index::{ManualClock, bson::DateTime};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
    /// let clock = ManualClock::ticking_from(DateTime::from_millis(0));
    /// tokio::time::sleep(Duration::from_secs(3600)).await;
    /// assert_eq!(clock.now(), DateTime::from_millis(3_600_000));
    /// # });
    /// ```
    pub fn ticking_from(now: DateTime) -> Self {
        Self { ticking: Some(Instant::now()), ..Self::at(now) }
    }

    /// The instant it shows.
    pub fn now(&self) -> DateTime {
        DateTime::from_millis(self.millis.load(Ordering::SeqCst).saturating_add(self.ticked()))
    }

    fn ticked(&self) -> i64 {
        self.ticking.map_or(0, |since| i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    /// Moves it on; it stops at the end of time.
    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        let later = self.now().timestamp_millis().saturating_add(by);
        self.set(DateTime::from_millis(later));
    }

    /// Sets it, backwards too.
    pub fn set(&self, now: DateTime) {
        self.millis.store(now.timestamp_millis().saturating_sub(self.ticked()), Ordering::SeqCst);
    }
}
