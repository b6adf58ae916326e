//! The crate against a real server.

mod mongod_runs;
mod registry;
mod reports;
mod support;
mod sweep;
