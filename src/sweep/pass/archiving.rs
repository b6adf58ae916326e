//! What a pass writes to its archive between finding and deleting documents, and afterwards.

use std::collections::HashSet;

use mongodb::bson::RawDocumentBuf;
use tracing::{debug, warn};

use super::Sweeping;
use crate::{
    error::{Error, Result},
    store::{Found, Pass, Reading, id_bytes},
};

const STAYS: &str = "a document that is due cannot be archived, and stays; others of its batch may, too";

impl Sweeping<'_> {
    /// Those of the documents that are in the archive now. The others stay, and are not found again by this pass.
    ///
    /// # Errors
    ///
    /// If it is not certain what is in the archive. All of them stay then.
    pub(super) async fn archived(&mut self, pass: &mut dyn Pass, doomed: Vec<Found>) -> Result<Vec<Found>> {
        let Some(archive) = self.visit.options.archive.clone() else { return Ok(doomed) };
        let mut unfit: Vec<Option<String>> = vec![None; doomed.len()];
        if archive.reading() == Reading::Exact {
            unfit = doomed.iter().map(|found| pass.unrepeatable(found)).collect();
        }
        let candidates: Vec<usize> = (0..doomed.len()).filter(|at| unfit[*at].is_none()).collect();
        let whole = |at: &usize| doomed[*at].whole.clone();
        let documents: Vec<RawDocumentBuf> = candidates.iter().filter_map(whole).collect();
        let written = if documents.len() < candidates.len() {
            Err(Error::Unreadable("a document was not read whole, and cannot be archived".to_owned()))
        } else if documents.is_empty() {
            Ok(Vec::new())
        } else {
            archive.put(self.visit.store, documents, self.now()).await
        };
        for (at, why) in written.inspect_err(|_| self.progress.left += doomed.len() as u64)? {
            unfit[candidates[at]] = Some(why);
        }
        let (mut archived, mut told) = (Vec::new(), false);
        for (found, why) in doomed.into_iter().zip(unfit) {
            let Some(why) = why else {
                archived.push(found);
                continue;
            };
            self.progress.left += 1;
            self.note_left(&found);
            let (collection, id) = (&self.visit.entry.definition.collection, &found.id);
            // There may be many, for the same reason.
            if std::mem::replace(&mut told, true) {
                debug!(%collection, %id, why, "{STAYS}");
            } else {
                warn!(%collection, %id, why, "{STAYS}");
            }
        }
        Ok(archived)
    }

    /// Has the archive say which of the documents in it are there, after all or again.
    pub(super) async fn tell_archive(&mut self, doomed: &[Found], there: &HashSet<Vec<u8>>) -> Result<()> {
        let Some(archive) = self.visit.options.archive.clone() else { return Ok(()) };
        let there = doomed.iter().filter(|found| there.contains(&id_bytes(&found.id)));
        let ids: Vec<_> = there.map(|found| found.id.clone()).collect();
        if ids.is_empty() { Ok(()) } else { archive.not_deleted(ids).await }
    }
}
