//! What is counted, served to Prometheus over HTTP.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context;
use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::{net::TcpListener, time::sleep};
use tokio_util::sync::CancellationToken;
use ttl_index::METRICS;

/// The text format of Prometheus.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How often values are moved into the buckets, so that they do not pile up while nobody asks for the page.
const UPKEEP: Duration = Duration::from_secs(5);

/// How long a page that is being served at the end may still take.
const LAST_PAGES: Duration = Duration::from_secs(1);

/// Has this process count for the page, from now on; once in a process, before anything is counted.
pub(crate) fn install() -> anyhow::Result<PrometheusHandle> {
    let mut builder = PrometheusBuilder::new();
    for metric in METRICS.iter().filter(|metric| !metric.buckets.is_empty()) {
        builder = builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), metric.buckets)?;
    }
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(WholeNames(recorder)).context("counting for the metrics page")?;
    Ok(handle)
}

/// Takes the address, so that one that cannot be had is known before anything is swept.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("listening for metrics on {address}"))
}

/// Serves `GET /metrics` and `GET /healthz` until `shutdown` is ready.
///
/// The page holds names of databases, collections and indexes, and numbers. Nothing else of the database is on it.
pub(crate) async fn serve(
    listener: TcpListener,
    handle: PrometheusHandle,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let upkeep = handle.clone();
    let page = move || std::future::ready(([(CONTENT_TYPE, TEXT)], handle.render()));
    let pages = Router::new().route("/metrics", get(page)).route("/healthz", get(async || "ok\n"));
    let stop = CancellationToken::new();
    let serving = axum::serve(listener, pages).with_graceful_shutdown(stop.clone().cancelled_owned());
    tokio::select! {
        served = serving.into_future() => served.context("serving metrics"),
        () = async {
            shutdown.await;
            stop.cancel();
            // A client that is slow to ask would keep the process from ending.
            sleep(LAST_PAGES).await;
        } => Ok(()),
        () = async {
            loop {
                sleep(UPKEEP).await;
                upkeep.run_upkeep();
            }
        } => Ok(()),
    }
}

/// Doubles the backslashes in labels before `R` sees them.
///
/// The exporter takes two backslashes, or one before a quotation mark, for an escape that was made already, and prints
/// one backslash or none: two collections would become one on the page. Of doubled ones it prints each once, escaped.
struct WholeNames<R>(R);

impl<R: Recorder> Recorder for WholeNames<R> {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.0.describe_counter(name, unit, description);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.0.describe_gauge(name, unit, description);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.0.describe_histogram(name, unit, description);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.0.register_counter(&doubled(key), metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.0.register_gauge(&doubled(key), metadata)
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        self.0.register_histogram(&doubled(key), metadata)
    }
}

fn doubled(key: &Key) -> Key {
    let label = |label: &Label| Label::new(label.key().to_owned(), label.value().replace('\\', r"\\"));
    Key::from_parts(key.name().to_owned(), key.labels().map(label).collect::<Vec<_>>())
}
