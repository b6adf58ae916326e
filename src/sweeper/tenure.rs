//! Standing by for the lease, and what is done with it.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use mongodb::bson::{DateTime, Document, doc, oid::ObjectId};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    Options, changed,
    schedule::{Outcome, Schedule},
    status::{self, Activity, SweeperStatus, Visits},
    stopped,
    visit::{Ground, Kit, Visited, outcome},
};
use crate::{
    clock::between,
    entry::{Entry, IndexState},
    error::{Error, Result},
    lease::{self, Claimant, Lease, Patience, Standing},
    meter::Labels,
    pacing::Bucket,
    registry::{Slot, Snapshot, TtlRegistry, continue_creation, continue_operations},
    store::{Guard, Records},
    sweep::Ended,
};

/// While the database is away it is tried again after this, twice as late each time, up to the lease time.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// How long a database call is waited for once the lease is lost. Then it is left behind: it can have no effect any more.
const LAST_WAIT: Duration = Duration::from_secs(3);

/// How often at most what is told of the indexes is written down.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// A creation that nobody has finished for so long is continued: who asked for it may be gone.
const CONTINUE_AFTER: Duration = Duration::from_secs(60);

/// While sweeping is paused it is looked so often whether the pause is over.
const LOOK_AT_PAUSE: Duration = Duration::from_secs(1);

/// How often the database is asked for its time; in between it is reckoned on. A pass asks for itself.
const ASK_TIME_EVERY: Duration = Duration::from_secs(10);

/// Why a tenure ended.
enum End {
    Stopped,
    Lost,
    HandOver(String),
}

pub(super) async fn run(
    registry: TtlRegistry,
    options: Options,
    stop: CancellationToken,
    told: watch::Sender<SweeperStatus>,
) -> Result<()> {
    info!(name = options.name, max_rate = options.max_rate, "sweeper started");
    // Said from the start, so that it shows if nobody ever sweeps.
    registry.meter.lease(false, 0);
    while let Some(lease) = stand_by(&registry, &options, &stop, &told).await? {
        let lease = Arc::new(lease);
        registry.meter.lease(true, lease.term());
        let mut tenure = Tenure::new(&registry, &options, &stop, &told, lease.clone());
        let end = tenure.hold().await;
        registry.meter.lease(false, lease.term());
        match end {
            End::Stopped => lease.give_back(None).await,
            End::HandOver(to) => lease.give_back(Some(to)).await,
            End::Lost => {}
        }
    }
    info!(name = options.name, "sweeper stopped");
    Ok(())
}

/// The lease, once it can be had; none if the sweeper is stopped before.
async fn stand_by(
    registry: &TtlRegistry,
    options: &Options,
    stop: &CancellationToken,
    told: &watch::Sender<SweeperStatus>,
) -> Result<Option<Lease>> {
    let mut retry = FIRST_RETRY;
    loop {
        // Another one each time: what an earlier tenure left under way must have lapsed as well.
        let claimant = Claimant::new(&options.name, options.lease_time);
        told.send_modify(|status| status.activity = Activity::Standby);
        let (store, token) = (registry.store.clone(), stop.clone());
        // A task of its own: a driver call must not be dropped halfway, and may take for ever.
        let mut taking = tokio::spawn(async move { lease::take(&store, &claimant, Patience::StandBy, &token).await });
        let taken = tokio::select! {
            taken = &mut taking => taken,
            () = stopped(stop) => match timeout(options.lease_time, taking).await {
                Ok(taken) => taken,
                Err(_) => return Ok(None),
            },
        };
        match taken {
            Ok(Ok(Some(lease))) => return Ok(Some(lease)),
            Ok(Ok(None)) => return Ok(None),
            Ok(Err(error @ Error::Unfit(_))) => return Err(error),
            Ok(Err(error)) => {
                registry.meter.error(&Labels { collection: "", index: "" }, error.kind(), error.code());
                warn!(%error, retry_in = ?retry, "the lease cannot be had");
                told.send_modify(|status| status.activity = Activity::Away);
            }
            Err(error) => warn!(%error, "taking the lease was broken off"),
        }
        tokio::select! {
            () = stopped(stop) => return Ok(None),
            () = sleep(retry) => {}
        }
        retry = (retry * 2).min(options.lease_time);
    }
}

