//! What is to be counted next, and what a count says.

use mongodb::bson::DateTime;

use super::{Forecast, ledger::Entry, steps::Steps};
use crate::store::{Census, CensusRange};

/// A count that would tell more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Want {
    pub(crate) range: CensusRange,
    /// How much it would tell, in comparison with others.
    pub(crate) weight: f64,
    purpose: Purpose,
    generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Purpose {
    /// From what is due on to the horizon.
    Round,
    /// What came due since the last count.
    Newly,
    /// What was counted already.
    Again,
    /// All that is due, where documents have several dates.
    Due,
}

/// How far counting has got.
#[derive(Clone, Debug)]
pub(super) struct Counting {
    generation: u64,
    pub(super) known: bool,
    /// Up to where the round under way has counted; none if none is.
    at: Option<i64>,
    /// How many documents it has found.
    found: f64,
    /// When it got on last.
    got_on: Option<i64>,
    /// When the last round was over, and how long nothing need be counted after it.
    rests: Option<(i64, i64)>,
    newly_at: Option<i64>,
    again: Option<Again>,
    again_at: Option<i64>,
    limit: u64,
    /// More than this was too much.
    ceiling: u64,
    misses: u32,
    not_before: i64,
}

#[derive(Clone, Copy, Debug)]
struct Again {
    at: i64,
    until: i64,
    found: f64,
}

/// How many documents a count takes in at first, at most as long as it gets on, and at most.
const FIRST: u64 = 50_000;
const USUAL: u64 = 200_000;
const MOST: u64 = 10_000_000;
const LEAST: u64 = 1_000;

/// What goes before all else: it is not known what is due. Indexes with few documents first.
const UNKNOWN: f64 = 1e15;
/// How much more it tells what is due, and that what is known of it is wrong, than what lies ahead.
const DUE: f64 = 10.0;
const WRONG: f64 = 100.0;

impl Default for Counting {
    fn default() -> Self {
        Self {
            generation: 0,
            known: false,
            at: Some(i64::MIN),
            found: 0.0,
            got_on: None,
            rests: None,
            newly_at: None,
            again: None,
            again_at: None,
            limit: FIRST,
            ceiling: MOST,
            misses: 0,
            not_before: i64::MIN,
        }
    }
}

/// What many documents tell more than few, for what it costs to count them.
fn worth(documents: f64) -> f64 {
    1.0 + documents.max(0.0).ln_1p()
}

/// What is certain of a count that a limit may have ended: up to where, and the slices.
pub(super) type Complete = (i64, Vec<(i64, f64)>);

impl Counting {
    /// As for another rule: answers to what was asked before say nothing.
    pub(super) fn anew(&self) -> Self {
        Self { generation: self.generation + 1, ..Self::default() }
    }

    /// What was asked before counts what is gone now.
    pub(super) fn drained(&mut self, several: bool) {
        self.again = None;
        self.generation += u64::from(several);
    }

    pub(super) fn again(&mut self, now: i64, until: i64, steps: Steps) {
        let rested = self.again_at.is_none_or(|at| now.saturating_sub(at) >= steps.refresh);
        if self.again.is_none() && rested {
            self.again = Some(Again { at: i64::MIN, until, found: 0.0 });
            self.again_at = Some(now);
        }
    }

    /// Nothing was counted: less at a time, and later.
    fn missed(&mut self, asked: u64, now: i64, steps: Steps) {
        self.ceiling = (asked / 2).max(LEAST);
        self.limit = (asked / 4).max(LEAST);
        let pause = steps.newly.saturating_mul(1 << self.misses.min(10)).min(steps.refresh);
        self.misses = self.misses.saturating_add(1);
        self.not_before = now.saturating_add(pause);
    }

