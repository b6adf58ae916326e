//! The pace of a tenure: counting for the forecast, the plan, and the rate that comes of it and of the database's health.

use std::{sync::Arc, time::Duration};

use mongodb::bson::{DateTime, oid::ObjectId};
use tokio::{
    sync::Notify,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    catalog::Catalog,
    status::{HeldBack, PaceStatus},
    survey::{Survey, Surveyed},
    visit::Visited,
};
use crate::{
    clock::between,
    entry::{Entry, IndexState},
    interval::later,
    pacing::{Budget, Member, Outcome, Pacer, Politeness, SharedHealth, Terms, Throttle, Turn, Verdict, Wish},
    registry::{Snapshot, walkable},
    store::{CensusTarget, DynStore},
    sweep::Ended,
};

/// How long a visit may begin new batches at most, so that others get their turn.
const SLICE: Duration = Duration::from_secs(1);
const SLICES_IN_LAG: u32 = 240;

/// How often it is looked at least whether something is worth counting, while the means for it are used up.
const LOOK_FOR_MEANS: Duration = Duration::from_millis(500);

pub(super) struct Planning {
    pub(super) pacer: Pacer,
    pub(super) throttle: Throttle,
    health: SharedHealth,
    politeness: Politeness,
    verdict: Option<Verdict>,
    /// Since when less is done than planned.
    held_since: Option<Instant>,
    /// Whether something has changed that should be told.
    pub(super) news: bool,
    budget: Option<Budget>,
    counting: Option<JoinHandle<Vec<Surveyed>>>,
    /// Rings when a count is there.
    pub(super) counted: Arc<Notify>,
    /// When to look again for what is worth counting.
    look_at: Instant,
    stop: CancellationToken,
    /// Whether the plan could be kept when that was last said.
    on_time: bool,
}

impl Planning {
    pub(super) fn new(terms: &Terms, health: SharedHealth, stop: CancellationToken) -> Self {
        let pacer = Pacer::new(terms.clone());
        Self {
            throttle: Throttle::per_second(pacer.floor()),
            pacer,
            health,
            politeness: Politeness::default(),
            verdict: None,
            held_since: None,
            news: false,
            budget: None,
            counting: None,
            counted: Arc::default(),
            look_at: Instant::now(),
            stop,
            on_time: true,
        }
    }

