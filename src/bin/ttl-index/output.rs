//! Tables, lines of JSON, and progress.

use std::{
    io::{self, Write},
    time::Duration,
};

use anyhow::Context;
use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use ttl_index::{
    IndexInfo,
    bson::{Bson, Document},
};

use super::{json, time};

/// Prints a line. Where nobody reads on this is an error, not a panic.
pub(crate) fn line(text: impl std::fmt::Display) -> anyhow::Result<()> {
    writeln!(io::stdout().lock(), "{text}").context("writing to standard output")
}

/// Says something on stderr, to whom it may concern.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints TTL indexes, as a table or as a JSON document each.
pub(crate) fn indexes(indexes: &[IndexInfo], json: bool) -> anyhow::Result<()> {
    if json {
        return indexes.iter().try_for_each(|index| line(index_json(index)));
    }
    if indexes.is_empty() {
        return Ok(());
    }
    let rows: Vec<[String; 11]> = indexes.iter().map(index_row).collect();
    let titles = [
        "COLLECTION",
        "NAME",
        "KEY",
        "EXPIRE AFTER",
        "STATE",
        "SUPPORTING INDEX",
        "PARTIAL FILTER",
        "KEPT WHILE",
        "TARGET LAG",
        "MAX RATE",
        "PROBLEM",
    ];
    // The last five only if there are any.
    let shown: Vec<usize> = (0..11).filter(|i| *i < 6 || rows.iter().any(|row| !row[*i].is_empty())).collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(shown.iter().map(|i| titles[*i]));
    table.add_rows(rows.iter().map(|row| shown.iter().map(|i| row[*i].as_str()).collect::<Vec<_>>()));
    line(table.trim_fmt())
}

fn index_row(index: &IndexInfo) -> [String; 11] {
    let supporting = index.supporting_index.as_ref();
    [
        index.collection.clone(),
        index.name.clone(),
        relaxed(&index.key).to_string(),
        index.expire_after.map_or_else(|| "?".to_owned(), time::in_words),
        index.state.as_str().to_owned(),
        supporting.map_or_else(|| "none".to_owned(), |supporting| supporting.name.clone()),
        index.partial_filter.as_ref().map(|filter| relaxed(filter).to_string()).unwrap_or_default(),
        index.guards.iter().map(ToString::to_string).collect::<Vec<_>>().join(", or "),
        index.target_lag.map(time::in_words).unwrap_or_default(),
        index.max_rate.map(|rate| rate.to_string()).unwrap_or_default(),
        index.problem.clone().unwrap_or_default(),
    ]
}

fn index_json(index: &IndexInfo) -> Value {
    let supporting = index.supporting_index.as_ref();
    let mut report = json!({
        "collection": index.collection,
        "name": index.name,
        "key": relaxed(&index.key),
        "expireAfterSeconds": index.expire_after.map(|period| period.as_secs()),
        "state": index.state.as_str(),
        "supportingIndex": supporting.map(|index| json!({ "name": index.name, "created": index.created })),
        "createdAt": json::date(index.created_at),
    });
    if let Some(filter) = &index.partial_filter {
        report["partialFilterExpression"] = relaxed(filter);
    }
    if !index.guards.is_empty() {
        report["guards"] = index.guards.iter().map(|guard| relaxed(&guard.clone().into())).collect();
    }
    if let Some(lag) = index.target_lag {
        report["targetLagSeconds"] = json!(lag.as_secs_f64());
    }
    if let Some(rate) = index.max_rate {
        report["maxRate"] = json!(rate);
    }
    if let Some(problem) = &index.problem {
        report["problem"] = json!(problem);
    }
    report
}

fn relaxed(document: &Document) -> Value {
    Bson::Document(document.clone()).into_relaxed_extjson()
}

/// Shows how many documents are done, on stderr, if that is a terminal.
pub(crate) fn progress(what: String) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(what);
    if !bar.is_hidden() {
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}: {human_pos} documents, {per_sec}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    bar
}
