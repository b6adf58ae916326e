//! Documents that expire together.

use mongodb::bson::DateTime;

/// Documents that are planned for as one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cohort {
    /// From when on they can be deleted.
    pub(crate) release: DateTime,
    /// By when they shall be gone.
    pub(crate) deadline: DateTime,
    /// How many, as far as is known: a forecast is no whole number.
    pub(crate) documents: f64,
}
