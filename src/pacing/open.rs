//! When sweeping is open, as time that counts.

use mongodb::bson::DateTime;

use super::plan::{seconds_after, seconds_between};

/// The stretches of time in which sweeping is open, as far as it is looked ahead; beyond, it counts as open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Open(Vec<(DateTime, DateTime)>);

impl Open {
    /// These stretches, ascending and apart from each other.
    pub(crate) fn new(mut stretches: Vec<(DateTime, DateTime)>) -> Self {
        match stretches.last_mut() {
            Some(last) => last.1 = DateTime::MAX,
            None => stretches.push((DateTime::MIN, DateTime::MAX)),
        }
        Self(stretches)
    }

    /// Always.
    pub(crate) fn always() -> Self {
        Self::new(Vec::new())
    }

    /// How many open seconds there are until an instant; 0 if it is past.
    pub(crate) fn seconds(&self, now: DateTime, until: DateTime) -> f64 {
        let open = |(from, end): &(DateTime, DateTime)| seconds_between(now.max(*from), until.min(*end)).max(0.0);
        self.0.iter().take_while(|stretch| stretch.0 < until).map(open).sum()
    }

    /// When so many open seconds have passed.
    pub(crate) fn instant(&self, now: DateTime, seconds: f64) -> DateTime {
        let mut left = seconds;
        for (from, end) in &self.0 {
            let from = now.max(*from);
            let open = seconds_between(from, *end);
            if open > 0.0 && left <= open {
                return seconds_after(from, left);
            }
            left -= open.max(0.0);
        }
        DateTime::MAX
    }
}
