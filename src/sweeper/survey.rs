//! Counts that were asked for, one statement after another.

use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    error::Result,
    pacing::Want,
    store::{Census, CensusTarget, DynStore},
};

/// What is to be counted. Owns all it needs, to be run as a task of its own: a call of the driver's must come to its end.
pub(super) struct Survey {
    pub(super) store: DynStore,
    pub(super) asked: Vec<(CensusTarget, Want)>,
    /// Ends it after the statement under way.
    pub(super) stop: CancellationToken,
}

/// What became of one count.
#[derive(Debug)]
pub(super) struct Surveyed {
    /// The identity of the registry entry.
    pub(super) entry: ObjectId,
    pub(super) want: Want,
    /// As [`Store::census`](crate::store::Store::census) says; an error only if the database is away.
    pub(super) outcome: Result<Option<Census>>,
    pub(super) took: Duration,
}

impl Survey {
    /// What was counted, in the order asked; less than that, if it is stopped or the database is away.
    pub(super) async fn run(self) -> Vec<Surveyed> {
        let mut surveyed = Vec::with_capacity(self.asked.len());
        for (target, want) in self.asked {
            if self.stop.is_cancelled() {
                break;
            }
            let began = Instant::now();
            let outcome = self.store.census(&target, want.range).await;
            let away = outcome.is_err();
            surveyed.push(Surveyed { entry: target.entry, want, outcome, took: began.elapsed() });
            if away {
                break;
            }
        }
        surveyed
    }
}

impl Surveyed {
    /// How many keys were read, as far as is known.
    pub(super) fn keys(&self) -> u64 {
        match &self.outcome {
            Ok(Some(census)) => census.documents(),
            // Perhaps all that it was allowed to.
            Ok(None) | Err(_) => self.want.range.limit,
        }
    }
}
