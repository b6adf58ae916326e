//! Pruning without cron: inside of ordinary requests, once in an interval at most.
//!
//! | file | concern |
//! |---|---|
//! | `prune.rs` | the options, and the order of the steps |
//! | [`claim`] | which of many processes prunes |
//! | [`retention`] | how long a setting says that documents are kept: pure |
//! | [`apply`] | bringing the lifetime in force into line with it |
//! | [`background`] | pruning without anybody waiting for it |
//! | [`layer`] | the same, after each response of a service |
//! | [`outcome`] | what is told of it |

mod apply;
mod background;
mod claim;
#[cfg(feature = "tower")]
mod layer;
mod outcome;
mod retention;

#[cfg(feature = "tower")]
pub use layer::{PruneAfter, PruneLayer, Pruning};
pub use outcome::{AppliedRetention, CollectionPass, Pruned, RetentionOutcome};
pub use retention::{Retention, RetentionSource};

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::IntoFuture,
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::claim::{Claim, Look};
use crate::{
    error::{Code, Refusal, Result},
    interval::{Sight, due_at},
    namespace::CollectionName,
    registry::{Snapshot, TtlRegistry},
    sweep::{self, in_a_task},
};

/// As long an `_id` as every backend takes, with room to spare.
const LONGEST_ID: usize = 1000;

/// For how long a process does not ask again what it has found out, and does not try again in the background what has
/// failed; the interval, if that is shorter.
const QUIET: Duration = Duration::from_secs(60);

impl TtlRegistry {
    /// Deletes what is due if nobody has within this interval: for an application without cron and without a sweeper, to be
    /// asked for in its ordinary requests.
    ///
    /// # Guarantees
    ///
    /// However many processes ask at once, exactly one of them sweeps, at most once in an interval by the database's clock.
    /// The others are told [`Pruned::NotDue`], mostly without asking the database: what was found out is remembered by this
    /// registry handle and its clones, for a minute or for the interval if that is shorter.
    ///
    /// Bounded: by default 20 batches of 500 documents in each collection, and 30 seconds over all of them. What is not done
    /// then is for the next interval, which begins with the first collection that was not reached.
    ///
    /// Beside a running sweeper nothing is swept, and the interval is not used up: [`Pruned::HeldBy`]. A pass of this handle
    /// and its clones is waited for.
    ///
    /// A process that dies after its claim loses one interval at most. Each pass promises what
    /// [`sweep`](Self::sweep) promises.
    ///
    /// # Assumptions
    ///
    /// The interval is kept for each set of collections: those who ask for different ones sweep independently. A claim from
    /// the future, as of before the database's clock was set back, delays the next prune by an interval at most.
    ///
    /// # Errors
    ///
    /// Refused if an option is out of range. An error of the database before the first pass gives the interval back, and so it
    /// is if there was no pass because every collection was refused; what goes wrong with a collection is in the outcome, and
    /// does not stop the others.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ttl_index::Error> {
    /// use std::time::Duration;
    /// use ttl_index::{EmbeddedStore, Pruned, TtlIndex, TtlRegistry};
    ///
    /// let ttl = TtlRegistry::open(EmbeddedStore::in_memory()?).await?;
    /// ttl.create_index("sessions", TtlIndex::on("expireAt").expire_after(Duration::ZERO)).await?;
    ///
    /// let hour = Duration::from_secs(3600);
    /// assert!(matches!(ttl.sweep_if_due(hour).await?, Pruned::Swept { .. }));
    /// assert!(matches!(ttl.sweep_if_due(hour).await?, Pruned::NotDue { .. }));
    ///
    /// // In a request: the response does not wait for it, and no failure of it reaches the response.
    /// ttl.sweep_if_due(hour).in_background();
    /// # Ok(())
    /// # }
    /// ```
    pub fn sweep_if_due(&self, interval: Duration) -> SweepIfDue {
        SweepIfDue {
            registry: self.clone(),
            interval,
            collections: None,
            bounds: Bounds { batch_size: 500, max_batches: 20, max_time: Duration::from_secs(30), rate: None },
            retentions: BTreeMap::new(),
            stop: None,
        }
    }
}

