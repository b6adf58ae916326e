//! The crate against a real server.

#[cfg(feature = "cli")]
mod cli;
mod mongod_runs;
#[cfg(feature = "cli")]
mod real_data;
mod support;
mod sweep;
