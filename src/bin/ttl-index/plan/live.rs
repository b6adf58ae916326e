//! `plan` of a database.

use comfy_table::{Table, presets};
use serde_json::{Value, json};
use ttl_index::{PausePrice, PlanReport, PlannedIndex, PlannedRate, bson::DateTime};

use crate::{
    args::Plan,
    failure::{DONE, REFUSED},
    json, output,
    pace::{self, rate},
    pause::price_json,
    plot::Plot,
    status::pause_json,
    target::Target,
    time,
};

pub(super) async fn run(args: Plan, uri: Option<&str>, json: bool) -> anyhow::Result<u8> {
    let registry = Target::open(uri).await?.registry().await?;
    let mut plan = registry.plan();
    for collection in args.collections {
        plan = plan.collection(collection);
    }
    if let Some(lag) = args.target_lag {
        plan = plan.target_lag(lag);
    }
    if let Some(rate) = args.max_rate {
        plan = plan.max_rate(rate);
    }
    if let Some(rate) = args.min_rate {
        plan = plan.min_rate(rate);
    }
    if !args.window.is_empty() {
        plan = plan.closed(args.window);
    }
    let plan = plan.await?;
    if json {
        output::line(plan_json(&plan))?;
    } else {
        in_words(&plan)?;
    }
    Ok(if plan.shortfall.is_some() { REFUSED } else { DONE })
}

fn in_words(plan: &PlanReport) -> anyhow::Result<()> {
    if !plan.curve.is_empty() {
        let values = by_minute(plan.now, &plan.curve);
        let plot = Plot { title: "Documents a second that the deadlines ask for, from now on", values, height: 8 };
        output::line(format_args!("{}\n", plot.draw()))?;
    }
    let closed: Vec<String> = plan.closed.iter().map(ToString::to_string).collect();
    let closed = if closed.is_empty() { String::new() } else { format!(", closed {}", closed.join(", and ")) };
    let least = rate(plan.min_rate.min(plan.max_rate));
    let (lag, most) = (time::in_words(plan.target_lag), rate(plan.max_rate));
    let at_least = if plan.complete { "" } else { "at least " };
    output::line(format_args!("terms     gone within {lag}, {least}/s to {most}/s{closed}"))?;
    output::line(format_args!("due       {at_least}{} documents", plan.backlog))?;
    output::line(format_args!("coming    {at_least}{}, until {}", plan.coming, time::show(plan.horizon)))?;
    output::line(format_args!("now       {}/s", rate(plan.rate)))?;
    if let Some(pause) = &plan.paused {
        let until = pause.until.map_or_else(|| "it is resumed".to_owned(), time::show);
        output::line(format_args!("paused    until {until}; the plan is made as if it were over"))?;
    }
    if let Some(PausePrice { resumed, peak, shortfall, .. }) = &plan.price {
        let late = shortfall.as_ref().map(|short| format!("; {}", pace::late(short))).unwrap_or_default();
        output::line(format_args!("resumed   at {}: needs {at_least}{}/s{late}", time::show(*resumed), rate(*peak)))?;
    }
    output::line(format_args!("verdict   {}", verdict(plan)))?;
    indexes(&plan.indexes)
}

fn verdict(plan: &PlanReport) -> String {
    if let Some(short) = &plan.shortfall {
        return pace::late(short);
    }
    let counted = if plan.complete { "" } else { ", as far as it was counted" };
    if plan.backlog + plan.coming == 0 {
        return format!("on time: nothing is due, and nothing comes due{counted}");
    }
    let done = plan.finish.map(|finish| format!(", done at {}", time::show(finish))).unwrap_or_default();
    format!("on time: peak {}/s{done}{counted}", rate(plan.peak.max(plan.min_rate).min(plan.max_rate)))
}

fn indexes(indexes: &[PlannedIndex]) -> anyhow::Result<()> {
    if indexes.is_empty() {
        return Ok(());
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["COLLECTION", "INDEX", "DUE", "COMING", "OLDEST DUE", "PEAK", "REMARKS"]);
    table.add_rows(indexes.iter().map(|index| {
        let remarks = [
            index.uncounted.as_ref().map(|why| format!("not all is counted: {why}")),
            index.shortfall.as_ref().map(pace::late),
        ];
        [
            index.collection.clone(),
            index.index.clone(),
            index.due.to_string(),
            index.coming.to_string(),
            index.oldest_due.map(time::show).unwrap_or_default(),
            format!("{}/s", rate(index.peak)),
            remarks.into_iter().flatten().collect::<Vec<_>>().join("; "),
        ]
    }));
    output::line(format_args!("\n{}", table.trim_fmt()))
}

/// The rate in each minute from now on, up to the end of the curve.
fn by_minute(now: DateTime, curve: &[PlannedRate]) -> Vec<f64> {
    const MINUTE: i64 = 60_000;
    /// Two years.
    const MOST: i64 = 1_051_200;
    let since = |at: DateTime| at.timestamp_millis().saturating_sub(now.timestamp_millis());
    let mut values = Vec::new();
    for part in curve {
        let minute = |at: DateTime| since(at).saturating_add(MINUTE - 1).div_euclid(MINUTE).clamp(0, MOST);
        let index = |minute: i64| usize::try_from(minute).unwrap_or_default();
        values.resize(values.len().max(index(minute(part.from))), 0.0);
        values.resize(values.len().max(index(minute(part.until))), part.rate);
    }
    values
}

fn plan_json(plan: &PlanReport) -> Value {
    let part = |part: &PlannedRate| json!({ "from": json::date(Some(part.from)), "until": json::date(Some(part.until)), "rate": part.rate });
    json!({
        "now": json::date(Some(plan.now)),
        "horizon": json::date(Some(plan.horizon)),
        "target_lag_seconds": plan.target_lag.as_secs_f64(),
        "max_rate": plan.max_rate,
        "min_rate": plan.min_rate,
        "closed": plan.closed.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "rate": plan.rate,
        "peak": plan.peak,
        "backlog": plan.backlog,
        "coming": plan.coming,
        "finish": json::date(plan.finish),
        "shortfall": plan.shortfall.as_ref().map(pace::shortfall_json),
        "complete": plan.complete,
        "paused": plan.paused.as_ref().map(pause_json),
        "price": price_json(plan),
        "curve": plan.curve.iter().map(part).collect::<Vec<_>>(),
        "indexes": plan.indexes.iter().map(index_json).collect::<Vec<_>>(),
    })
}

fn index_json(index: &PlannedIndex) -> Value {
    json!({
        "collection": index.collection,
        "index": index.index,
        "due": index.due,
        "coming": index.coming,
        "oldest_due": json::date(index.oldest_due),
        "peak": index.peak,
        "shortfall": index.shortfall.as_ref().map(pace::shortfall_json),
        "uncounted": index.uncounted,
    })
}
