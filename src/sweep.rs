//! One honest pass over one TTL index.
//!
//! - [`report`]: how it ended, and its counts;
//! - [`claim`]: the right to sweep, for one pass or several;
//! - [`pass`]: the loop over batches;
//! - [`task`]: work that is stopped, never dropped.

mod claim;
mod pass;
mod report;
mod task;

pub use claim::{Claim, ClaimSweep};
pub(crate) use pass::{Suspended, Visit};
pub use report::{Ended, Progress, SweepReport};
pub(crate) use task::in_a_task;

use std::{fmt, future::IntoFuture, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use mongodb::bson::DateTime;
use tokio_util::sync::CancellationToken;

use self::claim::Tenure;
use crate::{
    archive::{Archive, OpenArchive},
    entry::Entry,
    error::{Code, Refusal, Result},
    lease::Patience,
    namespace::CollectionName,
    pacing::{Pace, SharedHealth, Size, Throttle},
    registry::{Snapshot, TtlRegistry},
};

/// The most documents in a batch.
pub(crate) const MAX_BATCH: u32 = 100_000;

/// The most unless told otherwise: there is no batch so large that is still quick.
pub(crate) const DEFAULT_BATCH: u32 = 5_000;

impl TtlRegistry {
    /// Deletes what is due in one collection: one pass with one cutoff, in batches.
    ///
    /// # Guarantees
    ///
    /// A document is deleted only if at that instant the earliest date in its TTL field is at or before the cutoff and the
    /// partial filter matches: one that was renewed, emptied or replaced in between survives. The cutoff comes from the
    /// database's clock, once for the pass. Documents that cannot be deleted do not hold up those behind them. Not
    /// transactional, in no promised order.
    ///
    /// One sweeps at a time in a database. The pass takes the lease that sweepers in other processes take, and gives it back;
    /// passes of one registry handle and its clones wait for each other. While sweeping is paused nothing is deleted, and the
    /// pass ends as [`Ended::Paused`].
    ///
    /// The pass runs in a task of its own and stops only between batches: dropping the future before it is done lets the
    /// batch under way finish in the background.
    ///
    /// # Errors
    ///
    /// Refused if the collection has no TTL index or an option is out of range, and with
    /// [`Code::ConflictingOperationInProgress`] if somebody else is sweeping; that is known within a few seconds, and after
    /// a crash the lease is over within 15. What goes wrong once the pass has begun
    /// is in the report, which ends as [`Ended::Failed`] with the error beside its counts.
    ///
    /// ```no_run
    /// # async fn example(ttl: ttl_index::TtlRegistry) -> Result<(), ttl_index::Error> {
    /// let report = ttl.sweep("sessions").batch_size(500).max_batches(20).await?;
    /// if report.ended == ttl_index::Ended::LimitReached {
    ///     println!("{} deleted, more is due", report.deleted);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn sweep(&self, collection: impl Into<String>) -> Sweep {
        Sweep {
            registry: self.clone(),
            collection: collection.into(),
            options: Options::default(),
            archive: None,
            tenure: Tenure::Take(Patience::Refuse),
            stop: None,
        }
    }
}

/// One pass; see [`TtlRegistry::sweep`].
#[must_use = "nothing happens until it is awaited"]
pub struct Sweep {
    registry: TtlRegistry,
    collection: String,
    options: Options,
    archive: Option<Archive>,
    tenure: Tenure,
    stop: Option<BoxFuture<'static, ()>>,
}

pub(crate) type Observer = Box<dyn FnMut(&Progress) + Send>;

pub(crate) struct Options {
    /// None if it is found out.
    pub(crate) batch_size: Option<u32>,
    pub(crate) max_batches: Option<u64>,
    pub(crate) max_time: Option<Duration>,
    pub(crate) rate: Option<f64>,
    pub(crate) cutoff: Option<DateTime>,
    pub(crate) on_batch: Option<Observer>,
    /// Where documents go before they are deleted.
    pub(crate) archive: Option<OpenArchive>,
    /// Whether to read the whole collection if the supporting index cannot be walked.
    pub(crate) read_all: bool,
    /// Begin behind this date: what is due up to it was looked at not long ago, and kept.
    pub(crate) behind: Option<DateTime>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            batch_size: None,
            max_batches: None,
            max_time: None,
            rate: None,
            cutoff: None,
            on_batch: None,
            archive: None,
            read_all: true,
            behind: None,
        }
    }
}

impl Sweep {
    /// Documents in a batch, 1 to 100,000; by default as many, up to 5,000, as take about 75 ms. With a rate, never more than
    /// a second's worth; fewer than asked for while the database is overloaded.
    pub fn batch_size(mut self, documents: u32) -> Self {
        self.options.batch_size = Some(documents);
        self
    }

    /// The most batches, at least 1; no limit by default. Those of which nothing is sent to be deleted, as all of it is kept, do not
    /// count: [`max_time`](Self::max_time) limits them as well.
    pub fn max_batches(mut self, batches: u64) -> Self {
        self.options.max_batches = Some(batches);
        self
    }

    /// How long the pass may begin new batches; no limit by default.
    pub fn max_time(mut self, time: Duration) -> Self {
        self.options.max_time = Some(time);
        self
    }

