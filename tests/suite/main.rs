//! The crate against a real server.

mod mongod_runs;
mod support;
mod sweep;
