//! The counts, as the program that holds the registry reads them.

use std::{collections::BTreeMap, time::Duration};

use mongodb::bson::DateTime;

use super::names::DELAY;

/// What was counted since the registry was opened; see [`TtlRegistry::counters`](crate::TtlRegistry::counters).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Counters {
    /// The name of the database; `embedded` for an embedded store.
    pub database: String,
    /// Of all TTL indexes together, those that were dropped meanwhile among them.
    pub total: Counts,
    /// Of each TTL index that anything happened to, by collection and name.
    pub indexes: Vec<IndexCounters>,
    /// How many TTL indexes are in each state, as the sweeper saw them last.
    pub states: BTreeMap<&'static str, usize>,
    /// Whether the sweeper of this process holds the lease.
    pub lease_held: bool,
    /// The latest term of the lease that is known.
    pub lease_term: i64,
    /// How fast the sweeper of this process goes; all 0, and nothing in the way, while it does not hold the lease.
    pub pace: PaceCounters,
    /// When the sweeper last ended a pass well, by the database's clock.
    pub last_success: Option<DateTime>,
}

/// How fast a database is swept; rates are documents a second, over all TTL indexes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PaceCounters {
    /// What is allowed now: as planned, unless something holds it back.
    pub rate: f64,
    /// What the plan wants now, within the limits.
    pub planned: f64,
    /// The highest rate that the plan will want within three target lags, without limits.
    pub peak: f64,
    /// How much later than the target lag the latest document will be gone; zero if all will be on time.
    pub lateness: Duration,
    /// The share of the planned rate that the database can take; 1 if nothing holds back.
    pub health_factor: f64,
}

impl Default for PaceCounters {
    fn default() -> Self {
        Self { rate: 0.0, planned: 0.0, peak: 0.0, lateness: Duration::ZERO, health_factor: 1.0 }
    }
}

/// What was counted of one TTL index.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct IndexCounters {
    /// The collection.
    pub collection: String,
    /// The name of the TTL index; empty if a request failed that named none.
    pub index: String,
    /// What happened.
    pub counts: Counts,
    /// For how long the oldest document had been due when it was last looked, not longer than there was the TTL index;
    /// none if nothing was due.
    pub oldest_due: Option<Duration>,
    /// Documents that are due, as far as the sweeper has counted them, without those that are known to be kept.
    pub backlog: u64,
    /// How often in a row its passes have failed.
    pub consecutive_failures: u64,
}

/// What happened; numbers here only grow.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Counts {
    /// Documents that were deleted.
    pub deleted: u64,
    /// Documents that were no longer due, or gone, when they were to be deleted.
    pub changed: u64,
    /// Documents that are gone after a delete whose reply was lost.
    pub uncertain: u64,
    /// Times that a document was still due and could not be deleted.
    pub left: u64,
    /// Times that a guard or a veto kept a document that was due.
    pub kept: u64,
    /// Times that the backend took a document for due and the rule did not.
    pub disputed: u64,
    /// Batches.
    pub batches: u64,
    /// How long they took together.
    pub batch_time: Duration,
    /// Passes, by how they ended.
    pub passes: BTreeMap<&'static str, u64>,
    /// Failures, by [`Error::kind`](crate::Error::kind) and MongoDB's code, if there was one.
    pub errors: BTreeMap<(&'static str, Option<i32>), u64>,
    /// How long after their expiry documents were deleted.
    pub delays: Delays,
}

/// How long after their expiry documents were deleted: a histogram.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Delays {
    /// How many documents.
    pub count: u64,
    /// Their delays together.
    pub sum: Duration,
    /// Documents by bucket; the last holds what is above every bound.
    counts: [u64; DELAY.buckets.len() + 1],
}

impl Delays {
    /// Each bound in seconds with the number of documents deleted within it, as Prometheus counts them; the last bound
    /// is infinite.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounds = DELAY.buckets.iter().copied().chain([f64::INFINITY]);
        bounds.zip(&self.counts).scan(0, |within, (bound, count)| {
            *within += count;
            Some((bound, *within))
        })
    }

    pub(super) fn record(&mut self, delay: Duration) {
        let seconds = delay.as_secs_f64();
        self.count += 1;
        self.sum = self.sum.saturating_add(delay);
        self.counts[DELAY.buckets.partition_point(|bound| *bound < seconds)] += 1;
    }
}

impl Counts {
    pub(super) fn add(&mut self, other: &Counts) {
        // Written out, so that a count that is added is not forgotten here.
        let Counts { deleted, changed, uncertain, left, kept, disputed, batches, batch_time, passes, errors, delays } =
            other;
        self.deleted += deleted;
        self.changed += changed;
        self.uncertain += uncertain;
        self.left += left;
        self.kept += kept;
        self.disputed += disputed;
        self.batches += batches;
        self.batch_time += *batch_time;
        for (ended, count) in passes {
            *self.passes.entry(ended).or_default() += count;
        }
        for (error, count) in errors {
            *self.errors.entry(*error).or_default() += count;
        }
        self.delays.count += delays.count;
        self.delays.sum = self.delays.sum.saturating_add(delays.sum);
        self.delays.counts.iter_mut().zip(delays.counts).for_each(|(sum, count)| *sum += count);
    }
}
