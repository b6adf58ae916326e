//! Which TTL index is visited when, so that none starves another. Pure.

use std::{collections::HashMap, time::Duration};

use mongodb::bson::oid::ObjectId;
use tokio::time::Instant;

/// After a first failure an index is visited again so soon; after each further one twice as late.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// Failing on and on, it is visited at least once in so many intervals.
const LATEST_RETRY: u32 = 10;

/// Nothing is visited again sooner, even if it is known to have something due.
const SHORTEST: Duration = Duration::from_millis(50);

/// When each index is visited next.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    rows: HashMap<ObjectId, Row>,
    /// Counts visits, to tell who waits for longest.
    turn: u64,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    interval: Duration,
    at: Instant,
    turn: u64,
    failures: u32,
}

/// How a visit went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing more is due, until this time has passed if it is known.
    Drained(Option<Duration>),
    /// More is due.
    More,
    /// Something is wrong with this index.
    Failed,
    /// The database cannot be reached, which is no fault of the index.
    Away,
}

impl Schedule {
    /// Knows these indexes and no others, each with how often it is visited; a new one is visited now.
    pub(super) fn keep(&mut self, indexes: impl IntoIterator<Item = (ObjectId, Duration)>, now: Instant) {
        let turn = self.turn;
        let keep =
            |(id, interval)| (id, self.rows.get(&id).copied().unwrap_or(Row { interval, at: now, turn, failures: 0 }));
        self.rows = indexes.into_iter().map(keep).collect();
    }

    /// Has these visited now, but for those that fail.
    pub(super) fn hurry(&mut self, ids: impl IntoIterator<Item = ObjectId>, now: Instant) {
        for id in ids {
            if let Some(row) = self.rows.get_mut(&id).filter(|row| row.failures == 0) {
                row.at = row.at.min(now);
            }
        }
    }

    /// The index to be visited next, and when: of those whose time has come the one that was not visited for longest.
    pub(super) fn next(&self, now: Instant) -> Option<(ObjectId, Instant)> {
        let order = |row: &Row| (row.at.max(now), row.turn);
        self.rows.iter().min_by_key(|(id, row)| (order(row), **id)).map(|(id, row)| (*id, row.at))
    }

    pub(super) fn visited(&mut self, id: ObjectId, outcome: Outcome, now: Instant) {
        self.turn += 1;
        let turn = self.turn;
        let Some(row) = self.rows.get_mut(&id) else { return };
        let interval = row.interval;
        row.turn = turn;
        row.failures = match outcome {
            Outcome::Failed => row.failures.saturating_add(1),
            Outcome::Away => row.failures,
            Outcome::Drained(_) | Outcome::More => 0,
        };
        row.at = now
            + match outcome {
                Outcome::Drained(next) => next.map_or(interval, |next| next.clamp(SHORTEST.min(interval), interval)),
                Outcome::More => Duration::ZERO,
                Outcome::Failed => back_off(row.failures).min(interval.saturating_mul(LATEST_RETRY)),
                Outcome::Away => FIRST_RETRY,
            };
    }

    /// How often in a row the index has failed.
    pub(super) fn failures(&self, id: ObjectId) -> u32 {
        self.rows.get(&id).map_or(0, |row| row.failures)
    }
}

fn back_off(failures: u32) -> Duration {
    FIRST_RETRY.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn three() -> ([ObjectId; 3], Schedule, Instant) {
        let ids = [ObjectId::new(), ObjectId::new(), ObjectId::new()];
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.keep(ids.map(|id| (id, MINUTE)), now);
        (ids, schedule, now)
    }

    #[tokio::test(start_paused = true)]
    async fn an_index_with_much_due_takes_turns_with_the_others() {
        let (ids, mut schedule, now) = three();
        let mut visits = HashMap::new();
        for second in 0..30 {
            let now = now + Duration::from_secs(second);
            let (id, at) = schedule.next(now).unwrap();
            assert!(at <= now);
            *visits.entry(id).or_insert(0) += 1;
            schedule.visited(id, if id == ids[0] { Outcome::More } else { Outcome::Drained(None) }, now);
        }
        assert_eq!(visits[&ids[0]], 28);
        let later = now + 2 * MINUTE;
        let (first, _) = schedule.next(later).unwrap();
        assert_ne!(first, ids[0], "who has waited for longest comes first");
    }

    #[tokio::test(start_paused = true)]
    async fn an_index_that_fails_is_tried_less_and_less_often_and_never_given_up() {
        let (ids, mut schedule, mut now) = three();
        schedule.keep([(ids[0], MINUTE)], now);
        let mut waits = Vec::new();
        for _ in 0..20 {
            schedule.visited(ids[0], Outcome::Failed, now);
            let (_, at) = schedule.next(now).unwrap();
            waits.push((at - now).as_secs());
            now = at;
        }
        assert_eq!(waits[..4], [1, 2, 4, 8]);
        assert_eq!(waits[19], 600);
        schedule.visited(ids[0], Outcome::Drained(Some(Duration::from_secs(5))), now);
        assert_eq!((schedule.next(now).unwrap().1 - now).as_secs(), 5);
        assert_eq!(schedule.failures(ids[0]), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_index_that_is_dropped_is_forgotten_and_a_new_one_visited_at_once() {
        let (ids, mut schedule, now) = three();
        for id in ids {
            schedule.visited(id, Outcome::Drained(None), now);
        }
        let new = ObjectId::new();
        schedule.keep([(ids[0], MINUTE), (new, MINUTE)], now);
        assert_eq!(schedule.next(now), Some((new, now)));
        schedule.visited(new, Outcome::Drained(None), now);
        assert_eq!(schedule.next(now), Some((ids[0], now + MINUTE)));
    }
}
