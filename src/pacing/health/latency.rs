//! How long batches take for a document, against what they take in general.
//!
//! One batch says little: of what is seen in a few seconds a low quantile counts, so that a queue that stays is told from one that
//! comes and goes. What a batch takes in general depends on how large it is, and on the index; it is what the quicker ones took in
//! the last minutes, so that a change which lasts is what is usual after a while.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use mongodb::bson::oid::ObjectId;
use tokio::time::Instant;

use super::Concern;

/// So many times the usual is no trouble yet.
const TOLERANCE: f64 = 2.0;

/// The lowest factor: whatever else slows the database down, something is done.
const LEAST: f64 = 0.1;

/// What was seen in so long says how it is now, if there were at least so many batches...
const WINDOW: Duration = Duration::from_secs(3);
const FEW: usize = 3;
/// ...or else so many within this.
const LONG_WINDOW: Duration = Duration::from_secs(10);

/// The most batches that are looked at.
const MOST: usize = 256;

/// Of each slot of time the quickest batch is kept, for so many slots: ten minutes.
const SLOT: Duration = Duration::from_secs(10);
const SLOTS: u64 = 60;

/// What is usual is known after so many slots, and without a look at batches of other sizes after so many.
const KNOWN: usize = 6;
const WELL_KNOWN: usize = 30;

/// Sizes this far apart, in powers of two, still say something of each other.
const NEAR: u32 = 3;

/// Below this size, in powers of two, a batch takes as long with fewer documents.
const SMALL: u32 = 4;

#[derive(Debug)]
pub(super) struct Latency {
    began: Instant,
    usual: HashMap<(ObjectId, u32), Usual>,
    recent: VecDeque<Seen>,
}

/// What a batch took for a document, in seconds.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Instant,
    took: f64,
    usual: f64,
}

impl Seen {
    fn ratio(&self) -> f64 {
        self.took / self.usual
    }
}

/// The quickest of each slot.
#[derive(Debug, Default)]
struct Usual(VecDeque<(u64, f64)>);

impl Usual {
    fn see(&mut self, slot: u64, took: f64) {
        match self.0.back_mut() {
            Some((last, quickest)) if *last == slot => *quickest = quickest.min(took),
            _ => self.0.push_back((slot, took)),
        }
        self.forget(slot);
    }

    fn forget(&mut self, now: u64) {
        while self.0.front().is_some_and(|(slot, _)| slot + SLOTS <= now) {
            self.0.pop_front();
        }
    }

    /// The lowest tenth of it.
    fn quick(&self) -> Option<f64> {
        if self.0.len() < KNOWN {
            return None;
        }
        let mut sorted: Vec<f64> = self.0.iter().map(|(_, took)| *took).collect();
        sorted.sort_by(f64::total_cmp);
        Some(sorted[(sorted.len() - 1) / 10])
    }
}

impl Latency {
    pub(super) fn new(began: Instant) -> Self {
        Self { began, usual: HashMap::new(), recent: VecDeque::new() }
    }

    pub(super) fn batch(&mut self, index: ObjectId, documents: u32, took: Duration, at: Instant) {
        if documents == 0 {
            return;
        }
        let slot = at.saturating_duration_since(self.began).as_secs() / SLOT.as_secs();
        let took = took.as_secs_f64().max(1e-9) / f64::from(documents);
        if let Some(usual) = self.usual(index, documents, slot) {
            self.recent.push_back(Seen { at, took, usual });
            if self.recent.len() > MOST {
                self.recent.pop_front();
            }
        }
        self.usual.entry((index, documents.ilog2())).or_default().see(slot, took);
    }

    /// What a batch of this size takes for a document in general.
    ///
    /// Whoever is slowed down makes smaller batches. What is learnt of those in the trouble is not taken for what is usual while
    /// larger ones that were seen before say otherwise.
    fn usual(&mut self, index: ObjectId, documents: u32, now: u64) -> Option<f64> {
        let size = documents.ilog2();
        let mut of = |size: u32| {
            let usual = self.usual.get_mut(&(index, size))?;
            usual.forget(now);
            usual.quick().map(|quick| (quick, usual.0.len()))
        };
        let own = of(size);
        if let Some((quick, slots)) = own
            && slots >= WELL_KNOWN
        {
            return Some(quick);
        }
        let mut near = (1..=NEAR).flat_map(|by| [size.checked_add(by), size.checked_sub(by)]).flatten();
        let near = near.find_map(|other| of(other).map(|(quick, _)| quick * scale(other, size)));
        [own.map(|(quick, _)| quick), near].into_iter().flatten().min_by(f64::total_cmp)
    }

    pub(super) fn keep(&mut self, indexes: &HashSet<ObjectId>) {
        self.usual.retain(|(index, _), _| indexes.contains(index));
    }

    pub(super) fn concern(&mut self, at: Instant) -> Option<Concern> {
        let age = |seen: &Seen| at.saturating_duration_since(seen.at);
        while self.recent.front().is_some_and(|seen| age(seen) > LONG_WINDOW) {
            self.recent.pop_front();
        }
        let now = self.recent.iter().rev().take_while(|seen| age(seen) <= WINDOW).count().max(FEW);
        if self.recent.len() < now {
            return None;
        }
        let mut latest: Vec<Seen> = self.recent.iter().rev().take(now).copied().collect();
        latest.sort_by(|one, other| one.ratio().total_cmp(&other.ratio()));
        let low = latest[(latest.len() - 1) / 4];
        let factor = (TOLERANCE / low.ratio()).clamp(LEAST, 1.0);
        (factor < 1.0).then(|| Concern {
            factor,
            stopped: false,
            name: "latency",
            why: format!("batches take {} a document instead of {}", time(low.took), time(low.usual)),
        })
    }
}

/// What a document takes in a batch of one size, as a multiple of what it takes in one of another; sizes in powers of two.
fn scale(from: u32, to: u32) -> f64 {
    let halvings = f64::from(from) - f64::from(to);
    // In a larger batch it takes no longer; in a smaller one its share of the round trip grows.
    if halvings <= 0.0 {
        1.0
    } else if from < SMALL {
        halvings.exp2()
    } else {
        (halvings / 2.0).exp2()
    }
}

fn time(seconds: f64) -> String {
    let millis = seconds * 1e3;
    if millis >= 10.0 {
        format!("{millis:.0} ms")
    } else if millis >= 0.1 {
        format!("{millis:.1} ms")
    } else {
        format!("{millis:.3} ms")
    }
}
