//! A bounded purge from one's own job: delete expired sessions, 500 at a time, at most 20 batches, and only those that
//! expired more than a week ago.
//!
//! Runs in seconds, on a store in memory, without a server.
//!
//! ```sh
//! cargo run --example purge
//! ```

use std::{error::Error, time::Duration};

use ttl_index::{
    EmbeddedStore, Ended, SweepReport, TtlIndex, TtlRegistry,
    bson::{DateTime, doc},
};

const HOUR: i64 = 3_600_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = EmbeddedStore::in_memory()?; // or MongoStore::new(client.database("app"))
    let ttl = TtlRegistry::open(store.clone()).await?;
    ttl.create_index("sessions", TtlIndex::on("expireAt").expire_after(Duration::ZERO)).await?;

    // 12,000 that expired within the last 500 days, one every hour.
    let sessions = store.collection("sessions");
    let now = ttl.now().await?.timestamp_millis();
    sessions.insert_many((1..=12_000).map(|age| doc! { "expireAt": DateTime::from_millis(now - age * HOUR) })).await?;

    // What a job would do on each of its runs. More than 20 batches is for the next run.
    let week_ago = DateTime::from_millis(now - 7 * 24 * HOUR);
    loop {
        let report = purge(&ttl, week_ago).await?;
        println!("{}: {} deleted in {} batches", report.ended, report.deleted, report.batches);
        match report.ended {
            Ended::LimitReached => {}
            Ended::Drained => break,
            // A pass that went wrong says so, and what it has done until then.
            _ => return Err(report.error.map_or_else(|| "the purge was stopped".into(), Into::into)),
        }
    }
    println!("{} that expired within the last week are left", sessions.count().await?);

    // A cutoff of one's own never makes anything expire: one that is later than what is due is refused.
    let tomorrow = DateTime::from_millis(now + 24 * HOUR);
    match purge(&ttl, tomorrow).await {
        Err(error) => println!("with a cutoff in the future: {error}"),
        Ok(report) => return Err(format!("not refused: {report:?}").into()),
    }
    Ok(())
}

async fn purge(ttl: &TtlRegistry, cutoff: DateTime) -> ttl_index::Result<SweepReport> {
    ttl.sweep("sessions").batch_size(500).max_batches(20).cutoff(cutoff).await
}
