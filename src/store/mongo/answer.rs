//! How long an answer is waited for.
//!
//! The driver waits without end where one connection has gone silent and the others live: a firewall has forgotten it, say.
//! Whoever waits for it holds something that others wait for: the end of a batch, the lease. So every call has a limit far
//! beyond what it may take, and fails like one whose connection was cut.
//!
//! The driver's future is dropped then, against the rule everywhere else. What it waits for is a socket that says nothing,
//! or a server that is not there; dropped, the connection is closed and leaves the pool, which a call left behind would not
//! do: ten of them, and the pool has none to give.

use std::{future::Future, io, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::time::{Instant, timeout_at};

use super::STATEMENT_LIMIT;
use crate::error::{Error, Result};

/// For what takes a moment. The driver looks for a server for 30 s by default, and tells more if it finds none.
pub(super) const ANSWER: Duration = Duration::from_secs(40);

/// For what the server may work on for a while.
pub(super) const STATEMENT: Duration = STATEMENT_LIMIT.saturating_add(ANSWER);

/// For a read that the server gives no limit to, as it may have to read a whole collection.
pub(super) const LONG_READ: Duration = Duration::from_secs(86_400);

/// What the call comes to, if it comes to anything within the limit.
pub(super) fn answered<'a, T: 'a>(
    limit: Duration,
    call: impl Future<Output = Result<T>> + Send + 'a,
) -> BoxFuture<'a, Result<T>> {
    async move {
        let outcome = answered_by(Instant::now() + limit, call.map(Ok)).await;
        outcome.unwrap_or_else(|silence| Err(Error::backend("waiting for the database to answer")(silence)))
    }
    .boxed()
}

/// The same for a call of the driver's, and an instant.
pub(super) async fn answered_by<T>(
    instant: Instant,
    call: impl Future<Output = mongodb::error::Result<T>>,
) -> mongodb::error::Result<T> {
    let waiting_since = Instant::now();
    timeout_at(instant, call).await.unwrap_or_else(|_| {
        let waited = waiting_since.elapsed();
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("nothing was heard for {waited:?}")).into())
    })
}
