//! TTL indexes with Firestore's rules and MongoDB's API, for MongoDB and for backends that speak its protocol.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), ttl_index::Error> {
//! use std::time::Duration;
//! use ttl_index::{EmbeddedStore, TtlIndex, TtlRegistry, bson::{DateTime, doc}};
//!
//! let store = EmbeddedStore::in_memory()?; // or MongoStore::new(client.database("app"))
//! let ttl = TtlRegistry::open(store.clone()).await?;
//! ttl.create_index("sessions", TtlIndex::on("expireAt").expire_after(Duration::ZERO)).await?;
//!
//! store.collection("sessions").insert_one(doc! { "expireAt": DateTime::now() }).await?;
//! let report = ttl.sweep("sessions").await?;
//! println!("{} deleted, {}", report.deleted, report.ended);
//! # Ok(())
//! # }
//! ```
//!
//! A [`TtlRegistry`] holds the TTL indexes of a database: one on a collection, 500 in the database. A [`Sweeper`] deletes in
//! the background what has expired, at a rate, as the only one in the database however many processes run one. A
//! [`sweep`](TtlRegistry::sweep) is a single pass that says what it did and what it left.
//!
//! # A map of this crate
//!
//! | module (private) | what it decides or does | may use |
//! |---|---|---|
//! | `error`, `namespace`, `number`, `clock` | words that everything shares | |
//! | `meter` | what is counted, and what it is called outside | |
//! | `interval` | when that is due which is done once in an interval: pure, but for a memory | |
//! | `index` | a TTL index as it is written and as it is checked | `error`, `namespace`, `number` |
//! | `expiry` | when a document expires, and why not: pure, on raw BSON | `index`, `number`, `error` |
//! | `guard` | what keeps a document that is due: references, a hook | `expiry`, `index`, … |
//! | `entry` | a TTL index as the registry stores it | `guard`, `expiry`, `index` |
//! | `store` | how documents and the registry are reached: MongoDB, or embedded | `entry`, `expiry`, … |
//! | `archive` | where documents go before they are deleted: files, another collection; documents as text | `store`, … |
//! | `lease` | who may sweep, and what it has confirmed | `store` |
//! | `operation` | what is told of creations and drops, while they run and afterwards | `store`, `entry` |
//! | `pacing` | how fast a sweep may go, and what goes first: forecast, plan, turns | `store`, `entry` |
//! | `registry` | which TTL indexes there are, and the verbs that change them | `store`, … |
//! | `restore` | documents put back from an archive | `archive`, `registry`, … |
//! | `sweep` | one pass | `archive`, `registry`, `lease`, `store`, `expiry`, `pacing` |
//! | `prune` | passes without cron: once in an interval, by one of many processes | `sweep`, `registry`, `interval`, … |
//! | `sweeper` | the background loop: who sweeps, and which index is visited when | `sweep`, `registry`, `lease`, … |
//! | `doctor` | what is wrong with a collection's documents and indexes, by reads alone | `sweeper`, `registry`, `expiry`, … |
//!
//! A module uses none that stands below it, which `tests/architecture.rs` holds. `docs/tour.md` walks through the code.
//!
//! # Features
//!
//! `embedded` (default): [`EmbeddedStore`]. `rustls-tls` (default), `openssl-tls`, `dns-resolver` (default), `bson-2`
//! (default), `bson-3`: the driver's own, passed through; one TLS and one BSON feature must be on, and `bson-3` changes
//! the driver's BSON types for the whole build. `archive`: [`Archive`] in files, [`restore`](TtlRegistry::restore),
//! documents as text. `cli`: the program `ttl-index`. `metrics`: [`METRICS`], passed on to the `metrics` facade. `tower`:
//! `PruneLayer`, for services of axum and tower. `test-util`: hooks for tests, unstable.

mod archive;
mod clock;
mod doctor;
mod entry;
mod error;
mod expiry;
mod guard;
mod index;
mod interval;
mod lease;
mod meter;
mod namespace;
mod number;
mod operation;
mod pacing;
mod prune;
mod registry;
#[cfg(feature = "archive")]
mod restore;
mod store;
mod sweep;
mod sweeper;

/// The driver's BSON, of which every document here is.
pub use mongodb::bson;

pub use archive::Archive;
#[cfg(feature = "archive")]
pub use archive::{CsvColumns, CsvFields, JsonLine};
pub use clock::ManualClock;
pub use doctor::{
    Candidate, Diagnosis, Doctor, DoctorReport, ExaminedIndex, Example, Expiry, Finding, FindingKind, Harm, Mend,
    Sample,
};
pub use entry::{IndexState, SupportingIndex};
pub use error::{Code, Error, MissingPrivilege, Refusal, Result};
pub use expiry::{Reason, Rule, Verdict};
pub use guard::{Batch, Decision, Reference, Veto, VetoFuture};
pub use index::TtlIndex;
pub use meter::{Counters, Counts, Delays, IndexCounters, METRICS, Metric, MetricKind, PaceCounters};
pub use operation::{ChangeType, Operation, OperationError, OperationState, ProgressDocuments};
pub use pacing::{ClosedWindow, Minute, Shortfall, Signal, Simulate, Simulation, Summary, Trace, TraceError};
pub use prune::{AppliedRetention, CollectionPass, Pruned, Retention, RetentionOutcome, RetentionSource, SweepIfDue};
#[cfg(feature = "tower")]
pub use prune::{PruneAfter, PruneLayer, Pruning};
pub use registry::{
    CreateIndex, DropIndex, IndexInfo, IndexRef, ListIndexes, ListOperations, ModifyIndex, Pause, PauseSweeping,
    Repair, SetGuards, Touch, TtlRegistry, Tune, Tuning,
};
#[cfg(feature = "archive")]
pub use restore::{Restore, Restored};
#[cfg(feature = "embedded")]
pub use store::embedded::{Documents, EmbeddedCollection, EmbeddedStore};
#[cfg(feature = "test-util")]
pub use store::hooked::{CountedByDate, Fault, HookedStore};
pub use store::{IntoStore, SampledBy, Touched, mongo::MongoStore};
pub use sweep::{Claim, ClaimSweep, Ended, Progress, Sweep, SweepReport};
pub use sweeper::{
    Activity, HeldBack, IndexStatus, MakePlan, PaceStatus, PausePrice, PlanReport, PlannedIndex, PlannedRate, Sweeper,
    SweeperHandle, SweeperStatus, Visits,
};

/// The examples of the manual compile.
#[cfg(doctest)]
#[doc = include_str!("../docs/doctor.md")]
struct DoctorManual;

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Those of the page on pruning as well.
#[cfg(all(doctest, feature = "tower"))]
#[doc = include_str!("../docs/pruning.md")]
struct PruningPage;

/// So do those of the page on guards.
#[cfg(doctest)]
#[doc = include_str!("../docs/guards.md")]
struct Guards;
