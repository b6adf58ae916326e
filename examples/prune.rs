//! A site without cron, which prunes inside of its ordinary requests: after a response, once an hour at most.
//!
//! Start it as often as you like: one of all processes prunes. Its settings say how long news are kept.
//!
//! ```sh
//! cargo run --features tower --example prune                              # in memory, without a server
//! cargo run --features tower --example prune -- mongodb://localhost/app   # or on MongoDB
//! curl localhost:3000/                  # the first response of the hour is followed by a prune
//! curl localhost:3000/pruned            # how many documents this process has deleted
//! ```
//!
//! `NEWS_RETENTION_DAYS=30` keeps news for 30 days; without it, or with a mistyped one, it is 180 days, and never less than
//! before.

use std::{env, error::Error, time::Duration};

use axum::{Router, extract::Path, http::StatusCode, routing::get};
use mongodb::Client;
use tokio::net::TcpListener;
use ttl_index::{
    EmbeddedStore, MongoStore, PruneLayer, Retention, SweepIfDue, TtlIndex, TtlRegistry,
    bson::{DateTime, doc},
};

/// At most so often, whatever happens and however many processes there are.
const HOUR: Duration = Duration::from_secs(3600);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let ttl = match env::args().nth(1) {
        Some(uri) => on_mongodb(&uri).await?,
        None => in_memory().await?,
    };
    ttl.create_index("sessions", TtlIndex::on("expireAt").expire_after(Duration::ZERO)).await?;
    let retention = Retention::from_days(env::var("NEWS_RETENTION_DAYS").ok().as_deref());
    println!("news are kept for {retention}");
    // Only if there is none: what is in force is changed by the prune, which knows a wish from a mistake.
    if ttl.list_indexes().collection("news").await?.is_empty() {
        ttl.create_index("news", TtlIndex::on("publishedAt").expire_after(retention.period())).await?;
    }

    let counted = ttl.clone();
    let pruned = get(async move || counted.counters().total.deleted.to_string());
    let service = site().route("/pruned", pruned).layer(prune_after_responses(ttl.sweep_if_due(HOUR), retention));
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, service).await?;
    Ok(())
}

/// The site, which knows nothing of pruning.
pub(crate) fn site() -> Router {
    let article = async |Path(id): Path<u32>| match id {
        1..=99 => Ok(format!("This is article {id}.\n")),
        _ => Err((StatusCode::GONE, "This article is gone.\n")),
    };
    Router::new().route("/", get(async || "News of the day\n")).route("/articles/{id}", get(article))
}

/// 500 documents at a time, 20 batches a collection, ten seconds in all.
pub(crate) fn prune_after_responses(prune: SweepIfDue, retention: Retention) -> PruneLayer {
    PruneLayer::new(prune.max_batches(20).max_time(Duration::from_secs(10)).retention("news", retention))
}

async fn on_mongodb(uri: &str) -> Result<TtlRegistry, Box<dyn Error>> {
    let client = Client::with_uri_str(uri).await?;
    let database = client.default_database().unwrap_or_else(|| client.database("app"));
    Ok(TtlRegistry::open(MongoStore::new(database)).await?)
}

/// With a few news, one for every hundred days.
async fn in_memory() -> Result<TtlRegistry, Box<dyn Error>> {
    let store = EmbeddedStore::in_memory()?;
    let day = 86_400_000;
    let now = DateTime::now().timestamp_millis();
    let news = (0..10).map(|age| doc! { "publishedAt": DateTime::from_millis(now - 100 * age * day) });
    store.collection("news").insert_many(news).await?;
    Ok(TtlRegistry::open(store).await?)
}
