//! The loop of the service in virtual time: visits when the pacer wants them, at its rate, and counts as it asks for them.

use std::time::Duration;

use mongodb::bson::{DateTime, oid::ObjectId};
use tokio::time::Instant;

use super::{
    BEGIN, DAY, Simulate, date,
    load::{Load, MINUTE, Micros, SECOND},
    micros,
    tally::Tally,
};
use crate::{
    pacing::{Budget, Member, Outcome, Pacer, Shortfall},
    store::{Census, CensusRange},
};

/// How often an index is visited at least, as in the service.
const INTERVAL: Duration = Duration::from_secs(60);

/// How long a visit takes at most in the service, so that others get their turn. Here is no other: it takes longer if nothing
/// is planned or counted meanwhile.
const VISIT: Micros = SECOND;

/// How soon after a count there are the means for another, and how soon it is asked again if there are none, as in the service.
const NEXT_COUNT: Micros = SECOND / 2;
const LOOK_FOR_MEANS: Micros = SECOND / 4;

/// What came of it.
pub(super) struct Played {
    pub(super) load: Load,
    pub(super) tally: Tally,
    pub(super) end: Micros,
    /// What the planner told of lateness, at its worst.
    pub(super) shortfall: Option<Shortfall>,
}

struct Play {
    load: Load,
    tally: Tally,
    now: Micros,
    /// The clock that only goes forward, as of the beginning.
    start: Instant,
    pacer: Pacer,
    budget: Budget,
    count_at: Micros,
    forecast_scale: f64,
    shortfall: Option<Shortfall>,
}

/// Until everything is gone, or an instant has come.
pub(super) fn play(simulate: Simulate<'_>, until: Micros) -> Played {
    let Simulate { trace, terms, forecast_scale } = simulate;
    let id = ObjectId::from_bytes([0; 12]);
    let member = Member {
        id,
        rule_since: date(0),
        expire_after: 0,
        interval: INTERVAL,
        target_lag: None,
        max_rate: None,
        counted: true,
    };
    let start = Instant::now();
    let mut pacer = Pacer::new(terms.clone());
    pacer.keep(&terms, None, [member], start);
    let mut play = Play {
        load: Load::new(trace),
        tally: Tally::new(micros(terms.target_lag)),
        now: 0,
        start,
        pacer,
        budget: Budget::new(date(0)),
        count_at: 0,
        forecast_scale,
        shortfall: None,
    };
    while play.now < until && play.load.deleted() < play.load.total() {
        play.step(id, until);
    }
    Played { load: play.load, tally: play.tally, end: play.now, shortfall: play.shortfall }
}

impl Play {
    fn step(&mut self, id: ObjectId, until: Micros) {
        self.count();
        if self.pacer.plan(self.date(), self.instant()) {
            self.note_shortfall();
        }
        let rate = self.pacer.rate(self.date());
        let at = match (self.pacer.closed_until(self.date()), self.pacer.next(self.instant())) {
            (Some(open), _) => instant_of(open),
            (None, Some(turn)) if turn.at > self.instant() => self.now + micros(turn.at - self.instant()),
            (None, Some(_)) if rate > 0.0 => return self.visit(id, rate),
            (None, _) => self.now + SECOND,
        };
        let soonest = self.now + SECOND / 1000;
        self.now = at.min(self.count_at).clamp(soonest, until.max(soonest));
    }

    /// Deletes what is due, for as long as a visit takes.
    fn visit(&mut self, id: ObjectId, rate: f64) {
        let cutoff = self.date();
        let due = self.load.due(self.now);
        let planned = micros(self.pacer.plans_at(self.instant()) - self.instant());
        let time = planned.min(self.count_at - self.now).max(VISIT);
        let mut documents = due.min(in_time(rate, time).max(1));
        let mut end = self.now + time_for(documents, rate);
        if documents > 0 && self.pacer.closed_until(date(end - 1)).is_some() {
            // Windows begin with a minute.
            let closing = (self.now / MINUTE + 1) * MINUTE;
            documents = documents.min(in_time(rate, closing - self.now));
            end = closing;
            if documents == 0 {
                self.now = closing;
                return;
            }
        }
        if documents > 0 {
            self.tally.delete(&mut self.load, documents, self.now, end);
            self.now = end;
        }
        let drained = documents == due;
        let outcome = if drained { Outcome::Drained(self.next_expiry()) } else { Outcome::More };
        let up_to = self.load.last_deleted().map(field_date);
        let found = (drained.then_some((cutoff, 0)), up_to);
        let at = (self.date(), self.instant());
        self.pacer.visited(id, (outcome, documents), found, at);
    }

