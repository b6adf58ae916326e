//! `plan --trace`.

use std::{
    fmt::Display,
    fs::File,
    io::{self, BufRead, BufReader},
    time::Duration,
};

use anyhow::Context;
use serde_json::json;
use ttl_index::{Minute, Shortfall, Simulation, Summary, Trace, TraceError};

use super::{
    args::Plan,
    failure::{DONE, Usage},
    plot::{Plot, amount},
    sink::Sink,
    time,
};

pub(crate) fn run(args: Plan, json: bool) -> anyhow::Result<u8> {
    let trace = read(&args)?;
    let mut simulate = trace
        .simulate()
        .target_lag(args.target_lag)
        .max_rate(args.max_rate)
        .min_rate(args.min_rate)
        .forecast_scale(args.forecast_scale);
    for window in args.window {
        simulate = simulate.closed(window);
    }
    let simulation = simulate.run()?;
    let mut out = Sink::open(None)?;
    if json {
        lines(&simulation, &mut out)?;
    } else {
        in_words(&simulation, args.target_lag, &mut out)?;
    }
    out.finish()?;
    Ok(DONE)
}

fn read(args: &Plan) -> anyhow::Result<Trace> {
    let (text, name): (Box<dyn BufRead>, _) = if args.trace.as_os_str() == "-" {
        (Box::new(io::stdin().lock()), "standard input".to_owned())
    } else {
        let name = args.trace.display().to_string();
        let file = File::open(&args.trace).with_context(|| format!("opening {name}"))?;
        (Box::new(BufReader::new(file)), name)
    };
    Trace::parse(text).map_err(|error| match error {
        TraceError::Line { line, what } => Usage(format!("line {line} of {name}: {what}")).into(),
        error => anyhow::Error::from(error).context(format!("reading {name}")),
    })
}

fn line(out: &mut Sink, text: impl Display) -> anyhow::Result<()> {
    out.write(format!("{text}\n").as_bytes())
}

fn lines(simulation: &Simulation, out: &mut Sink) -> anyhow::Result<()> {
    for minute in &simulation.minutes {
        line(
            out,
            json!({
                "t": minute.t,
                "rate": minute.rate,
                "deleted": minute.deleted,
                "backlog": minute.backlog,
                "oldest_age": minute.oldest_age,
            }),
        )?;
    }
    let Summary { peak, late, max_age, optimum_peak, .. } = simulation.summary;
    line(out, json!({ "peak": peak, "late": late, "max_age": max_age, "optimum_peak": optimum_peak }))
}

fn in_words(simulation: &Simulation, lag: Duration, out: &mut Sink) -> anyhow::Result<()> {
    let mut plot = |title, value: fn(&Minute) -> f64, height| {
        let values = simulation.minutes.iter().map(value).collect();
        line(out, format_args!("{}\n", Plot { title, values, height }.draw()))
    };
    plot("Deleted documents a second", |minute| minute.rate, 8)?;
    #[allow(clippy::cast_precision_loss)] // it is drawn
    plot("Documents due", |minute| minute.backlog as f64, 4)?;

    let summary = &simulation.summary;
    let optimum = match summary.optimum_peak {
        Some(peak) => format!("{}/s", rate(peak)),
        None => "none: sweeping is closed for too long".to_owned(),
    };
    let finished = match summary.finished {
        Some(at) => format!("all {} documents are gone after {}", summary.documents, about(at)),
        None => format!("not all of the {} documents are gone at the end", summary.documents),
    };
    line(out, format_args!("peak      {}/s", rate(summary.peak)))?;
    line(out, format_args!("optimum   {optimum}, with everything known in advance"))?;
    line(out, format_args!("oldest    {}, of {}", about(Duration::from_secs(summary.max_age)), time::in_words(lag)))?;
    line(out, format_args!("late      {}", summary.late))?;
    line(out, format_args!("finish    {finished}"))?;
    line(out, format_args!("verdict   {}", verdict(summary)))
}

fn verdict(summary: &Summary) -> String {
    match summary.impossible {
        _ if summary.late == 0 => "on time".to_owned(),
        None => format!("{} documents late", summary.late),
        Some(Shortfall { allowed, needed, .. }) => format!(
            "impossible: {}/s allowed, {}/s needed, {} documents late",
            rate(allowed),
            rate(needed),
            summary.late
        ),
    }
}

fn rate(rate: f64) -> String {
    if (10.0..1e6).contains(&rate) { format!("{rate:.1}") } else { amount(rate) }
}

/// To the minute, if it is longer than that.
fn about(time: Duration) -> String {
    let seconds = time.as_secs();
    let rounded = if seconds < 60 { seconds } else { seconds / 60 * 60 };
    humantime::format_duration(Duration::from_secs(rounded)).to_string()
}
