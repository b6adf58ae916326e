//! When somebody else's lease is over. Pure.

use tokio::time::Instant;

use super::Record;

/// What an observer has seen of the record, and since when by its own clock.
#[derive(Debug, Default)]
pub(super) struct Observer {
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    holder: Option<String>,
    term: i64,
    renewal: i64,
    since: Instant,
    /// Whether the counter was seen to move.
    moved: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Nobody holds it, or it was handed over to the observer.
    Free,
    /// Somebody holds it, who may be gone unless a sign of life was seen.
    Held { alive: bool },
    /// The counter has stood still for long enough.
    Over,
}

impl Observer {
    /// Looks at the record as it was read before `now`.
    pub(super) fn look(&mut self, record: Option<&Record>, me: &str, now: Instant) -> View {
        let Some(record) = record else { return View::Free };
        let Some(holder) = &record.holder else { return View::Free };
        if holder == me {
            return View::Free;
        }
        let before = self.seen.take();
        let same_holder =
            before.as_ref().filter(|seen| seen.holder.as_ref() == Some(holder) && seen.term == record.term);
        let seen = match same_holder {
            Some(seen) if seen.renewal == record.renewal => {
                Seen { since: seen.since, ..Seen::of(record, now, seen.moved) }
            }
            Some(_) => Seen::of(record, now, true),
            None => Seen::of(record, now, false),
        };
        let over = now.duration_since(seen.since) >= record.still;
        let view = if over { View::Over } else { View::Held { alive: seen.moved } };
        self.seen = Some(seen);
        view
    }
}

impl Seen {
    fn of(record: &Record, now: Instant, moved: bool) -> Self {
        Self { holder: record.holder.clone(), term: record.term, renewal: record.renewal, since: now, moved }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mongodb::bson::{Document, doc};

    use super::*;

    fn record(holder: &str, term: i64, renewal: i64) -> Record {
        Record::parse(&doc! {
            "holder": holder, "term": term, "renewal": renewal, "still_ms": 12_000, "settle_ms": 0, "work": Document::new(),
        })
        .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_over_when_its_counter_has_stood_still_by_the_observers_clock() {
        let mut observer = Observer::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(observer.look(None, "me", at(0)), View::Free);
        assert_eq!(observer.look(Some(&record("a", 1, 5)), "me", at(0)), View::Held { alive: false });
        assert_eq!(observer.look(Some(&record("a", 1, 5)), "me", at(11)), View::Held { alive: false });
        assert_eq!(observer.look(Some(&record("a", 1, 6)), "me", at(11)), View::Held { alive: true });
        assert_eq!(observer.look(Some(&record("a", 1, 6)), "me", at(22)), View::Held { alive: true });
        // Another holder's time begins anew, whatever its counter shows.
        assert_eq!(observer.look(Some(&record("b", 2, 6)), "me", at(22)), View::Held { alive: false });
        assert_eq!(observer.look(Some(&record("b", 2, 6)), "me", at(33)), View::Held { alive: false });
        assert_eq!(observer.look(Some(&record("b", 2, 6)), "me", at(34)), View::Over);
        assert_eq!(observer.look(Some(&record("me", 3, 0)), "me", at(34)), View::Free);
    }
}
