//! The crate against a real server.

mod mongod_runs;
mod reports;
mod support;
mod sweep;
