//! The crate against a real server.

mod archive;
mod cli;
mod creators;
mod differential;
mod doctor;
mod forecast;
mod guard;
mod ledger;
mod metrics;
mod mongod_runs;
mod operations;
mod outage;
mod pacing;
mod portable;
mod prune;
mod race;
mod real_data;
mod registry;
mod reports;
mod roles;
mod semantics;
mod support;
mod sweep;
mod sweeper;
mod tune;
mod work;
