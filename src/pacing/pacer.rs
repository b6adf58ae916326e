//! The pace of a database: what is known of its indexes, the plan, and whose turn it is. Pure.

mod foresight;

use std::{collections::HashMap, time::Duration};

use mongodb::bson::{DateTime, oid::ObjectId};
use tokio::time::Instant;

pub(crate) use self::foresight::Foresight;
use super::{
    Calendar, Cohort, Demand, Forecast, Open, Order, Outcome, Plan, Service, Shortfall, Terms, Turn, Want,
    plan::seconds_between,
};

/// All times are fractions of the target lag, so that an hour is planned as a day is.
const PLANS_IN_LAG: u32 = 1440;
const LOOKS_IN_LAG: u32 = 60;
const SLICES_IN_LAG: u32 = 240;
/// For so long before its deadline the plan wants a document gone.
const GRACE_IN_LAG: u32 = 200;
/// Within this what is late already shall be gone.
const LATE_IN_LAG: u32 = 96;

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(60);

/// It is looked ahead for closed windows by the horizon and the lag of what comes last, and a week at least.
const LAGS_AHEAD: u32 = 5;
const WEEK: Duration = Duration::from_secs(8 * 86_400);

/// Slower than this nothing is found, however little is planned.
const CRAWL: f64 = 1.0;

/// A TTL index that is planned for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) id: ObjectId,
    pub(crate) rule_since: DateTime,
    pub(crate) expire_after: i64,
    /// How often it is visited at least.
    pub(crate) interval: Duration,
    pub(crate) target_lag: Option<Duration>,
    pub(crate) max_rate: Option<f64>,
    /// Whether there is an index to count by.
    pub(crate) counted: bool,
}

/// How it looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outlook {
    /// Documents a second that the plan wants now, and the most it will want.
    pub(crate) rate: f64,
    pub(crate) peak: f64,
    /// Documents that are due, as far as is known.
    pub(crate) backlog: f64,
    /// When they are gone.
    pub(crate) finish: Option<DateTime>,
    /// None if all will be on time.
    pub(crate) shortfall: Option<Shortfall>,
    /// Whether all that was due when this began has been counted.
    pub(crate) known: bool,
}

#[derive(Debug)]
struct Row {
    member: Member,
    lag: Duration,
    forecast: Forecast,
    /// By its own rate.
    shortfall: Option<Shortfall>,
    /// When the pass under way began, and how many documents it has dealt with.
    pass: Option<(DateTime, f64)>,
}

/// What is known, planned and done next.
#[derive(Debug)]
pub(crate) struct Pacer {
    terms: Terms,
    finish_now: Option<DateTime>,
    rows: HashMap<ObjectId, Row>,
    service: Service,
    plan: Plan,
    /// Documents a second: as planned, or as was planned before while documents are at hand that must go soon.
    rate: f64,
    shortfall: Option<Shortfall>,
    finish: Option<DateTime>,
    planned: Option<Instant>,
    /// What the plan wanted when nothing was in the way.
    reference: Option<f64>,
}

impl Pacer {
    pub(crate) fn new(terms: Terms) -> Self {
        Self {
            terms,
            finish_now: None,
            rows: HashMap::new(),
            service: Service::default(),
            plan: Plan::default(),
            rate: 0.0,
            shortfall: None,
            finish: None,
            planned: None,
            reference: None,
        }
    }

    pub(crate) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Goes by these terms, and by these indexes and no others. `finish_now` is when somebody asked that everything that was
    /// due then be deleted at the highest rate.
    pub(crate) fn keep(
        &mut self,
        terms: &Terms,
        finish_now: Option<DateTime>,
        members: impl IntoIterator<Item = Member>,
        at: Instant,
    ) {
        if self.terms != *terms {
            self.terms = terms.clone();
            (self.rate, self.reference) = (0.0, None);
        }
        self.finish_now = finish_now;
        let mut before = std::mem::take(&mut self.rows);
        for member in members {
            let lag = member.target_lag.unwrap_or(self.terms.target_lag);
            let planned = lag.saturating_sub(lag / GRACE_IN_LAG);
            let (forecast, pass) = match before.remove(&member.id) {
                Some(Row { mut forecast, pass, .. }) => {
                    forecast.rule(member.rule_since, member.expire_after, planned);
                    (forecast, pass)
                }
                None => (Forecast::new(member.rule_since, member.expire_after, planned), None),
            };
            self.rows.insert(member.id, Row { member, lag, forecast, shortfall: None, pass });
        }
        let order = |row: &Row| {
            let interval = row.member.interval.min((row.lag / LOOKS_IN_LAG).max(SHORTEST));
            (row.member.id, Order { interval, max_rate: row.member.max_rate })
        };
        self.service.keep(self.rows.values().map(order), at);
        self.planned = None;
    }

