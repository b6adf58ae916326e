//! How fast a sweep may go.

mod bucket;
mod cohort;
mod optimum;
mod trace;

pub(crate) use bucket::Bucket;
pub(crate) use cohort::Cohort;
pub use trace::{Trace, TraceError};
