//! Work that is stopped, never dropped.

use futures_util::{FutureExt, future::pending};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};

/// Does the work in a task of its own, as a driver call must not be dropped halfway. The token tells it to stop: when the
/// signal comes, or when nobody waits for it any more.
pub(crate) async fn in_a_task<T, F>(
    signal: Option<impl Future<Output = ()>>,
    work: impl FnOnce(CancellationToken) -> F,
) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let stop = CancellationToken::new();
    let _stop_if_dropped = stop.clone().drop_guard();
    let mut working = tokio::spawn(work(stop.clone()));
    let signalled = signal.map_or_else(|| pending().left_future(), FutureExt::right_future);
    let finished = tokio::select! {
        finished = &mut working => finished,
        () = signalled => {
            stop.cancel();
            working.await
        }
    };
    match finished {
        Ok(outcome) => outcome,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Error::Interrupted),
        },
    }
}