    /// Plans anew if it is time, and says so.
    pub(crate) fn plan(&mut self, now: DateTime, at: Instant) -> bool {
        if at < self.plans_at(at) {
            return false;
        }
        self.planned = Some(at);
        let open = self.open(now);
        let cohorts = self.cohorts(now, &open);
        let demand = Demand::new(now, cohorts, &open, self.floors());
        self.plan = demand.plan();
        self.rate = if self.plan.at_hand { self.rate.max(self.plan.rate) } else { self.plan.rate };
        self.shortfall = demand.shortfall(self.terms.max_rate);
        self.finish = demand.finish(self.floor(), self.terms.max_rate);
        let little = self.floor();
        for (id, row) in &self.rows {
            self.service.deadline(*id, row.pressing(now, little));
            if row.deadline(now).is_some() {
                self.service.hurry([*id], at);
            }
        }
        true
    }

    /// When it is time to plan anew.
    pub(crate) fn plans_at(&self, at: Instant) -> Instant {
        let every = (self.shortest_lag() / PLANS_IN_LAG).clamp(SHORTEST, LONGEST);
        self.planned.map_or(at, |planned| planned + every)
    }

    /// Has it planned anew: what it was planned by has changed.
    pub(crate) fn plan_anew(&mut self) {
        self.planned = None;
    }

    /// Documents a second that may be deleted now, as long as nothing is in the way; 0 while sweeping is closed.
    pub(crate) fn rate(&self, now: DateTime) -> f64 {
        if self.finishes(now) {
            return self.terms.max_rate;
        }
        if self.closed_until(now).is_some() {
            return 0.0;
        }
        self.rate.max(self.floor()).min(self.terms.max_rate)
    }

    /// Below which going slower gains nothing.
    pub(crate) fn floor(&self) -> f64 {
        self.terms.min_rate.max(CRAWL).min(self.terms.max_rate)
    }

    /// Until when sweeping is closed, if it is.
    pub(crate) fn closed_until(&self, now: DateTime) -> Option<DateTime> {
        self.terms.closed.closed_until(now).filter(|_| !self.finishes(now))
    }

    /// How much more the plan wants than when nothing was in the way: from 0, nothing to speak of, to 1, half as much again.
    pub(crate) fn urgency(&mut self, healthy: bool) -> f64 {
        let wanted = self.rate.max(self.floor());
        let reference = *self.reference.get_or_insert(wanted);
        if healthy {
            self.reference = Some(wanted);
        }
        ((wanted / reference - 1.05) / 0.45).clamp(0.0, 1.0)
    }

    /// Whose turn it is, and when.
    pub(crate) fn next(&self, at: Instant) -> Option<Turn> {
        self.service.next(at)
    }

    /// A visit has ended, with so many documents dealt with. `drained` is its cutoff and how many documents stay that are due, if it came to the end of
    /// what is due; otherwise everything with a date before `up_to` is gone.
    pub(crate) fn visited(
        &mut self,
        id: ObjectId,
        (outcome, documents): (Outcome, u64),
        (drained, up_to): (Option<(DateTime, u64)>, Option<DateTime>),
        (now, at): (DateTime, Instant),
    ) {
        let little = self.floor();
        if let Some(row) = self.rows.get_mut(&id) {
            row.forecast.deleted(documents, up_to);
            if let Some((cutoff, left)) = drained {
                row.forecast.drained(cutoff, left, now);
                row.pass = None;
            } else if outcome == Outcome::More {
                row.more(documents, now);
            }
            self.service.deadline(id, row.pressing(now, little));
        }
        self.service.visited(id, outcome, documents, at);
    }

    /// Has these visited now, but for those that fail.
    pub(crate) fn hurry(&mut self, ids: impl IntoIterator<Item = ObjectId>, at: Instant) {
        self.service.hurry(ids, at);
    }

    /// How often in a row the index has failed.
    pub(crate) fn failures(&self, id: ObjectId) -> u32 {
        self.service.failures(id)
    }

    /// What is worth counting, of each index that can be counted.
    pub(crate) fn wants(&mut self, now: DateTime) -> Vec<(ObjectId, Want)> {
        let counted = self.rows.iter_mut().filter(|(_, row)| row.member.counted);
        counted.filter_map(|(id, row)| Some((*id, row.forecast.wants(now)?))).collect()
    }

    /// The forecast of an index.
    pub(crate) fn forecast(&mut self, id: ObjectId) -> Option<&mut Forecast> {
        self.rows.get_mut(&id).map(|row| &mut row.forecast)
    }

