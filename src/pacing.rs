//! How fast a sweep may go.

mod bucket;
mod cohort;
mod open;
mod plan;
mod service;

pub(crate) use bucket::Bucket;
pub(crate) use cohort::Cohort;
pub(crate) use open::Open;
pub(crate) use service::{Order, Outcome, Service, Turn};
pub(crate) use plan::{Demand, Plan, Segment, Shortfall};
