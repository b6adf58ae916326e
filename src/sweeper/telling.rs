//! What came of the visits, told: to the meter, to the status of this process, and along with the lease to all others.

use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{
    status::{self, Activity, PaceStatus, SweeperStatus},
    tenure::{Tenure, entries},
    visit::Visited,
};
use crate::{
    entry::{Entry, IndexState},
    error::Error,
    meter::Labels,
    pacing::Outcome,
    registry::{Slot, Snapshot},
    store::{Guard, Records},
    sweep::Ended,
};

/// How often at most what is told of the indexes is written down.
const TELL_EVERY: Duration = Duration::from_secs(10);

impl Tenure<'_> {
    pub(super) fn account(&mut self, entry: &Entry, visited: &Visited, kept: u64, (came_to, now): (Outcome, DateTime)) {
        let labels = Labels { collection: entry.definition.collection.as_str(), index: entry.definition.name.as_str() };
        let Visited::Passed(passed) = visited else { return };
        let visits = self.visits.entry(entry.id).or_default();
        visits.last = Some(now);
        visits.kept = kept;
        visits.shortfall = self.planning.pacer.shortfall(entry.id);
        (visits.backlog, visits.deadline) = self.planning.pacer.backlog(entry.id, now);
        self.registry.meter.backlog(&labels, visits.backlog);
        visits.failures = self.planning.pacer.failures(entry.id);
        self.registry.meter.failures(&labels, u64::from(visits.failures));
        let error = match &**passed {
            Ok(report) => {
                report.ended.as_str().clone_into(&mut visits.ended);
                visits.deleted += report.deleted;
                visits.oldest_due = report.oldest_due;
                report.error.as_ref().filter(|_| report.ended == Ended::Failed)
            }
            Err(error) => {
                Ended::Failed.as_str().clone_into(&mut visits.ended);
                self.registry.meter.error(&labels, error.kind(), error.code());
                warn!(labels.collection, labels.index, %error, "the visit could not begin");
                Some(error)
            }
        };
        let news = visits.error.is_some() != error.is_some();
        visits.error = error.map(Error::in_full);
        if matches!(came_to, Outcome::Drained(_) | Outcome::More) {
            self.registry.meter.success(now);
        }
        self.untold = true;
        self.write_status(now, news);
    }

    /// There is a new plan: what is due may be more by now, visited or not.
    pub(super) fn recount(&mut self, snapshot: &Snapshot, now: DateTime) {
        for entry in entries(snapshot) {
            let Some(visits) = self.visits.get_mut(&entry.id) else { continue };
            (visits.backlog, visits.deadline) = self.planning.pacer.backlog(entry.id, now);
            let (collection, index) = entry.names();
            self.registry.meter.backlog(&Labels { collection, index }, visits.backlog);
        }
    }

    pub(super) fn tell(&self, activity: Activity) {
        let max_rate = self.planning.pacer.terms().max_rate;
        let mut pace = self.clock.map(|(told, at)| self.planning.status(self.registry.store.now_since(told, at)));
        if let Some(pace) = pace.as_mut().filter(|_| activity == Activity::Paused) {
            pace.rate = 0.0;
        }
        self.registry.meter.pace(pace.as_ref().map(PaceStatus::counters).unwrap_or_default());
        let status = SweeperStatus {
            activity,
            holder: Some(self.lease.holder().to_owned()),
            silent_since: None,
            term: Some(self.lease.term()),
            since: None,
            paused: self.snapshot.as_ref().and_then(|snapshot| snapshot.paused.clone()),
            max_rate: Some(max_rate),
            pace,
            told_at: None,
            indexes: self.snapshot.as_ref().map(|snapshot| status::rows(snapshot, &self.visits)).unwrap_or_default(),
        };
        self.lease.tell(doc! { "activity": activity.as_str(), "maxRate": max_rate });
        self.told.send_replace(status);
    }

    /// Writes down what is told of the indexes, if there is something new and it is time, or if there is news of an error.
    pub(super) fn write_status(&mut self, now: DateTime, news: bool) {
        if news || self.tell_at().is_some_and(|at| at <= Instant::now()) {
            self.telling = Some(tokio::spawn(self.writing(now)));
        }
    }

    /// When there is something to be written down.
    pub(super) fn tell_at(&self) -> Option<Instant> {
        self.untold.then(|| self.told_at.map_or_else(Instant::now, |at| at + TELL_EVERY))
    }

    /// Writes down what is not written down yet.
    pub(super) fn writing(&mut self, now: DateTime) -> impl Future<Output = ()> + Send + 'static {
        // Once somebody else has told something, whoever was frozen meanwhile has nothing to add.
        let before = self.told_at.replace(Instant::now());
        let guard = before.map_or_else(Document::new, |_| doc! { "term": self.lease.term() });
        self.untold = false;
        let rows: Vec<Document> = self.visits.iter().map(|(id, visits)| visits.to_document(*id)).collect();
        let fields = doc! {
            "term": self.lease.term(),
            "at": now,
            "maxRate": self.planning.pacer.terms().max_rate,
            "pace": self.planning.status(now).to_document(),
            "indexes": rows,
        };
        let store = self.registry.store.clone();
        async move {
            let id = status::RECORD;
            let written = match store.set_record(Records::Lease, id, Guard::Has(guard), fields.clone()).await {
                Ok(None) => store.set_record(Records::Lease, id, Guard::Missing, fields).await,
                other => other,
            };
            if let Err(error) = written {
                debug!(%error, "the status could not be written down");
            }
        }
    }
}

pub(super) fn by_state(snapshot: &Snapshot) -> Vec<(&'static str, usize)> {
    let state = |slot: &Slot| match slot {
        Slot::Good(entry) => entry.state,
        Slot::Broken(_) => IndexState::NeedsRepair,
    };
    let count = |wanted| snapshot.slots.iter().filter(|slot| state(slot) == wanted).count();
    [IndexState::Creating, IndexState::Active, IndexState::NeedsRepair]
        .map(|state| (state.as_str(), count(state)))
        .to_vec()
}
