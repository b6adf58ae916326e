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
