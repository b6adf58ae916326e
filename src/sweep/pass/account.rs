//! One batch: judge, delete, and account for every document of it.

use mongodb::bson::DateTime;
use tokio::time::Instant;

use super::{
    super::Progress,
    Sweeping,
    again::{Again, there},
};
use crate::{
    clock::between,
    error::{Error, Result},
    meter::Batch,
    store::{Deletion, Found, Pass, id_bytes},
};

impl Sweeping<'_> {
    /// Deletes what the rule agrees is due, and returns the latest date of that, and what stays though it was found.
    pub(super) async fn delete(
        &mut self,
        pass: &mut dyn Pass,
        found: Vec<Found>,
        cutoff: DateTime,
        began: Instant,
    ) -> Result<(Option<DateTime>, Vec<Found>)> {
        let before = self.progress;
        let outcome = self.delete_agreed(pass, found, cutoff).await;
        self.progress.batches += 1;
        let Progress { deleted, changed, uncertain, left, kept, disputed, .. } = self.progress;
        self.visit.meter.batch(
            &self.labels(),
            &Batch {
                deleted: deleted - before.deleted,
                changed: changed - before.changed,
                uncertain: uncertain - before.uncertain,
                left: left - before.left,
                kept: kept - before.kept,
                disputed: disputed - before.disputed,
                duration: began.elapsed(),
            },
        );
        outcome
    }

    async fn delete_agreed(
        &mut self,
        pass: &mut dyn Pass,
        found: Vec<Found>,
        cutoff: DateTime,
    ) -> Result<(Option<DateTime>, Vec<Found>)> {
        let agreed = |found: &Found| found.dates.is_some_and(|dates| dates.earliest <= cutoff);
        let (doomed, mut stay): (Vec<Found>, Vec<Found>) = found.into_iter().partition(agreed);
        self.progress.disputed += stay.len() as u64;
        self.progress.found += doomed.len() as u64;
        let doomed = self.screened(doomed).await?;
        let doomed = self.archived(pass, doomed).await?;
        let Some(until) = doomed.iter().filter_map(|found| found.dates).map(|dates| dates.earliest).max() else {
            return Ok((None, stay));
        };
        self.sent += 1;
        let sent = Instant::now();
        let deletion = pass.delete(&doomed, until).await.unwrap_or_else(Deletion::Uncertain);
        self.busy += sent.elapsed();
        let (again, outcome) = self.settle(pass, &doomed, cutoff, deletion).await;
        // Whatever became of the delete: what is there must not be taken for deleted.
        let told = self.tell_archive(&doomed, &again.there).await;
        outcome.and(told)?;
        stay.extend(again.still_due);
        Ok((Some(until), stay))
    }

    /// Counts every document of a batch that was sent to be deleted, and returns what of it was seen to be there, and whether
    /// the pass goes on.
    async fn settle(
        &mut self,
        pass: &mut dyn Pass,
        doomed: &[Found],
        cutoff: DateTime,
        deletion: Deletion,
    ) -> (Again, Result<()>) {
        let asked = doomed.len() as u64;
        let stalled_before = std::mem::take(&mut self.stalled);
        let (count, gave_up) = match deletion {
            Deletion::Done(count) if count == asked => {
                self.progress.deleted += count;
                self.tell_delays(doomed.iter());
                return (Again::default(), Ok(()));
            }
            Deletion::Done(count) | Deletion::Fenced(count) if count <= asked => (count, None),
            Deletion::InPart(count, error) if count <= asked => (count, Some(error)),
            Deletion::Done(count) | Deletion::Fenced(count) | Deletion::InPart(count, _) => {
                let why = format!("it says that it deleted {count} documents of {asked}; no further batch is begun");
                return (self.count_after_doubt(pass, doomed).await, Err(Error::Unfit(why)));
            }
            Deletion::Refused(refusal) => {
                self.progress.changed += asked;
                return (there(pass, doomed).await.unwrap_or_default(), Err(refusal.into()));
            }
            Deletion::Uncertain(error) if self.tries_again(&error) => {
                return self.put_off(pass, doomed, cutoff, error).await;
            }
            Deletion::Uncertain(error) => return (self.count_after_doubt(pass, doomed).await, Err(error)),
        };
        self.progress.deleted += count;
        let again = match self.look_again(pass, doomed, cutoff).await {
            Ok(again) => again,
            Err(error) => {
                self.progress.uncertain += asked - count;
                return (Again::default(), Err(error));
            }
        };
        self.tell_delays(gone(doomed, &again, count));
        let gone = match gave_up {
            // Perhaps more than it knows of.
            Some(_) => asked.saturating_sub(again.count()).max(count),
            None => count,
        };
        let left = (again.still_due.len() as u64).min(asked - gone);
        self.progress.uncertain += gone - count;
        self.progress.left += left;
        self.progress.changed += asked - gone - left;
        // One document that somebody holds is stepped over. A database that gets nothing done is left alone.
        self.stalled = left == asked && gave_up.as_ref().is_some_and(|error| !error.is_lasting());
        self.gave_up = gave_up.is_some();
        match gave_up.filter(|_| self.stalled && stalled_before) {
            Some(error) => {
                self.overload = error.overload();
                (again, Err(error))
            }
            None => (again, Ok(())),
        }
    }

    /// How long after their expiry these were deleted, just now.
    fn tell_delays<'f>(&self, deleted: impl Iterator<Item = &'f Found>) {
        let now = self.now();
        let delay = |found: &Found| {
            let expired = self.visit.entry.rule.expires_at(found.dates?.earliest);
            Some(between(expired, now))
        };
        self.visit.meter.delays(&self.labels(), deleted.filter_map(delay));
    }

    /// When the oldest document expired that stays although it is due.
    pub(super) fn note_left(&mut self, found: &Found) {
        let Some(dates) = found.dates else { return };
        let expired = self.visit.entry.rule.expires_at(dates.earliest);
        self.oldest_left = Some(self.oldest_left.map_or(expired, |oldest| oldest.min(expired)));
    }
}

/// As many of those that are not there any more as were deleted. If there are others, somebody else deleted them in the same
/// moment, and which is not known.
fn gone<'f>(doomed: &'f [Found], again: &Again, deleted: u64) -> impl Iterator<Item = &'f Found> {
    let deleted = usize::try_from(deleted).unwrap_or(usize::MAX);
    doomed
        .iter()
        .filter(|found| !again.there.contains(&id_bytes(&found.id)))
        .take(deleted)
        .collect::<Vec<_>>()
        .into_iter()
}