struct Tenure<'a> {
    registry: &'a TtlRegistry,
    options: &'a Options,
    stop: &'a CancellationToken,
    told: &'a watch::Sender<SweeperStatus>,
    lease: Arc<Lease>,
    standing: watch::Receiver<Standing>,
    revision: watch::Receiver<Option<i64>>,
    schedule: Schedule,
    kit: Option<Kit>,
    /// None until it is read, and whenever it is to be read again.
    snapshot: Option<Arc<Snapshot>>,
    visits: HashMap<ObjectId, Visits>,
    continued: HashSet<ObjectId>,
    told_at: Option<Instant>,
    /// What the database's clock showed, and when.
    clock: Option<(DateTime, Instant)>,
}

impl<'a> Tenure<'a> {
    fn new(
        registry: &'a TtlRegistry,
        options: &'a Options,
        stop: &'a CancellationToken,
        told: &'a watch::Sender<SweeperStatus>,
        lease: Arc<Lease>,
    ) -> Self {
        Self {
            schedule: Schedule::new(options.interval),
            standing: lease.standing(),
            revision: lease.revision(),
            kit: None,
            snapshot: None,
            visits: HashMap::new(),
            continued: HashSet::new(),
            told_at: None,
            clock: None,
            registry,
            options,
            stop,
            told,
            lease,
        }
    }

