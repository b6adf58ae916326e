//! The background half: visits every TTL index of a database in turn, as the only one who does.
//!
//! | file | concern |
//! |---|---|
//! | `sweeper.rs` | the options, starting and stopping |
//! | [`run`] | standing by for the lease, and being told to stop |
//! | [`tenure`] | what is done with the lease |
//! | [`visit`] | one visit to one index |
//! | [`planning`] | counting for the forecast, the plan, and the rate that comes of it |
//! | [`outlook`] | the plan, for whoever asks |
//! | [`catalog`], [`drift`] | what the collections are, and what has become of them |
//! | [`kept`] | when documents that a guard keeps are looked at again: pure |
//! | [`telling`], [`status`] | what is told of it all |

mod catalog;
mod drift;
mod kept;
mod outlook;
mod planning;
mod run;
mod status;
mod survey;
mod telling;
mod tenure;
mod visit;
mod within;

pub(crate) use drift::{Drift, of as drift_of, of_collection as drift_of_collection};
pub use outlook::{MakePlan, PausePrice, PlanReport, PlannedIndex, PlannedRate};
pub use status::{Activity, HeldBack, IndexStatus, PaceStatus, SweeperStatus, Visits};

use std::{error, fmt, future::pending, time::Duration};

use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    error::{Code, Error, Refusal, Result},
    lease::{LEASE_TIME, default_name},
    pacing::{ClosedWindow, HealthHook, Signal, Terms},
    registry::{Pause, TtlRegistry},
    sweep::DEFAULT_BATCH,
};

/// The shortest lease worth having: it is renewed five times in it.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// The longest: for so long nobody sweeps, and no change is confirmed, after a crash.
const LONGEST_LEASE: Duration = Duration::from_secs(86_400);

/// The longest time between two visits, well within what a clock can add up.
const LONGEST_INTERVAL: Duration = Duration::from_secs(365 * 86_400);

/// The background sweeper of a database.
///
/// # Expected flow
///
/// Run one in every copy of an application, or as `ttl-index run`. One of them holds the lease and visits each TTL index
/// about once a minute; the others stand by and take over when it is gone.
///
/// # Guarantees
///
/// - Nothing runs before [`run`](Self::run) or [`start`](Self::start). No signal handler and no logger is installed.
/// - One sweeps at a time, however many there are; after a crash another takes over within the lease time.
/// - At most [`max_rate`](Self::max_rate) documents a second, over all TTL indexes together.
/// - An index that fails is told of, retried with back-off, and never holds up the others. An index with much due takes
///   turns with the others.
/// - The database may be away for any time.
///
/// # Errors
///
/// Refused if an option is out of range. [`Error::Unfit`] if the backend compares or deletes in another way than MongoDB.
/// Everything else is told in [`status`](SweeperHandle::status), counted, logged and survived.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ttl_index::Error> {
/// # use ttl_index::{EmbeddedStore, Sweeper, TtlRegistry};
/// let ttl = TtlRegistry::open(EmbeddedStore::in_memory()?).await?;
/// let sweeper = Sweeper::new(ttl).max_rate(500.0).start()?;
/// // … serve …
/// sweeper.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a sweeper does nothing until it is run or started"]
pub struct Sweeper {
    registry: TtlRegistry,
    options: Options,
}

#[derive(Clone, Debug)]
struct Options {
    terms: Terms,
    batch_size: u32,
    interval: Duration,
    lease_time: Duration,
    name: String,
    health: Option<HealthHook>,
}

impl Sweeper {
    /// A sweeper for the TTL indexes of this registry.
    pub fn new(registry: TtlRegistry) -> Self {
        let options = Options {
            terms: Terms::default(),
            batch_size: DEFAULT_BATCH,
            interval: Duration::from_secs(60),
            lease_time: LEASE_TIME,
            name: default_name(),
            health: None,
        };
        Self { registry, options }
    }

