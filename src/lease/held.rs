//! A lease that is held: renewed in the background, and with it the fence; changes of the registry are acknowledged between
//! batches.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use mongodb::bson::{Bson, DateTime, Document, doc};
use tokio::{
    sync::{Mutex as AsyncMutex, MutexGuard, Notify, watch},
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, info, warn};

use super::{Claimant, ID, Record};
use crate::{
    error::Result,
    store::{Bound, DynStore, Fence, Guard, Records},
};

/// How often the registry's revision is looked at, on stores that do not tell by themselves.
const LOOK_EVERY: Duration = Duration::from_millis(400);

/// So long after a failed renewal it is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// How long the end of what is done for a lease is waited for.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// After so many renewals the server is asked for its time again.
const ASK_TIME_EVERY: i64 = 5;

/// How the lease stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Held,
    /// Somebody asks for it.
    Asked(String),
    /// It is over, or somebody else has it.
    Lost,
}

/// When a lease was taken, by this process's clock and the server's.
pub(super) struct Taken {
    /// Before the record was written.
    pub(super) before: Instant,
    /// What the server's clock showed...
    pub(super) told: DateTime,
    /// ...when its answer had come.
    pub(super) told_at: Instant,
    /// From when on nothing of an earlier holder takes effect.
    pub(super) settled: Instant,
}

/// The right to sweep. Lapses by itself if it is dropped instead of being given back.
#[derive(Debug)]
pub(crate) struct Lease {
    shared: Arc<Shared>,
    /// They hold the store, which its user may want to open again once the lease is given back.
    tasks: Mutex<Vec<JoinHandle<()>>>,
    _stop: DropGuard,
}

#[derive(Debug)]
struct Shared {
    store: DynStore,
    claimant: Claimant,
    term: i64,
    renewals: AtomicI64,
    fence: Fence,
    /// Held by a batch from its look at the registry's revision to the end of its delete.
    gate: AsyncMutex<()>,
    standing: watch::Sender<Standing>,
    /// The registry's revision as it was last seen.
    revision: watch::Sender<Option<i64>>,
    /// Somebody has seen another revision.
    look: Notify,
    /// What is told of the work, along with the renewals.
    work: Mutex<Document>,
    settled: Instant,
    stop: CancellationToken,
}

impl Lease {
    pub(super) fn start(store: DynStore, claimant: Claimant, term: i64, taken: Taken) -> Self {
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            fence: Fence::new(bound(&claimant, taken.before, taken.told, taken.told_at)),
            store,
            claimant,
            term,
            renewals: AtomicI64::new(0),
            gate: AsyncMutex::new(()),
            standing: watch::Sender::new(Standing::Held),
            revision: watch::Sender::new(None),
            look: Notify::new(),
            work: Mutex::default(),
            settled: taken.settled,
            stop: stop.clone(),
        });
        info!(holder = shared.claimant.id, term, "took the lease");
        let tasks = vec![tokio::spawn(shared.clone().renew(taken)), tokio::spawn(shared.clone().acknowledge())];
        Self { shared, tasks: Mutex::new(tasks), _stop: stop.drop_guard() }
    }

    pub(crate) fn term(&self) -> i64 {
        self.shared.term
    }

    pub(crate) fn holder(&self) -> &str {
        &self.shared.claimant.id
    }

    pub(crate) fn fence(&self) -> Fence {
        self.shared.fence.clone()
    }

    /// Waits for what is acknowledged just now; a batch that holds the answer goes by the registry as it reads it then.
    pub(crate) async fn batch(&self) -> MutexGuard<'_, ()> {
        self.shared.gate.lock().await
    }

    pub(crate) fn standing(&self) -> watch::Receiver<Standing> {
        self.shared.standing.subscribe()
    }

    pub(crate) fn is_lost(&self) -> bool {
        *self.shared.standing.borrow() == Standing::Lost || !self.shared.fence.is_open()
    }

    /// The registry's revision whenever it is seen to have changed.
    pub(crate) fn revision(&self) -> watch::Receiver<Option<i64>> {
        self.shared.revision.subscribe()
    }

    /// Has the registry looked at now, as it seems to have changed.
    pub(crate) fn look_at_registry(&self) {
        self.shared.look.notify_one();
    }

    /// What to tell of the work from now on.
    pub(crate) fn tell(&self, work: Document) {
        *self.shared.work.lock().unwrap_or_else(PoisonError::into_inner) = work;
    }

    /// Does nothing more under the lease and lets it lapse, whatever batch is still under way.
    pub(crate) fn abandon(&self) {
        self.shared.fence.close();
        self.shared.stop.cancel();
    }

    /// Gives the lease back, or hands it over. If that fails, or a delete of unknown outcome may still take effect, it
    /// lapses instead.
    pub(crate) async fn give_back(&self, to: Option<String>) {
        let shared = &self.shared;
        let idle = shared.gate.lock().await;
        shared.stop.cancel();
        shared.fence.close();
        drop(idle);
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        if timeout(LAST_WAIT, join_all(tasks)).await.is_err() {
            debug!(holder = shared.claimant.id, "a renewal is still under way");
        }
        if *shared.standing.borrow() == Standing::Lost {
            return;
        }
        if shared.fence.unsettled().is_some() || Instant::now() < shared.settled {
            info!(holder = shared.claimant.id, "the lease is left to lapse: a delete may still be under way");
            return;
        }
        let fields = doc! { "holder": to.clone(), "vacate": Bson::Null, "work": shared.work() };
        match shared.set(fields).await {
            Ok(_) => info!(holder = shared.claimant.id, to, "gave the lease back"),
            Err(error) => warn!(%error, "the lease could not be given back; it lapses"),
        }
    }
}

