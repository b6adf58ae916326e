//! TTL indexes on MongoDB, or on any backend that speaks its protocol.
//!
//! ```sh
//! MONGODB_URI=mongodb://localhost/app cargo run --example mongodb
//! ```

use std::time::Duration;

use ttl_index::{MongoStore, TtlIndex, TtlRegistry};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let uri = std::env::var("MONGODB_URI").unwrap_or_else(|_| "mongodb://localhost/app".to_owned());
    let client = mongodb::Client::with_uri_str(uri).await?;
    let database = client.default_database().unwrap_or_else(|| client.database("app"));
    let ttl = TtlRegistry::open(MongoStore::new(database)).await?;
    ttl.create_index("sessions", TtlIndex::on("expireAt").expire_after(Duration::ZERO)).await?;
    let report = ttl.sweep("sessions").max_batches(20).await?;
    println!("{} deleted, {}; oldest still due: {:?}", report.deleted, report.ended, report.oldest_due);
    Ok(())
}