    /// The most documents a second, over all TTL indexes, above 0; 1,000 by default.
    pub fn max_rate(mut self, documents_per_second: f64) -> Self {
        self.options.terms.max_rate = documents_per_second;
        self
    }

    /// The documents a second below which it goes no slower while anything is due, 0 or above; 50 by default. If it is above
    /// [`max_rate`](Self::max_rate), that one holds.
    pub fn min_rate(mut self, documents_per_second: f64) -> Self {
        self.options.terms.min_rate = documents_per_second;
        self
    }

    /// Within which a document shall be gone that is due, 1 s to 366 days; 24 h by default.
    pub fn target_lag(mut self, lag: Duration) -> Self {
        self.options.terms.target_lag = lag;
        self
    }

    /// A time at which nothing is deleted, beside those named before; none by default. At least 5 % of the week stay open.
    pub fn closed(mut self, window: ClosedWindow) -> Self {
        self.options.terms.closed.close(window);
        self
    }

    /// The most documents in a batch, 1 to 100,000; 5,000 by default. A batch has as many as take about 75 ms, and never more
    /// than half a second's worth of the rate.
    pub fn batch_size(mut self, documents: u32) -> Self {
        self.options.batch_size = documents;
        self
    }

    /// How often each TTL index is visited, above 0 and at least once in 365 days; every 60 s by default.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.options.interval = interval;
        self
    }

    /// Within which another sweeper takes over after a crash, 1 s to a day; 15 s by default.
    pub fn lease_time(mut self, time: Duration) -> Self {
        self.options.lease_time = time;
        self
    }

    /// What this sweeper is called where it is shown who sweeps; the process and host by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = name.into();
        self
    }

    /// Asks a hook how well the database is, every 5 s while this sweeper sweeps; no hook by default.
    ///
    /// What it answers counts beside what the sweeper sees by itself, which is how long batches take and whether the database
    /// says that it is overloaded: the lowest factor is what is made of the planned rate, at once. Afterwards the rate rises by
    /// 5 % a second at most. A hook that fails, panics, answers NaN or takes over 5 s has not answered: what it said last
    /// holds for 30 s, then no more than a factor of 0.5 until 10 minutes later, and from then on it is ignored until it answers.
    ///
    /// Replication lag and MongoDB's flow control, for instance:
    ///
    /// ```
    /// # use mongodb::{Client, bson::{DateTime, doc}};
    /// # use ttl_index::{EmbeddedStore, Signal, Sweeper, TtlRegistry};
    /// # type AnyError = Box<dyn std::error::Error + Send + Sync>;
    /// async fn how_well(client: Client) -> Result<Signal, AnyError> {
    ///     let admin = client.database("admin");
    ///     let server = admin.run_command(doc! { "serverStatus": 1, "repl": 0, "metrics": 0, "locks": 0 }).await?;
    ///     if server.get_document("flowControl")?.get_bool("isLagged")? {
    ///         return Ok(Signal::factor(0.25, "flow control holds back writes"));
    ///     }
    ///     let set = admin.run_command(doc! { "replSetGetStatus": 1 }).await?;
    ///     let members = set.get_array("members")?.iter().filter_map(|member| member.as_document());
    ///     let optimes = members.filter_map(|member| member.get_datetime("optimeDate").ok());
    ///     let (oldest, newest) = (optimes.clone().min(), optimes.max());
    ///     let lag = newest.zip(oldest).map_or(0, |(newest, oldest)| newest.timestamp_millis() - oldest.timestamp_millis());
    ///     Ok(match lag {
    ///         ..5_000 => Signal::healthy(),
    ///         5_000..60_000 => Signal::factor(5_000.0 / lag as f64, format!("a secondary is {lag} ms behind")),
    ///         _ => Signal::stop(format!("a secondary is {lag} ms behind")),
    ///     })
    /// }
    ///
    /// # async fn example(client: Client, ttl: TtlRegistry) -> Result<(), ttl_index::Error> {
    /// let sweeper = Sweeper::new(ttl).health(move || how_well(client.clone())).start()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn health<F>(mut self, hook: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = std::result::Result<Signal, Box<dyn error::Error + Send + Sync>>> + Send + 'static,
    {
        self.options.health = Some(HealthHook::new(hook));
        self
    }

    /// Sweeps until `shutdown` is ready, then stops at the end of a batch and gives the lease back.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<()> {
        let mut handle = self.start()?;
        tokio::select! {
            ended = &mut handle.task => return joined(ended),
            () = shutdown => {}
        }
        handle.shutdown().await
    }

    /// Starts sweeping in the background, on the runtime of the caller.
    pub fn start(self) -> Result<SweeperHandle> {
        self.options.check()?;
        let stop = CancellationToken::new();
        let (told, status) = watch::channel(SweeperStatus::unknown());
        let task = tokio::spawn(run::run(self.registry.clone(), self.options, stop.clone(), told));
        Ok(SweeperHandle { registry: self.registry, status, task, stop: stop.drop_guard() })
    }
}

