//! Replicas of a web service that share one sweeper.
//!
//! Every replica runs a sweeper. One of them sweeps, the others stand by; stop that one, and another takes over.
//!
//! ```sh
//! export MONGODB_URI=mongodb://localhost/app
//! cargo run --example axum -- 3001 &
//! cargo run --example axum -- 3002 &
//! curl -X POST localhost:3001/sessions    # a session that expires in ten seconds
//! curl localhost:3001/sessions            # how many there are
//! curl localhost:3002/sweeper             # what the sweeper of this replica does: sweeping, or standby
//! kill %1                                 # and ask the other one again
//! ```

use std::{env, error::Error, sync::Arc, time::Duration};

use axum::{Json, Router, extract::State, http::StatusCode, routing::get};
use mongodb::{Client, Collection};
use serde_json::{Value, json};
use tokio::{net::TcpListener, signal::unix};
use ttl_index::{
    MongoStore, Sweeper, SweeperHandle, TtlIndex, TtlRegistry,
    bson::{DateTime, Document, doc},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = env::args().nth(1).unwrap_or_else(|| "3001".to_owned());
    let uri = env::var("MONGODB_URI").unwrap_or_else(|_| "mongodb://localhost/app".to_owned());
    let client = Client::with_uri_str(uri).await?;
    let database = client.default_database().unwrap_or_else(|| client.database("app"));

    // The same in every replica: whoever comes first makes the index, the others find it there.
    let ttl = TtlRegistry::open(MongoStore::new(database.clone())).await?;
    ttl.create_index("sessions", TtlIndex::on("expireAt").expire_after(Duration::ZERO)).await?;
    let sweeper = Sweeper::new(ttl).interval(Duration::from_secs(5)).name(format!("replica on port {port}"));
    let sweeper = Arc::new(sweeper.start()?);

    let sessions = get(count).post(begin).with_state(database.collection("sessions"));
    let routes = Router::new().route("/sessions", sessions).route("/sweeper", get(status).with_state(sweeper.clone()));
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    axum::serve(listener, routes).with_graceful_shutdown(stopped()).await?;
    // After the last response: the batch under way is finished, and another replica takes over at once.
    if let Some(sweeper) = Arc::into_inner(sweeper) {
        sweeper.shutdown().await?;
    }
    Ok(())
}

async fn begin(State(sessions): State<Collection<Document>>) -> Result<StatusCode, StatusCode> {
    let expires = DateTime::from_millis(DateTime::now().timestamp_millis() + 10_000);
    sessions.insert_one(doc! { "expireAt": expires }).await.map_err(unavailable)?;
    Ok(StatusCode::CREATED)
}

async fn count(State(sessions): State<Collection<Document>>) -> Result<Json<Value>, StatusCode> {
    let count = sessions.count_documents(doc! {}).await.map_err(unavailable)?;
    Ok(Json(json!({ "sessions": count })))
}

/// What this replica's sweeper does; `TtlRegistry::status` would tell who sweeps the database, whichever replica is asked.
async fn status(State(sweeper): State<Arc<SweeperHandle>>) -> Json<Value> {
    Json(json!({ "activity": sweeper.status().activity.as_str() }))
}

fn unavailable(_: impl Error) -> StatusCode {
    StatusCode::SERVICE_UNAVAILABLE
}

async fn stopped() {
    let mut terminated = unix::signal(unix::SignalKind::terminate()).expect("signals can be listened to");
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
    }
}
