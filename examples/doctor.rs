//! Why do these documents not expire? A store in memory, without any server.
//!
//! ```sh
//! cargo run --example doctor
//! ```
//!
//! On a database of yours, which is only read: `Doctor::of(MongoStore::new(client.database("app"))).await?`, or
//! `ttl-index doctor --uri mongodb://localhost/app`.

use std::{error::Error, time::Duration};

use ttl_index::{
    EmbeddedStore, FindingKind, ManualClock, TtlIndex, TtlRegistry,
    bson::{Bson, DateTime, Document, doc},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let now = DateTime::parse_rfc3339_str("2026-01-31T12:00:00Z")?;
    let store = EmbeddedStore::in_memory()?.with_clock(ManualClock::at(now));
    let ttl = TtlRegistry::open(store.clone()).await?;
    ttl.create_index("sessions", TtlIndex::on("createdAt").expire_after(Duration::from_secs(3600))).await?;
    store.collection("sessions").insert_many(documents(now)).await?;

    // For people.
    let report = ttl.doctor().await?;
    println!("{report}");

    // For programs: what is worse than a cost, apart from what is meant to be so.
    for finding in &report.diagnoses[0].findings {
        if finding.harm <= ttl_index::Harm::Keeps && finding.kind != FindingKind::Overdue {
            println!("{}: {} % of the documents", finding.kind, finding.percent.unwrap_or_default());
        }
    }

    // A collection without a TTL index: which field could one be on?
    store.collection("drafts").insert_one(doc! { "title": "…", "meta": { "savedAt": now } }).await?;
    println!("\n{}", ttl.doctor().collection("drafts").await?);
    Ok(())
}

/// One that is as it should be, and some that are not.
fn documents(now: DateTime) -> Vec<Document> {
    vec![
        doc! { "_id": "good", "createdAt": now },
        doc! { "_id": "text", "createdAt": "2026-01-31T10:00:00Z" },
        doc! { "_id": "milliseconds", "createdAt": now.timestamp_millis() },
        doc! { "_id": "seconds", "createdAt": now.timestamp_millis() / 1000 },
        doc! { "_id": "seconds as milliseconds", "createdAt": DateTime::from_millis(now.timestamp_millis() / 1000) },
        doc! { "_id": "spelt", "created_at": now },
        doc! { "_id": "deeper", "meta": { "createdAt": now } },
        doc! { "_id": "nested", "createdAt": [[now]] },
        doc! { "_id": "for good", "createdAt": Bson::Null },
    ]
}