    /// None if the count got nowhere: then more is counted next time. Where that cannot be, it goes on behind the slice,
    /// which has at least as many documents as were counted.
    fn complete(&mut self, range: &CensusRange, census: &Census, steps: Steps) -> Option<Complete> {
        #[allow(clippy::cast_precision_loss)] // a count of documents
        let slices = census.slices.iter().map(|(start, n)| (start.timestamp_millis(), *n as f64));
        let until = range.until.timestamp_millis();
        let Some(reached) = census.reached else { return Some((until, slices.collect())) };
        let reached = reached.timestamp_millis();
        let from = range.from.map_or(i64::MIN, DateTime::timestamp_millis);
        let done = steps.start(reached).saturating_sub(1);
        if done > from {
            self.limit = range.limit.saturating_mul(2).min(USUAL.min(self.ceiling)).max(range.limit);
            return Some((done, slices.filter(|(start, _)| steps.end(*start) <= done).collect()));
        }
        if range.limit < self.ceiling {
            self.limit = range.limit.saturating_mul(4).min(self.ceiling);
            return None;
        }
        Some((steps.end(reached).min(until), slices.collect()))
    }
}

impl Forecast {
    /// What should be counted next, if anything is worth it. As a count takes its time, ask again only once it is there.
    pub(crate) fn wants(&mut self, now: DateTime) -> Option<Want> {
        self.advance(now);
        let millis = now.timestamp_millis();
        let ended = self.steps.ended(self.cutoff(now)?)?;
        if millis < self.counting.not_before {
            return None;
        }
        let wants = [self.wants_again(), self.wants_due(millis, ended), self.wants_round(millis, ended)];
        wants.into_iter().flatten().max_by(|a, b| a.weight.total_cmp(&b.weight))
    }

    fn want(&self, purpose: Purpose, from: i64, until: i64, weight: f64) -> Want {
        let range = CensusRange {
            from: (from > i64::MIN).then(|| DateTime::from_millis(from)),
            until: DateTime::from_millis(until),
            slice: std::time::Duration::from_millis(self.steps.slice.unsigned_abs()),
            limit: self.counting.limit,
        };
        Want { range, weight, purpose, generation: self.counting.generation }
    }

    fn wants_again(&self) -> Option<Want> {
        let again = self.counting.again?;
        Some(self.want(Purpose::Again, again.at, again.until, WRONG * worth(again.found)))
    }

    /// How long since, in multiples of the time it may be.
    #[allow(clippy::cast_precision_loss)] // a ratio
    fn staleness(now: i64, since: i64, each: i64) -> f64 {
        now.saturating_sub(since) as f64 / each as f64
    }

    fn wants_due(&self, now: i64, ended: i64) -> Option<Want> {
        let documents = self.ledger.up_to(i64::MAX);
        if self.several {
            let stale = self.counting.newly_at.map(|at| Self::staleness(now, at, self.steps.refresh));
            let weight = stale.map_or(UNKNOWN, |stale| DUE * worth(documents) * stale);
            return stale.is_none_or(|stale| stale >= 1.0).then(|| self.want(Purpose::Due, i64::MIN, ended, weight));
        }
        let stale = self.counting.newly_at.map_or(1.0, |at| Self::staleness(now, at, self.steps.newly));
        let wanted = self.counting.known && ended > self.counted && documents > 0.0 && stale >= 1.0;
        wanted.then(|| self.want(Purpose::Newly, self.counted, ended, DUE * worth(documents) * stale))
    }

    fn wants_round(&self, now: i64, ended: i64) -> Option<Want> {
        if self.several {
            return None;
        }
        let stale = match (self.counting.at, self.counting.got_on, self.counting.rests) {
            // One under way that takes long does not hold up the others.
            (Some(_), Some(got_on), _) => 1.0 + Self::staleness(now, got_on, self.steps.refresh),
            (None, _, Some((since, _))) => Self::staleness(now, since, self.steps.refresh),
            _ => 2.0,
        };
        let at = match (self.counting.at, self.counting.rests) {
            (Some(at), _) => at,
            (None, Some((since, rest))) if now.saturating_sub(since) < rest => return None,
            (None, _) => self.counted,
        };
        let from = at.max(self.counted);
        let until = self.steps.end(ended.saturating_add(self.steps.horizon));
        let documents: f64 = self.counting.found + self.ahead.values().sum::<f64>();
        let known = self.counting.known;
        let weight = if known { worth(documents) * stale } else { UNKNOWN / (1.0 + self.counting.found) };
        (from < until).then(|| self.want(Purpose::Round, from, until, weight))
    }

