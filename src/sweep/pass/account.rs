//! One batch: judge, delete, and account for every document of it.

use std::collections::{HashMap, HashSet};

use mongodb::bson::{Bson, DateTime};
use tokio::time::Instant;
use tracing::debug;

use super::{super::Progress, Sweeping};
use crate::{
    clock::between,
    error::{Error, Result},
    meter::Batch,
    store::{Deletion, Found, Pass, Reading, id_bytes},
};

/// What became of a batch that was not deleted as a whole.
struct Again {
    /// Those that are there with the dates they were found with, still due.
    still_due: Vec<Found>,
    /// Those that are there at all.
    there: HashSet<Vec<u8>>,
}

impl Again {
    fn count(&self) -> u64 {
        self.there.len() as u64
    }
}

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
        let asked = doomed.len() as u64;
        let stalled_before = std::mem::take(&mut self.stalled);
        match pass.delete(&doomed, until).await? {
            Deletion::Done(count) if count == asked => {
                self.progress.deleted += count;
                self.tell_delays(doomed.iter());
            }
            Deletion::Done(count) | Deletion::Fenced(count) if count <= asked => {
                self.progress.deleted += count;
                let again = self.look_again(pass, &doomed, cutoff).await?;
                self.tell_delays(gone(&doomed, &again, count));
                let left = (again.still_due.len() as u64).min(asked - count);
                self.progress.left += left;
                self.progress.changed += asked - count - left;
                self.tell_archive(&doomed, &again.there).await?;
                stay.extend(again.still_due);
            }
            Deletion::InPart(count, error) if count <= asked => {
                self.progress.deleted += count;
                let again = self.look_again(pass, &doomed, cutoff).await?;
                self.tell_delays(gone(&doomed, &again, count));
                let gone = asked.saturating_sub(again.count()).max(count);
                let left = (again.still_due.len() as u64).min(asked - gone);
                self.progress.uncertain += gone - count;
                self.progress.left += left;
                self.progress.changed += asked - gone - left;
                self.tell_archive(&doomed, &again.there).await?;
                // One document that somebody holds is stepped over. A database that gets nothing done is left alone.
                self.stalled = left == asked && !error.is_lasting();
                if self.stalled && stalled_before {
                    return Err(error);
                }
                stay.extend(again.still_due);
            }
            Deletion::Done(count) | Deletion::Fenced(count) | Deletion::InPart(count, _) => {
                self.count_after_doubt(pass, &doomed).await;
                return Err(Error::Unfit(format!(
                    "it says that it deleted {count} documents of {asked}; no further batch is begun"
                )));
            }
            Deletion::Refused(refusal) => {
                self.progress.changed += asked;
                return Err(refusal.into());
            }
            Deletion::Uncertain(error) => {
                self.count_after_doubt(pass, &doomed).await;
                return Err(error);
            }
        }
        Ok((Some(until), stay))
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

    /// Reads the documents of a batch again that was not deleted as a whole. Those that are due by other dates than they
    /// were found with, or are other versions where that counts, are kept in mind: once, as one that is written to all the
    /// time would hold up the pass for ever.
    async fn look_again(&mut self, pass: &mut dyn Pass, doomed: &[Found], cutoff: DateTime) -> Result<Again> {
        let before: HashMap<Vec<u8>, &Found> = doomed.iter().map(|found| (id_bytes(&found.id), found)).collect();
        let documents = pass.read_again(doomed.iter().map(|found| found.id.clone()).collect()).await?;
        let (mut still_due, mut there) = (Vec::new(), HashSet::new());
        for document in documents {
            let Some(id) = document.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok()) else { continue };
            let key = id_bytes(&id);
            there.insert(key.clone());
            let rule = &self.visit.entry.rule;
            let dates = rule.expiring_dates(&document);
            if dates.is_none_or(|dates| dates.earliest > cutoff) {
                continue;
            }
            let whole = self.visit.reading().reads_whole().then_some(document);
            let exact = self.visit.reading() == Reading::Exact;
            let same = |found: &&Found| found.dates == dates && !(exact && found.whole != whole);
            let same = before.get(&key).is_some_and(same);
            let found = Found { id, dates, whole };
            if same {
                self.note_left(&found);
                still_due.push(found);
            } else if exact && self.again {
                self.note_left(&found);
            } else {
                self.moved.push(found);
            }
        }
        Ok(Again { still_due, there })
    }

    /// After a delete of unknown outcome: what is gone is counted as uncertain, what is there as left.
    async fn count_after_doubt(&mut self, pass: &mut dyn Pass, doomed: &[Found]) {
        let ids = doomed.iter().map(|found| found.id.clone()).collect();
        match pass.read_again(ids).await {
            Ok(there) => {
                let there = (there.len() as u64).min(doomed.len() as u64);
                self.progress.left += there;
                self.progress.uncertain += doomed.len() as u64 - there;
            }
            Err(error) => {
                debug!(%error, "the documents of an uncertain batch could not be read again");
                self.progress.uncertain += doomed.len() as u64;
            }
        }
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
