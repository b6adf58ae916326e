//! Thirty days in about ten seconds, without any server.
//!
//! A store in memory goes by a clock of our own, which is moved on six hours at a time. Documents expire before your
//! eyes; one is renewed in time and survives; at the end stands what was deleted, and why the rest stays.
//!
//! ```sh
//! cargo run --example quickstart
//! ```

use std::{error::Error, time::Duration};

use ttl_index::{
    EmbeddedStore, ManualClock, TtlIndex, TtlRegistry,
    bson::{Bson, DateTime, Document, doc},
};

const DAY: Duration = Duration::from_secs(86_400);
const STEP: Duration = Duration::from_secs(6 * 3600);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let start = DateTime::parse_rfc3339_str("2026-01-01T00:00:00Z")?;
    let clock = ManualClock::at(start);
    let store = EmbeddedStore::in_memory()?.with_clock(clock.clone());
    let ttl = TtlRegistry::open(store.clone()).await?;

    // A session expires a week after it was last seen.
    let index =
        TtlIndex::on("lastSeen").expire_after(7 * DAY).partial_filter(doc! { "pinned": { "$in": [false, null] } });
    let index = ttl.create_index("sessions", index).await?;
    println!("SIMULATED TIME: 30 days in about 10 seconds, on a manual clock and a store in memory.");
    println!("TTL index {} on sessions: expires 7 days after lastSeen\n", index.name);

    let sessions = store.collection("sessions");
    sessions.insert_many(documents(start)).await?;

    let mut deleted = Vec::new();
    for step in 1..=120_u32 {
        tokio::time::sleep(Duration::from_millis(80)).await;
        clock.advance(STEP);
        let day = f64::from(step) / 4.0;
        // Dora always comes back a few hours before her session would have expired.
        if step.is_multiple_of(27) {
            sessions.update_one("dora", doc! { "$set": { "lastSeen": clock.now() } }).await?;
            println!("day {day:5.2}  dora is seen again: renewed in time");
        }
        let before = ids(&sessions).await?;
        let report = ttl.sweep("sessions").await?;
        if report.deleted > 0 {
            let after = ids(&sessions).await?;
            let gone: Vec<_> = before.into_iter().filter(|id| !after.contains(id)).collect();
            println!("day {day:5.2}  deleted {}, {} left", gone.join(", "), after.len());
            deleted.extend(gone.into_iter().map(|id| (id, day)));
        }
    }

    println!("\n{:<10} {:<10} why", "session", "fate");
    for (id, day) in &deleted {
        println!("{id:<10} {:<10} expired, deleted on day {day}", "deleted");
    }
    let rule = ttl.rule("sessions").await?;
    let mut pages = sessions.documents();
    while let Some(page) = pages.next_page(200).await? {
        for document in page {
            println!("{:<10} {:<10} {}", document.get_str("_id")?, "stays", rule.judge(&document, clock.now()));
        }
    }
    Ok(())
}

/// Ordinary sessions, and some that never expire for one reason or another.
fn documents(start: DateTime) -> Vec<Document> {
    let day = |days: i64| DateTime::from_millis(start.timestamp_millis() + days * 86_400_000);
    vec![
        doc! { "_id": "anna", "lastSeen": day(-6) },
        doc! { "_id": "bert", "lastSeen": day(-2) },
        doc! { "_id": "carla", "lastSeen": day(0), "pinned": false },
        doc! { "_id": "dora", "lastSeen": day(0) },
        doc! { "_id": "emil", "lastSeen": [day(30), day(3)] },
        doc! { "_id": "fritz", "lastSeen": day(27) },
        doc! { "_id": "greta", "lastSeen": day(0), "pinned": true },
        doc! { "_id": "hanna", "lastSeen": "2026-01-01T00:00:00Z" },
        doc! { "_id": "ivo", "lastSeen": 1_767_225_600_000_i64 },
        doc! { "_id": "jana", "lastSeen": Bson::Null },
        doc! { "_id": "karl", "last_seen": day(0) },
    ]
}

async fn ids(sessions: &ttl_index::EmbeddedCollection) -> Result<Vec<String>, Box<dyn Error>> {
    let mut ids = Vec::new();
    let mut pages = sessions.documents();
    while let Some(page) = pages.next_page(200).await? {
        for document in page {
            ids.push(document.get_str("_id")?.to_owned());
        }
    }
    Ok(ids)
}
