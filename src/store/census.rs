//! Documents counted by their date, so that it is known how much is due when.

use std::{collections::BTreeMap, time::Duration};

use mongodb::bson::{DateTime, oid::ObjectId};

use super::PhysicalIndex;
use crate::{expiry::Rule, namespace::CollectionName};

/// Of what documents are counted.
#[derive(Clone, Debug)]
pub(crate) struct CensusTarget {
    /// The identity of the registry entry.
    pub(crate) entry: ObjectId,
    pub(crate) collection: CollectionName,
    pub(crate) rule: Rule,
    /// The ordinary index to walk; without one nothing is counted.
    pub(crate) index: Option<PhysicalIndex>,
}

/// Which documents are counted: by the dates of their field, not by when they expire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CensusRange {
    /// Only dates beyond this one.
    pub(crate) from: Option<DateTime>,
    /// Only dates up to this one.
    pub(crate) until: DateTime,
    /// How much time is counted as one; slices begin at multiples of it.
    pub(crate) slice: Duration,
    /// At most so many documents are counted.
    pub(crate) limit: u64,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Census {
    /// The start of each slice with documents, ascending, and how many.
    pub(crate) slices: Vec<(DateTime, u64)>,
    /// The date up to which everything was counted, if the limit came before the end of the range: the slice of this date, the
    /// last one, may be incomplete.
    pub(crate) reached: Option<DateTime>,
    /// How many have several dates. They are in no slice.
    pub(crate) several: u64,
}

impl Census {
    /// How many documents were counted.
    pub(crate) fn documents(&self) -> u64 {
        self.slices.iter().fold(self.several, |sum, (_, documents)| sum.saturating_add(*documents))
    }
}

/// Counts into slices what is handed over.
#[derive(Debug)]
pub(crate) struct Count {
    width: i64,
    limit: u64,
    /// By the numbers of slices.
    slices: BTreeMap<i64, u64>,
    several: u64,
    counted: u64,
}

impl Count {
    pub(crate) fn new(range: CensusRange) -> Self {
        let width = i64::try_from(range.slice.as_millis()).unwrap_or(i64::MAX).max(1);
        Self { width, limit: range.limit, slices: BTreeMap::new(), several: 0, counted: 0 }
    }

    /// So many documents are in the slice of this number; the first one begins with 1970.
    pub(crate) fn slice(&mut self, number: i64, documents: u64) {
        let slice = self.slices.entry(number).or_default();
        *slice = slice.saturating_add(documents);
        self.counted = self.counted.saturating_add(documents);
    }

    /// So many have several dates.
    pub(crate) fn several(&mut self, documents: u64) {
        self.several = self.several.saturating_add(documents);
        self.counted = self.counted.saturating_add(documents);
    }

    pub(crate) fn date(&mut self, date: DateTime) {
        self.slice(date.timestamp_millis().div_euclid(self.width), 1);
    }

    /// Whether no more need be handed over.
    #[cfg_attr(not(feature = "embedded"), allow(dead_code))] // elsewhere the database knows
    pub(crate) fn is_full(&self) -> bool {
        self.counted >= self.limit
    }

    pub(crate) fn census(self) -> Census {
        let start = |number: i64| DateTime::from_millis(number.saturating_mul(self.width));
        let last = self.slices.last_key_value().map(|(number, _)| start(*number));
        let reached = if self.counted >= self.limit { last.or(Some(DateTime::MIN)) } else { None };
        let slices = self.slices.iter().map(|(number, documents)| (start(*number), *documents)).collect();
        Census { slices, reached, several: self.several }
    }
}
