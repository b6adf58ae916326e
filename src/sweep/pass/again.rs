//! Documents that are read by their `_id`s: before they are judged, and after a delete that left some of them.

use std::collections::{HashMap, HashSet};

use mongodb::bson::{Bson, DateTime, RawDocumentBuf};
use tracing::debug;

use super::Sweeping;
use crate::{
    error::Result,
    store::{Found, Pass, id_bytes},
};

/// What became of a batch that was not deleted as a whole.
#[derive(Default)]
pub(super) struct Again {
    /// Those that are there with the dates they were found with, still due.
    pub(super) still_due: Vec<Found>,
    /// Those that are there at all.
    pub(super) there: HashSet<Vec<u8>>,
}

impl Again {
    pub(super) fn count(&self) -> u64 {
        self.there.len() as u64
    }
}

impl Sweeping<'_> {
    /// Those of the documents that are due, as they are now.
    pub(super) async fn fresh(&mut self, pass: &mut dyn Pass, ids: Vec<Bson>, cutoff: DateTime) -> Result<Vec<Found>> {
        let documents = pass.read_again(ids).await?;
        Ok(documents.into_iter().filter_map(|document| self.due(document, cutoff)).collect())
    }

    pub(super) fn due(&self, document: RawDocumentBuf, cutoff: DateTime) -> Option<Found> {
        let dates = self.visit.entry.rule.expiring_dates(&document).filter(|dates| dates.earliest <= cutoff)?;
        let id = id_of(&document)?;
        Some(Found { id, dates: Some(dates), whole: self.visit.reading().reads_whole().then_some(document) })
    }

    /// Reads the documents of a batch again that was not deleted as a whole. Those that are due by other dates than they
    /// were found with, or are other versions where that counts, are kept in mind: once, as one that is written to all the
    /// time would hold up the pass for ever.
    pub(super) async fn look_again(
        &mut self,
        pass: &mut dyn Pass,
        doomed: &[Found],
        cutoff: DateTime,
    ) -> Result<Again> {
        let before: HashMap<Vec<u8>, &Found> = doomed.iter().map(|found| (id_bytes(&found.id), found)).collect();
        let documents = pass.read_again(doomed.iter().map(|found| found.id.clone()).collect()).await?;
        let compares = self.visit.reading().compares();
        let mut again = Again::default();
        for document in documents {
            let Some(key) = id_of(&document).map(|id| id_bytes(&id)) else { continue };
            again.there.insert(key.clone());
            let Some(found) = self.due(document, cutoff) else { continue };
            let same = |before: &&Found| before.dates == found.dates && !(compares && before.whole != found.whole);
            if before.get(&key).is_some_and(same) {
                self.note_left(&found);
                again.still_due.push(found);
            } else if compares && self.again {
                self.note_left(&found);
            } else {
                self.moved.push(found.id);
            }
        }
        Ok(again)
    }

    /// After a delete of unknown outcome: what is gone is counted as uncertain, what is there as left.
    pub(super) async fn count_after_doubt(&mut self, pass: &mut dyn Pass, doomed: &[Found]) -> Again {
        let again = there(pass, doomed).await.unwrap_or_else(|error| {
            debug!(%error, "the documents of an uncertain batch could not be read again");
            Again::default()
        });
        let there = again.count().min(doomed.len() as u64);
        self.progress.left += there;
        self.progress.uncertain += doomed.len() as u64 - there;
        again
    }
}

/// Which of the documents are there.
pub(super) async fn there(pass: &mut dyn Pass, doomed: &[Found]) -> Result<Again> {
    let documents = pass.read_again(doomed.iter().map(|found| found.id.clone()).collect()).await?;
    let there = documents.iter().filter_map(|document| Some(id_bytes(&id_of(document)?))).collect();
    Ok(Again { there, ..Again::default() })
}

pub(super) fn id_of(document: &RawDocumentBuf) -> Option<Bson> {
    document.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok())
}
