//! The plan, for whoever asks: how fast documents will have to be deleted, and whether that will do.

mod count;
mod report;

use std::{future::IntoFuture, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use mongodb::bson::DateTime;

use self::count::{Count, Counted};
pub use self::report::{PausePrice, PlanReport, PlannedIndex, PlannedRate};
use super::status::PaceStatus;
use crate::{
    entry::Entry,
    error::{Error, Result},
    interval::later,
    namespace::CollectionName,
    pacing::{Calendar, ClosedWindow, Foresight, Segment, Shortfall, Terms},
    registry::{Slot, Snapshot, TtlRegistry, no_index},
};

/// How long new statements may begin.
const MAX_TIME: Duration = Duration::from_secs(30);

const LAGS_AHEAD: u32 = 3;

impl TtlRegistry {
    /// Counts what is due and what comes due, and says how fast it will have to be deleted, and whether that will do.
    ///
    /// Goes by what is in force: what [`tune`](Self::tune) has set, and else by what the one that sweeps was told, or swept
    /// last, and else by the defaults of a [`Sweeper`](crate::Sweeper). Setters say what would be with other values.
    ///
    /// # Guarantees
    ///
    /// Deletes and changes nothing. Counts by keys of the supporting indexes alone, in statements of at most 2 s on the server,
    /// 1,500 statements and about 5,000,000 keys at most; what was not counted is named. Numbers are exact to a slice, a 240th of the
    /// target lag. How many of the documents a guard or a veto will keep is not known: they count as if all were to go. Documents that
    /// will be renewed count as well, and those that will be inserted do not. An index that has a target lag or a rate of its
    /// own keeps it.
    ///
    /// # Errors
    ///
    /// Refused if a value is out of range or a collection has no TTL index; failed if the database cannot be reached.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ttl_index::Error> {
    /// # use std::time::Duration;
    /// # use ttl_index::{EmbeddedStore, TtlIndex, TtlRegistry, bson::{DateTime, doc}};
    /// # let store = EmbeddedStore::in_memory()?;
    /// # let ttl = TtlRegistry::open(store.clone()).await?;
    /// ttl.create_index("sessions", TtlIndex::on("at").expire_after(Duration::ZERO)).await?;
    /// # store.collection("sessions").insert_one(doc! { "at": DateTime::from_millis(0) }).await?;
    /// let plan = ttl.plan().target_lag(Duration::from_secs(3600)).await?;
    /// assert_eq!((plan.backlog, plan.shortfall), (1, None));
    /// println!("at most {:.0} a second; {:?} is gone by {:?}", plan.peak, plan.backlog, plan.finish);
    /// # Ok(())
    /// # }
    /// ```
    pub fn plan(&self) -> MakePlan<'_> {
        let (collections, what_if) = (Vec::new(), WhatIf::default());
        MakePlan { registry: self, collections, what_if, resumed: None, max_time: MAX_TIME }
    }
}

/// Makes a plan; see [`TtlRegistry::plan`].
#[derive(Debug)]
#[must_use = "nothing happens until it is awaited"]
pub struct MakePlan<'a> {
    registry: &'a TtlRegistry,
    collections: Vec<String>,
    what_if: WhatIf,
    resumed: Option<DateTime>,
    max_time: Duration,
}

/// What is to be taken for set.
#[derive(Debug, Default)]
struct WhatIf {
    target_lag: Option<Duration>,
    max_rate: Option<f64>,
    min_rate: Option<f64>,
    closed: Option<Vec<ClosedWindow>>,
}

