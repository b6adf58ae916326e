//! `plan`: of a trace here, of a database in `live`.

mod live;

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
    time::Duration,
};

use anyhow::Context;
use serde_json::json;
use ttl_index::{Minute, Shortfall, Simulation, Summary, Trace, TraceError};

use super::{
    args::Plan,
    failure::{DONE, Usage},
    output,
    pace::{about, rate},
    plot::Plot,
    time,
};

const DAY: Duration = Duration::from_secs(86_400);

pub(crate) async fn run(args: Plan, uri: Option<&str>, json: bool) -> anyhow::Result<u8> {
    match &args.trace {
        Some(file) => of_trace(&args, &read(file)?, json),
        None => live::run(args, uri, json).await,
    }
}

fn of_trace(args: &Plan, trace: &Trace, json: bool) -> anyhow::Result<u8> {
    let lag = args.target_lag.unwrap_or(DAY);
    let mut simulate = trace.simulate().target_lag(lag);
    if let Some(rate) = args.max_rate {
        simulate = simulate.max_rate(rate);
    }
    if let Some(rate) = args.min_rate {
        simulate = simulate.min_rate(rate);
    }
    if let Some(scale) = args.forecast_scale {
        simulate = simulate.forecast_scale(scale);
    }
    for window in args.window.iter().cloned() {
        simulate = simulate.closed(window);
    }
    let simulation = simulate.run()?;
    if json {
        lines(&simulation)?;
    } else {
        in_words(&simulation, lag)?;
    }
    Ok(DONE)
}

fn read(file: &Path) -> anyhow::Result<Trace> {
    let (text, name): (Box<dyn BufRead>, _) = if file.as_os_str() == "-" {
        (Box::new(io::stdin().lock()), "standard input".to_owned())
    } else {
        let name = file.display().to_string();
        let file = File::open(file).with_context(|| format!("opening {name}"))?;
        (Box::new(BufReader::new(file)), name)
    };
    Trace::parse(text).map_err(|error| match error {
        TraceError::Line { line, what } => Usage(format!("line {line} of {name}: {what}")).into(),
        error => anyhow::Error::from(error).context(format!("reading {name}")),
    })
}

fn lines(simulation: &Simulation) -> anyhow::Result<()> {
    for minute in &simulation.minutes {
        output::line(json!({
            "t": minute.t,
            "rate": minute.rate,
            "deleted": minute.deleted,
            "backlog": minute.backlog,
            "oldest_age": minute.oldest_age,
        }))?;
    }
    let Summary { peak, late, max_age, optimum_peak, .. } = simulation.summary;
    output::line(json!({ "peak": peak, "late": late, "max_age": max_age, "optimum_peak": optimum_peak }))
}

fn in_words(simulation: &Simulation, lag: Duration) -> anyhow::Result<()> {
    let plot = |title, value: fn(&Minute) -> f64, height| {
        let values = simulation.minutes.iter().map(value).collect();
        output::line(format_args!("{}\n", Plot { title, values, height }.draw()))
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
    output::line(format_args!("peak      {}/s", rate(summary.peak)))?;
    output::line(format_args!("optimum   {optimum}, with everything known in advance"))?;
    output::line(format_args!(
        "oldest    {}, of {}",
        about(Duration::from_secs(summary.max_age)),
        time::in_words(lag)
    ))?;
    output::line(format_args!("late      {}", summary.late))?;
    output::line(format_args!("finish    {finished}"))?;
    output::line(format_args!("verdict   {}", verdict(summary)))
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
