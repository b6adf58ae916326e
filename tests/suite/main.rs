//! The crate against a real server.

mod mongod_runs;
mod semantics;
mod support;
mod sweep;