/// Sweeps if nobody has within an interval; see [`TtlRegistry::sweep_if_due`].
#[derive(Clone)]
#[must_use = "nothing happens until it is awaited, or sent to the background"]
pub struct SweepIfDue {
    registry: TtlRegistry,
    interval: Duration,
    /// None: whatever has a TTL index.
    collections: Option<BTreeSet<String>>,
    bounds: Bounds,
    retentions: BTreeMap<String, Retention>,
    stop: Option<Shared<BoxFuture<'static, ()>>>,
}

#[derive(Clone, Debug)]
struct Bounds {
    batch_size: u32,
    max_batches: u64,
    max_time: Duration,
    rate: Option<f64>,
}

impl Bounds {
    fn options(&self, time_left: Duration) -> sweep::Options {
        sweep::Options {
            batch_size: Some(self.batch_size),
            max_batches: Some(self.max_batches),
            max_time: Some(time_left),
            rate: self.rate,
            ..sweep::Options::default()
        }
    }
}

impl SweepIfDue {
    /// Only these collections, one at least; by default all that have a TTL index.
    pub fn collections(mut self, collections: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.collections = Some(collections.into_iter().map(Into::into).collect());
        self
    }

    /// Documents in a batch, 1 to 100,000; 500 by default. With a rate, never more than a second's worth.
    pub fn batch_size(mut self, documents: u32) -> Self {
        self.bounds.batch_size = documents;
        self
    }

    /// The most batches in each collection, at least 1; 20 by default. Those of which nothing is sent to be deleted, as all of it is
    /// kept, do not count: [`max_time`](Self::max_time) limits them as well.
    pub fn max_batches(mut self, batches: u64) -> Self {
        self.bounds.max_batches = batches;
        self
    }

    /// How long new batches may begin, over all collections; 30 seconds by default.
    pub fn max_time(mut self, time: Duration) -> Self {
        self.bounds.max_time = time;
        self
    }

    /// The most documents a second, above 0; no limit by default.
    pub fn rate(mut self, documents_per_second: f64) -> Self {
        self.bounds.rate = Some(documents_per_second);
        self
    }

    /// How long the documents of a collection are kept; by default as its TTL index says.
    ///
    /// Looked at when it is due: if another lifetime is in force the TTL index is modified, in one step from what was
    /// compared with. A fallback, as [`Retention`] calls it, that would shorten the lifetime in force is refused: it is
    /// logged as an error and told in the outcome, and the collection is swept by the lifetime in force.
    pub fn retention(mut self, collection: impl Into<String>, retention: Retention) -> Self {
        self.retentions.insert(collection.into(), retention);
        self
    }

    /// Stops it between two batches once this future is ready; never by default.
    pub fn stop_when(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.stop = Some(signal.boxed().shared());
        self
    }

    fn check(&self) -> Result<(), Refusal> {
        let refuse = |what: String| Err(Refusal::new(Code::BadValue, what));
        if self.interval.is_zero() {
            return refuse("the interval must be longer than 0".to_owned());
        }
        self.bounds.options(self.bounds.max_time).check()?;
        let Some(collections) = &self.collections else { return Ok(()) };
        collections.iter().try_for_each(|name| CollectionName::parse(name).map(drop))?;
        if collections.is_empty() || self.id().len() > LONGEST_ID {
            return refuse(format!(
                "name one collection at least, and no more than fit into {LONGEST_ID} bytes; or none, for all that have a \
                 TTL index"
            ));
        }
        match self.retentions.keys().find(|name| !collections.contains(*name)) {
            Some(other) => refuse(format!("a retention is given for {other}, which is not among the collections")),
            None => Ok(()),
        }
    }

    /// The `_id` of its record. No name of a collection holds a `$`.
    fn id(&self) -> String {
        match &self.collections {
            None => "all".to_owned(),
            Some(collections) => collections.iter().flat_map(|name| ["$", name]).collect(),
        }
    }

    fn quiet(&self) -> Duration {
        self.interval.min(QUIET)
    }

