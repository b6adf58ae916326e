//! When documents that are due and kept are looked at again, so that many of them cost little. Pure.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use mongodb::bson::{DateTime, oid::ObjectId};
use tokio::time::Instant;

use crate::entry::Entry;

/// So often they are looked at again. In between passes begin behind them.
const AGAIN: Duration = Duration::from_secs(3600);

/// What is known of the documents that are kept, by the identity of their TTL index.
#[derive(Debug, Default)]
pub(super) struct Kept(HashMap<ObjectId, Row>);

#[derive(Debug)]
struct Row {
    entry: Entry,
    /// When passes last began at the oldest document.
    since: Instant,
    /// The cutoff of the last pass that came to its end, with nothing of what it found still to be done.
    behind: Option<DateTime>,
    /// How many were kept up to there.
    up_to: u64,
    /// How many the pass under way, or the last one, has kept beyond.
    beyond: u64,
    /// Whether it has to be looked at again what that pass has found.
    unsettled: bool,
}

impl Kept {
    /// The date behind which the next pass begins; none if it begins at the oldest document. A pass that is gone on with is
    /// none that begins.
    pub(super) fn begin(&mut self, entry: &Entry, goes_on: bool, now: Instant) -> Option<DateTime> {
        let same = |row: &Row| row.entry.deletes_same_as(entry);
        let fresh = |row: &Row| goes_on || (row.behind.is_some() && now.duration_since(row.since) < AGAIN);
        if let Some(row) = self.0.get_mut(&entry.id).filter(|row| same(row) && fresh(row)) {
            if !goes_on {
                (row.beyond, row.unsettled) = (0, false);
            }
            return row.behind;
        }
        let row = Row { entry: entry.clone(), since: now, behind: None, up_to: 0, beyond: 0, unsettled: false };
        self.0.insert(entry.id, row);
        None
    }

    /// A visit has kept so many documents; `settled` if nothing else that it found is to be looked at again; `drained` is its
    /// cutoff, if it came to the end of what is due.
    pub(super) fn visited(&mut self, id: ObjectId, kept: u64, settled: bool, drained: Option<DateTime>) {
        let Some(row) = self.0.get_mut(&id) else { return };
        row.beyond += kept;
        row.unsettled |= !settled;
        // Where nothing is kept each pass is cheap, and looks at everything.
        if drained.is_some() && !row.unsettled && row.up_to + row.beyond > 0 {
            row.behind = drained;
            row.up_to += std::mem::take(&mut row.beyond);
        }
    }

    /// How many documents are kept, as far as was seen.
    pub(super) fn count(&self, id: ObjectId) -> u64 {
        self.0.get(&id).map_or(0, |row| row.up_to + row.beyond)
    }

    /// Forgets other indexes than these.
    pub(super) fn keep(&mut self, ids: &HashSet<ObjectId>) {
        self.0.retain(|id, _| ids.contains(id));
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;

    use super::*;
    use crate::guard::Reference;

    const MINUTE: Duration = Duration::from_secs(60);

    fn entry(guards: &[&str]) -> Entry {
        let guards: Vec<_> =
            guards.iter().map(|field| mongodb::bson::Document::from(Reference::by("r", *field))).collect();
        let stored = doc! {
            "id": ObjectId::from_bytes([1; 12]), "collection": "c", "name": "t_1", "key": { "t": 1 },
            "expireAfterSeconds": 60, "state": "ACTIVE", "createdAt": DateTime::MIN, "guards": guards,
        };
        Entry::parse(&stored).unwrap()
    }

    fn date(millis: i64) -> DateTime {
        DateTime::from_millis(millis)
    }

    #[tokio::test(start_paused = true)]
    async fn kept_documents_are_looked_at_once_an_hour() {
        let (entry, mut kept, start) = (entry(&["a"]), Kept::default(), Instant::now());
        let mut from_the_oldest = Vec::new();
        for minute in 0..181_u32 {
            if kept.begin(&entry, false, start + minute * MINUTE).is_none() {
                from_the_oldest.push(minute);
                kept.visited(entry.id, 5, true, Some(date(minute.into())));
            } else {
                kept.visited(entry.id, 0, true, Some(date(minute.into())));
            }
            assert_eq!(kept.count(entry.id), 5);
        }
        assert_eq!(from_the_oldest, [0, 60, 120, 180]);
    }

    #[tokio::test(start_paused = true)]
    async fn where_nothing_is_kept_each_pass_looks_at_everything() {
        let (entry, mut kept, now) = (entry(&["a"]), Kept::default(), Instant::now());
        for _ in 0..3 {
            assert_eq!(kept.begin(&entry, false, now), None);
            kept.visited(entry.id, 0, true, Some(date(1)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_in_slices_counts_once_it_is_at_its_end() {
        let (entry, mut kept, now) = (entry(&["a"]), Kept::default(), Instant::now());
        assert_eq!(kept.begin(&entry, false, now), None);
        kept.visited(entry.id, 7, true, None);
        // It goes on for hours.
        assert_eq!(kept.begin(&entry, true, now + 200 * MINUTE), None);
        kept.visited(entry.id, 7, true, Some(date(5)));
        assert_eq!(kept.count(entry.id), 14);
        assert_eq!(kept.begin(&entry, false, now + MINUTE), Some(date(5)));
        // Broken off before its end, it begins anew.
        assert_eq!(kept.begin(&entry, false, now + 60 * MINUTE), None);
        kept.visited(entry.id, 7, true, None);
        assert_eq!(kept.begin(&entry, false, now + 61 * MINUTE), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_leaves_something_is_followed_by_one_from_where_it_began() {
        let (entry, mut kept, now) = (entry(&["a"]), Kept::default(), Instant::now());
        assert_eq!(kept.begin(&entry, false, now), None);
        // Left in its first slice, which counts at its end.
        kept.visited(entry.id, 3, false, None);
        assert_eq!(kept.begin(&entry, true, now), None);
        kept.visited(entry.id, 2, true, Some(date(1)));
        assert_eq!(kept.begin(&entry, false, now + MINUTE), None);
        kept.visited(entry.id, 5, true, Some(date(2)));
        // And behind those that are kept, none of which is counted twice.
        for (minute, settled) in [(2, false), (3, false), (4, true)] {
            assert_eq!(kept.begin(&entry, false, now + minute * MINUTE), Some(date(2)));
            kept.visited(entry.id, 1, settled, Some(date(5)));
            assert_eq!(kept.count(entry.id), 6);
        }
        assert_eq!(kept.begin(&entry, false, now + 5 * MINUTE), Some(date(5)));
    }

    #[tokio::test(start_paused = true)]
    async fn other_guards_are_asked_at_once() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        for guards in [&["a"][..], &["a", "b"], &["b"], &[]] {
            assert_eq!(kept.begin(&entry(guards), false, now), None, "{guards:?}");
            kept.visited(entry(guards).id, 1, true, Some(date(1)));
            assert_eq!(kept.begin(&entry(guards), false, now), Some(date(1)), "{guards:?}");
        }
    }
}
