//! The crate against a real server.

mod creators;
mod mongod_runs;
mod registry;
mod reports;
mod support;
mod sweep;
