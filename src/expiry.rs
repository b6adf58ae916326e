//! When a document expires, and why it does not: pure, on raw BSON.
//!
//! Nothing here knows a database, a clock or a runtime. A [`Rule`] is what a definition means; it judges a document at an
//! instant handed in, and yields the two query filters with which a backend finds what is due and deletes what is *still*
//! due.
//!
//! # The rule
//!
//! A document is due if some BSON Date found at the field path is `expireAfterSeconds` or longer ago, and the partial
//! filter, if there is one, matches. Of several dates the earliest counts. Whatever else stands in the field, or nothing,
//! keeps the document for ever. Whatever cannot be read keeps it too.
//!
//! Source: 621 verdicts observed on MongoDB 6.0.5's own TTL monitor; see `docs/semantics.md`.

mod absence;
mod compare;
mod filter;
mod lookalike;
mod partial;
mod path;
mod raise;
mod rule;
mod verdict;

pub(crate) use absence::{Absence, absence};
#[cfg(test)]
pub(crate) use compare::compare;
pub(crate) use compare::type_order;
pub(crate) use filter::Bounds;
pub(crate) use lookalike::{Lookalike, PLAUSIBLE_SECONDS, Unit};
pub(crate) use partial::PartialFilter;
pub(crate) use path::visit;
pub(crate) use raise::Raised;
pub(crate) use rule::Dates;
pub use rule::Rule;
pub(crate) use verdict::instant;
pub use verdict::{Reason, Verdict};
