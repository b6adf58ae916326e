//! TTL indexes on MongoDB, or on any backend that speaks its protocol, in ten lines.
//!
//! ```sh
//! MONGODB_URI=mongodb://localhost/app cargo run --example mongodb
//! ```
//!
//! Sweeps until Ctrl-C. Start it twice: one of them sweeps, the other stands by.

use std::time::Duration;

use ttl_index::{MongoStore, Sweeper, TtlIndex, TtlRegistry};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let uri = std::env::var("MONGODB_URI").unwrap_or_else(|_| "mongodb://localhost/app".to_owned());
    let client = mongodb::Client::with_uri_str(uri).await?;
    let database = client.default_database().unwrap_or_else(|| client.database("app"));
    let ttl = TtlRegistry::open(MongoStore::new(database)).await?;
    ttl.create_index("sessions", TtlIndex::on("expireAt").expire_after(Duration::ZERO)).await?;
    let interrupted = async { drop(tokio::signal::ctrl_c().await) };
    Sweeper::new(ttl.clone()).max_rate(500.0).run(interrupted).await?;
    println!("deleted {} sessions", ttl.counters().total.deleted);
    Ok(())
}
