//! Documents counted by their date, so that it is known how much is due when.

use std::time::Duration;

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
