//! What is counted: by the registry, the passes and the sweeper, for whoever watches them.
//!
//! - [`counters`]: the counts, as the program that holds the registry reads them;
//! - [`names`]: what they are called outside, in one table;
//! - [`mirror`]: passing them on to the `metrics` facade, with the feature `metrics`.
//!
//! Counting never fails and never waits for anything but another count.

mod counters;
mod mirror;
mod names;

pub use counters::{Counters, Counts, Delays, IndexCounters, PaceCounters};
pub use names::{METRICS, Metric, MetricKind};

use std::{
    collections::{BTreeMap, HashSet, btree_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mongodb::bson::DateTime;
use tracing::debug;

use self::mirror::{Label, Mirror};

/// Counts for one database.
#[derive(Debug)]
pub(crate) struct Meter {
    database: String,
    counted: Mutex<Counted>,
    mirror: Mirror,
}

#[derive(Debug, Default)]
struct Counted {
    indexes: BTreeMap<(String, String), IndexCounters>,
    /// What indexes had counted that were dropped since: a total never goes down.
    dropped: Counts,
    states: BTreeMap<&'static str, usize>,
    lease: (bool, i64),
    pace: PaceCounters,
    last_success: Option<DateTime>,
}

/// Which TTL index an event belongs to; the names are whole, whatever is in them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Labels<'a> {
    pub(crate) collection: &'a str,
    /// Empty if no index is known, as when there is none to be modified.
    pub(crate) index: &'a str,
}

/// What became of one batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Batch {
    pub(crate) deleted: u64,
    pub(crate) changed: u64,
    pub(crate) uncertain: u64,
    pub(crate) left: u64,
    pub(crate) kept: u64,
    pub(crate) disputed: u64,
    pub(crate) duration: Duration,
}

impl Meter {
    pub(crate) fn new(database: String) -> Self {
        Self { database, counted: Mutex::default(), mirror: Mirror::default() }
    }

    /// A batch is over.
    pub(crate) fn batch(&self, of: &Labels, batch: &Batch) {
        let Batch { deleted, changed, uncertain, left, kept, disputed, duration } = *batch;
        self.counts(of, |counts| {
            counts.deleted += deleted;
            counts.changed += changed;
            counts.uncertain += uncertain;
            counts.left += left;
            counts.kept += kept;
            counts.disputed += disputed;
            counts.batches += 1;
            counts.batch_time += duration;
        });
        let labels = self.labels(of);
        for (metric, count) in [
            (&names::DELETED, deleted),
            (&names::CHANGED, changed),
            (&names::UNCERTAIN, uncertain),
            (&names::LEFT, left),
            (&names::KEPT, kept),
            (&names::DISPUTED, disputed),
            (&names::BATCHES, 1),
        ] {
            self.mirror.count(metric, &labels, count);
        }
        self.mirror.observe(&names::BATCH_DURATION, &labels, [duration]);
        let seconds = duration.as_secs_f64();
        let Labels { collection, index } = of;
        debug!(
            database = self.database,
            collection, index, deleted, changed, uncertain, left, kept, disputed, seconds, "batch"
        );
    }

    /// How long after their expiry documents were deleted; only of documents that were deleted for certain.
    pub(crate) fn delays(&self, of: &Labels, delays: impl Iterator<Item = Duration>) {
        let delays: Vec<Duration> = delays.collect();
        self.counts(of, |counts| delays.iter().for_each(|delay| counts.delays.record(*delay)));
        self.mirror.observe(&names::DELAY, &self.labels(of), delays);
    }

    /// A pass is over. It has logged itself.
    pub(crate) fn pass(&self, of: &Labels, ended: &'static str) {
        self.counts(of, |counts| *counts.passes.entry(ended).or_default() += 1);
        self.mirror.count(&names::PASSES, &[&self.labels(of)[..], &[("ended", ended)]].concat(), 1);
    }

    /// For how long the oldest document is due that is still there; none if nothing is due.
    pub(crate) fn oldest_due(&self, of: &Labels, age: Option<Duration>) {
        self.index(of, |index| index.oldest_due = age);
        self.mirror.set(&names::OLDEST_DUE, &self.labels(of), age.unwrap_or_default().as_secs_f64());
    }

    /// Something failed. Whoever reports the failure logs it.
    pub(crate) fn error(&self, of: &Labels, kind: &'static str, code: Option<i32>) {
        self.counts(of, |counts| *counts.errors.entry((kind, code)).or_default() += 1);
        let code = code.map(|code| code.to_string()).unwrap_or_default();
        let labels = [&self.labels(of)[..], &[("kind", kind), ("code", &code)]].concat();
        self.mirror.count(&names::ERRORS, &labels, 1);
    }

