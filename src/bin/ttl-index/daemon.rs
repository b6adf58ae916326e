//! `run`.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
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
    let target = Arc::new(Target::open(uri).await?);
    let stop = signal::stop_on_signal()?;
    // Before anything is counted; and the page is there while the database is not.
    let page = match args.metrics_listen {
        Some(address) => Some(Page::open(address).await?),
        None => None,
    };
    let Some(registry) = registry(&target, &stop).await? else { return Ok(DONE) };
    let mut sweeper = Sweeper::new(registry)
        .target_lag(args.target_lag)
        .max_rate(args.max_rate)
        .min_rate(args.min_rate)
        .batch_size(args.batch_size)
        .interval(args.interval)
        .lease_time(args.lease_time);
    sweeper = args.window.into_iter().fold(sweeper, Sweeper::closed);
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

/// The registry, as soon as it can be read; none if it is stopped before.
async fn registry(target: &Arc<Target>, stop: &CancellationToken) -> anyhow::Result<Option<TtlRegistry>> {
    let mut told = None;
    while !stop.is_cancelled() {
        let opening = target.clone();
        // A task of its own: a driver call must not be dropped halfway, and may take half a minute.
        let opened = tokio::select! {
            opened = tokio::spawn(async move { opening.registry().await }) => opened?,
            () = stop.cancelled() => return Ok(None),
        };
        match opened {
            Ok(registry) => return Ok(Some(registry)),
            Err(error) => match error.downcast_ref::<Error>() {
                Some(backend @ Error::Backend { .. }) => {
                    // Once for each trouble, however long it lasts.
                    let (trouble, error) =
                        ((backend.code(), backend.missing_privilege()), failure::chain(error.as_ref()));
                    if told.replace(trouble.clone()) == Some(trouble) {
                        debug!(error, "the registry still cannot be read");
                    } else {
                        warn!(error, retry_every = ?RETRY, "the registry cannot be read, so nothing is swept; trying again");
                    }
                }
                _ => return Err(error),
            },
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(RETRY) => {}
        }
    }
    Ok(None)
}
