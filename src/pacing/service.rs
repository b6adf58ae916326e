//! Which TTL index is visited when: earliest deadline first, with a share for each. Pure.

use std::{collections::HashMap, time::Duration};

use mongodb::bson::{DateTime, oid::ObjectId};
use tokio::time::Instant;

/// After a first failure an index is visited again so soon; after each further one twice as late.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// Failing on and on, it is visited at least once in so many intervals.
const LATEST_RETRY: u32 = 10;

/// Nothing is visited again sooner, even if it is known to have something due.
const SHORTEST: Duration = Duration::from_millis(50);

/// Where both wait, indexes with little to do have so many documents deleted for each one of those with much to do.
const LITTLE: i64 = 3;

/// An index that has waited for its turn makes up for so much of that, to keep the rate of its own.
const CREDIT: Duration = Duration::from_secs(3);

/// One in so many turns belongs to whoever has waited for longest, whatever the deadlines.
const SHARE: u64 = 8;

/// When each index is visited next.
#[derive(Debug, Default)]
pub(crate) struct Service {
    rows: HashMap<ObjectId, Row>,
    /// Counts visits, to tell who waits for longest.
    turn: u64,
    /// How many documents those with little to do are ahead of their share.
    ahead: i64,
}

/// How often an index is visited, and how fast it may go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Order {
    pub(crate) interval: Duration,
    /// The most documents a second of its own.
    pub(crate) max_rate: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    order: Order,
    at: Instant,
    turn: u64,
    failures: u32,
    /// By when the first of its documents must be gone, if it is known to have many that are due.
    deadline: Option<DateTime>,
    /// By its own rate nothing is deleted before.
    paid_at: Instant,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) id: ObjectId,
    pub(crate) at: Instant,
    /// Whether for one batch only: it is not the only one that is most pressed, or goes by a rate of its own.
    pub(crate) one_batch: bool,
}

/// How a visit went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing more is due, until this time has passed if it is known.
    Drained(Option<Duration>),
    /// More is due.
    More,
    /// Something is wrong with this index.
    Failed,
    /// The database cannot be reached, which is no fault of the index.
    Away,
}

impl Service {
    /// Knows these indexes and no others; a new one is visited now.
    pub(crate) fn keep(&mut self, indexes: impl IntoIterator<Item = (ObjectId, Order)>, now: Instant) {
        let turn = self.turn;
        let new = |order| Row { order, at: now, turn, failures: 0, deadline: None, paid_at: now };
        let keep = |(id, order)| {
            let row = self.rows.get(&id).map_or_else(|| new(order), |row| Row { order, ..*row });
            // One whose interval was shortened does not wait for the old one.
            (id, Row { at: row.at.min(now + row.order.interval.max(back_off(row))), ..row })
        };
        self.rows = indexes.into_iter().map(keep).collect();
    }

    /// Has these visited now, but for those that fail.
    pub(crate) fn hurry(&mut self, ids: impl IntoIterator<Item = ObjectId>, now: Instant) {
        for id in ids {
            if let Some(row) = self.rows.get_mut(&id).filter(|row| row.failures == 0) {
                row.at = row.at.min(now);
            }
        }
    }