    /// How many documents of an index are due, as far as is known; and by when the first must be gone.
    pub(crate) fn backlog(&self, id: ObjectId, now: DateTime) -> (u64, Option<DateTime>) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
        let count = |row: &Row| (row.forecast.backlog(now).round() as u64, row.deadline(now));
        self.rows.get(&id).map_or((0, None), count)
    }

    /// What becomes of the deadlines of an index that has a rate of its own; none if they are met.
    pub(crate) fn shortfall(&self, id: ObjectId) -> Option<Shortfall> {
        self.rows.get(&id)?.shortfall
    }

    pub(crate) fn outlook(&self, now: DateTime) -> Outlook {
        Outlook {
            rate: self.rate,
            peak: self.plan.peak,
            backlog: self.rows.values().map(|row| row.forecast.backlog(now)).sum(),
            finish: self.finish,
            shortfall: self.shortfall,
            known: self.rows.values().all(|row| !row.member.counted || row.forecast.known()),
        }
    }

    fn cohorts(&mut self, now: DateTime, open: &Open) -> Vec<Cohort> {
        let floors = self.floors();
        let mut all = Vec::new();
        for row in self.rows.values_mut() {
            let mut own = Vec::new();
            row.forecast.cohorts(now, &mut own);
            if let Some(allowed) = row.member.max_rate {
                let demand = Demand::new(now, own.iter().copied(), open, floors);
                row.shortfall = demand.shortfall(allowed);
                own = demand.within(allowed);
            }
            all.append(&mut own);
        }
        all
    }

    /// Whether it goes as fast as it may, until what was due when that was asked is gone.
    pub(crate) fn finishes(&self, now: DateTime) -> bool {
        let Some(asked) = self.finish_now else { return false };
        let old = |row: &Row| row.forecast.oldest_due_since(now).is_some_and(|since| since <= asked);
        seconds_between(asked, now) < self.terms.target_lag.as_secs_f64()
            && self.rows.values().any(|row| !row.forecast.known() || old(row))
    }

    fn open(&self, now: DateTime) -> Open {
        let closed: &Calendar = &self.terms.closed;
        if closed.is_empty() {
            return Open::always();
        }
        let longest = self.rows.values().map(|row| row.lag).fold(self.terms.target_lag, Duration::max);
        let ahead = longest.saturating_mul(LAGS_AHEAD).max(WEEK);
        let until = now.timestamp_millis().saturating_add(i64::try_from(ahead.as_millis()).unwrap_or(i64::MAX));
        Open::new(closed.open_between(now, DateTime::from_millis(until)))
    }

    fn shortest_lag(&self) -> Duration {
        self.rows.values().map(|row| row.lag).min().unwrap_or(self.terms.target_lag)
    }

    fn floors(&self) -> (Duration, Duration) {
        let lag = self.shortest_lag();
        (lag / GRACE_IN_LAG, lag / LATE_IN_LAG)
    }
}

impl Row {
    /// A pass goes on. Where nothing was counted, as much is expected to be left as it has dealt with: then the rate rises
    /// with every hour that it lasts.
    fn more(&mut self, documents: u64, now: DateTime) {
        let (began, dealt_with) = self.pass.get_or_insert((now, 0.0));
        #[allow(clippy::cast_precision_loss)] // a count of documents
        {
            *dealt_with += documents as f64;
        }
        let guessed = !self.member.counted || !self.forecast.known();
        self.forecast.more(now, (if guessed { *dealt_with } else { 0.0 }, *began));
    }

    /// By when its first document must be gone, if some are known to be due.
    fn deadline(&self, now: DateTime) -> Option<DateTime> {
        if self.forecast.backlog(now) < 1.0 {
            return None;
        }
        let since = self.forecast.oldest_due_since(now)?;
        let lag = i64::try_from(self.lag.as_millis()).unwrap_or(i64::MAX);
        Some(DateTime::from_millis(since.timestamp_millis().saturating_add(lag)))
    }

    /// The same if it is much, rounded so that those of about the same time take turns. One with a rate of its own has to
    /// begin before that.
    fn pressing(&self, now: DateTime, little: f64) -> Option<DateTime> {
        if self.forecast.backlog(now) <= little {
            return None;
        }
        #[allow(clippy::cast_possible_truncation)] // saturates
        let takes = self.member.max_rate.map_or(0, |rate| (self.forecast.backlog(now) / rate * 1e3) as i64);
        let round = i64::try_from((self.lag / SLICES_IN_LAG).as_millis()).unwrap_or(i64::MAX).max(1);
        let rounded = self.deadline(now)?.timestamp_millis().saturating_sub(takes).div_euclid(round);
        Some(DateTime::from_millis(rounded.saturating_mul(round)))
    }
}

#[cfg(test)]
mod tests;
