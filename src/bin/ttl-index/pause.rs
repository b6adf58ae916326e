//! `pause` and `resume`.

use std::time::Duration;

use serde_json::{Value, json};
use ttl_index::{PausePrice, PlanReport, TtlRegistry, bson::DateTime};

use super::{
    failure::{self, DONE},
    json, output,
    pace::{self, rate},
    status::pause_json,
    target::Target,
    time,
};

/// How long counting may take for the price, and how long it is waited for at most.
const COUNT_FOR: Duration = Duration::from_secs(2);
const WAIT_FOR: Duration = Duration::from_secs(5);

pub(crate) async fn pause(
    duration: Option<Duration>,
    dry_run: bool,
    uri: Option<&str>,
    json: bool,
) -> anyhow::Result<u8> {
    let registry = Target::open(uri).await?.registry().await?;
    let mut price = Value::Null;
    if let Some(duration) = duration {
        let until = later(registry.now().await?, duration);
        let plan = price_of(&registry, until).await;
        price = plan.as_ref().map_or(Value::Null, price_json);
        if !json {
            output::line(
                plan.map_or_else(
                    |why| format!("what it takes to resume then is unknown: {why}"),
                    |plan| in_words(&plan),
                ),
            )?;
        }
    }
    if dry_run {
        if json {
            output::line(json!({ "price": price }))?;
        }
        return Ok(DONE);
    }
    let mut pausing = registry.pause();
    if let Some(duration) = duration {
        pausing = pausing.for_duration(duration);
    }
    let pause = pausing.await?;
    if json {
        output::line(json!({ "paused": pause_json(&pause), "price": price }))?;
    } else {
        let until = pause.until.map_or_else(|| "it is resumed".to_owned(), time::show);
        output::line(format_args!("sweeping is paused until {until}"))?;
    }
    Ok(DONE)
}

/// Or why it is not known.
async fn price_of(registry: &TtlRegistry, until: DateTime) -> Result<PlanReport, String> {
    let planning = async { registry.plan().resuming_at(until).max_time(COUNT_FOR).await };
    let Ok(plan) = tokio::time::timeout(WAIT_FOR, planning).await else {
        return Err("counting takes too long".to_owned());
    };
    let plan = plan.map_err(|error| failure::chain(&error))?;
    let nothing = plan.backlog + plan.coming == 0;
    match plan.indexes.iter().find_map(|index| index.uncounted.as_ref()).filter(|_| nothing) {
        Some(why) => Err(why.clone()),
        None => Ok(plan),
    }
}

fn in_words(plan: &PlanReport) -> String {
    let Some(PausePrice { resumed, peak, shortfall, .. }) = plan.price else { return String::new() };
    let least = if plan.complete { "" } else { "at least " };
    let late = shortfall.map(|short| format!("; {}", pace::late(&short))).unwrap_or_default();
    format!("resuming at {} needs {least}{}/s{late}", time::show(resumed), rate(peak))
}

pub(crate) fn price_json(plan: &PlanReport) -> Value {
    let price = |price: PausePrice| {
        json!({
            "resumed": json::date(Some(price.resumed)),
            "peak": price.peak,
            "shortfall": price.shortfall.as_ref().map(pace::shortfall_json),
            "complete": plan.complete,
        })
    };
    plan.price.map_or(Value::Null, price)
}

fn later(date: DateTime, by: Duration) -> DateTime {
    let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    DateTime::from_millis(date.timestamp_millis().saturating_add(millis))
}

pub(crate) async fn resume(uri: Option<&str>, json: bool) -> anyhow::Result<u8> {
    let resumed = Target::open(uri).await?.registry().await?.resume().await?;
    if json {
        output::line(json!({ "resumed": resumed }))?;
    } else {
        output::line(if resumed { "sweeping goes on" } else { "sweeping was not paused" })?;
    }
    Ok(DONE)
}
