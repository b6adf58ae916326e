//! The rate curve with the lowest peak that still meets every deadline. Pure.
//!
//! What can be deleted by some time and what must be deleted by then are two stairs; the plan is the string between them,
//! pulled taut. It is straight as long as possible, bends up only where nothing is left to be deleted, and down only where a
//! deadline was met. Of all curves between the stairs it has the lowest peak.

mod string;

use std::time::Duration;

use mongodb::bson::DateTime;

use self::string::{Job, Stairs};
use super::{cohort::Cohort, open::Open};

/// A part of the plan with one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Segment {
    pub(crate) from: DateTime,
    pub(crate) until: DateTime,
    /// Documents a second, while sweeping is not closed.
    pub(crate) rate: f64,
}

/// What must be done, and until when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Documents a second from now on.
    pub(crate) rate: f64,
    pub(crate) curve: Vec<Segment>,
    /// The highest rate of the curve.
    pub(crate) peak: f64,
    /// Whether some of them have to go so soon that the rate is not lowered before they have.
    pub(crate) at_hand: bool,
}

/// How late documents will be gone, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Shortfall {
    /// Documents a second that are allowed.
    pub allowed: f64,
    /// Documents a second that it would take for all to be on time. If that is not more than is allowed, they are late
    /// already, or sweeping is closed for too long.
    pub needed: f64,
    /// How much later than the target lag the latest of them will be gone.
    pub late: Duration,
}

/// What is planned for: instants as seconds of open time from now.
pub(crate) struct Demand<'a> {
    now: DateTime,
    open: &'a Open,
    stairs: Stairs,
    at_hand: bool,
    grace: f64,
}

impl<'a> Demand<'a> {
    /// Of these documents. `grace` is how much later than its deadline a cohort may still be gone, so that the last second
    /// before it is not one of endless speed; `late` is within which what is later still shall be gone.
    pub(crate) fn new(
        now: DateTime,
        cohorts: impl IntoIterator<Item = Cohort>,
        open: &'a Open,
        (grace, late): (Duration, Duration),
    ) -> Self {
        let (grace, late) = (grace.as_secs_f64().max(1e-3), late.as_secs_f64().max(1e-3));
        let mut stairs = Stairs::default();
        let mut at_hand = false;
        for Cohort { release, deadline, documents } in cohorts {
            if !(documents > 0.0 && documents.is_finite()) {
                continue;
            }
            let release = open.seconds(now, release);
            // The last moment, and not one in which sweeping is closed.
            let end = open.seconds(now, seconds_after(deadline, grace));
            let left = open.seconds(now, deadline).min(end - grace);
            let promised = seconds_between(now, deadline);
            let least = if promised < -grace { late } else { grace };
            at_hand |= release <= 0.0 && left < grace;
            stairs.add(Job { release, deadline: left.max(release + least), work: documents, promised });
        }
        stairs.sort();
        Self { now, open, stairs, at_hand, grace }
    }

    /// The whole curve.
    pub(crate) fn plan(&self) -> Plan {
        let (mut from, mut curve) = (0.0, Vec::new());
        for (until, rate) in self.stairs.taut() {
            curve.push(Segment { from: self.at(from), until: self.at(until), rate });
            from = until;
        }
        let rate = curve.first().map_or(0.0, |first: &Segment| first.rate);
        Plan { rate, peak: self.stairs.peak(), curve, at_hand: self.at_hand }
    }

    /// When what is due now is gone, if the plan is kept to and the rate is never below `floor` nor above `allowed`; none if
    /// nothing is due.
    pub(crate) fn finish(&self, floor: f64, allowed: f64) -> Option<DateTime> {
        let (mut left, mut from) = (self.stairs.due(), 0.0);
        if left <= 0.0 {
            return None;
        }
        let rest = (f64::INFINITY, allowed);
        for (until, rate) in self.stairs.taut().into_iter().chain([rest]) {
            let rate = rate.max(floor).min(allowed);
            let gone = rate * (until - from);
            if gone >= left * (1.0 - 1e-9) {
                return Some(self.at(from + left / rate));
            }
            (left, from) = (left - gone, until);
        }
        None
    }

    /// How late documents will be gone if no more than this is allowed; none if all are on time.
    pub(crate) fn shortfall(&self, allowed: f64) -> Option<Shortfall> {
        let late = |(job, end): &(Job, f64)| seconds_between(self.now, self.at(*end)) - job.promised - self.grace;
        let late = self.stairs.completions(allowed).iter().map(late).fold(f64::NEG_INFINITY, f64::max);
        let late = Duration::try_from_secs_f64(late).ok().filter(|late| late.as_secs_f64() > self.grace / 1000.0)?;
        Some(Shortfall { allowed, needed: self.stairs.peak(), late })
    }

    /// The same documents, with the deadlines that can be met if no more than this is allowed.
    pub(crate) fn within(&self, allowed: f64) -> Vec<Cohort> {
        let cohort = |(job, end): (Job, f64)| Cohort {
            release: self.at(job.release),
            deadline: seconds_after(self.now, job.promised).max(self.at(end)),
            documents: job.work,
        };
        self.stairs.completions(allowed).into_iter().map(cohort).collect()
    }

    fn at(&self, seconds: f64) -> DateTime {
        self.open.instant(self.now, seconds)
    }
}

/// From one instant to another, negative if that is earlier.
pub(super) fn seconds_between(from: DateTime, until: DateTime) -> f64 {
    #[allow(clippy::cast_precision_loss)] // thousands of years are known to the second
    let millis = (i128::from(until.timestamp_millis()) - i128::from(from.timestamp_millis())) as f64;
    millis / 1000.0
}

/// So much later.
pub(super) fn seconds_after(from: DateTime, seconds: f64) -> DateTime {
    #[allow(clippy::cast_possible_truncation)] // saturates
    let millis = (seconds * 1000.0).ceil() as i64;
    DateTime::from_millis(from.timestamp_millis().saturating_add(millis))
}

#[cfg(test)]
mod tests;