impl Options {
    fn check(&self) -> Result<(), Refusal> {
        let refuse = |what: String| Err(Refusal::new(Code::BadValue, what));
        self.terms.check()?;
        if !(1..=crate::sweep::MAX_BATCH).contains(&self.batch_size) {
            return refuse(format!("the batch size must be 1 to 100000, but got {}", self.batch_size));
        }
        if self.interval.is_zero() {
            return refuse("the interval between visits must be above 0".to_owned());
        }
        if self.interval > LONGEST_INTERVAL {
            return refuse("the interval between visits must be at most 365 days".to_owned());
        }
        if !(SHORTEST_LEASE..=LONGEST_LEASE).contains(&self.lease_time) {
            return refuse(format!("the lease time must be 1 s to 1 day, but got {:?}", self.lease_time));
        }
        Ok(())
    }
}

/// A sweeper that was started.
///
/// Dropped, it stops at the end of a batch and gives the lease back, but nobody waits for that: a runtime that ends before
/// leaves the lease to lapse. [`shutdown`](Self::shutdown) waits.
#[must_use = "dropped, the sweeper stops"]
pub struct SweeperHandle {
    registry: TtlRegistry,
    status: watch::Receiver<SweeperStatus>,
    task: JoinHandle<Result<()>>,
    stop: DropGuard,
}

impl SweeperHandle {
    /// How it goes in this process; [`TtlRegistry::status`] tells of the whole database.
    pub fn status(&self) -> SweeperStatus {
        self.status.borrow().clone()
    }

    /// Pauses sweeping in the whole database, as [`TtlRegistry::pause`] does.
    pub async fn pause(&self) -> Result<Pause> {
        self.registry.pause().await
    }

    /// Has sweeping go on, as [`TtlRegistry::resume`] does.
    pub async fn resume(&self) -> Result<bool> {
        self.registry.resume().await
    }

    /// Whether it has ended by itself, which [`shutdown`](Self::shutdown) gives the reason of.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Stops at the end of a batch and gives the lease back. A database call that does not return is waited for no longer
    /// than the lease time.
    pub async fn shutdown(self) -> Result<()> {
        self.stop.disarm().cancel();
        joined(self.task.await)
    }
}

impl fmt::Debug for SweeperHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SweeperHandle").field("status", &self.status()).finish_non_exhaustive()
    }
}

fn joined(ended: std::result::Result<Result<()>, tokio::task::JoinError>) -> Result<()> {
    match ended {
        Ok(outcome) => outcome,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Error::Interrupted),
        },
    }
}

/// Ready when the value changes; never once nobody can change it.
async fn changed<T>(watched: &mut watch::Receiver<T>) {
    if watched.changed().await.is_err() {
        pending::<()>().await;
    }
}
