//! The crate against a real server.

#[cfg(feature = "cli")]
mod cli;
mod mongod_runs;
mod portable;
#[cfg(feature = "cli")]
mod real_data;
mod semantics;
mod support;
mod sweep;
