//! What is taken down of a simulation, minute by minute.

use std::collections::VecDeque;

use super::{
    Minute,
    load::{Load, MINUTE, Micros, Part, SECOND, seconds},
};

/// What was deleted so far, and how fast and how late.
#[derive(Debug)]
pub(super) struct Tally {
    lag: Micros,
    pub(super) minutes: Vec<Minute>,
    pub(super) peak: Peak,
    pub(super) late: u64,
    pub(super) max_age: Micros,
    /// The end of the last minute that is complete, and what was deleted by then.
    told: Micros,
    deleted: u64,
}

impl Tally {
    /// With documents due for at most so long.
    pub(super) fn new(lag: Micros) -> Self {
        Self { lag, minutes: Vec::new(), peak: Peak::default(), late: 0, max_age: 0, told: 0, deleted: 0 }
    }

    /// These documents are deleted evenly from one instant to another.
    pub(super) fn delete(&mut self, load: &mut Load, documents: u64, from: Micros, until: Micros) {
        self.pass(load, from);
        let (before, mut done) = (load.deleted(), 0);
        let parts = load.delete(documents);
        let documents = parts.iter().map(|part| part.documents).sum();
        let at = |done: u64| from + share(until - from, done, documents);
        for part in parts {
            let (begins, ends) = (at(done), at(done + part.documents));
            done += part.documents;
            self.max_age = self.max_age.max(ends - part.due_since);
            self.late += self.late_of(part, begins, ends);
        }
        self.peak.add(from, until, documents);
        self.fill(load, until, |at| before + count(documents, at - from, until - from));
    }

    /// Nothing is deleted up to an instant.
    pub(super) fn pass(&mut self, load: &Load, until: Micros) {
        self.fill(load, until, |_| load.deleted());
    }

    /// It is over at an instant: the last minute is completed, and what is left is late.
    pub(super) fn end(&mut self, load: &Load, at: Micros) {
        self.pass(load, at.saturating_add(MINUTE - 1) / MINUTE * MINUTE);
        self.late += load.total() - load.deleted();
        if let Some(oldest) = load.oldest(load.deleted()) {
            self.max_age = self.max_age.max(at - oldest);
        }
    }

    fn late_of(&self, part: Part, begins: Micros, ends: Micros) -> u64 {
        let in_time = part.due_since + self.lag - begins;
        if ends - begins <= in_time { 0 } else { part.documents - count(part.documents, in_time, ends - begins) }
    }

    /// Every minute that ends up to an instant, with what is deleted by its end.
    fn fill(&mut self, load: &Load, until: Micros, deleted: impl Fn(Micros) -> u64) {
        loop {
            let at = self.told + MINUTE;
            if at > until {
                return;
            }
            self.told = at;
            let deleted = deleted(at);
            let backlog = load.up_to(at / SECOND) - deleted;
            let oldest = load.oldest(deleted).filter(|_| backlog > 0).map_or(0, |since| at - since);
            let minute = Minute {
                t: seconds(at),
                rate: float(deleted - self.deleted) / 60.0,
                deleted,
                backlog,
                oldest_age: seconds(oldest),
            };
            self.minutes.push(minute);
            self.deleted = deleted;
        }
    }
}

/// The most documents that were deleted within a second, wherever that begins.
#[derive(Debug, Default)]
pub(super) struct Peak {
    /// Where the rate changed in the last second, and before that once: how many documents were deleted by then.
    points: VecDeque<(Micros, f64)>,
    pub(super) highest: f64,
}

impl Peak {
    /// So many are deleted evenly from one instant to a later one.
    fn add(&mut self, from: Micros, until: Micros, documents: u64) {
        let sum = self.points.back().map_or(0.0, |(_, sum)| *sum);
        self.point(from, sum);
        self.point(until, sum + float(documents));
    }

