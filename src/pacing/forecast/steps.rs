//! The steps of time, as fractions of the target lag.

use std::time::Duration;

/// In milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Steps {
    pub(super) lag: i64,
    /// How much time is counted as one.
    pub(super) slice: i64,
    /// How far ahead is counted.
    pub(super) horizon: i64,
    /// How often what came due is counted.
    pub(super) newly: i64,
    /// How often what lies ahead is counted.
    pub(super) refresh: i64,
    /// How often where nothing was found.
    pub(super) rest: i64,
}

impl Steps {
    pub(super) fn of(lag: Duration) -> Self {
        // Far below the end of the range, so that sums of them stay within it.
        let lag = i64::try_from(lag.as_millis()).unwrap_or(i64::MAX).clamp(1, i64::MAX / 16);
        let refresh = (lag / 24).clamp(2_000, 3_600_000);
        Self {
            lag,
            slice: (lag / 240).max(1),
            horizon: 3 * lag,
            newly: (lag / 288).clamp(500, 300_000),
            refresh,
            rest: lag.clamp(refresh, 3_600_000),
        }
    }

    /// The first date of the slice that a date is in.
    pub(super) fn start(self, date: i64) -> i64 {
        date.div_euclid(self.slice).saturating_mul(self.slice)
    }

    /// The last one.
    pub(super) fn end(self, date: i64) -> i64 {
        let next = (i128::from(date.div_euclid(self.slice)) + 1) * i128::from(self.slice);
        i64::try_from(next - 1).unwrap_or(i64::MAX)
    }

    /// The end of the last slice that is over at a date; none if it lies before all dates.
    pub(super) fn ended(self, date: i64) -> Option<i64> {
        if self.end(date) == date {
            return Some(date);
        }
        let end = i128::from(date.div_euclid(self.slice)) * i128::from(self.slice) - 1;
        i64::try_from(end).ok()
    }
}
