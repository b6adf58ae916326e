//! `status`.

use std::{
    io::{IsTerminal, stdout},
    time::Duration,
};

use comfy_table::{Table, presets};
use serde_json::{Value, json};
use ttl_index::{Activity, IndexStatus, Pause, SweeperStatus, TtlRegistry};

use super::{failure::DONE, json, output, pace, signal, target::Target, time};

/// How often `status --watch` looks.
const WATCH_EVERY: Duration = Duration::from_secs(2);

pub(crate) async fn status(watch: bool, uri: Option<&str>, json: bool) -> anyhow::Result<u8> {
    let registry = Target::open(uri).await?.registry().await?;
    if !watch {
        show(&registry, json).await?;
        return Ok(DONE);
    }
    let stop = signal::stop_on_signal()?;
    while !stop.is_cancelled() {
        if !json && stdout().is_terminal() {
            // Clears the screen.
            output::line("\x1b[2J\x1b[H")?;
        }
        show(&registry, json).await?;
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(WATCH_EVERY) => {}
        }
    }
    Ok(DONE)
}

async fn show(registry: &TtlRegistry, json: bool) -> anyhow::Result<()> {
    let status = registry.status().await?;
    if json {
        return output::line(status_json(&status));
    }
    output::line(in_words(&status))?;
    if let Some(pace) = status.pace.as_ref().filter(|_| !matches!(status.activity, Activity::Nobody | Activity::Paused))
    {
        output::line(pace::in_words(pace))?;
    }
    if status.indexes.is_empty() {
        return Ok(());
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "COLLECTION",
        "INDEX",
        "STATE",
        "LAST VISIT",
        "ENDED",
        "DELETED",
        "KEPT",
        "DUE",
        "OLDEST DUE",
        "GONE BY",
        "TROUBLE",
    ]);
    table.add_rows(status.indexes.iter().map(row));
    output::line(table.trim_fmt())
}

fn in_words(status: &SweeperStatus) -> String {
    let mut parts = vec![match status.activity {
        Activity::Nobody => "nobody sweeps this database".to_owned(),
        other => other.as_str().to_owned(),
    }];
    if let Some(Pause { since, until, by, .. }) = &status.paused {
        let until = until.map_or_else(|| "it is resumed".to_owned(), time::show);
        parts.push(format!("since {} until {until}, by {by}", time::show(*since)));
    }
    if let Some(holder) = &status.holder {
        let since = status.since.map(time::show).unwrap_or_default();
        let term = status.term.unwrap_or_default();
        parts.push(match status.silent_since {
            None => format!("{holder} has the lease since {since}, term {term}"),
            Some(silent) => {
                format!("{holder} had the lease, term {term}, and was last heard of {}", time::show(silent))
            }
        });
    }
    if let Some(rate) = status.max_rate.filter(|_| status.activity != Activity::Nobody) {
        parts.push(format!("at most {rate} documents a second"));
    }
    if let Some(at) = status.told_at {
        parts.push(format!("visits as of {}", time::show(at)));
    }
    parts.join("; ")
}

fn row(index: &IndexStatus) -> [String; 11] {
    let visits = index.visits.clone().unwrap_or_default();
    let trouble = [
        index.problem.clone(),
        visits.error.map(|error| format!("failed {} times: {error}", visits.failures)),
        visits.shortfall.map(|short| pace::late(&short)),
    ];
    [
        index.collection.clone(),
        index.index.clone(),
        index.state.as_str().to_owned(),
        visits.last.map(time::show).unwrap_or_default(),
        visits.ended,
        visits.deleted.to_string(),
        visits.kept.to_string(),
        visits.backlog.to_string(),
        visits.oldest_due.map(time::show).unwrap_or_default(),
        visits.deadline.map(time::show).unwrap_or_default(),
        trouble.into_iter().flatten().collect::<Vec<_>>().join("; "),
    ]
}

fn status_json(status: &SweeperStatus) -> Value {
    json!({
        "activity": status.activity.as_str(),
        "holder": status.holder,
        "term": status.term,
        "since": json::date(status.since),
        "silent_since": json::date(status.silent_since),
        "paused": status.paused.as_ref().map(pause_json),
        "max_rate": status.max_rate,
        "pace": status.pace.as_ref().map(pace::pace_json),
        "told_at": json::date(status.told_at),
        "indexes": status.indexes.iter().map(index_json).collect::<Vec<_>>(),
    })
}

pub(super) fn pause_json(pause: &Pause) -> Value {
    json!({ "since": json::date(Some(pause.since)), "until": json::date(pause.until), "by": pause.by })
}

fn index_json(index: &IndexStatus) -> Value {
    let mut report = json!({
        "collection": index.collection,
        "index": index.index,
        "state": index.state.as_str(),
        "problem": index.problem,
    });
    if let Some(visits) = &index.visits {
        report["visits"] = json!({
            "last": json::date(visits.last),
            "ended": visits.ended,
            "deleted": visits.deleted,
            "kept": visits.kept,
            "oldest_due": json::date(visits.oldest_due),
            "backlog": visits.backlog,
            "deadline": json::date(visits.deadline),
            "shortfall": visits.shortfall.as_ref().map(pace::shortfall_json),
            "failures": visits.failures,
            "error": visits.error,
        });
    }
    report
}