    /// By when the first document that is due of an index must be gone; none if not many are known to be due.
    pub(crate) fn deadline(&mut self, id: ObjectId, deadline: Option<DateTime>) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.deadline = deadline;
        }
    }

    /// The index to be visited next, and when.
    ///
    /// Of those whose time has come: first those with little or nothing to do, as they are soon done, though others have a turn
    /// in between; then the one with the earliest deadline, and now and then the one that waits for longest.
    pub(crate) fn next(&self, now: Instant) -> Option<Turn> {
        let at = |row: &Row| row.at.max(row.paid_at);
        let ready = || self.rows.iter().filter(|(_, row)| at(row) <= now);
        let little = ready().filter(|(_, row)| row.deadline.is_none()).min_by_key(|(id, row)| (row.turn, **id));
        let much = || ready().filter(|(_, row)| row.deadline.is_some());
        let share = self.turn.is_multiple_of(SHARE);
        let pressed = if share {
            much().min_by_key(|(id, row)| (row.turn, **id))
        } else {
            much().min_by_key(|(id, row)| (row.deadline, row.turn, **id))
        };
        let both = little.is_some() && pressed.is_some();
        let (first, second) = if self.ahead <= 0 { (little, pressed) } else { (pressed, little) };
        if let Some((id, row)) = first.or(second) {
            let peers = much().filter(|(_, other)| other.deadline == row.deadline).count() > 1;
            let one_batch = row.order.max_rate.is_some() || row.deadline.is_none() || share || both || peers;
            return Some(Turn { id: *id, at: now, one_batch });
        }
        let (id, row) = self.rows.iter().min_by_key(|(id, row)| (at(row), row.turn, **id))?;
        Some(Turn { id: *id, at: at(row), one_batch: false })
    }

    /// A visit is over, with so many documents dealt with.
    pub(crate) fn visited(&mut self, id: ObjectId, outcome: Outcome, documents: u64, now: Instant) {
        self.turn += 1;
        let turn = self.turn;
        let Some(row) = self.rows.get_mut(&id) else { return };
        let deleted = i64::try_from(documents).unwrap_or(i64::MAX).min(i64::from(u32::MAX));
        self.ahead = match row.deadline {
            // What nobody else wanted is made up for with one visit's worth at most.
            Some(_) => (self.ahead - LITTLE * deleted.max(1)).max(-LITTLE * deleted),
            None => self.ahead.saturating_add(deleted),
        };
        let interval = row.order.interval;
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
                Outcome::Failed => back_off(*row),
                Outcome::Away => FIRST_RETRY,
            };
        if let Some(rate) = row.order.max_rate {
            #[allow(clippy::cast_precision_loss)] // a batch is small
            let cost = Duration::try_from_secs_f64(documents as f64 / rate).unwrap_or(Duration::MAX);
            let from = row.paid_at.max(now.checked_sub(CREDIT).unwrap_or(now));
            row.paid_at = from.checked_add(cost).unwrap_or(from);
        }
    }

    /// How often in a row the index has failed.
    pub(crate) fn failures(&self, id: ObjectId) -> u32 {
        self.rows.get(&id).map_or(0, |row| row.failures)
    }
}

