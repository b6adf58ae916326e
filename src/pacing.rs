//! How fast a sweep may go.

mod bucket;
mod cohort;

pub(crate) use bucket::Bucket;
pub(crate) use cohort::Cohort;
