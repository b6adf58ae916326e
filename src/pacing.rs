//! How fast a sweep may go.

mod bucket;
mod calendar;
mod cohort;
mod terms;

pub(crate) use bucket::Bucket;
pub(crate) use calendar::Calendar;
pub use calendar::ClosedWindow;
pub(crate) use cohort::Cohort;
pub(crate) use terms::{Terms, check_min_rate};
