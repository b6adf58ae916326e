//! One visit to one TTL index: look for drift, finish its making if nobody else does, delete a slice of what is due.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use mongodb::bson::{DateTime, oid::ObjectId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{
    Options,
    catalog::Catalog,
    drift::{self, Drift},
    kept::Kept,
};
use crate::{
    clock::between,
    entry::{Entry, IndexState},
    error::{Error, Result},
    guard::Hook,
    lease::Lease,
    meter::Meter,
    pacing::{Outcome, Paces, SharedHealth, Throttle, Turn},
    registry::{Slot, Snapshot, TtlRegistry, mark, walkable},
    store::{Change, Collection, DynStore},
    sweep::{self, Ended, Suspended, SweepReport, Visit},
};

/// What is taken along from visit to visit.
pub(super) struct Kit {
    pub(super) paces: Paces,
    pub(super) catalog: Catalog,
    /// Passes that a slice was too short for.
    pub(super) suspended: HashMap<ObjectId, Suspended>,
    /// What was kept, and when to look at it again.
    pub(super) kept: Kept,
}

impl Kit {
    pub(super) fn new(options: &Options, throttle: &Throttle, health: SharedHealth) -> Self {
        let paces = Paces::new(options.batch_size, throttle.clone(), health);
        // Whoever swept before, or a visit that was left behind, may just have deleted a batch.
        throttle.spend(paces.largest());
        Self { paces, catalog: Catalog::new(options.interval), suspended: HashMap::new(), kept: Kept::default() }
    }

    /// Forgets what belongs to other indexes than these.
    pub(super) fn keep(&mut self, ids: &HashSet<ObjectId>) {
        self.paces.keep(ids);
        self.catalog.keep(ids);
        self.suspended.retain(|id, _| ids.contains(id));
        self.kept.keep(ids);
    }
}

/// Where visits are made.
#[derive(Clone)]
pub(super) struct Ground {
    pub(super) store: DynStore,
    pub(super) meter: Arc<Meter>,
    pub(super) lease: Arc<Lease>,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) veto: Option<Hook>,
    /// What the database's clock showed, and when.
    pub(super) clock: Option<(DateTime, Instant)>,
    /// How long a visit may begin new batches.
    pub(super) slice: Duration,
}

/// What came of a visit.
pub(super) enum Visited {
    /// A pass was made, or could not be begun.
    Passed(Box<Result<SweepReport>>),
    /// There was nothing to sweep by: the index is being made, or needs repair.
    Skipped,
}

impl Ground {
    pub(super) fn new(
        registry: &TtlRegistry,
        lease: Arc<Lease>,
        snapshot: Arc<Snapshot>,
        clock: Option<(DateTime, Instant)>,
        slice: Duration,
    ) -> Self {
        let (store, meter, veto) = (registry.store.clone(), registry.meter.clone(), registry.veto.clone());
        Self { store, meter, lease, snapshot, veto, clock, slice }
    }

    fn entry(&self, id: ObjectId) -> Option<&Entry> {
        self.snapshot.slots.iter().find_map(|slot| match slot {
            Slot::Good(entry) if entry.id == id => Some(&**entry),
            _ => None,
        })
    }

    /// Looks at what has become of the collections, if they were not looked at a short while ago.
    pub(super) async fn look_around(self, mut kit: Kit) -> (Kit, Result<()>) {
        let looked = self.look(&mut kit.catalog).await;
        if !matches!(looked, Ok(true)) {
            kit.catalog.forget();
        }
        (kit, looked.map(drop))
    }

