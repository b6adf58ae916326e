//! What a pass does when the database has too much to do.

use mongodb::bson::DateTime;
use tracing::debug;

use super::{Sweeping, again::Again};
use crate::{
    error::{Error, Result},
    store::{Found, Pass, id_bytes},
};

/// How often in a row a batch is put off. With the pauses in between that takes about a minute.
const MOST: u32 = 12;

impl Sweeping<'_> {
    /// Whether the error says that the database has too much to do just now, so that it is tried again, after a pause.
    pub(super) fn tries_again(&mut self, error: &Error) -> bool {
        let Some(overload) = error.overload() else { return false };
        debug!(collection = %self.visit.entry.definition.collection, %error, "the database has too much to do");
        self.overload = Some(overload);
        self.overloads += 1;
        let again = self.overloads <= MOST;
        if again {
            // Otherwise it is counted as what the pass ends with.
            self.visit.meter.error(&self.labels(), error.kind(), error.code());
        }
        again
    }

    /// Has the next batch go by what this one of so many documents came to.
    pub(super) fn tell_pace(&mut self, documents: u32) {
        let (busy, gave_up) = (std::mem::take(&mut self.busy), std::mem::take(&mut self.gave_up));
        if let Some(overload) = self.overload.take() {
            return self.visit.pace.overloaded(documents, overload.answer, overload.retry_after);
        }
        self.overloads = 0;
        if gave_up { self.visit.pace.gave_up(documents) } else { self.visit.pace.done(documents, busy) }
    }

    /// Looks at what is there after a delete that the database had no time for, and keeps in mind what is to be tried again, as
    /// if it had not been found.
    pub(super) async fn put_off(
        &mut self,
        pass: &mut dyn Pass,
        doomed: &[Found],
        cutoff: DateTime,
        error: Error,
    ) -> (Again, Result<()>) {
        let Ok(documents) = pass.read_again(doomed.iter().map(|found| found.id.clone()).collect()).await else {
            return (self.count_after_doubt(pass, doomed).await, Err(error));
        };
        let asked = doomed.len() as u64;
        let mut again = Again::default();
        let mut due = 0;
        for document in documents {
            let Some(id) = super::again::id_of(&document) else { continue };
            again.there.insert(id_bytes(&id));
            if let Some(found) = self.due(document, cutoff) {
                due += 1;
                self.moved.push(found.id);
            }
        }
        let there = again.count().min(asked);
        let due = there.min(due);
        self.progress.found -= due;
        self.progress.changed += there - due;
        self.progress.uncertain += asked - there;
        (again, Ok(()))
    }
}
