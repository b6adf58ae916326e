//! What a pass writes to its archive between finding and deleting documents, and afterwards.

use mongodb::bson::RawDocumentBuf;
use tracing::warn;

use super::Sweeping;
use crate::{
    error::{Error, Result},
    store::{Found, Pass, Reading, id_bytes},
};

use super::account::Again;

impl Sweeping<'_> {
    /// Those of the documents that are in the archive now, and those that are not, which stay.
    ///
    /// # Errors
    ///
    /// If it is not certain what is in the archive. All of them stay then.
    pub(super) async fn archived(
        &mut self,
        pass: &mut dyn Pass,
        doomed: Vec<Found>,
    ) -> Result<(Vec<Found>, Vec<Found>)> {
        let Some(archive) = self.visit.options.archive.clone() else { return Ok((doomed, Vec::new())) };
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
        let unwritten = written.inspect_err(|_| self.progress.left += doomed.len() as u64)?;
        for (at, why) in unwritten {
            unfit[candidates[at]] = Some(why);
        }
        let (mut archived, mut stay) = (Vec::new(), Vec::new());
        for (found, why) in doomed.into_iter().zip(unfit) {
            match why {
                None => archived.push(found),
                Some(why) => {
                    let collection = &self.visit.entry.definition.collection;
                    warn!(%collection, id = %found.id, why, "a document that is due cannot be archived, and stays");
                    self.note_left(&found);
                    stay.push(found);
                }
            }
        }
        self.progress.left += stay.len() as u64;
        Ok((archived, stay))
    }

    /// Has the archive say which of the documents in it were not deleted after all.
    pub(super) async fn tell_archive(&mut self, doomed: &[Found], again: &Again) -> Result<()> {
        let Some(archive) = self.visit.options.archive.clone() else { return Ok(()) };
        let there = doomed.iter().filter(|found| again.there.contains(&id_bytes(&found.id)));
        let ids: Vec<_> = there.map(|found| found.id.clone()).collect();
        if ids.is_empty() { Ok(()) } else { archive.not_deleted(ids).await }
    }
}
