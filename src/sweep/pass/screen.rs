//! What is asked of a batch between finding and deleting it: whether anything keeps a document that is due.

use super::Sweeping;
use crate::{
    archive::OpenArchive,
    error::Result,
    store::{Found, Reading},
};

impl super::Visit<'_> {
    /// How much of each document somebody wants to see before it is deleted.
    pub(super) fn reading(&self) -> Reading {
        self.options.archive.as_ref().map_or(Reading::Needed, OpenArchive::reading)
    }

    /// Whether anything may keep a document that is due.
    pub(super) fn is_screened(&self) -> bool {
        self.reading() != Reading::Needed
    }
}

impl Sweeping<'_> {
    /// Those of the documents that nothing keeps. An error keeps all of them.
    pub(super) async fn screened(&mut self, doomed: Vec<Found>) -> Result<Vec<Found>> {
        Ok(doomed)
    }
}