    /// Visits one index after the other until the lease is to be given back, or is lost.
    async fn hold(&mut self) -> End {
        let mut bell = self.registry.store.wake().map(|wake| wake.listen());
        loop {
            match self.standing.borrow_and_update().clone() {
                Standing::Held if self.stop.is_cancelled() => return End::Stopped,
                Standing::Held => {}
                Standing::Asked(by) => return End::HandOver(by),
                Standing::Lost => return End::Lost,
            }
            let wait_until = match self.step().await {
                Ok(Some(next)) => next,
                Ok(None) => continue,
                Err(error) => {
                    if self.told.borrow().activity != Activity::Away {
                        warn!(error = error.in_full(), "nothing is swept until the registry can be read");
                    }
                    self.snapshot = None;
                    self.tell(Activity::Away);
                    Instant::now() + FIRST_RETRY
                }
            };
            let rung = async {
                match &mut bell {
                    Some(bell) => changed(bell).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = sleep_until(wait_until) => {}
                () = stopped(self.stop) => {}
                () = changed(&mut self.standing) => self.standing.mark_changed(),
                () = changed(&mut self.revision) => self.snapshot = None,
                () = rung => self.schedule.hurry(Instant::now()),
            }
        }
    }

    /// Does what is to be done now, or says when to look again.
    async fn step(&mut self) -> Result<Option<Instant>> {
        let Some(snapshot) = self.read_registry().await? else { return Ok(None) };
        let Some(now) = self.now().await? else { return Ok(None) };
        if snapshot.paused.as_ref().is_some_and(|pause| pause.holds_at(now)) {
            self.tell(Activity::Paused);
            return Ok(Some(Instant::now() + LOOK_AT_PAUSE));
        }
        self.tell(Activity::Sweeping);
        let kit = self.take_kit();
        let ground = self.ground(&snapshot);
        let Some((kit, looked)) = self.within(ground.look_around(kit)).await else { return Ok(None) };
        self.kit = Some(kit);
        looked?;
        let Some((id, at)) = self.schedule.next(Instant::now()) else {
            return Ok(Some(Instant::now() + self.options.interval));
        };
        if at > Instant::now() {
            if let Some(wake) = self.registry.store.wake() {
                let until = i64::try_from((at - Instant::now()).as_millis()).unwrap_or(i64::MAX);
                wake.look_at(DateTime::from_millis(now.timestamp_millis().saturating_add(until)));
            }
            return Ok(Some(at));
        }
        self.visit(&snapshot, id, now).await;
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
        if self.revision.has_changed().unwrap_or(false) {
            self.snapshot = None;
        }
        if let Some(snapshot) = &self.snapshot {
            return Ok(Some(snapshot.clone()));
        }
        self.revision.mark_unchanged();
        let store = self.registry.store.clone();
        let reading = async move {
            if let Err(error) = continue_operations(&*store).await {
                debug!(%error, "operations of processes that are gone could not be looked at");
            }
            Snapshot::load(&*store).await
        };
        let Some(snapshot) = self.within(reading).await.transpose()? else { return Ok(None) };
        let snapshot = Arc::new(snapshot);
        let ids: HashSet<ObjectId> = entries(&snapshot).map(|entry| entry.id).collect();
        self.schedule.keep(ids.iter().copied(), Instant::now());
        self.visits.retain(|id, _| ids.contains(id));
        self.continued.retain(|id| ids.contains(id));
        if let Some(kit) = &mut self.kit {
            kit.catalog.keep(&ids);
        }
        self.registry.meter.indexes(&by_state(&snapshot));
        self.registry.meter.keep(&entries(&snapshot).map(Entry::names).collect());
        self.snapshot = Some(snapshot.clone());
        Ok(Some(snapshot))
    }

    async fn visit(&mut self, snapshot: &Arc<Snapshot>, id: ObjectId, now: DateTime) {
        let Some(entry) = entries(snapshot).find(|entry| entry.id == id) else { return };
        self.continue_creation(entry, now);
        let (kit, ground, stop) = (self.take_kit(), self.ground(snapshot), self.stop.child_token());
        let _stop_with_lease = stop.clone().drop_guard();
        let Some((kit, visited)) = self.within_slice(ground.visit(kit, id, stop.clone()), &stop).await else { return };
        self.kit = Some(kit);
        let came_to = outcome(&visited, now);
        self.schedule.visited(id, came_to, Instant::now());
        self.account(entry, &visited, came_to, now);
        if let Visited::Passed(Ok(report)) = &visited
            && matches!(report.ended, Ended::Cancelled | Ended::Paused)
        {
            self.snapshot = None;
        }
    }

    fn account(&mut self, entry: &Entry, visited: &Visited, came_to: Outcome, now: DateTime) {
        let labels = Labels { collection: entry.definition.collection.as_str(), index: entry.definition.name.as_str() };
        let Visited::Passed(passed) = visited else { return };
        let visits = self.visits.entry(entry.id).or_default();
        visits.last = Some(now);
        visits.failures = self.schedule.failures(entry.id);
        self.registry.meter.failures(&labels, u64::from(visits.failures));
        let error = match passed {
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
        self.write_status(now, news);
    }

    /// Finishes a creation in the background that nobody else seems to be at: building an index may take hours.
    fn continue_creation(&mut self, entry: &Entry, now: DateTime) {
        let gone = between(entry.created_at, now) >= CONTINUE_AFTER;
        if entry.state != IndexState::Creating || !gone || !self.continued.insert(entry.id) {
            return;
        }
        let (store, entry) = (self.registry.store.clone(), entry.clone());
        tokio::spawn(async move {
            let (collection, index) = (&entry.definition.collection, &entry.definition.name);
            info!(%collection, index, "continuing the creation of a TTL index");
            if let Err(error) = continue_creation(&*store, &entry).await {
                warn!(%collection, index, error = error.in_full(), "the creation could not be finished");
            }
        });
    }

    fn take_kit(&mut self) -> Kit {
        self.kit.take().unwrap_or_else(|| {
            let mut bucket = Bucket::per_second(self.options.max_rate);
            // Whoever swept before, or a visit that was left behind, may just have deleted a batch.
            bucket.spend(self.options.documents_in_batch());
            Kit { bucket, catalog: super::catalog::Catalog::new(self.options.interval) }
        })
    }

    fn ground(&self, snapshot: &Arc<Snapshot>) -> Ground {
        let parts = (self.registry.store.clone(), self.registry.meter.clone(), self.lease.clone(), snapshot.clone());
        Ground::new(self.options, parts)
    }

    /// What the work comes to, or nothing if it does not end while the lease lasts.
    async fn within<T: Send + 'static>(&mut self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        self.within_slice(work, &CancellationToken::new()).await
    }

    /// The same; `slice` is cancelled when the lease is asked for or lost.
    async fn within_slice<T: Send + 'static>(
        &mut self,
        work: impl Future<Output = T> + Send + 'static,
        slice: &CancellationToken,
    ) -> Option<T> {
        // A task of its own: a driver call must not be dropped halfway.
        let mut task = tokio::spawn(work);
        let mut standing = self.lease.standing();
        let lease_time = self.options.lease_time;
        let too_long = async {
            loop {
                let now = standing.borrow_and_update().clone();
                match now {
                    Standing::Held => {}
                    Standing::Asked(_) => slice.cancel(),
                    Standing::Lost => {
                        slice.cancel();
                        return sleep(LAST_WAIT.min(lease_time)).await;
                    }
                }
                tokio::select! {
                    () = changed(&mut standing) => {}
                    () = stopped(self.stop) => return sleep(lease_time).await,
                }
            }
        };
        let ended = tokio::select! {
            ended = &mut task => ended,
            () = too_long => {
                warn!("a database call has not returned in time and is left behind");
                return None;
            }
        };
        match ended {
            Ok(value) => Some(value),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => None,
            },
        }
    }

    fn tell(&self, activity: Activity) {
        let status = SweeperStatus {
            activity,
            holder: Some(self.lease.holder().to_owned()),
            term: Some(self.lease.term()),
            since: None,
            paused: self.snapshot.as_ref().and_then(|snapshot| snapshot.paused.clone()),
            max_rate: Some(self.options.max_rate),
            told_at: None,
            indexes: self.snapshot.as_ref().map(|snapshot| status::rows(snapshot, &self.visits)).unwrap_or_default(),
        };
        self.lease.tell(doc! { "activity": activity.as_str(), "maxRate": self.options.max_rate });
        self.told.send_replace(status);
    }

    /// Writes down what is told of the indexes, now and then and when there is news of an error.
    fn write_status(&mut self, now: DateTime, news: bool) {
        if !news && self.told_at.is_some_and(|at| at.elapsed() < TELL_EVERY) {
            return;
        }
        self.told_at = Some(Instant::now());
        let rows: Vec<Document> = self.visits.iter().map(|(id, visits)| visits.to_document(*id)).collect();
        let fields = doc! { "term": self.lease.term(), "at": now, "indexes": rows };
        let store = self.registry.store.clone();
        tokio::spawn(async move {
            let id = status::RECORD;
            let written = match store.set_record(Records::Lease, id, Guard::Has(doc! {}), fields.clone()).await {
                Ok(None) => store.set_record(Records::Lease, id, Guard::Missing, fields).await,
                other => other,
            };
            if let Err(error) = written {
                debug!(%error, "the status could not be written down");
            }
        });
    }
}

fn entries(snapshot: &Snapshot) -> impl Iterator<Item = &Entry> {
    snapshot.slots.iter().filter_map(|slot| match slot {
        Slot::Good(entry) => Some(&**entry),
        Slot::Broken(_) => None,
    })
}

fn by_state(snapshot: &Snapshot) -> Vec<(&'static str, usize)> {
    let state = |slot: &Slot| match slot {
        Slot::Good(entry) => entry.state,
        Slot::Broken(_) => IndexState::NeedsRepair,
    };
    let count = |wanted| snapshot.slots.iter().filter(|slot| state(slot) == wanted).count();
    [IndexState::Creating, IndexState::Active, IndexState::NeedsRepair]
        .map(|state| (state.as_str(), count(state)))
        .to_vec()
}
