//! `sweep --if-due`.

use std::time::Duration;

use serde_json::json;
use ttl_index::{Error, Pruned, TtlRegistry};

use super::{
    super::{
        args,
        failure::{DONE, LEFT_BEHIND},
        json, output, signal, time,
    },
    tell, worst,
};

pub(super) async fn run(
    registry: &TtlRegistry,
    interval: Duration,
    args: args::Sweep,
    json: bool,
) -> anyhow::Result<u8> {
    // Written out, so that an option that is added is not passed over here. Those of the second line go not along with this.
    let args::Sweep {
        collections,
        batch_size,
        max_batches,
        max_time,
        rate,
        cutoff: _,
        wait: _,
        if_due: _,
        archive: _,
        fields: _,
    } = args;
    let stop = signal::stop_on_signal()?;
    let mut prune = registry.sweep_if_due(interval).stop_when(stop.clone().cancelled_owned());
    if !collections.is_empty() {
        prune = prune.collections(collections);
    }
    if let Some(documents) = batch_size {
        prune = prune.batch_size(documents);
    }
    if let Some(batches) = max_batches {
        prune = prune.max_batches(batches);
    }
    if let Some(time) = max_time {
        prune = prune.max_time(time);
    }
    if let Some(rate) = rate {
        prune = prune.rate(rate);
    }
    let (outcome, words) = match prune.await {
        Ok(Pruned::Swept { passes, unvisited, .. }) => {
            if passes.is_empty() && unvisited.is_empty() {
                output::note("there is no TTL index in this database");
            }
            let mut codes = Vec::new();
            for it in passes {
                codes.push(tell(&it.collection, it.pass, json)?);
            }
            for collection in unvisited {
                let outcome = json!({ "outcome": "unvisited", "collection": collection });
                output::line(if json {
                    outcome.to_string()
                } else {
                    format!("{collection}: no time was left for it")
                })?;
                codes.push(LEFT_BEHIND);
            }
            return Ok(worst(&codes));
        }
        Ok(Pruned::NotDue { next, .. }) => (
            json!({ "outcome": "not_due", "next": json::date(Some(next)) }),
            format!("not due before {}", time::show(next)),
        ),
        Ok(Pruned::HeldBy { holder, .. }) => {
            (json!({ "outcome": "held_by", "holder": holder }), format!("{holder} is sweeping; nothing was done"))
        }
        Ok(other) => anyhow::bail!("an outcome that this program does not know: {other:?}"),
        Err(Error::Interrupted) if stop.is_cancelled() => return Ok(LEFT_BEHIND),
        Err(error) => return Err(error.into()),
    };
    output::line(if json { outcome.to_string() } else { words })?;
    Ok(DONE)
}