    /// Goes by the registry as it is now; `interval` says how often an index is visited.
    pub(super) fn follow<'e>(
        &mut self,
        snapshot: &Snapshot,
        options: &Terms,
        entries: impl Iterator<Item = &'e Entry>,
        interval: impl Fn(&Entry) -> Duration,
    ) {
        let member = |entry: &Entry| Member {
            id: entry.id,
            rule_since: entry.rule_since,
            expire_after: entry.rule.period_millis(),
            interval: interval(entry),
            target_lag: entry.target_lag,
            max_rate: entry.max_rate,
            counted: entry.supporting.is_some() && entry.state == IndexState::Active,
        };
        let terms = snapshot.tuning.over(options);
        if let Some(problem) = snapshot.tuning.problem.as_ref().filter(|_| terms != *self.pacer.terms()) {
            warn!(problem, "what is set of the pace cannot be understood in part; the sweeper's options hold instead");
        }
        self.pacer.keep(&terms, snapshot.tuning.finish_now, entries.map(member), Instant::now());
    }

    /// Plans if it is time, sets the rate, and has counted what is worth it. Returns when to come again at the latest.
    pub(super) async fn step<'e>(
        &mut self,
        now: DateTime,
        store: &DynStore,
        catalog: Option<&Catalog>,
        entry: impl Fn(ObjectId) -> Option<&'e Entry>,
    ) -> Instant {
        self.take_in(now).await;
        if let Some(catalog) = catalog {
            self.count(now, store, catalog, entry);
        }
        if self.pacer.plan(now, Instant::now()) {
            self.news = true;
            self.say_verdict(now);
        }
        self.set_rate(now);
        self.look_at.min(self.pacer.plans_at(Instant::now()))
    }

    /// The rate that is wished for, and less than that while the database is not well.
    pub(super) fn set_rate(&mut self, now: DateTime) {
        let verdict = self.health.verdict();
        let healthy = verdict.factor >= 1.0 && !self.politeness.is_recovering();
        let wish = Wish {
            planned: self.pacer.rate(now),
            floor: if self.pacer.closed_until(now).is_some() { 0.0 } else { self.pacer.floor() },
            max: self.pacer.terms().max_rate,
            urgency: self.pacer.urgency(healthy),
        };
        let rate = self.politeness.rate(&wish, &verdict, Instant::now());
        self.throttle.set_rate(rate);
        let held = rate < wish.planned * 0.999;
        let cause = |verdict: &Verdict| verdict.trouble.as_ref().map(|trouble| trouble.name);
        self.news |= held != self.held_since.is_some() || self.verdict.as_ref().and_then(cause) != cause(&verdict);
        self.held_since = held.then(|| self.held_since.unwrap_or_else(Instant::now));
        self.verdict = Some(verdict);
    }

    /// How long a visit may begin new batches: so long that others get their turn, and not into closed hours.
    pub(super) fn slice(&self, now: DateTime) -> Duration {
        let terms = self.pacer.terms();
        let slice = (terms.target_lag / SLICES_IN_LAG).clamp(SLICE / 10, SLICE);
        if terms.closed.is_empty() || self.pacer.finishes(now) {
            return slice;
        }
        let open = terms.closed.open_between(now, later(now, slice));
        open.first().filter(|(from, _)| *from <= now).map_or(Duration::ZERO, |(_, until)| between(now, *until))
    }

    pub(super) fn next(&self) -> Option<Turn> {
        self.pacer.next(Instant::now())
    }

    /// What counts have come to.
    async fn take_in(&mut self, now: DateTime) {
        if !self.counting.as_ref().is_some_and(JoinHandle::is_finished) {
            return;
        }
        let Some(counting) = self.counting.take() else { return };
        for counted in counting.await.unwrap_or_default() {
            if let Some(budget) = &mut self.budget {
                budget.settle(&counted.want, counted.keys());
            }
            let census = counted.outcome.as_ref().ok().and_then(Option::as_ref);
            debug!(index = %counted.entry, ?census, took = ?counted.took, "counted");
            if let Some(forecast) = self.pacer.forecast(counted.entry) {
                forecast.counted(&counted.want, census, now);
                self.pacer.plan_anew();
            }
        }
        self.look_at = Instant::now();
    }

    /// Has the next thing counted that is worth it, if there are the means.
    fn count<'e>(
        &mut self,
        now: DateTime,
        store: &DynStore,
        catalog: &Catalog,
        entry: impl Fn(ObjectId) -> Option<&'e Entry>,
    ) {
        if self.counting.is_some() || Instant::now() < self.look_at {
            return;
        }
        let target = |id: ObjectId| {
            let entry = entry(id)?;
            let index = catalog.listed(id)?.iter().find(|index| walkable(&entry.definition, index))?.clone();
            let (collection, rule) = (entry.definition.collection.clone(), entry.rule.clone());
            Some(CensusTarget { entry: id, collection, rule, index: Some(index) })
        };
        let mut wants = self.pacer.wants(now);
        wants.retain(|(id, _)| catalog.listed(*id).is_some());
        let nothing = wants.is_empty();
        let picked = self.budget.get_or_insert_with(|| Budget::new(now)).pick(&mut wants, now);
        let Some((id, want)) = picked else {
            self.look_at = if nothing { self.pacer.plans_at(Instant::now()) } else { Instant::now() + LOOK_FOR_MEANS };
            return;
        };
        let Some(target) = target(id) else {
            if let Some(forecast) = self.pacer.forecast(id) {
                forecast.counted(&want, None, now);
            }
            return;
        };
        let survey = Survey { store: store.clone(), asked: vec![(target, want)], stop: self.stop.child_token() };
        let counted = self.counted.clone();
        // A task of its own: a driver call must not be dropped halfway.
        self.counting = Some(tokio::spawn(async move {
            let surveyed = survey.run().await;
            // Only once the task has ended it is seen to have.
            tokio::spawn(async move {
                sleep(Duration::from_millis(1)).await;
                counted.notify_one();
            });
            surveyed
        }));
    }

    /// How fast it goes, and why.
    pub(super) fn status(&self, now: DateTime) -> PaceStatus {
        let (outlook, terms) = (self.pacer.outlook(now), self.pacer.terms());
        let (rate, planned) = (self.throttle.rate(), self.pacer.rate(now));
        let since = |at: Instant| earlier(now, at.elapsed());
        let held_back = self.verdict.as_ref().filter(|_| rate < planned * 0.999).map(|verdict| {
            let factor = verdict.factor;
            match &verdict.trouble {
                Some(trouble) => HeldBack {
                    factor,
                    cause: trouble.name.to_owned(),
                    why: trouble.why.clone(),
                    since: since(trouble.since),
                },
                None => HeldBack {
                    factor,
                    cause: "recovery".to_owned(),
                    why: format!("the rate rises slowly again, {rate:.0}/s of {planned:.0}/s by now"),
                    since: since(self.held_since.unwrap_or_else(Instant::now)),
                },
            }
        });
        PaceStatus {
            rate,
            planned,
            peak: outlook.peak,
            target_lag: terms.target_lag,
            max_rate: terms.max_rate,
            min_rate: terms.min_rate,
            closed: terms.closed.windows().to_vec(),
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
            backlog: outlook.backlog.round() as u64,
            counted: outlook.known,
            finish: outlook.finish,
            shortfall: outlook.shortfall,
            closed_until: self.pacer.closed_until(now),
            finishing: self.pacer.finishes(now),
            held_back,
            warning: self.verdict.as_ref().and_then(|verdict| verdict.warning.clone()),
        }
    }

    fn say_verdict(&mut self, now: DateTime) {
        let outlook = self.pacer.outlook(now);
        match (&outlook.shortfall, self.on_time) {
            (Some(short), true) => warn!(
                allowed = short.allowed, needed = short.needed, late = ?short.late,
                "documents will be deleted late"
            ),
            (None, false) => info!(peak = outlook.peak, "all documents will be deleted on time again"),
            _ => {}
        }
        self.on_time = outlook.shortfall.is_none();
    }
}

