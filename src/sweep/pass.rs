//! The loop over batches: permit, find, judge, delete, account.

mod account;
mod again;
mod archiving;
mod busy;
mod closing;
mod screen;
mod target;

use std::time::Duration;

use mongodb::bson::{Bson, DateTime};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Ended, Options, Progress, SweepReport};
use crate::{
    entry::{Entry, IndexState},
    error::{Code, Error, Overload, Refusal, Result},
    expiry::instant,
    guard::Hook,
    lease::Lease,
    meter::{Labels, Meter},
    pacing::Pace,
    registry::{Pause, Slot, Snapshot},
    store::{Collection, Fence, Found, Pass, Position, Store},
};

const READS_ALL: &str = "the supporting index cannot be walked: the pass reads the whole collection";

/// All that one pass stands on.
pub(crate) struct Visit<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) meter: &'a Meter,
    pub(crate) entry: &'a Entry,
    /// The registry's revision of which the entry is.
    pub(crate) revision: Option<i64>,
    pub(crate) paused: Option<Pause>,
    /// The collection as it was seen, not long ago.
    pub(crate) seen: Collection,
    /// A hook to be asked about every batch.
    pub(crate) veto: Option<Hook>,
    /// None only in tests of what happens without one.
    pub(crate) lease: Option<&'a Lease>,
    /// When batches may begin, and how large they are.
    pub(crate) pace: &'a mut Pace,
    /// What the database's clock showed, and when, if that was not long ago; else it is asked.
    pub(crate) clock: Option<(DateTime, Instant)>,
    pub(crate) stop: CancellationToken,
    pub(crate) options: Options,
    /// A pass of this entry that a limit ended, to be gone on with.
    pub(crate) suspended: Option<Suspended>,
}

/// A pass that a limit ended: where it has got to.
pub(crate) struct Suspended {
    entry: Entry,
    cutoff: DateTime,
    position: Position,
    pass: Box<dyn Pass>,
    moved: Vec<Bson>,
    oldest_left: Option<DateTime>,
}

impl Suspended {
    /// Everything with a date before this one was looked at; none if the pass does not go by date.
    pub(crate) fn reached(&self) -> Option<DateTime> {
        self.position.from()
    }
}

impl Visit<'_> {
    /// Makes the pass, and hands it back if a limit ended it.
    ///
    /// # Errors
    ///
    /// Only for what keeps it from beginning; the rest is in the report.
    pub(crate) async fn run(self) -> Result<(SweepReport, Option<Suspended>)> {
        let clock = match self.clock {
            Some(clock) => clock,
            None => (self.store.now().await?, Instant::now()),
        };
        let due = self.entry.rule.cutoff(self.store.now_since(clock.0, clock.1));
        if let (Some(asked), Some(due)) = (self.options.cutoff, due)
            && asked > due
        {
            let why = format!(
                "the cutoff {} is too late: what is due in {} has a date up to {}",
                instant(asked),
                self.entry.definition.collection,
                instant(due)
            );
            return Err(Refusal::new(Code::BadValue, why).into());
        }
        let mut sweeping = Sweeping::new(self, clock, due);
        sweeping.take_up();
        let ended = match sweeping.until_done().await {
            Ok(ended) => ended,
            Err(error) => {
                sweeping.error = Some(error);
                Ended::Failed
            }
        };
        Ok(sweeping.report(ended).await)
    }
}

struct Sweeping<'a> {
    visit: Visit<'a>,
    /// What the database's clock showed, and when.
    told: (DateTime, Instant),
    /// None if no date can be old enough.
    cutoff: Option<DateTime>,
    started: Instant,
    progress: Progress,
    /// Batches of which something was sent to be deleted.
    sent: u64,
    position: Position,
    pass: Option<Box<dyn Pass>>,
    /// The `_id`s of documents to be read again before the pass goes on: they were due, but changed since they were found, or
    /// were only peeked at.
    moved: Vec<Bson>,
    oldest_left: Option<DateTime>,
    /// Whether the batch under way is of those.
    again: bool,
    /// The database gave up on the last batch, and nothing of it was deleted.
    stalled: bool,
    /// How long the database was at the batch under way, whether it gave up on some of it, and what it said if that is too
    /// much for it.
    busy: Duration,
    gave_up: bool,
    overload: Option<Overload>,
    /// How often it said so in a row.
    overloads: u32,
    error: Option<Error>,
}

