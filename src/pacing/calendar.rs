//! When the background may delete: always, but for closed windows. Pure.

mod window;

pub use window::ClosedWindow;

use mongodb::bson::DateTime;

use crate::error::{Code, Refusal};

/// The most windows: each costs time whenever it is planned.
const MOST_WINDOWS: usize = 64;

/// The least share of a week that is to be open.
const LEAST_OPEN: f64 = 0.05;

const DAY: i64 = 86_400_000;
const WEEK: i64 = 7 * DAY;

/// Closed windows are reckoned with so far ahead, several times the longest plan.
const FARTHEST: i64 = 5 * 366 * DAY;

/// Monday, 5 January 2026: in the weeks from there on each zone has all the hours that it has in a year.
const SOME_MONDAY: i64 = 1_767_571_200_000;
const WEEKS: usize = 52;
const YEAR: i64 = 52 * WEEK;

/// The closed windows of a database.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Calendar {
    windows: Vec<ClosedWindow>,
}

impl From<Vec<ClosedWindow>> for Calendar {
    fn from(windows: Vec<ClosedWindow>) -> Self {
        Self { windows }
    }
}

impl Calendar {
    pub(crate) fn close(&mut self, window: ClosedWindow) {
        self.windows.push(window);
    }

    pub(crate) fn windows(&self) -> &[ClosedWindow] {
        &self.windows
    }

    /// Whether it is always open.
    pub(crate) fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Refuses windows that leave next to no time open.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let refuse = |why: String| Err(Refusal::new(Code::BadValue, why));
        if self.windows.len() > MOST_WINDOWS {
            return refuse(format!("{} closed windows are too many: at most {MOST_WINDOWS}", self.windows.len()));
        }
        let millis = |at: i64| DateTime::from_millis(SOME_MONDAY + at);
        let mut open = [0; WEEKS];
        for (start, end) in self.open_between(millis(0), millis(YEAR)) {
            let (mut start, end) = (start.timestamp_millis() - SOME_MONDAY, end.timestamp_millis() - SOME_MONDAY);
            while start < end {
                let next = end.min((start / WEEK + 1) * WEEK);
                open[usize::try_from(start / WEEK).unwrap_or_default()] += next - start;
                start = next;
            }
        }
        #[allow(clippy::cast_precision_loss)] // less than a week
        let share = open.into_iter().min().unwrap_or_default() as f64 / WEEK as f64;
        if share < LEAST_OPEN {
            let open = share * 7.0 * 24.0;
            return refuse(format!(
                "the closed windows leave only {open:.1} hours of a week open, of which at least {:.1} are needed (5 %)",
                LEAST_OPEN * 7.0 * 24.0
            ));
        }
        Ok(())
    }

    /// When it is open in `[from, until)`: ascending, disjoint, not touching.
    pub(crate) fn open_between(&self, from: DateTime, until: DateTime) -> Vec<(DateTime, DateTime)> {
        let mut open = Vec::new();
        let mut at = from;
        for (start, end) in self.closed_between(from, until) {
            if at < start {
                open.push((at, start));
            }
            at = end;
        }
        if at < until {
            open.push((at, until));
        }
        open
    }

    /// Until when it is closed at this instant; none if it is open.
    pub(crate) fn closed_until(&self, at: DateTime) -> Option<DateTime> {
        let mut end = at;
        // Windows on end; never all of a week, unless a zone has changed its hours out of knowledge.
        for _ in 0..366 {
            let look = later(end, DAY);
            match self.closed_between(end, look).first() {
                Some((start, stop)) if *start == end => end = *stop,
                _ => break,
            }
            if end < look {
                break;
            }
        }
        (end > at).then_some(end)
    }

    /// When it is closed in `[from, until)`: ascending, disjoint, not touching.
    fn closed_between(&self, from: DateTime, until: DateTime) -> Vec<(DateTime, DateTime)> {
        if from >= until {
            return Vec::new();
        }
        let until = until.min(later(from, FARTHEST));
        let within =
            |(start, end): (i64, i64)| (DateTime::from_millis(start).max(from), DateTime::from_millis(end).min(until));
        let spans = self.windows.iter().flat_map(|window| window.spans(from, until));
        let mut spans: Vec<_> = spans.map(within).filter(|(start, end)| start < end).collect();
        spans.sort_unstable();
        let mut merged: Vec<(DateTime, DateTime)> = Vec::with_capacity(spans.len());
        for (start, end) in spans {
            match merged.last_mut() {
                Some((_, last)) if start <= *last => *last = end.max(*last),
                _ => merged.push((start, end)),
            }
        }
        merged
    }
}

fn later(at: DateTime, millis: i64) -> DateTime {
    DateTime::from_millis(at.timestamp_millis().saturating_add(millis))
}

#[cfg(test)]
mod tests;
