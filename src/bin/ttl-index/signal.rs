//! SIGINT and SIGTERM.

use anyhow::Context;
use tokio_util::sync::CancellationToken;

use super::{failure::FAILED, output};

/// Cancelled by the first signal; the second ends the process.
#[cfg(unix)]
pub(crate) fn stop_on_signal() -> anyhow::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stopping.cancel();
        output::note("stopping after the batch under way; once more stops at once");
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::process::exit(i32::from(FAILED));
    });
    Ok(stop)
}

/// Cancelled by the first signal.
#[cfg(not(unix))]
pub(crate) fn stop_on_signal() -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stopping.cancel();
        }
    });
    Ok(stop)
}
