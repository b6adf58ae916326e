//! Rates, lateness, and what holds back: in words, and as JSON.

use std::time::Duration;

use serde_json::{Value, json};
use ttl_index::{HeldBack, PaceStatus, Shortfall};

use super::{json, plot::amount, time};

/// Of the pace of a sweeper, a line for each thing that there is to say.
pub(crate) fn in_words(pace: &PaceStatus) -> String {
    let least = if pace.counted { "" } else { "at least " };
    let mut first = vec![
        format!("{}/s now, {}/s planned, {}/s at the most", rate(pace.rate), rate(pace.planned), rate(peak(pace))),
        format!("{least}{} documents due", pace.backlog),
    ];
    first.extend(pace.finish.map(|finish| format!("gone at {}", time::show(finish))));
    first.push(pace.shortfall.as_ref().map_or_else(|| "on time".to_owned(), late));
    let mut lines = vec![first.join("; ")];
    lines.extend(pace.closed_until.map(|until| format!("closed until {}", time::show(until))));
    lines.extend(pace.finishing.then(|| "finishing now, at the highest rate, closed windows or not".to_owned()));
    lines.extend(pace.held_back.as_ref().map(|HeldBack { factor, cause, why, since, .. }| {
        format!("held back to {factor:.2} by {cause} since {}: {why}", time::show(*since))
    }));
    lines.extend(pace.warning.as_ref().map(|warning| format!("warning: {warning}")));
    lines.join("\n")
}

/// What will be used at the most.
fn peak(pace: &PaceStatus) -> f64 {
    pace.peak.max(pace.planned).min(pace.max_rate)
}

/// How late, and what to do.
pub(crate) fn late(short: &Shortfall) -> String {
    let Shortfall { allowed, needed, late, .. } = *short;
    let late = about(late);
    if needed > allowed {
        let (allowed, needed) = (rate(allowed), rate(needed));
        return format!(
            "impossible: {allowed}/s allowed, {needed}/s needed, {late} late; raise --max-rate or the target lag"
        );
    }
    format!("up to {late} late, although {}/s do from now on: late already, or closed for too long", rate(needed))
}

pub(crate) fn pace_json(pace: &PaceStatus) -> Value {
    json!({
        "rate": pace.rate,
        "planned": pace.planned,
        "peak": pace.peak,
        "target_lag_seconds": pace.target_lag.as_secs_f64(),
        "max_rate": pace.max_rate,
        "min_rate": pace.min_rate,
        "closed": pace.closed.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "backlog": pace.backlog,
        "counted": pace.counted,
        "finish": json::date(pace.finish),
        "shortfall": pace.shortfall.as_ref().map(shortfall_json),
        "closed_until": json::date(pace.closed_until),
        "finishing": pace.finishing,
        "held_back": pace.held_back.as_ref().map(|held| json!({
            "factor": held.factor, "cause": held.cause, "why": held.why, "since": json::date(Some(held.since)),
        })),
        "warning": pace.warning,
    })
}

pub(crate) fn shortfall_json(short: &Shortfall) -> Value {
    json!({ "allowed": short.allowed, "needed": short.needed, "late_seconds": short.late.as_secs_f64() })
}

/// In three digits or so, and to a tenth up to a million.
pub(crate) fn rate(rate: f64) -> String {
    if (10.0..1e6).contains(&rate) { format!("{rate:.1}") } else { amount(rate) }
}

/// To the minute, if it is longer than that.
pub(crate) fn about(time: Duration) -> String {
    let seconds = time.as_secs();
    let rounded = if seconds < 60 { seconds } else { seconds / 60 * 60 };
    humantime::format_duration(Duration::from_secs(rounded)).to_string()
}
