//! `run`.

use std::{net::SocketAddr, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use ttl_index::{Error, Sweeper, TtlRegistry};

use super::{
    args,
    failure::{self, DONE},
    listen, signal,
    target::Target,
};

/// While the database is away at the start it is tried again so often.
const RETRY: Duration = Duration::from_secs(2);

pub(crate) async fn run(args: args::Run, uri: Option<&str>) -> anyhow::Result<u8> {
    let target = Target::open(uri).await?;
    let stop = signal::stop_on_signal()?;
    // Before anything is counted; and the page is there while the database is not.
    let page = match args.metrics_listen {
        Some(address) => Some(Page::open(address).await?),
        None => None,
    };
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
    if let Some(page) = page {
        page.close().await?;
    }
    Ok(DONE)
}

/// The page of metrics, served in the background.
struct Page {
    stop: CancellationToken,
    serving: JoinHandle<anyhow::Result<()>>,
}

impl Page {
    async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let handle = listen::install()?;
        let listener = listen::bind(address).await?;
        // A port of 0 is any that is free.
        info!(address = %listener.local_addr()?, "serving metrics");
        let stop = CancellationToken::new();
        let serving = tokio::spawn(listen::serve(listener, handle, stop.clone().cancelled_owned()));
        Ok(Self { stop, serving })
    }

    async fn close(self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.serving.await?
    }
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
