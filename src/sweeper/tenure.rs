//! What is done with the lease.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use mongodb::bson::{DateTime, oid::ObjectId};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tracing::{debug, info, warn};

use super::{
    Options, changed,
    planning::{CameTo, Planning},
    run::Stop,
    status::{Activity, SweeperStatus, Visits},
    telling::by_state,
    visit::{Ground, Kit, Visited, outcome},
};
use crate::{
    clock::between,
    entry::{Entry, IndexState},
    error::Result,
    lease::{Lease, Standing},
    meter::Labels,
    namespace::CollectionName,
    pacing::{Outcome, Polling, SharedHealth, Turn, poll},
    registry::{Slot, Snapshot, TtlRegistry, continue_creation, continue_operations},
    sweep::{Ended, Suspended},
};

/// While the database is away it is tried again so soon.
const RETRY: Duration = Duration::from_secs(1);

/// A creation that nobody has finished for so long is continued: who asked for it may be gone.
const CONTINUE_AFTER: Duration = Duration::from_secs(60);

/// Operations that are under way are looked at again so soon: whoever began them may be gone.
const LOOK_AT_OPERATIONS: Duration = Duration::from_secs(60);

/// While sweeping is paused it is looked so often whether the pause is over.
const LOOK_AT_PAUSE: Duration = Duration::from_secs(1);

/// How often the database is asked for its time; in between it is reckoned on.
const ASK_TIME_EVERY: Duration = Duration::from_secs(10);

/// In how many intervals an index is visited once that has no ordinary index to walk: by default once an hour.
const WITHOUT_INDEX: u32 = 60;

/// Why a tenure ended.
pub(super) enum End {
    Stopped,
    Lost,
    HandOver(String),
}

pub(super) struct Tenure<'a> {
    pub(super) registry: &'a TtlRegistry,
    pub(super) options: &'a Options,
    pub(super) stop: &'a Stop,
    pub(super) told: &'a watch::Sender<SweeperStatus>,
    pub(super) lease: Arc<Lease>,
    standing: watch::Receiver<Standing>,
    revision: watch::Receiver<Option<i64>>,
    pub(super) planning: Planning,
    kit: Option<Kit>,
    /// How well the database is, by all that is seen of it.
    health: SharedHealth,
    _polling: Option<Polling>,
    /// None until it is read, and whenever it is to be read again.
    pub(super) snapshot: Option<Arc<Snapshot>>,
    pub(super) visits: HashMap<ObjectId, Visits>,
    continued: HashMap<ObjectId, JoinHandle<()>>,
    /// Since when each index is as it is: one that is changed is visited at once.
    known: HashMap<ObjectId, (DateTime, IndexState, CollectionName)>,
    pub(super) told_at: Option<Instant>,
    /// Whether visits have come to something that is not written down yet.
    pub(super) untold: bool,
    /// What is being written down.
    pub(super) telling: Option<JoinHandle<()>>,
    /// When the registry was read, and what processes that are gone have left was looked for.
    read_at: Option<Instant>,
    /// Whether operations were under way then.
    under_way: bool,
    /// What the database's clock showed, and when.
    pub(super) clock: Option<(DateTime, Instant)>,
}

impl<'a> Tenure<'a> {
    pub(super) fn new(
        registry: &'a TtlRegistry,
        options: &'a Options,
        stop: &'a Stop,
        told: &'a watch::Sender<SweeperStatus>,
        lease: Arc<Lease>,
    ) -> Self {
        let health = SharedHealth::new();
        Self {
            _polling: options.health.clone().map(|hook| poll(hook, health.clone())),
            planning: Planning::new(&options.terms, health.clone(), stop.asked.child_token()),
            health,
            standing: lease.standing(),
            revision: lease.revision(),
            kit: None,
            snapshot: None,
            visits: HashMap::new(),
            continued: HashMap::new(),
            known: HashMap::new(),
            told_at: None,
            untold: false,
            telling: None,
            read_at: None,
            under_way: false,
            clock: None,
            registry,
            options,
            stop,
            told,
            lease,
        }
    }

