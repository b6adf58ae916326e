//! What is done once in an interval at most: when it is due, and what a process remembers so as not to ask.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mongodb::bson::DateTime;
use tokio::time::Instant;

/// When it is due next, if that is later than now.
///
/// A claim from the future is one of before the clock was set back. It blocks until the interval after it has passed as
/// well, but not if it lies further ahead than that.
pub(crate) fn due_at(claimed: Option<DateTime>, interval: Duration, now: DateTime) -> Option<DateTime> {
    let claimed = claimed?;
    let next = later(claimed, interval);
    (now < next && claimed <= later(now, interval)).then_some(next)
}

/// So much later; the end of time at most.
pub(crate) fn later(date: DateTime, by: Duration) -> DateTime {
    let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    DateTime::from_millis(date.timestamp_millis().saturating_add(millis))
}

/// What a process knows of what is done now and then, by its id.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<HashMap<String, Known>>);

#[derive(Debug, Default)]
struct Known {
    seen: Option<Seen>,
    under_way: bool,
    /// Not to be tried before, in the background.
    rests_until: Option<Instant>,
}

/// What was found when it was last looked.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// What the database's clock showed, and when.
    pub(crate) told: DateTime,
    pub(crate) at: Instant,
    pub(crate) what: Sight,
}

#[derive(Clone, Debug)]
pub(crate) enum Sight {
    /// It was claimed then.
    Claimed(DateTime),
    /// Somebody else was sweeping.
    HeldBy(String),
}

impl Memory {
    pub(crate) fn seen(&self, id: &str) -> Option<Seen> {
        self.lock().get(id)?.seen.clone()
    }

    pub(crate) fn see(&self, id: &str, seen: Option<Seen>) {
        self.lock().entry(id.to_owned()).or_default().seen = seen;
    }

    /// The right to try in the background, where one try at a time is enough; none after a failure, for a while.
    pub(crate) fn try_one(self: &Arc<Self>, id: &str) -> Option<OneTry> {
        let mut all = self.lock();
        let known = all.entry(id.to_owned()).or_default();
        if known.under_way || known.rests_until.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        known.under_way = true;
        Some(OneTry { memory: self.clone(), id: id.to_owned() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A try in the background, until it is dropped.
#[derive(Debug)]
pub(crate) struct OneTry {
    memory: Arc<Memory>,
    id: String,
}

impl OneTry {
    /// No other for so long.
    pub(crate) fn rest(&self, time: Duration) {
        self.memory.lock().entry(self.id.clone()).or_default().rests_until = Instant::now().checked_add(time);
    }
}

impl Drop for OneTry {
    fn drop(&mut self) {
        self.memory.lock().entry(std::mem::take(&mut self.id)).or_default().under_way = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_due_an_interval_after_the_last_claim_by_the_clock_as_it_is_now() {
        let hour = Duration::from_secs(3600);
        let at = |minutes: i64| DateTime::from_millis(minutes * 60_000);
        for (claimed, now, next) in [
            (None, 0, None),
            (Some(at(0)), 0, Some(at(60))),
            (Some(at(0)), 59, Some(at(60))),
            (Some(at(0)), 60, None),
            (Some(at(0)), 1000, None),
            // The clock was set back.
            (Some(at(100)), 99, Some(at(160))),
            (Some(at(100)), 40, Some(at(160))),
            (Some(at(100)), 39, None),
            (Some(DateTime::MAX), 0, None),
            (Some(DateTime::MIN), 0, None),
        ] {
            assert_eq!(due_at(claimed, hour, at(now)), next, "{claimed:?} at {now}");
        }
        assert_eq!(due_at(Some(at(0)), Duration::MAX, at(1)), Some(DateTime::MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn one_try_at_a_time_and_none_while_it_rests() {
        let memory = Arc::new(Memory::default());
        let first = memory.try_one("a").unwrap();
        assert!(memory.try_one("a").is_none());
        assert!(memory.try_one("b").is_some());
        drop(first);
        let second = memory.try_one("a").unwrap();
        second.rest(Duration::from_secs(60));
        drop(second);
        assert!(memory.try_one("a").is_none());
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(memory.try_one("a").is_some());
    }
}
