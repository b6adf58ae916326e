//! What is asked of a batch between finding and deleting it: whether anything keeps a document that is due.

use std::time::Duration;

use mongodb::bson::{Bson, RawDocumentBuf};
use tokio::time::timeout;

use super::Sweeping;
use crate::{
    archive::OpenArchive,
    error::{Error, Result},
    guard::{Batch, Decision, Hook},
    registry::keepers,
    store::{Found, Reading},
};

/// How long a hook may take for a batch.
const PATIENCE: Duration = Duration::from_secs(30);

impl super::Visit<'_> {
    /// How much of each document somebody wants to see before it is deleted.
    pub(super) fn reading(&self) -> Reading {
        let archive = self.options.archive.as_ref().map_or(Reading::Needed, OpenArchive::reading);
        if self.veto.is_some() { archive.max(Reading::Seen) } else { archive }
    }

    /// Whether anything may keep a document that is due.
    pub(super) fn is_screened(&self) -> bool {
        self.reading().reads_whole() || !self.entry.guards.is_empty()
    }
}

impl Sweeping<'_> {
    /// Those of the documents that nothing keeps. An error keeps all of them.
    pub(super) async fn screened(&mut self, doomed: Vec<Found>) -> Result<Vec<Found>> {
        let kept = match self.kept(&doomed).await {
            Ok(kept) => kept,
            Err(error) => {
                self.progress.left += doomed.len() as u64;
                let earliest = doomed.iter().filter_map(|found| found.dates).map(|dates| dates.earliest).min();
                let oldest = earliest.map(|date| self.visit.entry.rule.expires_at(date));
                self.oldest_left = [self.oldest_left, oldest].into_iter().flatten().min();
                return Err(error);
            }
        };
        self.progress.kept += kept.iter().filter(|kept| **kept).count() as u64;
        Ok(doomed.into_iter().zip(kept).filter(|(_, kept)| !kept).map(|(found, _)| found).collect())
    }

    /// Which of the documents something keeps.
    pub(super) async fn kept(&mut self, due: &[Found]) -> Result<Vec<bool>> {
        let (store, entry) = (self.visit.store, self.visit.entry);
        let mut kept = vec![false; due.len()];
        // The hook may take its time: the guards are asked after it, a moment before the delete.
        if let Some(hook) = self.visit.veto.clone() {
            let documents: Vec<RawDocumentBuf> = due.iter().filter_map(|found| found.whole.clone()).collect();
            let asked = documents.len();
            let decisions = ask(hook, entry.names(), documents).await?;
            if decisions.len() != asked || asked != due.len() {
                let why = format!("it decided {} times about {asked} documents", decisions.len());
                return Err(failed(entry.names().0, why.into()));
            }
            kept = decisions.iter().map(|decision| *decision != Decision::Delete).collect();
        }
        let free: Vec<usize> = (0..due.len()).filter(|at| !kept[*at]).collect();
        if !entry.guards.is_empty() && !free.is_empty() {
            let ids: Vec<Bson> = free.iter().map(|at| due[*at].id.clone()).collect();
            let keepers = keepers(store, &entry.guards, &ids, self.now()).await?;
            for (at, keeper) in free.into_iter().zip(keepers) {
                kept[at] = keeper.is_some();
            }
        }
        Ok(kept)
    }
}

/// What the hook decides, in a task of its own: it may panic, or never answer.
async fn ask(hook: Hook, (collection, index): (&str, &str), documents: Vec<RawDocumentBuf>) -> Result<Vec<Decision>> {
    if documents.is_empty() {
        return Ok(Vec::new());
    }
    let (of_collection, of_index) = (collection.to_owned(), index.to_owned());
    let mut task = tokio::spawn(async move {
        let batch = Batch::new(&of_collection, &of_index, &documents);
        hook.0.veto(batch).await
    });
    match timeout(PATIENCE, &mut task).await {
        Ok(Ok(Ok(decisions))) => Ok(decisions),
        Ok(Ok(Err(error))) => Err(failed(collection, error)),
        Ok(Err(ended)) => {
            Err(failed(collection, if ended.is_panic() { "it panicked".into() } else { Box::new(ended) }))
        }
        Err(_) => {
            task.abort();
            Err(failed(collection, format!("it has not answered within {PATIENCE:?}").into()))
        }
    }
}

fn failed(collection: &str, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
    Error::Veto { collection: collection.to_owned(), source }
}
