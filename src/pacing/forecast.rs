//! What of an index is due, and what comes due when, as far as it was counted: pure.
//!
//! Everything is kept by the dates of the field, in slices. Dates up to `counted` were counted as due and are in the
//! ledger, exact. Slices that have come due since are in it as guesses, until they are counted. Slices ahead wait in a
//! histogram. Their deadlines are rounded early and their releases late, by a slice at most.

mod budget;
mod learning;
mod ledger;
mod steps;
#[cfg(test)]
mod tests;
mod wants;

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use mongodb::bson::DateTime;

use self::{
    learning::{Arrivals, Survival},
    ledger::{Entry, Ledger, share},
    steps::Steps,
    wants::Counting,
};
use super::Cohort;
pub(crate) use budget::Budget;
pub(crate) use wants::Want;

/// What is known of the documents of one index.
#[derive(Clone, Debug)]
pub(crate) struct Forecast {
    steps: Steps,
    rule_since: i64,
    expire_after: i64,
    ledger: Ledger,
    /// Everything up to this date was counted as due, or left out as kept.
    counted: i64,
    /// How many documents are due forecast, by the starts of slices that have not begun to come due.
    ahead: BTreeMap<i64, f64>,
    survival: Survival,
    arrivals: Arrivals,
    /// Some documents have several dates, so that counts between two dates are wrong.
    several: bool,
    /// How many due documents the last pass left behind; they are in no cohort.
    left: f64,
    counting: Counting,
}

/// What is assumed to be due where the ledger has nothing and there is more.
const BATCH: f64 = 500.0;

impl Forecast {
    /// A forecast that knows nothing yet, of documents that expire so many milliseconds after their date by a rule in force
    /// since then, and that shall be gone `lag` after they are due.
    pub(crate) fn new(rule_since: DateTime, expire_after_ms: i64, lag: Duration) -> Self {
        Self {
            steps: Steps::of(lag),
            rule_since: rule_since.timestamp_millis(),
            expire_after: expire_after_ms.max(0),
            ledger: Ledger::default(),
            counted: i64::MIN,
            ahead: BTreeMap::new(),
            survival: Survival::default(),
            arrivals: Arrivals::default(),
            several: false,
            left: 0.0,
            counting: Counting::default(),
        }
    }

    /// Forgets everything if the rule or the target lag is another one.
    pub(crate) fn rule(&mut self, rule_since: DateTime, expire_after_ms: i64, lag: Duration) {
        let new = Self::new(rule_since, expire_after_ms, lag);
        let same = (self.steps, self.rule_since, self.expire_after) == (new.steps, new.rule_since, new.expire_after);
        if !same {
            let counting = self.counting.anew();
            *self = Self { counting, ..new };
        }
    }

    /// Whether everything that was due was counted once, or was seen to be gone.
    pub(crate) fn known(&self) -> bool {
        self.counting.known
    }

    /// Whether some documents have several dates: then nothing is counted ahead.
    pub(crate) fn several(&self) -> bool {
        self.several
    }

    /// How many documents are due, as far as is known.
    pub(crate) fn backlog(&self, now: DateTime) -> f64 {
        let Some(cutoff) = self.cutoff(now) else { return 0.0 };
        let begun = self.ahead.range(..=cutoff);
        let begun = begun.map(|(start, n)| n * self.survival.share() * share(*start, self.steps.end(*start), cutoff));
        self.ledger.up_to(cutoff) + begun.sum::<f64>()
    }

    /// How many documents come due within the horizon, as far as is known.
    pub(crate) fn coming(&self, now: DateTime) -> f64 {
        let ahead: f64 = self.ahead.values().sum();
        (ahead * self.survival.share() + self.ledger.up_to(i64::MAX) - self.backlog(now)).max(0.0)
    }

    /// Since when the oldest document is due that is known to be; to the slice, never later than it is.
    pub(crate) fn oldest_due_since(&self, now: DateTime) -> Option<DateTime> {
        let cutoff = self.cutoff(now)?;
        let due = self.ledger.entries().iter().filter(|entry| entry.documents > 0.0 && entry.from <= cutoff);
        due.map(|entry| self.since(entry)).min().map(DateTime::from_millis)
    }

