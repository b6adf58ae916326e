//! How fast a sweep may go, and what is deleted first. Pure, but for waiting.
//!
//! | file | concern |
//! |---|---|
//! | [`terms`], [`calendar`] | what an operator wants, and when sweeping is closed |
//! | [`forecast`] | what of an index is due, and what comes due when |
//! | [`plan`], [`open`] | the rate curve with the lowest peak that meets the deadlines, in time that is open |
//! | [`service`] | which index is visited when |
//! | [`pacer`] | these together: the pace of a database |
//! | [`trace`], [`simulation`] | a load that is written down, and the service played on it |
//! | [`optimum`] | the lowest peak that is possible, to measure a plan against |
//! | [`health`] | how well the database is |
//! | [`politeness`] | the rate that is used while it is not well |
//! | [`throttle`] | a rate, kept by waiting |
//! | [`size`] | how many documents make a batch |
//! | [`pace`] | what a pass goes by |

mod calendar;
mod cohort;
mod forecast;
mod health;
mod open;
mod optimum;
mod pace;
mod pacer;
mod plan;
mod politeness;
mod service;
mod simulation;
mod size;
mod terms;
mod throttle;
mod trace;

pub(crate) use calendar::Calendar;
pub use calendar::ClosedWindow;
pub(crate) use cohort::Cohort;
pub(crate) use forecast::{Budget, Forecast, Want};
pub use health::Signal;
pub(crate) use health::{HealthHook, Polling, SharedHealth, Verdict, poll};
pub(crate) use open::Open;
pub(crate) use pace::{Pace, Paces};
pub(crate) use pacer::{Foresight, Member, Pacer};
pub use plan::Shortfall;
pub(crate) use plan::{Demand, Plan, Segment};
pub(crate) use politeness::{Politeness, Wish};
pub(crate) use service::{Order, Outcome, Service, Turn};
pub use simulation::{Minute, Simulate, Simulation, Summary};
pub(crate) use size::Size;
pub(crate) use terms::{Terms, check_min_rate};
pub(crate) use throttle::Throttle;
pub use trace::{Trace, TraceError};
