//! What an index teaches while it is swept.

/// What share of the documents that were forecast is there when their time comes: some are renewed, some come late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Survival(f64);

impl Default for Survival {
    fn default() -> Self {
        Self(1.0)
    }
}

/// Fewer documents teach nothing.
const ENOUGH: f64 = 20.0;

/// How much the last count says beside all earlier ones.
const WEIGHT: f64 = 0.2;

impl Survival {
    pub(super) fn share(self) -> f64 {
        self.0
    }

    pub(super) fn learn(&mut self, expected: f64, came: f64) {
        if expected >= ENOUGH {
            let observed = (came / expected).clamp(0.1, 2.0);
            self.0 += (observed - self.0) * WEIGHT;
        }
    }
}

/// How many documents come due where they cannot be counted ahead: as many as are deleted from one end of the work to the
/// next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrivals {
    drained_at: Option<i64>,
    deleted: f64,
    per_milli: f64,
}

impl Arrivals {
    pub(super) fn per_milli(self) -> f64 {
        self.per_milli
    }

    pub(super) fn deleted(&mut self, documents: f64) {
        self.deleted += documents;
    }

    /// The average of about the time given counts.
    #[allow(clippy::cast_precision_loss)] // an average
    pub(super) fn drained(&mut self, now: i64, over: i64) {
        let took = self.drained_at.map(|at| now.saturating_sub(at));
        if let Some(took) = took.filter(|took| *took > 0).map(|took| took as f64) {
            let weight = 1.0 - (-took / over.max(1) as f64).exp();
            self.per_milli += (self.deleted / took - self.per_milli) * weight;
        }
        if took.is_none_or(|took| took > 0) {
            (self.drained_at, self.deleted) = (Some(now), 0.0);
        }
    }
}