    fn next_expiry(&self) -> Option<Duration> {
        let next = self.load.next_date(self.now)?.saturating_mul(SECOND) - self.now;
        Some(Duration::from_micros(u64::try_from(next).unwrap_or_default()))
    }

    /// Answers what the forecasts ask, as far as the budget goes.
    fn count(&mut self) {
        if self.now < self.count_at {
            return;
        }
        let now = self.date();
        let mut wants = self.pacer.wants(now);
        let nothing = wants.is_empty();
        let Some((id, want)) = self.budget.pick(&mut wants, now) else {
            let planned = micros(self.pacer.plans_at(self.instant()) - self.instant());
            self.count_at = self.now + if nothing { planned.max(SECOND / 1000) } else { LOOK_FOR_MEANS };
            return;
        };
        let census = self.census(&want.range);
        self.budget.settle(&want, census.documents());
        if let Some(forecast) = self.pacer.forecast(id) {
            forecast.counted(&want, Some(&census), now);
        }
        self.pacer.plan_anew();
        self.count_at = self.now + NEXT_COUNT;
    }

    /// As a database would count: what is due exactly; of the rest so much as is to be foreseen of it.
    fn census(&self, range: &CensusRange) -> Census {
        let slice = i64::try_from(range.slice.as_millis()).unwrap_or(i64::MAX).max(1);
        let (from, until) = (range.from.map(second), second(range.until));
        let mut census = Census::default();
        let mut left = range.limit;
        for (date, documents) in self.load.between(from, until) {
            let documents = if date.saturating_mul(SECOND) <= self.now {
                documents
            } else {
                scaled(documents, self.forecast_scale)
            };
            let counted = documents.min(left);
            left -= counted;
            let at = field_date(date);
            let start = DateTime::from_millis(at.timestamp_millis().div_euclid(slice).saturating_mul(slice));
            match census.slices.last_mut().filter(|(last, _)| *last == start) {
                Some((_, count)) => *count += counted,
                None if counted > 0 => census.slices.push((start, counted)),
                None => {}
            }
            if left == 0 {
                census.reached = Some(at);
                break;
            }
        }
        census
    }

    fn note_shortfall(&mut self) {
        // Once documents are late it is of no use to hear how fast they would have to go to be on time.
        let Some(shortfall) = self.pacer.outlook(self.date()).shortfall.filter(|_| self.tally.late == 0) else {
            return;
        };
        if self.shortfall.is_none_or(|before| before.late < shortfall.late) {
            self.shortfall = Some(shortfall);
        }
    }

    fn date(&self) -> DateTime {
        date(self.now)
    }

    fn instant(&self) -> Instant {
        self.start + Duration::from_micros(self.now.unsigned_abs())
    }
}

/// The date that documents have which expire so many seconds after the beginning.
fn field_date(second: i64) -> DateTime {
    DateTime::from_millis(BEGIN.saturating_add(second.saturating_mul(1000)))
}

fn instant_of(date: DateTime) -> Micros {
    date.timestamp_millis().saturating_sub(BEGIN).saturating_mul(SECOND / 1000)
}

/// The last whole second of a trace up to a date.
fn second(date: DateTime) -> i64 {
    date.timestamp_millis().saturating_sub(BEGIN).div_euclid(1000)
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
fn scaled(documents: u64, by: f64) -> u64 {
    (documents as f64 * by).round() as u64
}

/// How many documents go in some time.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
fn in_time(rate: f64, time: Micros) -> u64 {
    (rate * time as f64 / 1e6).floor() as u64
}

/// How long so many documents take.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // saturates
fn time_for(documents: u64, rate: f64) -> Micros {
    ((documents as f64 / rate * 1e6).ceil() as Micros).clamp(1, 366 * DAY)
}
