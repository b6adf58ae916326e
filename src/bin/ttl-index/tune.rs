//! `tune`.

use serde_json::json;
use ttl_index::Tuning;

use super::{args, failure::DONE, json, output, target::Target, time};

pub(crate) async fn run(args: args::Tune, uri: Option<&str>, json: bool) -> anyhow::Result<u8> {
    let registry = Target::open(uri).await?.registry().await?;
    let mut tune = registry.tune();
    if let Some(collection) = &args.collection {
        tune = tune.collection(collection);
    }
    if let Some(lag) = args.target_lag {
        tune = tune.target_lag(lag);
    }
    if let Some(rate) = args.max_rate {
        tune = tune.max_rate(rate);
    }
    if let Some(rate) = args.min_rate {
        tune = tune.min_rate(rate);
    }
    if args.always_open || !args.window.is_empty() {
        tune = tune.closed(args.window);
    }
    if args.finish_now || args.no_finish_now {
        tune = tune.finish_now(args.finish_now);
    }
    if args.reset {
        tune = tune.reset();
    }
    let tuning = tune.await?;
    match (args.collection, json) {
        (None, true) => output::line(of_database(&tuning))?,
        (None, false) => output::line(in_words(&tuning))?,
        (Some(collection), true) => output::line(json!({
            "collection": collection,
            "target_lag_seconds": tuning.target_lag.map(|lag| lag.as_secs_f64()),
            "max_rate": tuning.max_rate,
        }))?,
        (Some(collection), false) => {
            let lag = tuning.target_lag.map_or_else(|| "as the database".to_owned(), time::in_words);
            let rate = tuning.max_rate.map_or_else(|| "as the database".to_owned(), rate);
            output::line(format_args!("{collection}\n  target lag: {lag}\n  highest rate: {rate}"))?;
        }
    }
    Ok(DONE)
}

fn of_database(tuning: &Tuning) -> serde_json::Value {
    let closed = tuning.closed.as_ref().map(|windows| windows.iter().map(ToString::to_string).collect::<Vec<_>>());
    json!({
        "target_lag_seconds": tuning.target_lag.map(|lag| lag.as_secs_f64()),
        "max_rate": tuning.max_rate,
        "min_rate": tuning.min_rate,
        "closed": closed,
        "finish_now": json::date(tuning.finish_now),
        "problem": tuning.problem,
    })
}

fn in_words(tuning: &Tuning) -> String {
    let or_left = |set: Option<String>, default: &str| {
        set.unwrap_or_else(|| format!("as the sweeper is told; {default} unless told"))
    };
    let closed = tuning.closed.as_ref().map(|windows| match &windows[..] {
        [] => "never".to_owned(),
        windows => windows.iter().map(ToString::to_string).collect::<Vec<_>>().join(", and "),
    });
    let mut lines = vec![
        format!("target lag: {}", or_left(tuning.target_lag.map(time::in_words), "24h")),
        format!("highest rate: {}", or_left(tuning.max_rate.map(rate), &rate(1000.0))),
        format!("lowest rate: {}", or_left(tuning.min_rate.map(rate), &rate(50.0))),
        format!("closed: {}", or_left(closed, "never")),
    ];
    lines.extend(tuning.finish_now.map(|asked| format!("what was due at {} is finished now", time::show(asked))));
    lines.extend(tuning.problem.as_ref().map(|problem| format!("cannot be understood: {problem}")));
    lines.join("\n")
}

fn rate(rate: f64) -> String {
    format!("{rate} documents a second")
}
