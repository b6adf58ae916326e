//! Pruning after the responses of a service.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tower_layer::Layer;
use tower_service::Service;

use super::SweepIfDue;

/// Prunes after responses: a layer for services of axum, tower, hyper and whatever else is built on tower's `Service`.
///
/// # Guarantees
///
/// Requests and responses pass through untouched. The prune begins once the inner service has answered, with a response or
/// with an error, and in the [background](SweepIfDue::in_background): no response waits for it, and no failure of it reaches
/// one. A request that is given up before it is answered begins none.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use ttl_index::{EmbeddedStore, PruneLayer, TtlRegistry};
///
/// let ttl = TtlRegistry::open(EmbeddedStore::in_memory()?).await?;
/// let prune = PruneLayer::new(ttl.sweep_if_due(Duration::from_secs(3600)));
/// let service = axum::Router::<()>::new().route("/", axum::routing::get(|| async { "news" })).layer(prune);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PruneLayer {
    prune: Arc<SweepIfDue>,
}

impl PruneLayer {
    /// Prunes so after responses.
    pub fn new(prune: SweepIfDue) -> Self {
        Self { prune: Arc::new(prune) }
    }
}

impl<S> Layer<S> for PruneLayer {
    type Service = Pruning<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Pruning { inner, prune: self.prune.clone() }
    }
}

/// A service that prunes after its responses; see [`PruneLayer`].
#[derive(Clone, Debug)]
pub struct Pruning<S> {
    inner: S,
    prune: Arc<SweepIfDue>,
}

impl<S: Service<R>, R> Service<R> for Pruning<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = PruneAfter<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        PruneAfter { response: Box::pin(self.inner.call(request)), prune: self.prune.clone() }
    }
}

/// The response of a [`Pruning`] service.
#[derive(Debug)]
pub struct PruneAfter<F> {
    response: Pin<Box<F>>,
    prune: Arc<SweepIfDue>,
}

impl<F: Future> Future for PruneAfter<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let response = ready!(self.response.as_mut().poll(context));
        self.prune.begin_in_background();
        Poll::Ready(response)
    }
}