    /// The most documents a second, above 0. A batch goes through as a whole and is paid for afterwards; time that passes unused
    /// is not saved up. By default it goes as fast as the database stays healthy: once batches take twice as long as they
    /// took in the minutes before, the pass rests in between.
    pub fn rate(mut self, documents_per_second: f64) -> Self {
        self.options.rate = Some(documents_per_second);
        self
    }

    /// Only documents with a date at or before this, which must be due already; by default all that are due.
    pub fn cutoff(mut self, cutoff: DateTime) -> Self {
        self.options.cutoff = Some(cutoff);
        self
    }

    /// All of them at once.
    pub(crate) fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Whether to ask whoever sweeps to hand over at the end of a batch, and to wait for that; off by default.
    ///
    /// A background sweeper does so at once, a pass such as this one when it has ended.
    pub fn wait(mut self, value: bool) -> Self {
        self.tenure = Tenure::Take(if value { Patience::Ask } else { Patience::Refuse });
        self
    }

    /// Sweeps under a right that was claimed for several passes; by default the pass claims its own.
    pub fn under(mut self, claim: &Claim) -> Self {
        self.tenure = Tenure::Held(claim.lease());
        self
    }

    /// Sweeps whoever else does. For tests; unstable.
    #[cfg(feature = "test-util")]
    pub fn without_lease(mut self) -> Self {
        self.tenure = Tenure::None;
        self
    }

    /// Called after every batch; not at all by default.
    pub fn on_batch(mut self, observer: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.options.on_batch = Some(Box::new(observer));
        self
    }

    /// Writes each document to the archive before it is deleted, and deletes it only as it is there; not by default. What keeps
    /// the archive from being opened is an error of the pass.
    pub fn archive(mut self, archive: Archive) -> Self {
        self.archive = Some(archive);
        self
    }

    /// Stops the pass between two batches once this future is ready; never by default.
    pub fn stop_when(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.stop = Some(signal.boxed());
        self
    }
}

impl fmt::Debug for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweep").field("collection", &self.collection).finish_non_exhaustive()
    }
}

impl Options {
    /// What a pass by itself goes by.
    fn pace(&self, entry: &Entry) -> Pace {
        let size = self.batch_size.map_or_else(|| Size::up_to(DEFAULT_BATCH), Size::asked).in_seconds();
        let throttle = Throttle::per_second(self.rate.unwrap_or(f64::INFINITY));
        Pace::new(entry.id, size, throttle, SharedHealth::new())
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let refuse = |what: String| Err(Refusal::new(Code::BadValue, what));
        if let Some(size) = self.batch_size
            && !(1..=MAX_BATCH).contains(&size)
        {
            return refuse(format!("the batch size must be 1 to {MAX_BATCH}, but got {size}"));
        }
        if self.max_batches == Some(0) {
            return refuse("the number of batches must be at least 1".to_owned());
        }
        if let Some(rate) = self.rate
            && !(rate.is_finite() && rate > 0.0)
        {
            return refuse(format!("the rate must be a number above 0, but got {rate}"));
        }
        Ok(())
    }
}

impl IntoFuture for Sweep {
    type Output = Result<SweepReport>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            self.options.check()?;
            let collection = CollectionName::parse(&self.collection)?;
            let options = (self.options, self.archive);
            let pass = |stop| one_pass(self.registry, collection, options, self.tenure, stop);
            in_a_task(self.stop, pass).await
        }
        .boxed()
    }
}

async fn one_pass(
    registry: TtlRegistry,
    collection: CollectionName,
    options: (Options, Option<Archive>),
    tenure: Tenure,
    stop: CancellationToken,
) -> Result<SweepReport> {
    // Refused before anybody is asked to hand over.
    let snapshot = Snapshot::load(&*registry.store).await?;
    let entry = snapshot.entry(&collection)?;
    let Some(tenure) = tenure.begin(&registry, &stop).await? else {
        return Ok(SweepReport::unbegun(entry, registry.store.now().await?));
    };
    let outcome = pass_under(&registry, &collection, options, tenure.lease(), stop).await;
    tenure.end().await;
    outcome
}

async fn pass_under(
    registry: &TtlRegistry,
    collection: &CollectionName,
    (mut options, archive): (Options, Option<Archive>),
    lease: Option<Arc<crate::lease::Lease>>,
    stop: CancellationToken,
) -> Result<SweepReport> {
    // Passes take turns, and with the lease the archive.
    if let Some(archive) = archive {
        options.archive = Some(archive.open(&*registry.store, collection).await?);
    }
    // After the lease was taken: every change that was waited for is in it.
    let snapshot = Snapshot::load(&*registry.store).await?;
    let entry = snapshot.entry(collection)?;
    let mut pace = options.pace(entry);
    let visit = Visit {
        store: &*registry.store,
        meter: &registry.meter,
        entry,
        revision: snapshot.revision,
        paused: snapshot.paused.clone(),
        seen: registry.store.inspect(collection).await?,
        veto: registry.veto.clone(),
        lease: lease.as_deref(),
        pace: &mut pace,
        clock: None,
        stop,
        options,
        suspended: None,
    };
    visit.run().await.map(|(report, _)| report)
}
