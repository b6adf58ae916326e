//! The reports and the list of those that wait.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use mongodb::bson::DateTime;
use serde::Deserialize;
use serde_json::Value;

/// A public report of trouble with expiry, as a small input with the right outcome.
#[derive(Deserialize)]
pub(super) struct Report {
    pub(super) id: String,
    pub(super) kind: String,
    repro: Repro,
}

#[derive(Deserialize)]
struct Repro {
    now: String,
    steps: Vec<Value>,
}

impl Report {
    /// # Panics
    ///
    /// If there is no report with this id.
    pub(super) fn find(id: &str) -> &'static Report {
        all().iter().find(|report| report.id == id).unwrap_or_else(|| panic!("there is no report {id}"))
    }

    /// The instant at which the report begins.
    pub(super) fn now(&self) -> DateTime {
        instant(&self.repro.now)
    }

    pub(super) fn steps(&self) -> &'static [Value] {
        &Report::find(&self.id).repro.steps
    }

    /// The name that its test has: its id and kind.
    pub(super) fn test_name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        format!("{}_{}", self.id, self.kind).chars().map(plain).collect()
    }
}

pub(super) fn instant(text: &str) -> DateTime {
    DateTime::parse_rfc3339_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// All reports.
pub(super) fn all() -> &'static [Report] {
    static ALL: LazyLock<Vec<Report>> = LazyLock::new(|| {
        serde_json::from_str(include_str!("../../data/reports.json")).expect("reports.json is malformed")
    });
    &ALL
}

/// The reports that wait for a feature, and for which.
fn waiting() -> BTreeMap<String, String> {
    serde_json::from_str(include_str!("../../data/reports_waiting.json")).expect("reports_waiting.json is malformed")
}

/// Asks the test program itself which tests it has, so that a report that is not run is noticed.
#[test]
fn every_report_is_a_test_or_waits_for_a_named_feature() {
    let program = std::env::current_exe().unwrap();
    let output =
        std::process::Command::new(program).args(["--list", "--format", "terse", "reports::"]).output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    let tests: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test")?.rsplit("::").next())
        .filter(|name| name.starts_with("ttl_"))
        .collect();
    let waiting = waiting();
    assert_eq!(all().len(), 80);
    for report in all() {
        let (id, name) = (&report.id, report.test_name());
        let tested = tests.iter().filter(|test| **test == name).count();
        let waits = waiting.contains_key(id);
        assert_eq!(tested + usize::from(waits), 1, "{id}: {tested} tests named {name}, waits: {waits}");
    }
    assert_eq!(tests.len() + waiting.len(), all().len(), "a test or an entry of the list belongs to no report");
    assert!(waiting.values().all(|feature| !feature.is_empty()), "{waiting:?}");
}