    /// What is known without asking the database.
    fn known(&self, id: &str) -> Option<Pruned> {
        let seen = self.registry.prunes.seen(id)?;
        let now = self.registry.store.now_since(seen.told, seen.at);
        // Not for longer: a claim that was seen may have been given back.
        due_at(Some(seen.told), self.quiet(), now)?;
        match seen.what {
            Sight::Claimed(at) => due_at(Some(at), self.interval, now).map(|next| Pruned::NotDue { next }),
            Sight::HeldBy(holder) => Some(Pruned::HeldBy { holder, retentions: Vec::new() }),
        }
    }

    async fn run(self, stop: CancellationToken) -> Result<Pruned> {
        self.check()?;
        let id = self.id();
        if let Some(known) = self.known(&id) {
            return Ok(known);
        }
        let (store, memory) = (&self.registry.store, &self.registry.prunes);
        let claim = match claim::claim(store, memory, &id, self.interval).await? {
            Look::Claimed(claim) => claim,
            Look::NotDue(next) => return Ok(Pruned::NotDue { next }),
        };
        let retentions = apply::apply(&self.registry, &self.retentions).await;
        let right = match self.registry.claim_sweep().stop_when(stop.clone().cancelled_owned()).await {
            Ok(right) => right,
            Err(error) => {
                let holder = error.refusal().and_then(Refusal::holder).map(str::to_owned);
                claim.give_back(memory, holder.as_deref()).await;
                return holder.map(|holder| Pruned::HeldBy { holder, retentions }).ok_or(error);
            }
        };
        let swept = self.sweep(&claim, &right, retentions, &stop).await;
        right.release().await;
        if swept.as_ref().map_or(true, Pruned::began_nothing) {
            claim.give_back(memory, None).await;
        }
        swept
    }

    /// # Errors
    ///
    /// Only for what keeps it from beginning.
    async fn sweep(
        &self,
        claim: &Claim,
        right: &sweep::Claim,
        retentions: Vec<AppliedRetention>,
        stop: &CancellationToken,
    ) -> Result<Pruned> {
        let start = Instant::now();
        let mut order = match &self.collections {
            Some(collections) => collections.iter().cloned().collect(),
            None => self.with_an_index().await?,
        };
        let failed = |it: &&AppliedRetention| matches!(it.outcome, RetentionOutcome::Failed(_));
        let not_swept: BTreeSet<&String> = retentions.iter().filter(failed).map(|it| &it.collection).collect();
        order.retain(|collection| !not_swept.contains(collection));
        let first = order.iter().position(|collection| Some(collection.as_str()) == claim.begin());
        order.rotate_left(first.unwrap_or_default());

        let (mut passes, mut order) = (Vec::new(), order.into_iter());
        let mut unvisited = Vec::new();
        for collection in order.by_ref() {
            let left = self.bounds.max_time.saturating_sub(start.elapsed());
            if left.is_zero() || stop.is_cancelled() {
                claim.begin_next_with(&collection).await;
                unvisited.push(collection);
                break;
            }
            let sweep = self.registry.sweep(&collection).options(self.bounds.options(left)).under(right);
            let pass = sweep.stop_when(stop.clone().cancelled_owned()).await;
            passes.push(CollectionPass { collection, pass });
        }
        unvisited.extend(order);
        Ok(Pruned::Swept { passes, unvisited, retentions })
    }

    async fn with_an_index(&self) -> Result<Vec<String>> {
        let snapshot = Snapshot::load(&*self.registry.store).await?;
        Ok(snapshot.slots.iter().map(|slot| slot.collection().to_owned()).collect())
    }
}

impl fmt::Debug for SweepIfDue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interval, collections, bounds, retentions, .. } = self;
        f.debug_struct("SweepIfDue")
            .field("interval", interval)
            .field("collections", collections)
            .field("bounds", bounds)
            .field("retentions", retentions)
            .finish_non_exhaustive()
    }
}

impl IntoFuture for SweepIfDue {
    type Output = Result<Pruned>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let signal = self.stop.clone();
            in_a_task(signal, |stop| self.run(stop)).await
        }
        .boxed()
    }
}