    /// Whether every collection was looked at.
    async fn look(&self, catalog: &mut Catalog) -> Result<bool> {
        let Some(mut revision) = self.snapshot.revision else { return Ok(true) };
        if !catalog.refresh(&*self.store).await? {
            return Ok(true);
        }
        for slot in &self.snapshot.slots {
            let Slot::Good(entry) = slot else { continue };
            let drift = drift::of_collection(entry, catalog.collections());
            match self.apply(entry, drift, revision).await? {
                Some(next) if next == revision || next == revision + 1 => revision = next,
                // Somebody else has changed the registry: what it says now is not held against what was listed before.
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    pub(super) async fn visit(self, mut kit: Kit, turn: Turn, stop: CancellationToken) -> (Kit, Visited) {
        let Turn { id, one_batch, .. } = turn;
        let Some(entry) = self.entry(id) else { return (kit, Visited::Skipped) };
        let visited = match self.seen(&mut kit, entry).await {
            Ok(Some(seen)) => Visited::Passed(Box::new(self.pass(&mut kit, (entry, one_batch), seen, stop).await)),
            Ok(None) => Visited::Skipped,
            Err(error) => Visited::Passed(Box::new(Err(error))),
        };
        if let Visited::Passed(passed) = &visited
            && matches!(**passed, Ok(SweepReport { error: Some(_), .. }) | Err(_))
        {
            kit.catalog.doubt(id);
        }
        (kit, visited)
    }

    /// The collection, if it can be swept by this entry.
    async fn seen(&self, kit: &mut Kit, entry: &Entry) -> Result<Option<Collection>> {
        if entry.state == IndexState::NeedsRepair {
            return Ok(None);
        }
        let mut seen = kit.catalog.of(&*self.store, entry).await?;
        let walks = |seen: &Collection| seen.indexes.iter().any(|index| walkable(&entry.definition, index));
        if entry.state == IndexState::Creating {
            let ready = !entry.definition.supporting_index || walks(&seen);
            return Ok(ready.then_some(seen));
        }
        let mut drift = drift::of(entry, kit.catalog.collections(), &seen);
        if !matches!(drift, Drift::None { .. }) {
            // Not by what was listed a while ago: the entry may be newer than that.
            kit.catalog.list(&*self.store).await?;
            kit.catalog.doubt(entry.id);
            seen = kit.catalog.of(&*self.store, entry).await?;
            drift = drift::of(entry, kit.catalog.collections(), &seen);
        }
        let sound = matches!(drift, Drift::None { .. });
        if let Some(revision) = self.snapshot.revision {
            self.apply(entry, drift, revision).await?;
        }
        Ok(sound.then_some(seen))
    }

    /// Has the registry say what was noticed, if it is still at this revision; returns the one from then on, none if it was
    /// not.
    async fn apply(&self, entry: &Entry, drift: Drift, revision: i64) -> Result<Option<i64>> {
        let (state, problem) = match drift {
            // What is there now is not judged by what was seen of another.
            _ if entry.state != IndexState::Active => return Ok(Some(revision)),
            Drift::None { warning } => (IndexState::Active, warning),
            Drift::Broken(problem) => (IndexState::NeedsRepair, Some(problem)),
            Drift::Renamed(to) => {
                let (collection, index) = (&entry.definition.collection, &entry.definition.name);
                let rename = Change::Rename { entry: entry.id, to: to.clone() };
                if let Some(now) = self.store.change_registry(rename).await? {
                    info!(%collection, index, %to, "the TTL index follows its collection to its new name");
                    self.lease.look_at_registry();
                    return Ok(Some(now));
                }
                let problem = format!(
                    "{collection} was renamed to {to}, which has a TTL index of its own; drop one of them, and repair the \
                     other"
                );
                (IndexState::NeedsRepair, Some(problem))
            }
        };
        let now = mark(&*self.store, entry, revision, state, problem.as_deref()).await?;
        if now != Some(revision) {
            self.lease.look_at_registry();
        }
        Ok(now)
    }

    async fn pass(
        &self,
        kit: &mut Kit,
        (entry, one_batch): (&Entry, bool),
        seen: Collection,
        stop: CancellationToken,
    ) -> Result<SweepReport> {
        let suspended = kit.suspended.remove(&entry.id);
        let behind = kit.kept.begin(entry, suspended.is_some(), Instant::now());
        let options = sweep::Options {
            behind,
            max_batches: one_batch.then_some(1),
            max_time: Some(self.slice),
            read_all: entry.supporting.is_none(),
            ..sweep::Options::default()
        };
        let visit = Visit {
            store: &*self.store,
            meter: &self.meter,
            entry,
            revision: self.snapshot.revision,
            paused: self.snapshot.paused.clone(),
            seen,
            veto: self.veto.clone(),
            lease: Some(&self.lease),
            pace: kit.paces.of(entry.id, entry.max_rate),
            clock: self.clock,
            stop,
            options,
            suspended,
        };
        let (report, suspended) = visit.run().await?;
        let drained = Some(report.cutoff).filter(|_| report.ended == Ended::Drained);
        kit.kept.visited(entry.id, report.kept, settled(&report), drained);
        kit.suspended.extend(suspended.map(|suspended| (entry.id, suspended)));
        Ok(report)
    }
}

/// Whether all that was found, but for what is kept, needs no second look.
fn settled(report: &SweepReport) -> bool {
    report.left + report.changed + report.uncertain + report.disputed == 0
        && !(report.ended == Ended::Drained && report.oldest_due.is_some())
}

/// What the next visit depends on.
pub(super) fn outcome(visited: &Visited, now: DateTime) -> Outcome {
    let report = match visited {
        Visited::Skipped => return Outcome::Drained(None),
        Visited::Passed(passed) => match &**passed {
            Err(error) => return of_error(error),
            Ok(report) => report,
        },
    };
    match (report.ended, &report.error) {
        (Ended::Failed, Some(error)) => of_error(error),
        (Ended::Drained, _) => Outcome::Drained(report.next_expiry.map(|next| between(now, next))),
        // Whatever it was, it was not the end of what is due.
        _ => Outcome::More,
    }
}

/// Whether the index is at fault, or the database is away.
fn of_error(error: &Error) -> Outcome {
    if error.is_away() { Outcome::Away } else { Outcome::Failed }
}
