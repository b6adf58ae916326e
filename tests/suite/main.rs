//! The crate against a real server.

mod mongod_runs;
mod portable;
mod semantics;
mod support;
mod sweep;
