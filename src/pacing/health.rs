//! How well the database is, as far as it can be told: factors from 0 to 1, each with a name. The lowest counts.
//!
//! - [`latency`]: how long batches take, against what they take in general;
//! - [`overload`]: answers that say that there is too much to do;
//! - [`signal`]: what the user's own hook says.

mod latency;
mod overload;
mod signal;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mongodb::bson::oid::ObjectId;
use tokio::time::Instant;

use self::{latency::Latency, overload::Overload, signal::Signals};

pub use signal::Signal;
pub(crate) use signal::{HealthHook, Polling, poll};

/// By how much the factor rises in a second.
const RISE: f64 = 0.05;

/// One thing that speaks against going on as fast.
#[derive(Clone, Debug, PartialEq)]
struct Concern {
    factor: f64,
    stopped: bool,
    name: &'static str,
    why: String,
}

/// Why less is done than could be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trouble {
    /// `latency`, `overload` or `signal`.
    pub(crate) name: &'static str,
    /// In a sentence, with numbers.
    pub(crate) why: String,
    pub(crate) since: Instant,
}

/// How well the database is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    /// The share of what is planned that it can take, from 0 to 1.
    pub(crate) factor: f64,
    /// Nothing at all shall be done, however urgent.
    pub(crate) stopped: bool,
    /// None in health.
    pub(crate) trouble: Option<Trouble>,
    /// What somebody should mend, although nothing is held back because of it.
    pub(crate) warning: Option<String>,
}

impl Verdict {
    /// Nothing is known against it.
    #[cfg(test)]
    pub(crate) const HEALTHY: Verdict = Verdict { factor: 1.0, stopped: false, trouble: None, warning: None };
}

/// What is known of the database's health. Down at once, and slowly up.
#[derive(Debug)]
pub(crate) struct Health {
    latency: Latency,
    overload: Overload,
    signals: Signals,
    factor: f64,
    told: Instant,
    trouble: Option<Trouble>,
}

impl Health {
    pub(crate) fn new(at: Instant) -> Self {
        Self {
            latency: Latency::new(at),
            overload: Overload::default(),
            signals: Signals::default(),
            factor: 1.0,
            told: at,
            trouble: None,
        }
    }

    /// The database found and deleted a batch of an index, and took so long for it.
    pub(crate) fn batch(&mut self, index: ObjectId, documents: u32, took: Duration, at: Instant) {
        self.latency.batch(index, documents, took, at);
    }

    /// The database answered that there is too much to do, and perhaps when to ask again.
    pub(crate) fn overloaded(&mut self, answer: &str, retry_after: Option<Duration>, at: Instant) {
        self.overload.answered(answer, retry_after, at);
    }

    /// Until when nothing shall be asked of the database, by its own answer.
    pub(crate) fn asked_to_wait_until(&self) -> Option<Instant> {
        self.overload.wait_until()
    }

    /// From now on a hook is asked, every few seconds.
    pub(crate) fn expect_signals(&mut self, at: Instant) {
        self.signals.expect(at);
    }

    /// What the hook said, or why it said nothing.
    pub(crate) fn signal(&mut self, answer: Result<Signal, String>, at: Instant) {
        self.signals.answered(answer, at);
    }

    /// Forgets what belongs to other indexes than these.
    pub(crate) fn keep(&mut self, indexes: &HashSet<ObjectId>) {
        self.latency.keep(indexes);
    }

    /// How well it is now.
    pub(crate) fn verdict(&mut self, at: Instant) -> Verdict {
        let concerns = [self.latency.concern(at), self.overload.concern(at), self.signals.concern(at)];
        let worst = concerns
            .into_iter()
            .flatten()
            .min_by(|one, other| other.stopped.cmp(&one.stopped).then(one.factor.total_cmp(&other.factor)));
        let risen = self.factor + RISE * at.saturating_duration_since(self.told).as_secs_f64();
        self.told = at;
        let stopped = worst.as_ref().is_some_and(|worst| worst.stopped);
        match worst {
            Some(worst) if worst.factor <= risen => {
                self.factor = worst.factor;
                let same = self.trouble.as_ref().filter(|trouble| trouble.name == worst.name);
                let since = same.map_or(at, |trouble| trouble.since);
                self.trouble = Some(Trouble { name: worst.name, why: worst.why, since });
            }
            worst => {
                self.factor = risen.min(worst.map_or(1.0, |worst| worst.factor));
                if self.factor >= 1.0 {
                    self.trouble = None;
                }
            }
        }
        Verdict { factor: self.factor, stopped, trouble: self.trouble.clone(), warning: self.signals.warning(at) }
    }
}

/// The health of one database, for all that ask and tell.
#[derive(Clone, Debug)]
pub(crate) struct SharedHealth(Arc<Mutex<Health>>);

impl SharedHealth {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Health::new(Instant::now()))))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Health> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn verdict(&self) -> Verdict {
        self.lock().verdict(Instant::now())
    }
}

#[cfg(test)]
mod tests;