    /// Visits one index after the other until the lease is to be given back, or is lost.
    pub(super) async fn hold(&mut self) -> End {
        let mut bell = self.registry.store.wake().map(|wake| wake.listen());
        loop {
            let standing = self.standing.borrow_and_update().clone();
            match standing {
                _ if self.lease.is_lost() => return End::Lost,
                Standing::Held if self.stop.asked.is_cancelled() => {
                    self.tell_last().await;
                    return End::Stopped;
                }
                Standing::Held => {}
                Standing::Asked(by) => {
                    self.tell_last().await;
                    return End::HandOver(by);
                }
                Standing::Lost => return End::Lost,
            }
            let wait_until = match self.step().await {
                Ok(Some(next)) => self.tell_at().map_or(next, |tell_at| next.min(tell_at)),
                Ok(None) => continue,
                Err(error) => {
                    self.registry.meter.error(&Labels { collection: "", index: "" }, error.kind(), error.code());
                    self.snapshot = None;
                    if self.told.borrow().activity == Activity::Away {
                        debug!(error = error.in_full(), "still nothing can be swept");
                    } else {
                        warn!(error = error.in_full(), "nothing is swept until the registry can be read");
                    }
                    self.tell(Activity::Away);
                    Instant::now() + RETRY
                }
            };
            let rung = async {
                match &mut bell {
                    Some(bell) => changed(bell).await,
                    None => std::future::pending().await,
                }
            };
            let counted = self.planning.counted.clone();
            tokio::select! {
                () = sleep_until(wait_until) => {}
                () = self.stop.asked.cancelled() => {}
                () = changed(&mut self.standing) => self.standing.mark_changed(),
                () = changed(&mut self.revision) => self.snapshot = None,
                () = rung => self.hurry(),
                () = counted.notified() => {}
            }
        }
    }

    /// What the last visits came to, before somebody else tells.
    async fn tell_last(&mut self) {
        if let Some(telling) = self.telling.take() {
            self.within(async { drop(telling.await) }).await;
        }
        if let (true, Some((told, at))) = (self.untold, self.clock) {
            let writing = self.writing(self.registry.store.now_since(told, at));
            self.within(writing).await;
        }
    }

    /// Something expires sooner than was expected, in one of the collections where the store can tell.
    fn hurry(&mut self) {
        let Some(snapshot) = &self.snapshot else { return };
        let listed = entries(snapshot).filter(|entry| entry.definition.supporting_index).map(|entry| entry.id);
        self.planning.pacer.hurry(listed, Instant::now());
    }

    /// Does what is to be done now, or says when to look again.
    async fn step(&mut self) -> Result<Option<Instant>> {
        let Some(snapshot) = self.read_registry().await? else { return Ok(None) };
        let Some(now) = self.now().await? else { return Ok(None) };
        self.write_status(now, false);
        if snapshot.paused.as_ref().is_some_and(|pause| pause.holds_at(now)) {
            self.registry.meter.paused(true);
            self.tell(Activity::Paused);
            return Ok(Some(Instant::now() + LOOK_AT_PAUSE));
        }
        self.registry.meter.paused(false);
        let kit = self.take_kit();
        let ground = self.ground(&snapshot, now);
        let Some((kit, looked)) = self.within(ground.look_around(kit)).await else { return Ok(None) };
        self.kit = Some(kit);
        looked?;
        let again = self.keep_pace(&snapshot, now).await.min(Instant::now() + self.read_every());
        if let Some(until) = self.planning.pacer.closed_until(now) {
            self.tell(Activity::Closed);
            return Ok(Some(again.min(Instant::now() + between(now, until))));
        }
        self.tell(Activity::Sweeping);
        let Some(turn) = self.planning.next() else { return Ok(Some(again)) };
        if turn.at > Instant::now() {
            if let Some(wake) = self.registry.store.wake() {
                let until = i64::try_from((turn.at - Instant::now()).as_millis()).unwrap_or(i64::MAX);
                wake.look_at(DateTime::from_millis(now.timestamp_millis().saturating_add(until)));
            }
            return Ok(Some(turn.at.min(again)));
        }
        self.visit(&snapshot, turn, now).await;
        Ok(None)
    }

    /// The database's clock, asked every ten seconds.
    async fn now(&mut self) -> Result<Option<DateTime>> {
        let store = self.registry.store.clone();
        if let Some((told, at)) = self.clock.filter(|(_, at)| at.elapsed() < ASK_TIME_EVERY) {
            return Ok(Some(store.now_since(told, at)));
        }
        let told = self.within(async move { store.now().await }).await.transpose()?;
        self.clock = told.map(|told| (told, Instant::now()));
        Ok(told)
    }

