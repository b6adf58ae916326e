//! Sweeping in the background, with a page of metrics for Prometheus at <http://127.0.0.1:9100/metrics>.
//!
//! A document is written every 50 ms and expires within ten seconds. Ends with Ctrl-C.
//!
//! ```sh
//! cargo run --features cli --example prometheus
//! ```

use std::{error::Error, time::Duration};

use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tokio::{net::TcpListener, time::sleep};
use ttl_index::{
    EmbeddedStore, METRICS, Sweeper, TtlIndex, TtlRegistry,
    bson::{DateTime, doc},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The recorder first: what is counted before there is one is not on the page.
    let mut recorder = PrometheusBuilder::new();
    for metric in METRICS.iter().filter(|metric| !metric.buckets.is_empty()) {
        recorder = recorder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), metric.buckets)?;
    }
    let page = recorder.install_recorder()?;

    let store = EmbeddedStore::in_memory()?;
    let ttl = TtlRegistry::open(store.clone()).await?;
    ttl.create_index("sessions", TtlIndex::on("expireAt").expire_after(Duration::ZERO)).await?;
    let sweeper = Sweeper::new(ttl).interval(Duration::from_secs(5)).start()?;

    let writing = tokio::spawn(async move {
        for number in 0_i64.. {
            let expire_at = DateTime::from_millis(DateTime::now().timestamp_millis() + 500 * (number % 20));
            store.collection("sessions").insert_one(doc! { "_id": number, "expireAt": expire_at }).await?;
            sleep(Duration::from_millis(50)).await;
        }
        Ok::<_, ttl_index::Error>(())
    });

    let text = move || async move { ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page.render()) };
    let listener = TcpListener::bind("127.0.0.1:9100").await?;
    println!("http://{}/metrics", listener.local_addr()?);
    tokio::select! {
        served = axum::serve(listener, Router::new().route("/metrics", get(text))) => served?,
        written = writing => written??,
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    sweeper.shutdown().await?;
    Ok(())
}
