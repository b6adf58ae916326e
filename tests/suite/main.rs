//! The crate against a real server.

mod cli;
mod creators;
mod differential;
mod mongod_runs;
mod portable;
mod real_data;
mod registry;
mod reports;
mod semantics;
mod support;
mod sweep;
