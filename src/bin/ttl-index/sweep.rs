//! `sweep`.

mod if_due;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use ttl_index::{Archive, Claim, Ended, Error, SweepReport, TtlRegistry};

use super::{
    archive, args,
    failure::{self, DONE, FAILED, LEFT_BEHIND, REFUSED},
    json, output, signal,
    target::Target,
    time,
};

pub(crate) async fn run(args: args::Sweep, uri: Option<&str>, json: bool) -> anyhow::Result<u8> {
    let archive = archive::named(&args)?;
    let registry = Target::open(uri).await?.registry().await?;
    if let Some(interval) = args.if_due {
        return if_due::run(&registry, interval, args, json).await;
    }
    let collections: Vec<String> = if args.collections.is_empty() {
        registry.list_indexes().await?.into_iter().map(|index| index.collection).collect()
    } else {
        args.collections.clone()
    };
    if collections.is_empty() {
        output::note("there is no TTL index in this database");
        return Ok(DONE);
    }
    // From here on a signal ends the pass between two batches, and those to come before their first.
    let stop = signal::stop_on_signal()?;
    let mut codes = Vec::new();
    // For all of them, so that nobody else sweeps in between.
    let claim = match registry.claim_sweep().wait(args.wait).stop_when(stop.clone().cancelled_owned()).await {
        Ok(claim) => claim,
        Err(Error::Interrupted) if stop.is_cancelled() => return Ok(LEFT_BEHIND),
        Err(error) => return Err(error.into()),
    };
    for collection in &collections {
        let pass = pass(&registry, &claim, collection, (&args, archive.clone()), stop.clone());
        codes.push(tell(collection, pass.await, json)?);
    }
    claim.release().await;
    Ok(worst(&codes))
}

/// Prints how a pass went, and returns its exit code.
fn tell(collection: &str, pass: ttl_index::Result<SweepReport>, json: bool) -> anyhow::Result<u8> {
    Ok(match pass {
        Ok(report) => {
            output::line(if json { report_json(&report).to_string() } else { in_words(&report) })?;
            outcome(&report)
        }
        Err(error) => failure::report(&anyhow::Error::new(error).context(format!("sweeping {collection}"))),
    })
}

fn worst(codes: &[u8]) -> u8 {
    [FAILED, REFUSED, LEFT_BEHIND].into_iter().find(|bad| codes.contains(bad)).unwrap_or(DONE)
}

async fn pass(
    registry: &TtlRegistry,
    claim: &Claim,
    collection: &str,
    (args, archive): (&args::Sweep, Option<Archive>),
    stop: CancellationToken,
) -> ttl_index::Result<SweepReport> {
    let bar = output::progress(format!("sweeping {collection}"));
    let shown = bar.clone();
    let mut sweep = registry
        .sweep(collection)
        .under(claim)
        .stop_when(async move { stop.cancelled().await })
        .on_batch(move |progress| shown.set_position(progress.deleted));
    if let Some(documents) = args.batch_size {
        sweep = sweep.batch_size(documents);
    }
    if let Some(batches) = args.max_batches {
        sweep = sweep.max_batches(batches);
    }
    if let Some(time) = args.max_time {
        sweep = sweep.max_time(time);
    }
    if let Some(rate) = args.rate {
        sweep = sweep.rate(rate);
    }
    if let Some(cutoff) = args.cutoff {
        sweep = sweep.cutoff(cutoff);
    }
    if let Some(archive) = archive {
        sweep = sweep.archive(archive);
    }
    let ended = sweep.await;
    bar.finish_and_clear();
    ended
}

/// The exit code of one pass, after saying on stderr what went wrong.
fn outcome(report: &SweepReport) -> u8 {
    if let Some(error) = &report.error {
        failure::print(&format!("sweeping {}: {}", report.collection, failure::chain(error)));
    }
    match report.ended {
        Ended::Failed if report.error.as_ref().is_some_and(|error| error.refusal().is_some()) => REFUSED,
        Ended::Failed => FAILED,
        Ended::Drained if report.oldest_due.is_none() => DONE,
        _ => LEFT_BEHIND,
    }
}

fn report_json(report: &SweepReport) -> Value {
    let mut line = json!({
        "collection": report.collection,
        "index": report.index,
        "cutoff": json::date(Some(report.cutoff)),
        "found": report.found,
        "deleted": report.deleted,
        "changed": report.changed,
        "batches": report.batches,
        "ended": report.ended.as_str(),
        "oldest_due": json::date(report.oldest_due),
        "uncertain": report.uncertain,
        "left": report.left,
        "kept": report.kept,
        "disputed": report.disputed,
    });
    if let Some(error) = &report.error {
        line["error"] = json!(failure::chain(error));
    }
    line
}

fn in_words(report: &SweepReport) -> String {
    let mut parts = vec![format!(
        "{} ({}): {}; {} deleted of {} found due, with dates up to {}; batches: {}",
        report.collection,
        report.index,
        report.ended.as_str().replace('_', " "),
        report.deleted,
        report.found,
        time::show(report.cutoff),
        report.batches,
    )];
    for (count, what) in [
        (report.changed, "changed, or deleted by others, meanwhile"),
        (report.uncertain, "gone after a lost reply"),
        (report.left, "could not be deleted"),
        (report.kept, "kept by a guard"),
        (report.disputed, "due to the backend but not to the rule, and kept"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    if let Some(oldest) = report.oldest_due {
        parts.push(format!("the oldest left behind expired {}", time::show(oldest)));
    }
    parts.join("; ")
}
