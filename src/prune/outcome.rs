//! What came of asking for a prune.

use std::time::Duration;

use mongodb::bson::DateTime;

use super::Retention;
use crate::{
    error::{Error, Refusal, Result},
    sweep::SweepReport,
};

/// What came of [`sweep_if_due`](crate::TtlRegistry::sweep_if_due).
#[derive(Debug)]
#[non_exhaustive]
pub enum Pruned {
    /// It was due, and this call swept: nobody else does in this interval.
    #[non_exhaustive]
    Swept {
        /// A pass for each collection, in the order in which they were swept; or why there was none.
        passes: Vec<CollectionPass>,
        /// Collections for which there was no time left. The next prune begins with the first of them.
        unvisited: Vec<String>,
        /// What became of the retentions that were handed over.
        retentions: Vec<AppliedRetention>,
    },
    /// Somebody has swept in this interval, or has claimed it and is sweeping.
    #[non_exhaustive]
    NotDue {
        /// When it is due next, by the database's clock.
        next: DateTime,
    },
    /// Somebody else was sweeping the database. The interval is not used up.
    #[non_exhaustive]
    HeldBy {
        /// Who.
        holder: String,
        /// What became of the retentions that were handed over.
        retentions: Vec<AppliedRetention>,
    },
}

impl Pruned {
    /// Whether there was something to sweep, and every collection was refused.
    pub(super) fn began_nothing(&self) -> bool {
        matches!(self, Pruned::Swept { passes, .. } if !passes.is_empty() && passes.iter().all(|it| it.pass.is_err()))
    }
}

/// What came of one collection.
#[derive(Debug)]
#[non_exhaustive]
pub struct CollectionPass {
    /// The collection.
    pub collection: String,
    /// How the pass went, or why there was none: the collection has no TTL index, say.
    pub pass: Result<SweepReport>,
}

/// What became of a retention that was handed over for a collection.
#[derive(Debug)]
#[non_exhaustive]
pub struct AppliedRetention {
    /// The collection.
    pub collection: String,
    /// The retention.
    pub retention: Retention,
    /// What became of it.
    pub outcome: RetentionOutcome,
}

/// What became of a retention.
#[derive(Debug)]
#[non_exhaustive]
pub enum RetentionOutcome {
    /// It was in force already.
    InForce,
    /// The TTL index was modified.
    #[non_exhaustive]
    Modified {
        /// The lifetime that was in force before; none if it could not be understood.
        before: Option<Duration>,
    },
    /// It is a fallback that would have shortened the lifetime in force. That stays, and the collection is swept by it.
    Refused(Refusal),
    /// It could not be applied. The collection is not swept this time: by the old lifetime something could go that the
    /// retention keeps.
    Failed(Error),
}
