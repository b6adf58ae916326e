//! What is told of a plan.

use std::time::Duration;

use mongodb::bson::DateTime;

use crate::{
    pacing::{ClosedWindow, Shortfall},
    registry::Pause,
};

/// How fast documents will have to be deleted, and whether that will do; see [`TtlRegistry::plan`](crate::TtlRegistry::plan).
///
/// Rates are documents a second. Instants are the database's.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlanReport {
    /// When the plan was made.
    pub now: DateTime,
    /// How far it looks ahead: three target lags.
    pub horizon: DateTime,
    /// Within which a document shall be gone that is due.
    pub target_lag: Duration,
    /// The most that is allowed.
    pub max_rate: f64,
    /// Below which a sweeper goes no slower while anything is due.
    pub min_rate: f64,
    /// When nothing is deleted.
    pub closed: Vec<ClosedWindow>,
    /// The rate now, within these limits; 0 while a closed window holds.
    pub rate: f64,
    /// The rates that the deadlines ask for, one after the other, without limits. Between them are closed windows.
    pub curve: Vec<PlannedRate>,
    /// The highest rate that the deadlines ask for, without limits.
    pub peak: f64,
    /// Documents that are due.
    pub backlog: u64,
    /// Documents that come due up to the horizon.
    pub coming: u64,
    /// When what is due now will be gone, within the limits; none if nothing is due.
    pub finish: Option<DateTime>,
    /// How late documents will be; none if all will be on time.
    pub shortfall: Option<Shortfall>,
    /// Whether everything was counted; if not, there may be more than is said here, and the indexes say why.
    pub complete: bool,
    /// The pause in force. The plan is made as if it were over.
    pub paused: Option<Pause>,
    /// What it takes if nothing is deleted before some instant; see [`MakePlan::resuming_at`](crate::MakePlan::resuming_at).
    pub price: Option<PausePrice>,
    /// The TTL indexes that were asked for, in the order of their making.
    pub indexes: Vec<PlannedIndex>,
}

/// A part of a plan with one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlannedRate {
    /// When it begins.
    pub from: DateTime,
    /// When it ends.
    pub until: DateTime,
    /// Documents a second.
    pub rate: f64,
}

/// What it takes if nothing is deleted for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PausePrice {
    /// Until when nothing is deleted.
    pub resumed: DateTime,
    /// The highest rate that the deadlines ask for from then on, without limits.
    pub peak: f64,
    /// How late documents will be then; none if it can be made up for.
    pub shortfall: Option<Shortfall>,
}

/// What a plan knows of one TTL index.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlannedIndex {
    /// The collection.
    pub collection: String,
    /// The name of the TTL index.
    pub index: String,
    /// Documents that are due.
    pub due: u64,
    /// Documents that come due up to the horizon.
    pub coming: u64,
    /// Since when the oldest of them is due, or a little earlier; none if nothing is. What was due before the rule came into
    /// force is due since then.
    pub oldest_due: Option<DateTime>,
    /// The highest rate that the deadlines of its documents ask for, taken by themselves.
    pub peak: f64,
    /// How late its documents will be by a rate of its own that does not suffice.
    pub shortfall: Option<Shortfall>,
    /// Why there may be more than is said here; none if everything was counted.
    pub uncounted: Option<String>,
}
