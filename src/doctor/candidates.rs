//! Fields that could be a TTL field, where a collection has no TTL index. Pure.

use std::collections::BTreeMap;

use mongodb::bson::{RawBsonRef, RawDocument};

use super::{elsewhere::fields, tally::percent};
use crate::expiry::Lookalike;

/// How many fields are counted, and how many are told.
const MOST_COUNTED: usize = 1_000;
const MOST_TOLD: usize = 10;

/// A field with dates in it, or with what looks like dates.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Candidate {
    /// Its path.
    pub field: String,
    /// The share of the sample, in percent, that has a BSON Date there.
    pub dates: f64,
    /// The share that has something there that would have to be converted: text, or a number since 1970.
    pub convertible: f64,
}

#[derive(Default)]
pub(super) struct Candidates {
    documents: u64,
    counts: BTreeMap<String, (u64, u64)>,
}

impl Candidates {
    /// At the top of the document, and one level deep.
    pub(super) fn note(&mut self, document: &RawDocument) {
        self.documents += 1;
        for (name, value) in fields(document).filter(|(name, _)| *name != "_id") {
            self.count(name.to_owned(), value);
            if let RawBsonRef::Document(inner) = value {
                for (inner_name, value) in fields(inner) {
                    self.count(format!("{name}.{inner_name}"), value);
                }
            }
        }
    }

    fn count(&mut self, path: String, value: RawBsonRef<'_>) {
        let is_date = matches!(value, RawBsonRef::DateTime(_));
        if !is_date && Lookalike::of(value).is_none() || self.counts.len() >= MOST_COUNTED {
            return;
        }
        let (dates, others) = self.counts.entry(path).or_default();
        *(if is_date { dates } else { others }) += 1;
    }

    /// The most promising first.
    pub(super) fn told(self) -> Vec<Candidate> {
        let mut counts: Vec<(String, (u64, u64))> = self.counts.into_iter().collect();
        counts.sort_by_key(|(_, (dates, others))| std::cmp::Reverse((dates + others, *dates)));
        let told = counts.into_iter().take(MOST_TOLD).map(|(field, (dates, others))| Candidate {
            field,
            dates: percent(dates, self.documents),
            convertible: percent(others, self.documents),
        });
        told.collect()
    }
}
