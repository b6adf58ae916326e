//! Reading some documents of a collection, to tell what is in it.

use mongodb::bson::RawDocument;

use crate::error::Error;

/// What is done with each document; it is not kept.
pub(crate) type Judge<'a> = &'a mut (dyn FnMut(&RawDocument) + Send);

/// How documents were chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SampledBy {
    /// All there were.
    All,
    /// At random, by the database (`$sample`).
    Random,
    /// At even distances, in the order of their `_id`.
    Spread,
    /// The first that the database hands out: mostly the oldest, so that they may not be like the others.
    First,
}

impl SampledBy {
    /// In one word, which stays: `all`, `random`, `spread` or `first`.
    pub const fn as_str(self) -> &'static str {
        match self {
            SampledBy::All => "all",
            SampledBy::Random => "random",
            SampledBy::Spread => "spread",
            SampledBy::First => "first",
        }
    }
}

/// What was read.
#[derive(Debug)]
pub(crate) struct Sampled {
    pub(crate) by: SampledBy,
    /// How many documents there are, more or less, if that can be said.
    pub(crate) total: Option<u64>,
    /// Why reading ended before its time.
    pub(crate) broken_off: Option<Error>,
}
