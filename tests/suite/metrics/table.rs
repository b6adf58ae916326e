//! The table that the documentation prints is the table that the code goes by.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use ttl_index::{METRICS, Metric};

const DOCUMENT: &str = include_str!("../../../docs/metrics.md");

fn row(metric: &Metric) -> String {
    let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    let Metric { name, unit, description, .. } = metric;
    format!("| `{name}` | {} | {unit} | {} | {description} |", metric.kind.as_str(), labels.join(", "))
}

#[test]
fn the_documented_table_is_the_table_of_the_code() {
    let documented: Vec<&str> = DOCUMENT.lines().filter(|line| line.starts_with("| `ttl_index_")).collect();
    let expected: Vec<String> = METRICS.iter().map(row).collect();
    assert_eq!(documented, expected);
}

/// A name in an alert that is spelled in another way would never fire.
#[test]
fn every_name_in_the_documentation_is_in_the_table() {
    let known: BTreeSet<String> = METRICS
        .iter()
        .flat_map(|metric| ["", "_bucket", "_sum", "_count"].map(|end| format!("{}{end}", metric.name)))
        .collect();
    let words = DOCUMENT.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    for word in words.filter(|word| word.starts_with("ttl_index_")) {
        assert!(known.contains(word), "{word}");
    }
}

/// The log's table names what the code says, where it says it.
#[test]
fn the_documented_log_is_in_the_code() {
    let rows: Vec<Vec<&str>> = DOCUMENT
        .lines()
        .filter(|line| line.starts_with("| `ttl_index::"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert!(rows.len() >= 4, "{rows:?}");
    for row in rows {
        let [target, level, message, fields] = row[..] else { panic!("{row:?}") };
        let file = target.trim_matches('`').replacen("ttl_index", "src", 1).replace("::", "/") + ".rs";
        let code = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        let before = code.split(&format!("\"{message}\"")).next().unwrap();
        assert!(before.len() < code.len(), "{target} does not say {message}");
        let event = &before[before.rfind(&format!("{level}!(")).unwrap_or_else(|| panic!("{row:?}"))..];
        for field in fields.split(", ").map(|field| field.trim_matches('`')) {
            assert!(event.contains(field), "{message} has no field {field}: {event}");
        }
    }
}

#[test]
fn the_bounds_of_buckets_rise() {
    let histograms: Vec<_> = METRICS.iter().filter(|metric| !metric.buckets.is_empty()).collect();
    assert_eq!(histograms.len(), METRICS.iter().filter(|metric| metric.kind.as_str() == "histogram").count());
    for Metric { name, buckets, .. } in histograms {
        assert!(buckets.is_sorted_by(|a, b| a < b), "{name}: {buckets:?}");
    }
}
