//! The documents of a simulation: which have expired, which are gone.

use crate::pacing::trace::Trace;

/// Millionths of a second since the rule came into force.
pub(super) type Micros = i64;

pub(super) const SECOND: Micros = 1_000_000;
pub(super) const MINUTE: Micros = 60 * SECOND;

/// Whole seconds.
pub(super) fn seconds(time: Micros) -> u64 {
    (time / SECOND).unsigned_abs()
}

/// The documents of a trace, deleted by their date.
#[derive(Debug)]
pub(super) struct Load {
    cohorts: Vec<Expiring>,
    total: u64,
    deleted: u64,
    /// The first cohort that is not gone.
    next: usize,
}

/// Documents with the same date.
#[derive(Clone, Copy, Debug)]
struct Expiring {
    /// Seconds.
    date: i64,
    /// How many there are up to this date.
    until: u64,
}

/// Some of the documents that were deleted together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Part {
    /// Since when they were due.
    pub(super) due_since: Micros,
    pub(super) documents: u64,
}

impl Load {
    pub(super) fn new(trace: &Trace) -> Self {
        let mut total = 0;
        let expiring = |&(date, documents): &(i64, u64)| {
            total += documents;
            Expiring { date, until: total }
        };
        let cohorts = trace.cohorts().iter().map(expiring).collect();
        Self { cohorts, total, deleted: 0, next: 0 }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn deleted(&self) -> u64 {
        self.deleted
    }

    /// How many have a date up to this one, in seconds: those that are gone too.
    pub(super) fn up_to(&self, date: i64) -> u64 {
        match self.cohorts.partition_point(|cohort| cohort.date <= date) {
            0 => 0,
            beyond => self.cohorts[beyond - 1].until,
        }
    }

    /// How many are due.
    pub(super) fn due(&self, now: Micros) -> u64 {
        self.up_to(now.div_euclid(SECOND)).saturating_sub(self.deleted)
    }

    /// Since when the oldest is due, if so many are gone.
    pub(super) fn oldest(&self, gone: u64) -> Option<Micros> {
        self.cohorts.get(self.cohorts.partition_point(|cohort| cohort.until <= gone)).map(Expiring::due_since)
    }

    /// The date of the next that expire, in seconds; none if all have.
    pub(super) fn next_date(&self, now: Micros) -> Option<i64> {
        let second = now.div_euclid(SECOND);
        self.cohorts.get(self.cohorts.partition_point(|cohort| cohort.date <= second)).map(|cohort| cohort.date)
    }

    /// The date of the last one that was deleted, in seconds: before it nothing is left.
    pub(super) fn last_deleted(&self) -> Option<i64> {
        self.cohorts
            .get(self.cohorts.partition_point(|cohort| cohort.until < self.deleted))
            .map(|cohort| cohort.date)
            .filter(|_| self.deleted > 0)
    }

    /// The documents with a date beyond the first and up to the second one, by their dates.
    pub(super) fn between(&self, from: Option<i64>, until: i64) -> impl Iterator<Item = (i64, u64)> {
        let first = from.map_or(0, |from| self.cohorts.partition_point(|cohort| cohort.date <= from));
        let (first, mut before) =
            if first <= self.next { (self.next, self.deleted) } else { (first, self.cohorts[first - 1].until) };
        self.cohorts[first.min(self.cohorts.len())..].iter().take_while(move |cohort| cohort.date <= until).map(
            move |cohort| {
                let documents = cohort.until - before;
                before = cohort.until;
                (cohort.date, documents)
            },
        )
    }

    /// Deletes the oldest of those that are there.
    pub(super) fn delete(&mut self, documents: u64) -> Vec<Part> {
        let until = (self.deleted + documents).min(self.total);
        let mut parts = Vec::new();
        while self.deleted < until {
            let cohort = self.cohorts[self.next];
            let gone = until.min(cohort.until);
            parts.push(Part { due_since: cohort.due_since(), documents: gone - self.deleted });
            self.deleted = gone;
            if gone == cohort.until {
                self.next += 1;
            }
        }
        parts
    }
}

impl Expiring {
    /// Not before the rule came into force.
    fn due_since(&self) -> Micros {
        self.date.max(0).saturating_mul(SECOND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Load {
        Load::new(&Trace::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn the_oldest_go_first() {
        let mut load = load("-5,2\n0,3\n60,4\n");
        assert_eq!((load.total(), load.due(-1), load.due(0), load.due(60 * SECOND)), (9, 2, 5, 9));
        assert_eq!((load.next_date(0), load.next_date(60 * SECOND)), (Some(60), None));
        assert_eq!(load.between(None, 59).collect::<Vec<_>>(), [(-5, 2), (0, 3)]);
        assert_eq!(load.between(Some(-5), 60).collect::<Vec<_>>(), [(0, 3), (60, 4)]);
        assert_eq!(load.last_deleted(), None);

        let parts = load.delete(3);
        assert_eq!(parts, [Part { due_since: 0, documents: 2 }, Part { due_since: 0, documents: 1 }]);
        assert_eq!((load.due(0), load.oldest(load.deleted()), load.last_deleted()), (2, Some(0), Some(0)));
        assert_eq!(load.between(None, 60).collect::<Vec<_>>(), [(0, 2), (60, 4)]);
        assert_eq!(load.between(Some(0), 60).collect::<Vec<_>>(), [(60, 4)]);

        load.delete(6);
        assert_eq!((load.due(i64::MAX), load.oldest(load.deleted())), (0, None));
        assert_eq!(load.between(None, 60).count() + load.between(Some(60), 70).count(), 0);
        assert_eq!((load.delete(1), load.last_deleted()), (vec![], Some(60)));
    }
}
