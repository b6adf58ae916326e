//! Expired sessions go to a compressed file before they are deleted, and come back when they are needed again.
//!
//! A store in memory and a file in a temporary directory; no server is needed.
//!
//! ```sh
//! cargo run --example archive --features archive
//! ```

use std::{error::Error, fs, time::Duration};

use ttl_index::{
    Archive, EmbeddedStore, ManualClock, TtlIndex, TtlRegistry,
    bson::{DateTime, doc},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::at(DateTime::parse_rfc3339_str("2026-01-01T00:00:00Z")?);
    let store = EmbeddedStore::in_memory()?.with_clock(clock.clone());
    let ttl = TtlRegistry::open(store.clone()).await?;
    ttl.create_index("sessions", TtlIndex::on("lastSeen").expire_after(Duration::from_secs(7 * 86_400))).await?;
    let sessions = store.collection("sessions");
    sessions.insert_many((0..1_000).map(|id| doc! { "_id": id, "lastSeen": clock.now(), "user": "Ada" })).await?;

    let directory = tempfile::tempdir()?;
    let file = directory.path().join("sessions.jsonl.gz");
    clock.advance(Duration::from_secs(8 * 86_400));
    let report = ttl.sweep("sessions").archive(Archive::json_lines(&file).gzip()).await?;
    println!("{} deleted, {} left, {}", report.deleted, report.left, report.ended);
    println!("archived in {} bytes; the manifest:", fs::metadata(&file)?.len());
    print!("{}", fs::read_to_string(directory.path().join("sessions.jsonl.gz.manifest"))?);

    // One of them has come back by itself, and is newer than what is in the archive.
    sessions.insert_one(doc! { "_id": 7, "lastSeen": clock.now(), "user": "Grace" }).await?;
    let restored = ttl.restore(&file).extend(Duration::from_secs(30 * 86_400)).await?;
    println!("{} restored, {} were there", restored.inserted, restored.there);
    println!("{}", sessions.find_one(7).await?.ok_or("it is there")?);
    println!("{}", sessions.find_one(8).await?.ok_or("it is there")?);

    clock.advance(Duration::from_secs(29 * 86_400));
    assert_eq!((restored.inserted, ttl.sweep("sessions").await?.deleted), (999, 1));
    Ok(())
}