    fn point(&mut self, at: Micros, sum: f64) {
        let last = self.points.back().map_or(Micros::MIN, |(last, _)| *last);
        if at <= last {
            return;
        }
        self.points.push_back((at, sum));
        // The sum over a second is highest where that begins or ends at one of the points.
        let begin_at_one = self.points.iter().map(|(begin, _)| *begin).filter(|begin| begin + SECOND > last);
        let within = begin_at_one.filter(|begin| begin + SECOND <= at).chain([at - SECOND]);
        let most = within.map(|begin| self.sum_at(begin + SECOND) - self.sum_at(begin)).fold(0.0, f64::max);
        self.highest = self.highest.max(most);
        while self.points.get(1).is_some_and(|(second, _)| second + SECOND <= at) {
            self.points.pop_front();
        }
    }

    fn sum_at(&self, at: Micros) -> f64 {
        let beyond = self.points.partition_point(|(point, _)| *point <= at);
        match (beyond.checked_sub(1).and_then(|before| self.points.get(before)), self.points.get(beyond)) {
            (Some(before), Some(after)) => {
                let share = float((at - before.0).unsigned_abs()) / float((after.0 - before.0).unsigned_abs());
                before.1 + (after.1 - before.1) * share
            }
            (Some(point), None) | (None, Some(point)) => point.1,
            (None, None) => 0.0,
        }
    }
}

/// How many of these documents are deleted in a part of their time.
fn count(documents: u64, part: Micros, whole: Micros) -> u64 {
    let count = i128::from(documents) * i128::from(part) / i128::from(whole.max(1));
    u64::try_from(count).unwrap_or(0).min(documents)
}

/// How much of the time some of the documents take.
fn share(time: Micros, some: u64, all: u64) -> Micros {
    let share = i128::from(time) * i128::from(some) / i128::from(all.max(1));
    Micros::try_from(share).unwrap_or(time)
}

#[allow(clippy::cast_precision_loss)] // below 2^53
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
#[allow(clippy::float_cmp)] // no digit is lost
mod tests {
    use super::*;
    use crate::pacing::trace::Trace;

    fn load(text: &str) -> Load {
        Load::new(&Trace::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn what_is_deleted_is_told_by_the_minute() {
        let mut load = load("-100,60\n30,60\n100,10\n");
        let mut tally = Tally::new(1000 * SECOND);
        tally.delete(&mut load, 90, 0, 90 * SECOND);
        tally.end(&load, 121 * SECOND);
        let minute = |t, rate, deleted, backlog, oldest_age| Minute { t, rate, deleted, backlog, oldest_age };
        assert_eq!(
            tally.minutes,
            [minute(60, 1.0, 60, 60, 30), minute(120, 0.5, 90, 40, 90), minute(180, 0.0, 90, 40, 150)]
        );
        assert_eq!((tally.max_age, tally.late), (91 * SECOND, 40));
    }

    #[test]
    fn documents_are_late_from_the_instant_after_their_deadline() {
        for (lag, late) in [(100, 0), (99, 1), (50, 50), (1, 99), (0, 100)] {
            let mut load = load("0,100\n");
            let mut tally = Tally::new(lag * SECOND);
            tally.delete(&mut load, 100, 0, 100 * SECOND);
            assert_eq!((tally.late, tally.max_age), (late, 100 * SECOND), "within {lag} s");
        }
    }

    #[test]
    fn no_burst_within_a_second_hides() {
        let peak = |batches: &[(Micros, Micros, u64)]| {
            let mut peak = Peak::default();
            for (from, until, documents) in batches {
                peak.add(*from * 1000, *until * 1000, *documents);
            }
            peak.highest
        };
        assert_eq!(peak(&[(0, 500, 50), (500, 1000, 50), (1000, 1500, 50)]), 100.0);
        // At its beginning, at its end, and across what a clock calls a second.
        assert_eq!(peak(&[(0, 100, 90), (2000, 3000, 50)]), 90.0);
        assert_eq!(peak(&[(0, 1000, 50), (1100, 1200, 90)]), 130.0);
        assert_eq!(peak(&[(700, 1200, 60), (1200, 1700, 70), (1700, 2700, 10)]), 130.0);
        // In the middle of a long stretch.
        assert_eq!(peak(&[(0, 10_000, 100), (10_000, 11_500, 30)]), 20.0);
    }
}
