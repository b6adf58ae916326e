//! The crate against a real server.

mod creators;
mod mongod_runs;
mod portable;
mod registry;
mod reports;
mod semantics;
mod support;
mod sweep;