    /// The registry as it is now; none if that did not come to an end.
    async fn read_registry(&mut self) -> Result<Option<Arc<Snapshot>>> {
        let too_old = self.read_at.is_some_and(|at| at.elapsed() >= self.read_every());
        if too_old || self.revision.has_changed().unwrap_or(false) {
            self.snapshot = None;
        }
        if let Some(snapshot) = &self.snapshot {
            return Ok(Some(snapshot.clone()));
        }
        self.revision.mark_unchanged();
        let store = self.registry.store.clone();
        let reading = async move {
            let under_way = continue_operations(&*store).await.unwrap_or_else(|error| {
                debug!(%error, "operations of processes that are gone could not be looked at");
                true
            });
            Snapshot::load(&*store).await.map(|snapshot| (snapshot, under_way))
        };
        let Some((snapshot, under_way)) = self.within(reading).await.transpose()? else { return Ok(None) };
        self.under_way = under_way;
        let snapshot = Arc::new(snapshot);
        let ids: HashSet<ObjectId> = entries(&snapshot).map(|entry| entry.id).collect();
        let (walked, unwalked) = (self.options.interval, self.options.interval.saturating_mul(WITHOUT_INDEX));
        // Without an ordinary index to walk each visit reads the whole collection.
        let interval = |entry: &Entry| if entry.definition.supporting_index { walked } else { unwalked };
        self.planning.follow(&snapshot, &self.options.terms, entries(&snapshot), interval);
        let standing = |entry: &Entry| (entry.rule_since, entry.state, entry.definition.collection.clone());
        let standing: HashMap<_, _> = entries(&snapshot).map(|entry| (entry.id, standing(entry))).collect();
        let changed = standing.iter().filter(|(id, now)| self.known.get(id) != Some(now)).map(|(id, _)| *id);
        self.planning.pacer.hurry(changed, Instant::now());
        self.known = standing;
        self.visits.retain(|id, _| ids.contains(id));
        self.continued.retain(|id, _| ids.contains(id));
        if let Some(kit) = &mut self.kit {
            kit.keep(&ids);
        }
        self.registry.meter.indexes(&by_state(&snapshot));
        self.registry.meter.keep(&entries(&snapshot).map(Entry::names).collect());
        self.read_at = Some(Instant::now());
        self.snapshot = Some(snapshot.clone());
        Ok(Some(snapshot))
    }

    /// How often at least the registry is read, whether it has changed or not.
    fn read_every(&self) -> Duration {
        if self.under_way { self.options.interval.min(LOOK_AT_OPERATIONS) } else { self.options.interval }
    }

    /// Returns when to come again at the latest.
    async fn keep_pace(&mut self, snapshot: &Snapshot, now: DateTime) -> Instant {
        let entry = |id| entries(snapshot).find(|entry| entry.id == id);
        let catalog = self.kit.as_ref().map(|kit| &kit.catalog);
        let again = self.planning.step(now, &self.registry.store, catalog, entry).await;
        if std::mem::take(&mut self.planning.news) {
            self.recount(snapshot, now);
            self.untold = true;
        }
        again
    }

    async fn visit(&mut self, snapshot: &Arc<Snapshot>, turn: Turn, now: DateTime) {
        let id = turn.id;
        let Some(entry) = entries(snapshot).find(|entry| entry.id == id) else { return };
        self.continue_creation(entry, now);
        let (kit, ground, stop) = (self.take_kit(), self.ground(snapshot, now), self.stop.asked.child_token());
        let _stop_with_lease = stop.clone().drop_guard();
        let Some((kit, visited)) = self.within_slice(ground.visit(kit, turn, stop.clone()), &stop).await else {
            return;
        };
        let came_to = match outcome(&visited, now) {
            // There was nothing to read.
            Outcome::Drained(None) if !kit.catalog.collections().contains_key(entry.definition.collection.as_str()) => {
                Outcome::Drained(Some(self.options.interval))
            }
            other => other,
        };
        let kept = kit.kept.count(id);
        let reached = kit.suspended.get(&id).and_then(Suspended::reached);
        self.kit = Some(kit);
        self.planning.visited(id, &CameTo::of(&visited, came_to, kept, reached), now);
        self.account(entry, &visited, kept, (came_to, now));
        if let Visited::Passed(passed) = &visited
            && let Ok(report) = &**passed
            && matches!(report.ended, Ended::Cancelled | Ended::Paused)
        {
            self.snapshot = None;
        }
    }

    /// Finishes a creation in the background that nobody else seems to be at: building an index may take hours.
    fn continue_creation(&mut self, entry: &Entry, now: DateTime) {
        let gone = between(entry.created_at, now) >= CONTINUE_AFTER;
        let at_it = self.continued.get(&entry.id).is_some_and(|continuing| !continuing.is_finished());
        if entry.state != IndexState::Creating || !gone || at_it {
            return;
        }
        let id = entry.id;
        let (store, entry) = (self.registry.store.clone(), entry.clone());
        let continuing = tokio::spawn(async move {
            let (collection, index) = (&entry.definition.collection, &entry.definition.name);
            info!(%collection, index, "continuing the creation of a TTL index");
            if let Err(error) = continue_creation(&*store, &entry).await {
                warn!(%collection, index, error = error.in_full(), "the creation could not be finished");
            }
        });
        self.continued.insert(id, continuing);
    }

    fn take_kit(&mut self) -> Kit {
        self.kit.take().unwrap_or_else(|| Kit::new(self.options, &self.planning.throttle, self.health.clone()))
    }

    fn ground(&self, snapshot: &Arc<Snapshot>, now: DateTime) -> Ground {
        Ground::new(self.registry, self.lease.clone(), snapshot.clone(), self.clock, self.planning.slice(now))
    }
}

pub(super) fn entries(snapshot: &Snapshot) -> impl Iterator<Item = &Entry> {
    snapshot.slots.iter().filter_map(|slot| match slot {
        Slot::Good(entry) => Some(&**entry),
        Slot::Broken(_) => None,
    })
}
