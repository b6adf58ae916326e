//! A clock that tests hold.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use mongodb::bson::DateTime;

/// From one instant to another; none at all if that is earlier.
///
/// BSON's own subtraction overflows between the ends of its range.
pub(crate) fn between(earlier: DateTime, later: DateTime) -> Duration {
    let millis = i128::from(later.timestamp_millis()) - i128::from(earlier.timestamp_millis());
    Duration::from_millis(u64::try_from(millis.max(0)).unwrap_or(u64::MAX))
}

/// A clock that stands still until it is moved.
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
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock that shows this instant.
    pub fn at(now: DateTime) -> Self {
        Self(Arc::new(AtomicI64::new(now.timestamp_millis())))
    }

    /// The instant it shows.
    pub fn now(&self) -> DateTime {
        DateTime::from_millis(self.0.load(Ordering::SeqCst))
    }

    /// Moves it on; it stops at the end of time.
    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        let later = self.now().timestamp_millis().saturating_add(by);
        self.set(DateTime::from_millis(later));
    }

    /// Sets it, backwards too.
    pub fn set(&self, now: DateTime) {
        self.0.store(now.timestamp_millis(), Ordering::SeqCst);
    }
}
