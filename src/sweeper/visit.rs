//! One visit to one TTL index: look for drift, finish its making if nobody else does, delete a slice of what is due.

use std::{sync::Arc, time::Duration};

use mongodb::bson::{DateTime, oid::ObjectId};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    Options,
    catalog::Catalog,
    drift::{self, Drift},
    schedule::Outcome,
};
use crate::{
    clock::between,
    entry::{Entry, IndexState},
    error::{Error, Result},
    lease::Lease,
    meter::Meter,
    pacing::Bucket,
    registry::{Slot, Snapshot, mark, walkable},
    store::{Change, Collection, DynStore},
    sweep::{self, Ended, SweepReport, Visit},
};

/// How long a visit may begin new batches, so that others get their turn.
const SLICE: Duration = Duration::from_secs(1);

/// What is taken along from visit to visit.
pub(super) struct Kit {
    pub(super) bucket: Bucket,
    pub(super) catalog: Catalog,
}

/// Where visits are made.
#[derive(Clone)]
pub(super) struct Ground {
    pub(super) store: DynStore,
    pub(super) meter: Arc<Meter>,
    pub(super) lease: Arc<Lease>,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) batch_size: u32,
}

/// What came of a visit.
pub(super) enum Visited {
    /// A pass was made, or could not be begun.
    Passed(Box<Result<SweepReport>>),
    /// There was nothing to sweep by: the index is being made, or needs repair.
    Skipped,
}

impl Ground {
    pub(super) fn new(options: &Options, parts: (DynStore, Arc<Meter>, Arc<Lease>, Arc<Snapshot>)) -> Self {
        let (store, meter, lease, snapshot) = parts;
        Self { store, meter, lease, snapshot, batch_size: options.documents_in_batch() }
    }

    fn entry(&self, id: ObjectId) -> Option<&Entry> {
        self.snapshot.slots.iter().find_map(|slot| match slot {
            Slot::Good(entry) if entry.id == id => Some(&**entry),
            _ => None,
        })
    }

    /// Looks at what has become of the collections, if they were not looked at within the last minute.
    pub(super) async fn look_around(self, mut kit: Kit) -> (Kit, Result<()>) {
        let looked = async {
            if kit.catalog.refresh(&*self.store).await? {
                for slot in &self.snapshot.slots {
                    if let Slot::Good(entry) = slot {
                        self.apply(entry, drift::of_collection(entry, kit.catalog.collections())).await?;
                    }
                }
            }
            Ok(())
        };
        let looked = looked.await;
        (kit, looked)
    }

    pub(super) async fn visit(self, mut kit: Kit, id: ObjectId, stop: CancellationToken) -> (Kit, Visited) {
        let Some(entry) = self.entry(id) else { return (kit, Visited::Skipped) };
        let visited = match self.seen(&mut kit, entry).await {
            Ok(Some(seen)) => Visited::Passed(Box::new(self.pass(&mut kit, entry, seen, stop).await)),
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
        if !kit.catalog.lists(entry) {
            return Ok(Some(seen));
        }
        let mut drift = drift::of_indexes(entry, seen.kind, &seen.indexes);
        if matches!(drift, Drift::Broken(_)) {
            // Not by what was listed a while ago.
            kit.catalog.doubt(entry.id);
            seen = kit.catalog.of(&*self.store, entry).await?;
            drift = drift::of_indexes(entry, seen.kind, &seen.indexes);
        }
        let broken = matches!(drift, Drift::Broken(_));
        self.apply(entry, drift).await?;
        Ok((!broken).then_some(seen))
    }

    /// Has the registry say what was noticed.
    async fn apply(&self, entry: &Entry, drift: Drift) -> Result<()> {
        let (collection, index) = (&entry.definition.collection, &entry.definition.name);
        let Some(revision) = self.snapshot.revision else { return Ok(()) };
        match drift {
            // What is there now is not judged by what was seen of another.
            _ if entry.state != IndexState::Active => {}
            Drift::None { warning } if warning == entry.problem => {}
            Drift::None { warning } => {
                if let Some(warning) = &warning {
                    warn!(%collection, index, warning, "the TTL index is not alone");
                }
                mark(&*self.store, entry, revision, IndexState::Active, warning.as_deref()).await?;
            }
            Drift::Renamed(to) => {
                let rename = Change::Rename { entry: entry.id, to: to.clone() };
                if self.store.change_registry(rename).await?.is_some() {
                    info!(%collection, index, %to, "the TTL index follows its collection to its new name");
                } else {
                    let problem = format!(
                        "{collection} was renamed to {to}, which has a TTL index of its own; drop one of them, and repair \
                         the other"
                    );
                    self.mark_broken(entry, revision, &problem).await?;
                }
            }
            Drift::Broken(problem) => self.mark_broken(entry, revision, &problem).await?,
        }
        Ok(())
    }

    async fn mark_broken(&self, entry: &Entry, revision: i64, problem: &str) -> Result<()> {
        let (collection, index) = (&entry.definition.collection, &entry.definition.name);
        if mark(&*self.store, entry, revision, IndexState::NeedsRepair, Some(problem)).await? {
            warn!(%collection, index, problem, "the TTL index needs repair and is not swept");
        }
        Ok(())
    }

    async fn pass(
        &self,
        kit: &mut Kit,
        entry: &Entry,
        seen: Collection,
        stop: CancellationToken,
    ) -> Result<SweepReport> {
        let options = sweep::Options {
            batch_size: self.batch_size,
            max_time: Some(SLICE),
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
            lease: Some(&self.lease),
            bucket: Some(&mut kit.bucket),
            stop,
            options,
        };
        visit.run().await
    }
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
