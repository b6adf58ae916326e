//! How fast a sweep may go, and what is deleted first. Pure, but for waiting.
//!
//! | file | concern |
//! |---|---|
//! | [`forecast`] | what of an index is due, and what comes due when |
//! | [`plan`], [`open`] | the rate curve with the lowest peak that meets the deadlines, in time that is open |
//! | [`service`] | which index is visited when |
//! | [`pacer`] | these together: the pace of a database |
//! | [`trace`], [`simulation`] | a load that is written down, and the service played on it |
//! | [`optimum`] | the lowest peak that is possible, to measure a plan against |
//! | [`bucket`] | a rate, kept by waiting |

mod bucket;
mod calendar;
mod cohort;
mod forecast;
mod open;
mod optimum;
mod pacer;
mod plan;
mod service;
mod simulation;
mod terms;
mod trace;

pub(crate) use bucket::Bucket;
pub(crate) use calendar::Calendar;
pub use calendar::ClosedWindow;
pub(crate) use cohort::Cohort;
pub(crate) use forecast::{Budget, Forecast, Want};
pub(crate) use open::Open;
pub(crate) use pacer::{Member, Outlook, Pacer};
pub(crate) use plan::{Demand, Plan, Segment, Shortfall};
pub(crate) use service::{Order, Outcome, Service, Turn};
pub use simulation::{Impossible, Minute, Simulate, Simulation, Summary};
pub(crate) use terms::{Terms, check_min_rate};
pub use trace::{Trace, TraceError};
