//! What an operator wants of the pace.

use std::time::Duration;

use super::Calendar;
use crate::{
    entry::{check_max_rate, check_target_lag},
    error::{Code, Refusal},
};

/// What is in force for a database.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Terms {
    /// Within which a document shall be gone that is due.
    pub(crate) target_lag: Duration,
    /// The most documents a second.
    pub(crate) max_rate: f64,
    /// Below which nothing is gained by going slower; if it is above `max_rate`, that one holds.
    pub(crate) min_rate: f64,
    /// When nothing is deleted.
    pub(crate) closed: Calendar,
}

impl Default for Terms {
    fn default() -> Self {
        let target_lag = Duration::from_secs(86_400);
        Self { target_lag, max_rate: 1000.0, min_rate: 50.0, closed: Calendar::default() }
    }
}

impl Terms {
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        check_target_lag(self.target_lag)?;
        check_max_rate(self.max_rate)?;
        check_min_rate(self.min_rate)?;
        self.closed.check()
    }
}

pub(crate) fn check_min_rate(rate: f64) -> Result<(), Refusal> {
    if rate.is_finite() && rate >= 0.0 {
        return Ok(());
    }
    Err(Refusal::new(Code::BadValue, format!("the lowest rate must be 0 or a number above, but got {rate}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_out_of_range_are_refused_by_name() {
        let default = Terms::default;
        assert_eq!(default().check(), Ok(()));
        // A floor above the ceiling is one that never holds.
        assert_eq!(Terms { min_rate: f64::MAX, ..default() }.check(), Ok(()));
        let closed = Calendar::from(vec!["00:00-24:00".parse().unwrap()]);
        let mut refused = vec![(Terms { closed, ..default() }, "closed windows")];
        for rate in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
            refused.push((Terms { max_rate: rate, ..default() }, "the rate must"));
            refused.push((Terms { min_rate: rate, ..default() }, "the lowest rate must"));
        }
        refused.push((Terms { max_rate: 0.0, ..default() }, "the rate must"));
        for lag in [Duration::ZERO, Duration::from_millis(999), Duration::from_secs(367 * 86_400), Duration::MAX] {
            refused.push((Terms { target_lag: lag, ..default() }, "the target lag must"));
        }
        for (terms, words) in refused {
            let refusal = terms.check().unwrap_err();
            assert!(refusal.code() == Code::BadValue && refusal.message().contains(words), "{refusal}");
        }
    }
}