    /// How many TTL indexes there are in each state. A state that is not named has none.
    pub(crate) fn indexes(&self, states: &[(&'static str, usize)]) {
        let now: BTreeMap<_, _> = {
            let mut counted = self.lock();
            counted.states.values_mut().for_each(|count| *count = 0);
            counted.states.extend(states.iter().copied());
            counted.states.clone()
        };
        for (state, count) in now {
            self.mirror.set(&names::INDEXES, &[self.database(), ("state", state)], float(count));
        }
    }

    /// Whether this process holds the lease, and the term it knows of. Without it nothing is known of what is due now.
    pub(crate) fn lease(&self, held: bool, term: i64) {
        self.lock().lease = (held, term);
        if !held {
            self.quieten(|_| true);
            self.paused(false);
            self.pace(PaceCounters::default());
        }
        self.mirror.set(&names::LEASE_HELD, &[self.database()], f64::from(u8::from(held)));
        self.mirror.set(&names::LEASE_TERM, &[self.database()], float(term));
    }

    /// Whether sweeping is paused.
    pub(crate) fn paused(&self, paused: bool) {
        self.mirror.set(&names::PAUSED, &[self.database()], f64::from(u8::from(paused)));
    }

    /// How fast it goes.
    pub(crate) fn pace(&self, pace: PaceCounters) {
        self.lock().pace = pace;
        let PaceCounters { rate, planned, peak, lateness, health_factor } = pace;
        for (metric, value) in [
            (&names::RATE, rate),
            (&names::PLANNED_RATE, planned),
            (&names::PEAK_RATE, peak),
            (&names::PREDICTED_LATENESS, lateness.as_secs_f64()),
            (&names::HEALTH_FACTOR, health_factor),
        ] {
            self.mirror.set(metric, &[self.database()], value);
        }
    }

    /// How many documents of an index are due.
    pub(crate) fn backlog(&self, of: &Labels, documents: u64) {
        self.index(of, |index| index.backlog = documents);
        self.mirror.set(&names::BACKLOG, &self.labels(of), float(documents));
    }

    /// A pass ended well, by the database's clock.
    pub(crate) fn success(&self, now: DateTime) {
        self.lock().last_success = Some(now);
        self.mirror.set(&names::LAST_SUCCESS, &[self.database()], float(now.timestamp_millis()) / 1000.0);
    }

    /// How often in a row the passes of an index have failed.
    pub(crate) fn failures(&self, of: &Labels, consecutive: u64) {
        self.index(of, |index| index.consecutive_failures = consecutive);
        self.mirror.set(&names::CONSECUTIVE_FAILURES, &self.labels(of), float(consecutive));
    }

    /// The TTL index of a collection is gone, and with it whatever was said of its present state.
    pub(crate) fn forget(&self, collection: &str) {
        self.forget_those(|of| of.collection == collection);
    }

    /// The same for all TTL indexes that were swept and are not among these.
    pub(crate) fn keep(&self, known: &HashSet<(&str, &str)>) {
        let gone = |of: &IndexCounters| !known.contains(&(of.collection.as_str(), of.index.as_str()));
        self.forget_those(|of| !of.counts.passes.is_empty() && gone(of));
        // A series that begins with its first deletions does not tell of them.
        for (collection, index) in known {
            self.mirror.count(&names::DELETED, &self.labels(&Labels { collection, index }), 0);
        }
    }

    fn forget_those(&self, gone: impl Fn(&IndexCounters) -> bool) {
        self.quieten(&gone);
        let counted = &mut *self.lock();
        let dropped = &mut counted.dropped;
        counted.indexes.retain(|_, index| {
            let gone = gone(index);
            if gone {
                dropped.add(&index.counts);
            }
            !gone
        });
    }

    /// Says no longer that anything is due or fails. The facade cannot take a value back; 0 raises no alarm.
    fn quieten(&self, which: impl Fn(&IndexCounters) -> bool) {
        let loud = |index: &&mut IndexCounters| {
            index.oldest_due.is_some() || index.backlog > 0 || index.consecutive_failures > 0
        };
        let mut quiet = Vec::new();
        for index in self.lock().indexes.values_mut().filter(|index| which(index)).filter(loud) {
            (index.oldest_due, index.backlog, index.consecutive_failures) = (None, 0, 0);
            quiet.push((index.collection.clone(), index.index.clone()));
        }
        for (collection, index) in &quiet {
            let labels = self.labels(&Labels { collection, index });
            self.mirror.set(&names::OLDEST_DUE, &labels, 0.0);
            self.mirror.set(&names::BACKLOG, &labels, 0.0);
            self.mirror.set(&names::CONSECUTIVE_FAILURES, &labels, 0.0);
        }
    }

    /// Everything counted so far.
    pub(crate) fn counters(&self) -> Counters {
        let counted = self.lock();
        let mut total = counted.dropped.clone();
        counted.indexes.values().for_each(|index| total.add(&index.counts));
        Counters {
            database: self.database.clone(),
            total,
            indexes: counted.indexes.values().cloned().collect(),
            states: counted.states.clone(),
            lease_held: counted.lease.0,
            lease_term: counted.lease.1,
            pace: counted.pace,
            last_success: counted.last_success,
        }
    }

    fn counts(&self, of: &Labels, change: impl FnOnce(&mut Counts)) {
        self.index(of, |index| change(&mut index.counts));
    }

    fn index(&self, of: &Labels, change: impl FnOnce(&mut IndexCounters)) {
        let mut counted = self.lock();
        change(match counted.indexes.entry((of.collection.to_owned(), of.index.to_owned())) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let (collection, index) = new.key().clone();
                new.insert(IndexCounters { collection, index, ..IndexCounters::default() })
            }
        });
    }

    fn labels<'a>(&'a self, of: &Labels<'a>) -> [Label<'a>; 3] {
        [self.database(), ("collection", of.collection), ("index", of.index)]
    }

    fn database(&self) -> Label<'_> {
        ("database", &self.database)
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        // Whoever panicked while counting left numbers, and numbers are all there is.
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As near as a gauge can show it.
#[allow(clippy::cast_precision_loss)]
fn float<T: TryInto<i64>>(number: T) -> f64 {
    number.try_into().unwrap_or(i64::MAX) as f64
}