    /// Takes note that so many documents were deleted, oldest dates first, and that no due document has a date before
    /// `up_to` any more.
    pub(crate) fn deleted(&mut self, n: u64, up_to: Option<DateTime>) {
        #[allow(clippy::cast_precision_loss)] // a count of documents
        let n = n as f64;
        self.arrivals.deleted(n);
        self.ledger.take(n, up_to.map(DateTime::timestamp_millis));
    }

    /// Takes note that a pass got to the end of what had a date up to `cutoff`, and left `left` of it behind, which is
    /// kept or cannot be deleted: nothing of it is counted any more.
    pub(crate) fn drained(&mut self, cutoff: DateTime, left: u64, now: DateTime) {
        self.advance(now);
        let cutoff = cutoff.timestamp_millis();
        self.ledger.forget(cutoff);
        self.counted = self.counted.max(cutoff);
        #[allow(clippy::cast_precision_loss)] // a count of documents
        let left = left as f64;
        self.left = left;
        self.arrivals.drained(now.timestamp_millis(), self.steps.lag / 4);
        self.counting.drained(self.several);
        self.note_known(now);
    }

    /// Takes note that there is more: so many documents are expected that were seen to be due at `seen`, a batch at least
    /// where nothing is known of, and it is counted again.
    pub(crate) fn more(&mut self, now: DateTime, (expected, seen): (f64, DateTime)) {
        self.advance(now);
        let Some(cutoff) = self.cutoff(now) else { return };
        let known = self.backlog(now);
        let missing = if known < 1.0 { expected.max(BATCH) } else { expected - known };
        if missing < 1.0 {
            return;
        }
        let seen = seen.timestamp_millis();
        self.ledger.add([Entry { seen, ..Entry::counted(i64::MIN, cutoff, missing) }]);
        if known < 1.0 && self.counting.known && !self.several {
            self.counting.again(now.timestamp_millis(), self.counted, self.steps);
        }
    }

    /// Adds the cohorts of what is due and of what comes due, by their dates, so that deadlines never fall.
    pub(crate) fn cohorts(&mut self, now: DateTime, cohorts: &mut Vec<Cohort>) {
        self.advance(now);
        let first = cohorts.len();
        let expires = |date: i64| date.saturating_add(self.expire_after);
        let cohort = |release: i64, since: i64, documents: f64| Cohort {
            release: DateTime::from_millis(release),
            deadline: DateTime::from_millis(since.saturating_add(self.steps.lag)),
            documents,
        };
        let due = self.ledger.entries().iter().filter(|entry| entry.documents > 0.0);
        cohorts.extend(due.map(|entry| cohort(expires(entry.to), self.since(entry), entry.documents)));
        let survival = self.survival.share();
        let ahead = self.ahead.iter().filter(|(_, documents)| **documents > 0.0);
        cohorts.extend(ahead.map(|(start, documents)| {
            let since = expires(*start).max(self.rule_since);
            cohort(expires(self.steps.end(*start)), since, documents * survival)
        }));
        if self.several {
            #[allow(clippy::cast_precision_loss)] // an expected number
            let documents = self.arrivals.per_milli() * self.steps.slice as f64;
            let starts = (0..self.steps.horizon / self.steps.slice).map(|n| n * self.steps.slice);
            let at = |after: i64| now.timestamp_millis().saturating_add(after);
            let coming = starts.filter(|_| documents > 0.0);
            cohorts.extend(coming.map(|start| cohort(at(start + self.steps.slice), at(start), documents)));
        }
        // By date means that what is older is gone before what is younger can be.
        let mut earliest = DateTime::MAX;
        for cohort in cohorts[first..].iter_mut().rev() {
            earliest = earliest.min(cohort.deadline);
            cohort.deadline = earliest;
        }
        merge_released(cohorts, first, now);
    }

    /// The latest date that is due.
    fn cutoff(&self, now: DateTime) -> Option<i64> {
        now.timestamp_millis().checked_sub(self.expire_after)
    }

    /// Since when it is due at the earliest.
    fn since(&self, entry: &Entry) -> i64 {
        entry.from.saturating_add(self.expire_after).max(self.rule_since).max(entry.seen)
    }

