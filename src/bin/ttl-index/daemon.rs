//! `run`.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::warn;
use ttl_index::{Error, Sweeper, TtlRegistry};

use super::{
    args,
    failure::{self, DONE},
    signal,
    target::Target,
};

/// While the database is away at the start it is tried again so often.
const RETRY: Duration = Duration::from_secs(2);

pub(crate) async fn run(args: args::Run, uri: Option<&str>) -> anyhow::Result<u8> {
    let target = Target::open(uri).await?;
    let stop = signal::stop_on_signal()?;
    let Some(registry) = registry(&target, &stop).await? else { return Ok(DONE) };
    let mut sweeper = Sweeper::new(registry)
        .max_rate(args.max_rate)
        .batch_size(args.batch_size)
        .interval(args.interval)
        .lease_time(args.lease_time);
    if let Some(name) = args.name {
        sweeper = sweeper.name(name);
    }
    sweeper.run(async move { stop.cancelled().await }).await?;
    Ok(DONE)
}

/// The registry, as soon as the database can be reached; none if it is stopped before.
async fn registry(target: &Target, stop: &CancellationToken) -> anyhow::Result<Option<TtlRegistry>> {
    while !stop.is_cancelled() {
        match target.registry().await {
            Ok(registry) => return Ok(Some(registry)),
            Err(error) if matches!(error.downcast_ref(), Some(Error::Backend { .. })) => {
                warn!(error = failure::chain(error.as_ref()), "the database cannot be reached; trying again");
            }
            Err(error) => return Err(error),
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(RETRY) => {}
        }
    }
    Ok(None)
}