/// What a visit came to, for the plan.
pub(super) struct CameTo {
    pub(super) outcome: Outcome,
    /// Documents that are due no longer.
    pub(super) documents: u64,
    /// The cutoff, and how many documents stay that are due, if the visit came to the end of what is due.
    pub(super) drained: Option<(DateTime, u64)>,
    /// Before this date nothing is due any more, if the visit went by date.
    pub(super) reached: Option<DateTime>,
}

impl CameTo {
    /// `kept` documents of it are known to be kept.
    pub(super) fn of(visited: &Visited, outcome: Outcome, kept: u64, reached: Option<DateTime>) -> Self {
        let Visited::Passed(passed) = visited else {
            return Self { outcome, documents: 0, drained: None, reached: None };
        };
        let Ok(report) = &**passed else { return Self { outcome, documents: 0, drained: None, reached: None } };
        let drained = (report.ended == Ended::Drained).then(|| (report.cutoff, kept + report.left));
        Self { outcome, documents: report.deleted + report.changed + report.uncertain, drained, reached }
    }
}

impl Planning {
    pub(super) fn visited(&mut self, id: ObjectId, came_to: &CameTo, now: DateTime) {
        let CameTo { outcome, documents, drained, reached } = *came_to;
        self.pacer.visited(id, (outcome, documents), (drained, reached), (now, Instant::now()));
    }
}

/// So much earlier; the beginning of time at most.
fn earlier(date: DateTime, by: Duration) -> DateTime {
    let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    DateTime::from_millis(date.timestamp_millis().saturating_sub(millis))
}
