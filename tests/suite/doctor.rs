//! `doctor` on real stores: what it tells, that it only reads, and that what it proposes mends.

mod choice;
mod contact;
mod guards;
mod indexes;
mod mending;
mod mixture;
mod program;

use std::time::Duration;

use ttl_index::{Diagnosis, FindingKind, TtlIndex};

/// A document expires an hour after its `at`.
fn on_at() -> TtlIndex {
    TtlIndex::on("at").expire_after(Duration::from_secs(3600))
}

/// The kinds that were found, without the number of documents being late, which is true of anything old.
fn kinds(diagnosis: &Diagnosis) -> Vec<FindingKind> {
    diagnosis.findings.iter().map(|finding| finding.kind).filter(|kind| *kind != FindingKind::Overdue).collect()
}
