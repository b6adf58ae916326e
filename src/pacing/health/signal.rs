//! The user's own word on how well the database is.

use std::{error::Error, fmt, future::Future, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use super::{Concern, SharedHealth};

/// How often the hook is asked, and how long its answer is waited for.
const EVERY: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(5);

/// An answer holds for so long...
const FRESH: Duration = Duration::from_secs(30);
/// ...and then nothing better is assumed than this, until so long after it.
const IN_DOUBT: f64 = 0.5;
const DOUBTED: Duration = Duration::from_secs(630);

/// What a hook says of the database's health; see [`Sweeper::health`](crate::Sweeper::health).
#[derive(Clone, Debug, PartialEq)]
pub struct Signal {
    factor: f64,
    stop: bool,
    reason: String,
}

impl Signal {
    /// All is well.
    pub fn healthy() -> Self {
        Self { factor: 1.0, stop: false, reason: String::new() }
    }

    /// Only so much of what is planned shall be deleted, from 0 to 1, and why. The sweeper goes beyond it, up to the plan, as a
    /// deadline comes near. NaN counts as no answer.
    pub fn factor(factor: f64, reason: impl Into<String>) -> Self {
        Self { factor, stop: false, reason: reason.into() }
    }

    /// Nothing shall be deleted, whatever the deadline, and why.
    pub fn stop(reason: impl Into<String>) -> Self {
        Self { factor: 0.0, stop: true, reason: reason.into() }
    }
}

type Answer = Result<Signal, Box<dyn Error + Send + Sync>>;

/// A hook that was set.
#[derive(Clone)]
pub(crate) struct HealthHook(Arc<dyn Fn() -> BoxFuture<'static, Answer> + Send + Sync>);

impl HealthHook {
    pub(crate) fn new<F>(hook: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        Self(Arc::new(move || hook().boxed()))
    }

    /// Asks it once, in a task of its own: it may panic, or never answer.
    async fn ask(&self) -> Result<Signal, String> {
        let hook = self.clone();
        let mut asked = tokio::spawn(async move { (hook.0)().await });
        match timeout(PATIENCE, &mut asked).await {
            Ok(Ok(answer)) => answer.map_err(|error| error.to_string()),
            Ok(Err(_)) => Err("it panicked".to_owned()),
            Err(_) => {
                asked.abort();
                Err(format!("it did not answer within {PATIENCE:?}"))
            }
        }
    }
}

impl fmt::Debug for HealthHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HealthHook")
    }
}

/// A hook that is asked for as long as this is there.
#[derive(Debug)]
pub(crate) struct Polling(JoinHandle<()>);

impl Drop for Polling {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Asks the hook every few seconds, and tells what it says.
pub(crate) fn poll(hook: HealthHook, health: SharedHealth) -> Polling {
    health.lock().expect_signals(Instant::now());
    Polling(tokio::spawn(async move {
        loop {
            let answer = hook.ask().await;
            health.lock().signal(answer, Instant::now());
            sleep(EVERY).await;
        }
    }))
}

#[derive(Debug, Default)]
pub(super) struct Signals {
    /// The last answer, and since when it or the first one is waited for; none without a hook.
    last: Option<(Option<Signal>, Instant)>,
    /// Why there has been none since.
    failure: Option<String>,
}

impl Signals {
    pub(super) fn expect(&mut self, at: Instant) {
        self.last = Some((None, at));
    }

    pub(super) fn answered(&mut self, answer: Result<Signal, String>, at: Instant) {
        match answer {
            Ok(signal) if signal.factor.is_nan() => self.failure = Some("its factor is no number".to_owned()),
            Ok(signal) => (self.last, self.failure) = (Some((Some(signal), at)), None),
            Err(why) => self.failure = Some(why),
        }
    }

    pub(super) fn concern(&self, at: Instant) -> Option<Concern> {
        let (signal, since) = self.last.as_ref()?;
        let age = at.saturating_duration_since(*since);
        if age >= DOUBTED {
            return None;
        }
        let (told, stopped) = signal.as_ref().map_or((1.0, false), |it| (it.factor.clamp(0.0, 1.0), it.stop));
        let stale = age >= FRESH;
        let factor = if stale { told.min(IN_DOUBT) } else { told };
        (factor < 1.0).then(|| Concern {
            factor,
            stopped,
            name: "signal",
            why: match signal {
                _ if stale => self.silence(age),
                Some(signal) => signal.reason.clone(),
                None => String::new(),
            },
        })
    }

    /// What is wrong with a hook that is no longer waited for.
    pub(super) fn warning(&self, at: Instant) -> Option<String> {
        let age = at.saturating_duration_since(self.last.as_ref()?.1);
        (age >= DOUBTED).then(|| format!("{}; it is ignored until it answers", self.silence(age)))
    }

    fn silence(&self, age: Duration) -> String {
        let why = self.failure.as_deref().unwrap_or("it does not answer");
        format!("the health hook has told nothing for {} s: {why}", age.as_secs())
    }
}
