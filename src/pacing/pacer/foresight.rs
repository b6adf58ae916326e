//! What is told of the plan to whoever asks ahead.

use mongodb::bson::{DateTime, oid::ObjectId};

use super::{Demand, Pacer, Shortfall};
use crate::pacing::plan::Segment;

/// What is known of one index.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Foresight {
    /// Documents that are due, and that come due within the horizon.
    pub(crate) due: f64,
    pub(crate) coming: f64,
    pub(crate) oldest_due: Option<DateTime>,
    /// The highest rate that it would want for itself.
    pub(crate) peak: f64,
    /// By the rate of its own, if it has one.
    pub(crate) shortfall: Option<Shortfall>,
    /// Whether some documents have several dates.
    pub(crate) several: bool,
}

impl Pacer {
    /// The rates that the deadlines ask for.
    pub(crate) fn curve(&self) -> &[Segment] {
        &self.plan.curve
    }

    pub(crate) fn foresee(&mut self, id: ObjectId, now: DateTime) -> Foresight {
        let (open, floors) = (self.open(now), self.floors());
        let Some(row) = self.rows.get_mut(&id) else { return Foresight::default() };
        let mut cohorts = Vec::new();
        row.forecast.cohorts(now, &mut cohorts);
        Foresight {
            due: row.forecast.backlog(now),
            coming: row.forecast.coming(now),
            oldest_due: row.forecast.oldest_due_since(now),
            peak: Demand::new(now, cohorts, &open, floors).plan().peak,
            shortfall: row.shortfall,
            several: row.forecast.several(),
        }
    }

    /// The peak that it would take if nothing were deleted before an instant; and what becomes of the deadlines then.
    pub(crate) fn price(&mut self, now: DateTime, resumed: DateTime) -> (f64, Option<Shortfall>) {
        let open = self.open(now);
        let cohorts = self.cohorts(now, &open);
        let demand = Demand::new(resumed, cohorts, &open, self.floors());
        (demand.plan().peak, demand.shortfall(self.terms.max_rate))
    }
}
