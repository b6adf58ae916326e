//! How fast a sweep may go.

mod bucket;
mod cohort;
#[allow(dead_code)] // until the sweeper plans by it
mod forecast;

pub(crate) use bucket::Bucket;
pub(crate) use cohort::Cohort;
#[allow(unused_imports)] // until the sweeper plans by it
pub(crate) use forecast::{Budget, Forecast, Want};