    /// Takes in what a count says; none if it could not be made, or not in time. What was asked of another rule says
    /// nothing.
    pub(crate) fn counted(&mut self, want: &Want, census: Option<&Census>, now: DateTime) {
        if want.generation != self.counting.generation {
            return;
        }
        self.advance(now);
        let millis = now.timestamp_millis();
        let Some(census) = census else { return self.counting.missed(want.range.limit, millis, self.steps) };
        self.counting.misses = 0;
        if want.purpose == Purpose::Due {
            return self.take_in_due(want, census, millis);
        }
        if census.several > 0 {
            // What was counted so far between two dates may be wrong.
            self.several = true;
            self.ahead.clear();
            self.counting = Counting { known: false, at: None, newly_at: None, again: None, ..self.counting.clone() };
            self.ledger = super::Ledger::default();
            return;
        }
        if self.several {
            return;
        }
        let Some((until, slices)) = self.counting.complete(&want.range, census, self.steps) else { return };
        let from = want.range.from.map_or(i64::MIN, DateTime::timestamp_millis);
        let whole = until >= want.range.until.timestamp_millis();
        let found: f64 = slices.iter().map(|(_, documents)| documents).sum();
        match want.purpose {
            Purpose::Again => self.take_in_again(from, until, found, millis),
            Purpose::Newly => {
                self.take_in(from, until, &slices, now);
                self.counting.newly_at = whole.then_some(millis).or(self.counting.newly_at);
            }
            Purpose::Round | Purpose::Due => {
                self.take_in(from, until, &slices, now);
                self.counting.round(until, found, whole, millis, self.steps);
            }
        }
    }

    fn take_in_again(&mut self, from: i64, until: i64, found: f64, now: i64) {
        let Some(again) = self.counting.again.as_mut().filter(|again| again.at == from) else { return };
        (again.at, again.found) = (until, again.found + found);
        let Again { found, until: end, .. } = *again;
        if until >= end {
            self.counting.again = None;
            self.correct(found, false, end, now);
        }
    }

    /// Documents may have several dates: all that is due is counted, as their earliest is not known.
    fn take_in_due(&mut self, want: &Want, census: &Census, now: i64) {
        self.several = true;
        #[allow(clippy::cast_precision_loss)] // a count of documents
        let count = |n: u64| n as f64;
        let until = want.range.until.timestamp_millis();
        if self.counting.known {
            let found = census.slices.iter().map(|(_, n)| count(*n)).sum::<f64>() + count(census.several);
            self.correct(found, census.reached.is_some(), until, now);
        } else {
            let dated = census.slices.iter().map(|(start, n)| {
                let start = start.timestamp_millis();
                Entry::counted(start, self.steps.end(start), count(*n))
            });
            let several = Entry { seen: now, ..Entry::counted(i64::MIN, until, count(census.several)) };
            let entries: Vec<Entry> = dated.chain([several]).filter(|entry| entry.documents > 0.0).collect();
            self.ledger.add(entries);
        }
        if census.reached.is_some() {
            self.counting.limit = want.range.limit.saturating_mul(4).min(self.counting.ceiling);
        }
        self.counted = self.counted.max(until);
        self.counting.known = true;
        self.counting.newly_at = Some(now);
    }

    /// Sets right what is known of the documents up to a date: as many were found, or more. Those that were not known are due
    /// since they were seen.
    fn correct(&mut self, found: f64, or_more: bool, until: i64, now: i64) {
        let known: f64 = self.ledger.up_to(until);
        let there = (found - self.left).max(0.0);
        if there > known {
            let more = Entry { seen: now, ..Entry::counted(i64::MIN, until, there - known) };
            self.ledger.add([more]);
        } else if known > 0.0 && !or_more {
            self.ledger.scale(there / known);
        }
    }
}

impl Counting {
    fn round(&mut self, until: i64, found: f64, whole: bool, now: i64, steps: Steps) {
        self.found += found;
        (self.at, self.got_on) = (Some(until), Some(now));
        if whole {
            let rest = if self.found > 0.0 { steps.refresh } else { steps.rest };
            self.rests = Some((now, rest));
            (self.at, self.got_on, self.found) = (None, None, 0.0);
            self.ceiling = self.ceiling.saturating_mul(2).min(MOST);
        }
    }
}