/// The end of the lease after a renewal that was sent at this instant.
fn bound(claimant: &Claimant, sent: Instant, told: DateTime, told_at: Instant) -> Bound {
    let local = sent + claimant.still();
    let later = i64::try_from(local.saturating_duration_since(told_at).as_millis()).unwrap_or(i64::MAX);
    Bound { local, server: Some(DateTime::from_millis(told.timestamp_millis().saturating_add(later))) }
}

impl Shared {
    fn work(&self) -> Document {
        self.work.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets fields of the record if it is still this holder's.
    async fn set(&self, fields: Document) -> Result<Option<Document>> {
        let mine = Guard::Has(doc! { "holder": &self.claimant.id, "term": self.term });
        self.store.set_record(Records::Lease, ID, mine, fields).await
    }

    fn lose(&self, why: &str) {
        self.fence.close();
        if self.standing.send_replace(Standing::Lost) != Standing::Lost {
            warn!(holder = self.claimant.id, term = self.term, why, "lost the lease");
        }
        self.stop.cancel();
    }

    async fn renew(self: Arc<Self>, taken: Taken) {
        let Taken { mut told, mut told_at, before, .. } = taken;
        let mut valid_until = before + self.claimant.still();
        let mut next = Instant::now() + self.claimant.renew_every();
        let mut renewal = 0_i64;
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = sleep_until(next) => {}
            }
            let renewed = loop {
                if Instant::now() >= valid_until {
                    return self.lose("it could not be renewed in time");
                }
                let sent = Instant::now();
                // Another number with each try: one that was held up, and comes after later ones, must not show again what
                // an observer has seen already.
                renewal += 1;
                // In a task of its own: a driver's future must not be dropped halfway, and may take for ever.
                let shared = self.clone();
                let ask_time = renewal % ASK_TIME_EVERY == 0;
                let renewed = self.store.now_since(told, told_at);
                let renewing = tokio::spawn(async move {
                    let time = if ask_time { Some((shared.store.now().await?, Instant::now())) } else { None };
                    let fields = doc! { "renewal": renewal, "renewed": renewed, "work": shared.work() };
                    Ok::<_, crate::error::Error>((time, shared.set(fields).await?))
                });
                // One on a connection that has gone silent must not cost the lease: the next goes over another.
                let answer_by = valid_until.min(sent + 2 * self.claimant.renew_every());
                match timeout_at(answer_by, renewing).await {
                    Ok(Ok(Ok((time, record)))) => {
                        (told, told_at) = time.unwrap_or((told, told_at));
                        break record.map(|record| (sent, record));
                    }
                    Ok(Ok(Err(error))) => debug!(%error, "the lease could not be renewed; trying again"),
                    Ok(Err(error)) => debug!(%error, "the renewal of the lease was broken off"),
                    Err(_) => continue,
                }
                tokio::select! {
                    () = self.stop.cancelled() => return,
                    () = sleep(RETRY.min(self.claimant.renew_every())) => {}
                }
            };
            let Some((sent, record)) = renewed else { return self.lose("somebody else has taken it") };
            valid_until = sent + self.claimant.still();
            self.fence.extend(bound(&self.claimant, sent, told, told_at));
            self.renewals.store(renewal, Ordering::SeqCst);
            let asked = Record::parse(&record).ok().and_then(|record| record.vacate);
            let standing = asked.map_or(Standing::Held, Standing::Asked);
            self.standing.send_if_modified(|now| {
                let news = *now != standing && *now != Standing::Lost;
                if news {
                    now.clone_from(&standing);
                }
                news
            });
            next = sent + self.claimant.renew_every();
        }
    }

    async fn acknowledge(self: Arc<Self>) {
        let mut bell = self.store.wake().map(|wake| wake.listen());
        let mut acknowledged = None;
        loop {
            let seen = self.store.revision().await;
            match seen {
                Ok(seen) if acknowledged != Some(seen) => {
                    self.revision.send_if_modified(|now| std::mem::replace(now, seen) != seen);
                    // Whatever batch begins after this one reads the registry after `seen` was read.
                    drop(self.gate.lock().await);
                    sleep_until(self.settled.max(self.fence.unsettled().unwrap_or(self.settled))).await;
                    match self.set(doc! { "revision": seen }).await {
                        Ok(Some(_)) => acknowledged = Some(seen),
                        Ok(None) => {}
                        Err(error) => debug!(%error, "a change of the registry could not be acknowledged yet"),
                    }
                }
                Ok(_) => {}
                Err(error) => debug!(%error, "the registry's revision could not be read"),
            }
            let rung = async {
                match &mut bell {
                    // Told of every change; looked at now and then all the same.
                    Some(bell) => drop(tokio::time::timeout(self.claimant.renew_every(), bell.changed()).await),
                    None => sleep(LOOK_EVERY).await,
                }
            };
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = self.look.notified() => {}
                () = rung => {}
            }
        }
    }
}