fn back_off(row: Row) -> Duration {
    let failures = row.failures.checked_sub(1).map(|before| 2_u32.saturating_pow(before));
    FIRST_RETRY.saturating_mul(failures.unwrap_or(0)).min(row.order.interval.saturating_mul(LATEST_RETRY))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const ORDER: Order = Order { interval: MINUTE, max_rate: None };

    fn three() -> ([ObjectId; 3], Service, Instant) {
        let ids = [ObjectId::new(), ObjectId::new(), ObjectId::new()];
        let (mut service, now) = (Service::default(), Instant::now());
        service.keep(ids.map(|id| (id, ORDER)), now);
        (ids, service, now)
    }

    fn at(seconds: i64) -> DateTime {
        DateTime::from_millis(seconds * 1000)
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_deadline_comes_first_and_each_has_a_share() {
        let (ids, mut service, now) = three();
        for (id, deadline) in ids.iter().zip([30, 10, 20]) {
            service.deadline(*id, Some(at(deadline)));
        }
        let mut visits = HashMap::new();
        for _ in 0..80 {
            let turn = service.next(now).unwrap();
            *visits.entry(turn.id).or_insert(0) += 1;
            service.visited(turn.id, Outcome::More, 10, now);
        }
        assert!(visits[&ids[1]] >= 70 && visits[&ids[0]] >= 3 && visits[&ids[2]] >= 3, "{visits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn looking_for_what_is_due_goes_before_work_and_does_not_hold_it_up() {
        let (ids, mut service, now) = three();
        service.deadline(ids[0], Some(at(10)));
        let mut order = Vec::new();
        for _ in 0..8 {
            let Turn { id, .. } = service.next(now).unwrap();
            order.push(id == ids[0]);
            // Each of the others has something whenever it is looked at.
            service.visited(id, Outcome::More, 5, now);
        }
        assert_eq!(order, [false, true, false, false, false, true, false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_index_with_much_due_does_not_keep_the_others_from_being_looked_at() {
        let (ids, mut service, start) = three();
        service.deadline(ids[0], Some(at(10)));
        let mut looks = HashMap::new();
        for second in 0..600 {
            let now = start + Duration::from_secs(second);
            let Turn { id, .. } = service.next(now).unwrap();
            *looks.entry(id).or_insert(0) += 1;
            service.visited(id, if id == ids[0] { Outcome::More } else { Outcome::Drained(None) }, 0, now);
        }
        assert!(looks[&ids[1]] >= 9 && looks[&ids[2]] >= 9, "{looks:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_index_goes_by_a_rate_of_its_own() {
        let (ids, mut service, start) = three();
        service.keep([(ids[0], Order { max_rate: Some(10.0), ..ORDER })], start);
        service.deadline(ids[0], Some(at(10)));
        let (mut now, mut deleted) = (start, 0);
        while now < start + MINUTE {
            let turn = service.next(now).unwrap();
            assert!(turn.one_batch || turn.at > now);
            now = turn.at;
            service.visited(ids[0], Outcome::More, 5, now);
            deleted += 5;
        }
        assert!((595..=610).contains(&deleted), "{deleted}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_index_with_a_rate_of_its_own_makes_up_for_a_turn_that_came_late() {
        let (ids, mut service, start) = three();
        service.keep([(ids[0], Order { max_rate: Some(10.0), ..ORDER })], start);
        service.deadline(ids[0], Some(at(10)));
        let (mut now, mut deleted) = (start, 0);
        while now < start + MINUTE {
            now = service.next(now).unwrap().at + Duration::from_secs(1);
            service.visited(ids[0], Outcome::More, 20, now);
            deleted += 20;
        }
        assert!((580..=640).contains(&deleted), "{deleted}");
        // What was not waited for is not saved up.
        now += 60 * MINUTE;
        let mut burst = 0;
        while service.next(now).unwrap().at == now {
            service.visited(ids[0], Outcome::More, 20, now);
            burst += 20;
        }
        assert!(burst <= 60, "{burst}");
    }

    #[tokio::test(start_paused = true)]
    async fn small_amounts_have_three_quarters_of_what_is_deleted_while_they_last() {
        let (ids, mut service, now) = three();
        service.deadline(ids[0], Some(at(10)));
        let (mut much, mut little) = (0, 0);
        for _ in 0..1_000 {
            let Turn { id, .. } = service.next(now).unwrap();
            let (sum, batch) = if id == ids[0] { (&mut much, 25) } else { (&mut little, 1) };
            *sum += batch;
            service.visited(id, Outcome::More, batch, now);
        }
        assert!((700..=780).contains(&(little * 1_000 / (little + much))), "{little} and {much}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_index_that_fails_is_tried_less_and_less_often_and_never_given_up() {
        let (ids, mut service, mut now) = three();
        service.keep([(ids[0], ORDER)], now);
        let mut waits = Vec::new();
        for _ in 0..20 {
            service.visited(ids[0], Outcome::Failed, 0, now);
            service.deadline(ids[0], Some(at(0)));
            let turn = service.next(now).unwrap();
            waits.push((turn.at - now).as_secs());
            now = turn.at;
        }
        assert_eq!(waits[..4], [1, 2, 4, 8]);
        assert_eq!(waits[19], 600);
        service.visited(ids[0], Outcome::Drained(Some(Duration::from_secs(5))), 0, now);
        assert_eq!((service.next(now).unwrap().at - now).as_secs(), 5);
        assert_eq!(service.failures(ids[0]), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_index_that_is_dropped_is_forgotten_and_a_new_one_visited_at_once() {
        let (ids, mut service, now) = three();
        for id in ids {
            service.visited(id, Outcome::Drained(None), 0, now);
        }
        let new = ObjectId::new();
        service.keep([(ids[0], ORDER), (new, ORDER)], now);
        assert_eq!(service.next(now).map(|turn| (turn.id, turn.at)), Some((new, now)));
        service.visited(new, Outcome::Drained(None), 0, now);
        assert_eq!(service.next(now).map(|turn| (turn.id, turn.at)), Some((ids[0], now + MINUTE)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_shorter_interval_holds_at_once() {
        let (ids, mut service, now) = three();
        service.keep([(ids[0], Order { interval: 60 * MINUTE, ..ORDER })], now);
        service.visited(ids[0], Outcome::Drained(None), 0, now);
        service.keep([(ids[0], ORDER)], now);
        assert_eq!(service.next(now).unwrap().at, now + MINUTE);
    }
}