impl<'a> Sweeping<'a> {
    fn new(visit: Visit<'a>, told: (DateTime, Instant), due: Option<DateTime>) -> Self {
        Self {
            cutoff: visit.options.cutoff.or(due),
            position: visit.options.behind.map(Position::behind).unwrap_or_default(),
            visit,
            told,
            started: Instant::now(),
            progress: Progress::default(),
            sent: 0,
            pass: None,
            moved: Vec::new(),
            oldest_left: None,
            again: false,
            stalled: false,
            busy: Duration::ZERO,
            gave_up: false,
            overload: None,
            overloads: 0,
            error: None,
        }
    }

    fn labels(&self) -> Labels<'a> {
        let definition = &self.visit.entry.definition;
        Labels { collection: definition.collection.as_str(), index: &definition.name }
    }

    fn fence(&self) -> Fence {
        self.visit.lease.map_or_else(Fence::unlimited, Lease::fence)
    }

    /// Goes on where the pass before this ended, unless the rule, a guard or the collection is another one now.
    fn take_up(&mut self) {
        let entry = self.visit.entry;
        let same = |it: &Suspended| it.entry.deletes_same_as(entry);
        let Some(suspended) = self.visit.suspended.take().filter(same) else { return };
        let Suspended { cutoff, position, pass, moved, oldest_left, .. } = suspended;
        self.cutoff = Some(cutoff);
        (self.position, self.moved, self.oldest_left) = (position, moved, oldest_left);
        self.pass = Some(pass);
    }

    async fn until_done(&mut self) -> Result<Ended> {
        if self.visit.paused.as_ref().is_some_and(|pause| pause.holds_at(self.now())) {
            return Ok(Ended::Paused);
        }
        let Some(cutoff) = self.cutoff else { return Ok(Ended::Drained) };
        let mut pass = match self.pass.take() {
            Some(pass) => pass,
            None => match self.target(cutoff).await? {
                Some(target) => self.visit.store.open_pass(target).await?,
                None => return Ok(Ended::Drained),
            },
        };
        let ended = self.batches(&mut *pass, cutoff).await;
        self.pass = Some(pass);
        ended
    }

    async fn batches(&mut self, pass: &mut dyn Pass, cutoff: DateTime) -> Result<Ended> {
        loop {
            // The wait comes before the look: nothing waits between being found and being deleted.
            self.wait_for_permit().await;
            // Told to stop, because of that.
            if self.visit.lease.is_some_and(Lease::is_lost) {
                return Ok(Ended::LeaseLost);
            }
            if self.visit.stop.is_cancelled() {
                return Ok(Ended::Cancelled);
            }
            if self.limit_reached() {
                return Ok(Ended::LimitReached);
            }
            let _batch = match self.visit.lease {
                Some(lease) => Some(lease.batch().await),
                None => None,
            };
            if self.visit.lease.is_some_and(Lease::is_lost) {
                return Ok(Ended::LeaseLost);
            }
            let began = Instant::now();
            let (found, in_order) = match self.find(pass, cutoff).await {
                Ok(Some(found)) => found,
                // Nothing was to be deleted at all: nobody needs to know by which rule.
                Ok(None) if self.progress.batches == 0 => return Ok(Ended::Drained),
                Ok(None) => return Ok(self.follow_registry().await?.unwrap_or(Ended::Drained)),
                Err(error) if self.tries_again(&error) => {
                    self.tell_pace(0);
                    continue;
                }
                Err(error) => {
                    // An index that was dropped with its rule cannot be walked: that is no failure.
                    if let Some(ended) = self.check_in_force().await? {
                        return Ok(ended);
                    }
                    if self.visit.options.read_all && pass.without_index(&error) {
                        warn!(collection = %self.visit.entry.definition.collection, %error, "{READS_ALL}");
                        continue;
                    }
                    return Err(error);
                }
            };
            if found.is_empty() {
                continue;
            }
            self.busy = began.elapsed();
            // After the look, as there may be nothing to delete; and as late as can be before that.
            if let Some(ended) = self.follow_registry().await? {
                return Ok(ended);
            }
            let size = u32::try_from(found.len()).unwrap_or(u32::MAX);
            let deleted = self.delete(pass, found, cutoff, began).await;
            self.tell_pace(size);
            let (reached, left) = deleted?;
            if let Some(observer) = &mut self.visit.options.on_batch {
                observer(&self.progress);
            }
            self.position.advance(reached.filter(|_| in_order), left).map_err(|_stuck| {
                Error::Unfit("more documents stay behind than a pass can step over; see its report".to_owned())
            })?;
        }
    }

    async fn wait_for_permit(&mut self) {
        let time_is_up = sleep(self.time_left().unwrap_or(Duration::MAX));
        tokio::select! {
            biased;
            () = self.visit.stop.cancelled() => {}
            () = time_is_up => {}
            () = self.visit.pace.ready() => {}
        }
    }

    /// The next batch, and whether the pass may go on behind the dates in it; none if there is nothing more.
    async fn find(&mut self, pass: &mut dyn Pass, cutoff: DateTime) -> Result<Option<(Vec<Found>, bool)>> {
        let most = self.visit.pace.documents();
        self.again = !self.moved.is_empty();
        if self.again {
            let ids = self.moved.drain(..self.moved.len().min(most as usize)).collect();
            return Ok(Some((self.fresh(pass, ids, cutoff).await?, false)));
        }
        let mut found = pass.find(&self.position, most).await?;
        if found.is_empty() {
            return Ok(None);
        }
        if self.visit.veto.is_some() && pass.reads_ahead() {
            let due = |found: &Found| found.dates.is_some_and(|dates| dates.earliest <= cutoff);
            let (old, disputed): (Vec<Found>, Vec<Found>) = found.into_iter().partition(due);
            found = self.fresh(pass, old.into_iter().map(|found| found.id).collect(), cutoff).await?;
            found.extend(disputed);
        }
        Ok(Some((found, pass.ordered())))
    }

    fn limit_reached(&self) -> bool {
        self.visit.options.max_batches.is_some_and(|most| self.sent >= most)
            || self.time_left().is_some_and(|left| left.is_zero())
    }

    /// How long new batches may still begin, if there is a limit.
    fn time_left(&self) -> Option<Duration> {
        self.visit.options.max_time.map(|most| most.saturating_sub(self.started.elapsed()))
    }

    /// Goes by the registry as it is now.
    async fn follow_registry(&mut self) -> Result<Option<Ended>> {
        let current = self.visit.store.revision().await?;
        if current == self.visit.revision {
            return Ok(None);
        }
        if let Some(lease) = self.visit.lease {
            lease.look_at_registry();
        }
        let ended = self.check_in_force().await?;
        if ended.is_none() {
            self.visit.revision = current;
        }
        Ok(ended)
    }

    /// How the pass ends, if its rule is no longer in force or sweeping is paused. That is no failure.
    async fn check_in_force(&mut self) -> Result<Option<Ended>> {
        let snapshot = Snapshot::load(self.visit.store).await?;
        let entry = self.visit.entry;
        if snapshot.paused.as_ref().is_some_and(|pause| pause.holds_at(self.now())) {
            return Ok(Some(Ended::Paused));
        }
        match snapshot.find(&entry.definition.collection) {
            Some(Slot::Good(now))
                if now.id == entry.id && now.deletes_same_as(entry) && now.state != IndexState::NeedsRepair =>
            {
                Ok(None)
            }
            _ => {
                let collection = &entry.definition.collection;
                let why = format!("the TTL index of {collection} was changed or dropped during the pass");
                self.error = Some(Refusal::new(Code::IndexNotFound, why).into());
                Ok(Some(Ended::Cancelled))
            }
        }
    }

    /// The database's clock now.
    fn now(&self) -> DateTime {
        self.visit.store.now_since(self.told.0, self.told.1)
    }
}
