//! What is said at the end of a pass.

use std::time::Duration;

use mongodb::bson::DateTime;
use tracing::{debug, info, warn};

use super::{Ended, Progress, Suspended, SweepReport, Sweeping};
use crate::{
    clock::between,
    error::Result,
    store::{Found, Pass, Position},
};

/// Looks for the oldest document still due among so many.
const PEEK: u32 = 100;

impl Sweeping<'_> {
    /// Whether anything was not looked at yet, and when the oldest document still due expired.
    async fn look_ahead(&mut self) -> Result<(bool, Option<DateTime>)> {
        let (Some(cutoff), Some(mut pass)) = (self.cutoff, self.pass.take()) else { return Ok((false, None)) };
        let seen = self.peek(&mut *pass, cutoff).await;
        self.pass = Some(pass);
        let (more, seen) = seen?;
        let kept = self.kept(&seen).await?;
        let free = seen.iter().zip(kept).filter(|(_, kept)| !kept).map(|(found, _)| found);
        let dates = free.filter_map(|found| found.dates).map(|dates| dates.earliest);
        let oldest = dates.filter(|date| *date <= cutoff).min();
        Ok((more, oldest.map(|date| self.visit.entry.rule.expires_at(date))))
    }

    /// Whether anything was not looked at yet, and some of it as it is now.
    async fn peek(&mut self, pass: &mut dyn Pass, cutoff: DateTime) -> Result<(bool, Vec<Found>)> {
        let ordered = pass.ordered();
        let mut seen = Vec::new();
        if !self.moved.is_empty() {
            let ids = self.moved.iter().take(PEEK as usize).cloned().collect();
            seen = self.fresh(pass, ids, cutoff).await?;
        }
        let mut more = !self.moved.is_empty();
        if ordered || !more {
            let next = pass.find(&self.position, PEEK).await?;
            more |= !next.is_empty();
            if !ordered {
                // A cursor does not go back for them. By the time they are deleted they may be others.
                self.moved.extend(next.iter().map(|found| found.id.clone()));
            }
            seen.extend(next);
        }
        if ordered {
            // The oldest may be among those that stay behind.
            seen.extend(pass.find(&Position::default(), PEEK).await?);
        }
        Ok((more, seen))
    }

    pub(super) async fn report(mut self, mut ended: Ended) -> (SweepReport, Option<Suspended>) {
        let mut oldest_due = self.oldest_left;
        // Under a rule that is no longer in force nothing is due.
        let in_force = self.error.is_none();
        // Who stops is not kept waiting for guards.
        let stopped = ended == Ended::Cancelled && self.visit.is_screened();
        if in_force && matches!(ended, Ended::LimitReached | Ended::Cancelled) && !stopped {
            match self.look_ahead().await {
                Ok((more, seen)) => {
                    oldest_due = [oldest_due, seen].into_iter().flatten().min();
                    // The limit was reached with the last document.
                    if ended == Ended::LimitReached && !more {
                        ended = Ended::Drained;
                    }
                }
                Err(error) => {
                    self.error = Some(error);
                    ended = Ended::Failed;
                }
            }
        }
        let mut next_expiry = None;
        if ended == Ended::Drained && in_force {
            next_expiry = self.next_expiry().await;
        }
        let Progress { found, deleted, changed, uncertain, left, kept, disputed, batches } = self.progress;
        let definition = &self.visit.entry.definition;
        let (collection, index) = (definition.collection.to_string(), definition.name.clone());
        match &self.error {
            Some(error) if ended == Ended::Failed => {
                warn!(
                    collection,
                    index,
                    found,
                    deleted,
                    changed,
                    uncertain,
                    left,
                    kept,
                    error = error.in_full(),
                    "pass failed"
                );
            }
            _ if found == 0 && ended == Ended::Drained => {
                debug!(collection, index, disputed, %ended, "nothing was due");
            }
            // Under a backlog one turn follows the other.
            _ if ended == Ended::LimitReached => {
                debug!(collection, index, found, deleted, changed, left, kept, disputed, batches, %ended, "more is due");
            }
            _ => info!(collection, index, found, deleted, changed, left, kept, disputed, batches, %ended, "pass ended"),
        }
        self.visit.meter.pass(&self.labels(), ended.as_str());
        if let Some(error) = &self.error
            && ended == Ended::Failed
        {
            self.visit.meter.error(&self.labels(), error.kind(), error.code());
        }
        // Under a rule or a lease that is gone it says nothing.
        if matches!(ended, Ended::Drained | Ended::LimitReached | Ended::Failed) {
            self.visit.meter.oldest_due(&self.labels(), oldest_due.map(|due| self.age_of(due)));
        }
        let report = SweepReport {
            collection,
            index,
            cutoff: self.cutoff.unwrap_or(DateTime::MIN),
            found,
            deleted,
            changed,
            uncertain,
            left,
            kept,
            disputed,
            batches,
            ended,
            oldest_due,
            error: self.error,
            next_expiry,
        };
        let suspended = match (ended, self.pass, self.cutoff) {
            (Ended::LimitReached, Some(pass), Some(cutoff)) => Some(Suspended {
                entry: self.visit.entry.clone(),
                cutoff,
                position: self.position,
                pass,
                moved: self.moved,
                oldest_left: self.oldest_left,
            }),
            _ => None,
        };
        (report, suspended)
    }

    /// How long a document that expired then has been due: not before its rule was in force.
    fn age_of(&self, expired: DateTime) -> Duration {
        between(expired.max(self.visit.entry.rule_since), self.now())
    }

    /// When the next document expires, on stores that can tell. Only a reason to look sooner: not to know is no failure.
    async fn next_expiry(&mut self) -> Option<DateTime> {
        let pass = self.pass.as_mut()?;
        let date = pass.next_date().await.ok().flatten()?;
        Some(self.visit.entry.rule.expires_at(date))
    }
}
