//! How fast a sweep may go.

mod bucket;
mod cohort;
mod optimum;
mod simulation;
mod stub;
mod trace;

pub(crate) use bucket::Bucket;
pub(crate) use cohort::Cohort;
pub use simulation::{Minute, Simulate, Simulation, Summary};
pub use stub::ClosedWindow;
pub use trace::{Trace, TraceError};
