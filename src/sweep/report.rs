//! How a pass ended, and what it did.

use std::fmt;

use mongodb::bson::DateTime;

use crate::{entry::Entry, error::Error};

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ended {
    /// Everything that was due was looked at.
    Drained,
    /// A limit on batches or time was reached, and more is due.
    LimitReached,
    /// It was asked to stop, or the TTL index was changed or dropped meanwhile.
    Cancelled,
    /// Sweeping is paused; see [`pause`](crate::TtlRegistry::pause).
    Paused,
    /// The right to sweep this database was lost: it could not be renewed in time.
    LeaseLost,
    /// Something went wrong.
    Failed,
}

impl Ended {
    /// As in reports: `drained`, `limit_reached`, `cancelled`, `paused`, `lease_lost` or `failed`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Ended::Drained => "drained",
            Ended::LimitReached => "limit_reached",
            Ended::Cancelled => "cancelled",
            Ended::Paused => "paused",
            Ended::LeaseLost => "lease_lost",
            Ended::Failed => "failed",
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a pass has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Documents that were due when they were found; each is deleted, changed, uncertain, left or kept.
    pub found: u64,
    /// Documents that were deleted.
    pub deleted: u64,
    /// Documents that were no longer due, or gone, when they were to be deleted.
    pub changed: u64,
    /// Documents that are gone after a delete whose reply was lost: deleted by this pass, most likely.
    pub uncertain: u64,
    /// Documents that are still due and could not be deleted.
    pub left: u64,
    /// Documents that are due and that a guard or a veto keeps.
    pub kept: u64,
    /// Documents that the backend took for due and the rule does not. They are kept.
    pub disputed: u64,
    /// Batches, empty ones left out.
    pub batches: u64,
}

/// How a pass went.
///
/// `found` is the sum of `deleted`, `changed`, `uncertain`, `left` and `kept`.
#[derive(Debug)]
#[non_exhaustive]
pub struct SweepReport {
    /// The collection.
    pub collection: String,
    /// The name of the TTL index.
    pub index: String,
    /// The latest date that was due, fixed once for the pass.
    pub cutoff: DateTime,
    /// Documents that were due when they were found; each is deleted, changed, uncertain, left or kept.
    pub found: u64,
    /// Documents that were deleted.
    pub deleted: u64,
    /// Documents that were no longer due, or gone, when they were to be deleted.
    pub changed: u64,
    /// Documents that are gone after a delete whose reply was lost: deleted by this pass, most likely.
    pub uncertain: u64,
    /// Documents that are still due and could not be deleted.
    pub left: u64,
    /// Documents that are due and that a guard or a veto keeps; they leave `oldest_due`.
    pub kept: u64,
    /// Documents that the backend took for due and the rule does not. They are kept.
    pub disputed: u64,
    /// Batches, empty ones left out.
    pub batches: u64,
    /// How it ended.
    pub ended: Ended,
    /// When the oldest document expired of those found still due at the end. Exact where the backend walks an index in
    /// order; elsewhere the oldest that was seen.
    pub oldest_due: Option<DateTime>,
    /// What went wrong, or why it was cancelled.
    pub error: Option<Error>,
    /// When the next document expires, on stores that can tell at no cost.
    pub(crate) next_expiry: Option<DateTime>,
}

impl SweepReport {
    /// Of a pass that was stopped before it began.
    pub(super) fn unbegun(entry: &Entry, now: DateTime) -> Self {
        Self {
            collection: entry.definition.collection.to_string(),
            index: entry.definition.name.clone(),
            cutoff: entry.rule.cutoff(now).unwrap_or(DateTime::MIN),
            found: 0,
            deleted: 0,
            changed: 0,
            uncertain: 0,
            left: 0,
            kept: 0,
            disputed: 0,
            batches: 0,
            ended: Ended::Cancelled,
            oldest_due: None,
            error: None,
            next_expiry: None,
        }
    }
}