    /// Moves slices that have begun to come due into the ledger.
    fn advance(&mut self, now: DateTime) {
        let Some(cutoff) = self.cutoff(now) else { return };
        let (share, mut begun) = (self.survival.share(), Vec::new());
        while let Some(slice) = self.ahead.first_entry().filter(|slice| *slice.key() <= cutoff) {
            let (start, forecast) = slice.remove_entry();
            begun.extend(self.guess(start, forecast, share));
        }
        self.note(begun, now);
    }

    fn note(&mut self, entries: Vec<Entry>, now: DateTime) {
        if entries.is_empty() {
            return;
        }
        let mut ledger = std::mem::take(&mut self.ledger);
        ledger.add(entries);
        let now = now.timestamp_millis();
        let late = |entry: &Entry| self.since(entry).saturating_add(self.steps.lag) <= now;
        ledger.merge(|a, b| self.since(a) == self.since(b) || (late(a) && late(b)));
        self.ledger = ledger;
    }

    fn guess(&self, start: i64, forecast: f64, survival: f64) -> Option<Entry> {
        let end = self.steps.end(start);
        let left = 1.0 - share(start, end, self.counted);
        let from = start.max(self.counted.saturating_add(1));
        let forecast = forecast * left;
        (end > self.counted).then(|| Entry { guess: Some(forecast), ..Entry::counted(from, end, forecast * survival) })
    }

    /// Takes in how many documents each slice has between two dates; all that is up to the cutoff is exact from then on, if
    /// nothing before it was left out.
    fn take_in(&mut self, from: i64, until: i64, slices: &[(i64, f64)], now: DateTime) {
        let Some(cutoff) = self.cutoff(now) else { return };
        let ended = self.steps.ended(cutoff).unwrap_or(i64::MIN);
        let exact = if from <= self.counted { until.min(ended).max(self.counted) } else { self.counted };
        let within = |date: i64| date > self.counted && date <= exact;
        if from == i64::MIN {
            self.ledger.forget_assumed();
        }
        let guesses = self.ledger.remove_guesses(from, until);
        // Of a slice that was deleted from before it was over it is not known how many documents it had.
        let whole = |entry: &&Entry| within(entry.to) && self.steps.start(entry.from) == entry.from;
        let expected: f64 = guesses.iter().filter(whole).filter_map(|entry| entry.guess).sum();
        let deleted: f64 = guesses.iter().filter(whole).map(|entry| entry.taken).sum();
        let starts: HashSet<i64> = guesses.iter().filter(whole).map(|entry| entry.from).collect();
        let there: f64 = slices.iter().filter(|(start, _)| starts.contains(start)).map(|(_, n)| n).sum();
        let steps = self.steps;
        self.ahead.retain(|start, _| steps.end(*start) <= from || steps.end(*start) > until);
        let (share, mut due) = (self.survival.share(), Vec::new());
        for (start, documents) in slices.iter().filter(|(_, n)| *n > 0.0) {
            let end = self.steps.end(*start);
            if end <= self.counted {
                // Seen to be gone meanwhile, or kept.
            } else if end <= exact {
                let from = (*start).max(from.saturating_add(i64::from(from != i64::MIN)));
                due.push(Entry::counted(from, end, *documents));
            } else if *start <= cutoff {
                due.extend(self.guess(*start, *documents, share));
            } else {
                self.ahead.insert(*start, *documents);
            }
        }
        self.note(due, now);
        self.survival.learn(expected, there + deleted);
        self.counted = exact;
        self.note_known(now);
    }

    fn note_known(&mut self, now: DateTime) {
        let ended = self.cutoff(now).and_then(|cutoff| self.steps.ended(cutoff));
        self.counting.known |= ended.is_none_or(|ended| self.counted >= ended.saturating_sub(self.steps.slice));
    }
}

/// Merges neighbours that can be deleted already and have the same deadline, from a place on.
fn merge_released(cohorts: &mut Vec<Cohort>, first: usize, now: DateTime) {
    let mut rest = cohorts.split_off(first).into_iter();
    let Some(mut last) = rest.next() else { return };
    for cohort in rest {
        if cohort.deadline == last.deadline && cohort.release <= now && last.release <= now {
            last.documents += cohort.documents;
            last.release = last.release.max(cohort.release);
        } else {
            cohorts.push(std::mem::replace(&mut last, cohort));
        }
    }
    cohorts.push(last);
}