impl MakePlan<'_> {
    /// For the TTL index of this collection, and of others named so; for all by default.
    pub fn collection(mut self, collection: impl Into<String>) -> Self {
        self.collections.push(collection.into());
        self
    }

    /// As if documents had to be gone within this time, 1 s to 366 days; what is in force by default.
    pub fn target_lag(mut self, lag: Duration) -> Self {
        self.what_if.target_lag = Some(lag);
        self
    }

    /// As if so many documents a second were allowed, above 0; what is in force by default.
    pub fn max_rate(mut self, documents_per_second: f64) -> Self {
        self.what_if.max_rate = Some(documents_per_second);
        self
    }

    /// As if it went no slower than this while anything is due, in documents a second, 0 or above; what is in force by default.
    pub fn min_rate(mut self, documents_per_second: f64) -> Self {
        self.what_if.min_rate = Some(documents_per_second);
        self
    }

    /// As if nothing were deleted in these windows, and in no others; those in force by default.
    pub fn closed(mut self, windows: Vec<ClosedWindow>) -> Self {
        self.what_if.closed = Some(windows);
        self
    }

    /// Has it say what it takes if nothing is deleted before this instant; the end of the pause in force by default.
    pub fn resuming_at(mut self, instant: DateTime) -> Self {
        self.resumed = Some(instant);
        self
    }

    /// How long it may begin new counts; 30 s by default. The one under way is waited for.
    pub fn max_time(mut self, time: Duration) -> Self {
        self.max_time = time;
        self
    }

    async fn carry_out(self) -> Result<PlanReport> {
        let store = &self.registry.store;
        let snapshot = Snapshot::load(&**store).await?;
        let wanted = self.wanted(&snapshot)?;
        let told = self.registry.status().await?.pace;
        let mut terms = snapshot.tuning.over(&told.as_ref().map_or_else(Terms::default, terms_of));
        self.what_if.over(&mut terms);
        terms.check()?;
        let good = |slot: &&Slot| match slot {
            Slot::Good(entry) => Some((**entry).clone()),
            Slot::Broken(_) => None,
        };
        let entries: Vec<Entry> = wanted.iter().filter_map(good).collect();
        let finish_now = snapshot.tuning.finish_now;
        let count = Count { store: store.clone(), entries, terms: terms.clone(), finish_now, max_time: self.max_time };
        // A task of its own: a call of the driver's must come to its end.
        let counted = tokio::spawn(count.run()).await.map_err(|_| Error::Interrupted)??;
        Ok(self.report(&snapshot, &wanted, &terms, counted))
    }

    fn wanted<'s>(&self, snapshot: &'s Snapshot) -> Result<Vec<&'s Slot>> {
        if self.collections.is_empty() {
            return Ok(snapshot.slots.iter().collect());
        }
        let names = self.collections.iter().map(|name| CollectionName::parse(name)).collect::<Result<Vec<_>, _>>()?;
        if let Some(missing) = names.iter().find(|name| snapshot.find(name).is_none()) {
            return Err(no_index(missing).into());
        }
        let wanted = |slot: &&Slot| names.iter().any(|name| name.as_str() == slot.collection());
        Ok(snapshot.slots.iter().filter(wanted).collect())
    }

    fn report(&self, snapshot: &Snapshot, wanted: &[&Slot], terms: &Terms, counted: Counted) -> PlanReport {
        let Counted { now, mut pacer, mut uncounted } = counted;
        let mut index = |slot: &&Slot| {
            let (collection, index) = (slot.collection().to_owned(), slot.name().to_owned());
            let (foreseen, uncounted) = match slot {
                Slot::Good(entry) => (pacer.foresee(entry.id, now), uncounted.remove(&entry.id)),
                Slot::Broken(broken) => (Foresight::default(), Some(broken.why.clone())),
            };
            let several = || "documents with several dates are counted only once they are due".to_owned();
            PlannedIndex {
                collection,
                index,
                due: count(foreseen.due),
                coming: count(foreseen.coming),
                oldest_due: foreseen.oldest_due,
                peak: foreseen.peak,
                shortfall: foreseen.shortfall,
                uncounted: uncounted.or_else(|| foreseen.several.then(several)),
            }
        };
        let indexes: Vec<PlannedIndex> = wanted.iter().map(&mut index).collect();
        let outlook = pacer.outlook(now);
        let paused = snapshot.paused.clone().filter(|pause| pause.holds_at(now));
        let resumed = self.resumed.or_else(|| paused.as_ref()?.until);
        let price = resumed.map(|resumed| {
            let (peak, shortfall) = pacer.price(now, resumed.max(now));
            PausePrice { resumed, peak, shortfall }
        });
        let parts = |part: &Segment| {
            let rate = part.rate;
            let open = terms.closed.open_between(part.from, part.until).into_iter();
            open.map(move |(from, until)| PlannedRate { from, until, rate })
        };
        PlanReport {
            now,
            horizon: later(now, terms.target_lag * LAGS_AHEAD),
            target_lag: terms.target_lag,
            max_rate: terms.max_rate,
            min_rate: terms.min_rate,
            closed: terms.closed.windows().to_vec(),
            rate: pacer.rate(now),
            curve: pacer.curve().iter().flat_map(parts).collect(),
            peak: outlook.peak,
            backlog: indexes.iter().map(|index| index.due).sum(),
            coming: indexes.iter().map(|index| index.coming).sum(),
            finish: outlook.finish,
            shortfall: outlook.shortfall.or_else(|| latest(&indexes)),
            complete: indexes.iter().all(|index| index.uncounted.is_none()),
            paused,
            price,
            indexes,
        }
    }
}

impl WhatIf {
    fn over(&self, terms: &mut Terms) {
        terms.target_lag = self.target_lag.unwrap_or(terms.target_lag);
        terms.max_rate = self.max_rate.unwrap_or(terms.max_rate);
        terms.min_rate = self.min_rate.unwrap_or(terms.min_rate);
        if let Some(closed) = &self.closed {
            terms.closed = Calendar::from(closed.clone());
        }
    }
}

impl<'a> IntoFuture for MakePlan<'a> {
    type Output = Result<PlanReport>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.carry_out().boxed()
    }
}

fn terms_of(told: &PaceStatus) -> Terms {
    let closed = Calendar::from(told.closed.clone());
    Terms { target_lag: told.target_lag, max_rate: told.max_rate, min_rate: told.min_rate, closed }
}

/// Of those that have a rate of their own.
fn latest(indexes: &[PlannedIndex]) -> Option<Shortfall> {
    indexes.iter().filter_map(|index| index.shortfall).max_by_key(|short| short.late)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
fn count(documents: f64) -> u64 {
    documents.round() as u64
}
