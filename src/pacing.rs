//! How fast a sweep may go.
//!
//! - [`throttle`]: a rate, kept by waiting;
//! - [`size`]: how many documents make a batch;
//! - [`health`]: how well the database is;
//! - [`politeness`]: the rate that is used while it is not well;
//! - [`pace`]: what a pass goes by;
//! - [`cohort`]: documents that expire together.

mod cohort;
mod health;
mod pace;
mod politeness;
mod size;
mod throttle;

pub(crate) use cohort::Cohort;
pub use health::Signal;
pub(crate) use health::{HealthHook, Polling, SharedHealth, Trouble, Verdict, poll};
pub(crate) use pace::{Pace, Paces};
pub(crate) use politeness::{Politeness, Wish};
pub(crate) use size::Size;
pub(crate) use throttle::Throttle;
