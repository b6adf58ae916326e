//! The service played in virtual time on a load that is written down.
//!
//! | file | concern |
//! |---|---|
//! | [`load`] | the documents: which are due, which are gone |
//! | [`play`] | the loop: what is planned is done, what is asked is counted |
//! | [`tally`] | what is taken down, minute by minute |

mod load;
mod play;
mod tally;

use std::time::Duration;

use mongodb::bson::DateTime;

use self::load::{Micros, SECOND, seconds};
use super::{
    ClosedWindow, Open, Shortfall, Terms,
    optimum::{Work, lowest_peak},
    trace::Trace,
};
use crate::error::{Code, Refusal, Result};

/// Second 0 of a trace: a Monday, at midnight UTC.
const BEGIN: i64 = 1_704_067_200_000;

/// How long it goes on after the last deadline if documents are left: so many times the target lag, and a day at least.
const LATEST: i64 = 10;
const DAY: Micros = 86_400 * SECOND;

/// A [`Trace`] played in virtual time: the forecast, plan and service of a [`Sweeper`](crate::Sweeper), on a database that
/// takes no time of its own.
///
/// # Guarantees
///
/// The same options give the same result. Nothing is read or written, and no time is waited for. Second 0 is a Monday,
/// midnight UTC, which matters for closed windows.
///
/// # Errors
///
/// Refused if an option is out of range.
#[derive(Clone, Debug)]
#[must_use = "nothing is simulated until it is run"]
pub struct Simulate<'a> {
    trace: &'a Trace,
    terms: Terms,
    forecast_scale: f64,
}

/// How it went, by [`Simulate::run`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Simulation {
    /// Each minute, until everything was gone.
    pub minutes: Vec<Minute>,
    /// All of it.
    pub summary: Summary,
}

/// How it went in a minute.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Minute {
    /// Its end, in seconds since the rule came into force.
    pub t: u64,
    /// Documents deleted in it, a second.
    pub rate: f64,
    /// Documents deleted by its end, since the beginning.
    pub deleted: u64,
    /// Documents that were due at its end, and there.
    pub backlog: u64,
    /// How many seconds the oldest of them had been due; 0 if there was none.
    pub oldest_age: u64,
}

/// How all of it went.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// Documents of the trace.
    pub documents: u64,
    /// The most documents that were deleted within a second, wherever that began. A batch counts as spread evenly over the
    /// time that it stands for.
    pub peak: f64,
    /// Documents deleted later than the target lag after they were due, to the microsecond; and those that were left when it
    /// was given up, 10 times the target lag after the last deadline and no sooner than a day after it.
    pub late: u64,
    /// How many seconds the oldest document had been due when it was deleted, or given up.
    pub max_age: u64,
    /// The lowest peak that would have been possible with everything known in advance and without a `max_rate`; none if
    /// closed windows leave some document no time.
    pub optimum_peak: Option<f64>,
    /// When everything was gone, since the rule came into force; none if that was not seen.
    pub finished: Option<Duration>,
    /// What the planner told when it found the deadlines impossible to meet: the worst that it told before a document was
    /// late; none if it found them possible until then.
    pub impossible: Option<Shortfall>,
}

impl Trace {
    /// Plays the service on it in virtual time.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let trace = ttl_index::Trace::parse("0,1000000\n".as_bytes())?;
    /// let summary = trace.simulate().target_lag(Duration::from_secs(7200)).run()?.summary;
    /// assert_eq!(summary.late, 0);
    /// assert!(summary.peak < 1.02 * 1_000_000.0 / 7200.0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn simulate(&self) -> Simulate<'_> {
        Simulate { trace: self, terms: Terms::default(), forecast_scale: 1.0 }
    }
}

impl Simulate<'_> {
    /// Within which a document shall be gone that is due; 24 h by default.
    pub fn target_lag(mut self, lag: Duration) -> Self {
        self.terms.target_lag = lag;
        self
    }

    /// The most documents a second, above 0; 1,000 by default.
    pub fn max_rate(mut self, documents_per_second: f64) -> Self {
        self.terms.max_rate = documents_per_second;
        self
    }

    /// The least documents a second while anything is due; 50 by default.
    pub fn min_rate(mut self, documents_per_second: f64) -> Self {
        self.terms.min_rate = documents_per_second;
        self
    }

    /// Nothing is deleted in this window, in addition to others; none by default.
    pub fn closed(mut self, window: ClosedWindow) -> Self {
        self.terms.closed.close(window);
        self
    }

    /// How many documents are foreseen for each one that will expire, 0 to 1,000, to see what a wrong forecast does; 1 by
    /// default. What is due is counted right all the same.
    pub fn forecast_scale(mut self, scale: f64) -> Self {
        self.forecast_scale = scale;
        self
    }

    /// Plays it to the end.
    pub fn run(self) -> Result<Simulation> {
        self.terms.check()?;
        if !(0.0..=1000.0).contains(&self.forecast_scale) {
            let what = format!("the forecast can be scaled by 0 to 1000, but not by {}", self.forecast_scale);
            return Err(Refusal::new(Code::BadValue, what).into());
        }
        let lag = micros(self.terms.target_lag);
        let last = self.trace.cohorts().last().map_or(0, |(date, _)| date.max(&0) * SECOND);
        let until = last + lag.saturating_mul(LATEST).max(DAY);
        let optimum_peak = self.optimum(until);
        let play::Played { load, mut tally, end, shortfall } = play::play(self, until);
        tally.end(&load, end);
        let summary = Summary {
            documents: load.total(),
            peak: tally.peak.highest,
            late: tally.late,
            max_age: seconds(tally.max_age),
            optimum_peak,
            finished: (load.deleted() == load.total()).then(|| Duration::from_micros(end.unsigned_abs())),
            impossible: shortfall,
        };
        Ok(Simulation { minutes: tally.minutes, summary })
    }

    /// The lowest peak that is possible.
    fn optimum(&self, until: Micros) -> Option<f64> {
        let lag = i64::try_from(self.terms.target_lag.as_millis()).unwrap_or(i64::MAX);
        let begin = date(0);
        let open = Open::new(self.terms.closed.open_between(begin, date(until)));
        let piece = |&(date, documents): &(i64, u64)| {
            let due = BEGIN + date.max(0) * 1000;
            #[allow(clippy::cast_precision_loss)] // below 2^53
            Work {
                release: open.seconds(begin, DateTime::from_millis(due)),
                deadline: open.seconds(begin, DateTime::from_millis(due.saturating_add(lag))),
                documents: documents as f64,
            }
        };
        let work: Vec<Work> = self.trace.cohorts().iter().map(piece).collect();
        Some(lowest_peak(&work)).filter(|peak| peak.is_finite())
    }
}

/// An instant on the calendar.
fn date(at: Micros) -> DateTime {
    DateTime::from_millis(BEGIN.saturating_add(at / 1000))
}

fn micros(time: Duration) -> Micros {
    Micros::try_from(time.as_micros()).unwrap_or(Micros::MAX / 100)
}
