//! Articles that stay as long as somebody reads them, on a store in memory and a manual clock. No server is needed:
//!
//! ```sh
//! cargo run --example guards
//! ```

use std::time::Duration;

use ttl_index::{
    Batch, Decision, EmbeddedStore, ManualClock, Reference, TtlIndex, TtlRegistry, Veto, VetoFuture,
    bson::{DateTime, doc},
};

const DAY: Duration = Duration::from_secs(86_400);

/// Asked before anything is deleted.
struct LegalHold;

impl Veto for LegalHold {
    fn veto<'a>(&'a self, batch: Batch<'a>) -> VetoFuture<'a> {
        Box::pin(async move {
            let decide = |document: &ttl_index::bson::RawDocumentBuf| match document.get_bool("hold") {
                Ok(true) => Decision::Keep,
                _ => Decision::Delete,
            };
            Ok(batch.documents.iter().map(decide).collect())
        })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::at(DateTime::from_millis(1_767_225_600_000));
    let store = EmbeddedStore::in_memory()?.with_clock(clock.clone());
    let ttl = TtlRegistry::open(store.clone()).await?.with_veto(LegalHold);

    let reads = Reference::by("reads", "article_id").newer_than("readAt", 7 * DAY);
    let index = TtlIndex::on("publishedAt").expire_after(7 * DAY).keep_while(reads);
    ttl.create_index("articles", index).await?;
    // Reads go by themselves.
    ttl.create_index("reads", TtlIndex::on("readAt").expire_after(7 * DAY)).await?;

    let (articles, reads) = (store.collection("articles"), store.collection("reads"));
    for (id, hold) in [("read", false), ("unread", false), ("held", true), ("rescued", false)] {
        articles.insert_one(doc! { "_id": id, "publishedAt": clock.now(), "hold": hold }).await?;
    }
    for day in 1..=16 {
        clock.advance(DAY);
        if day == 6 {
            reads.insert_one(doc! { "article_id": "read", "readAt": clock.now() }).await?;
            println!("day {day:2}: somebody reads \"read\"");
        }
        if day == 7 {
            // A read that is saved in the very moment in which the article expires: first the child, then the touch.
            reads.insert_one(doc! { "article_id": "rescued", "readAt": clock.now() }).await?;
            let soon = DateTime::from_millis(clock.now().timestamp_millis() + 60_000);
            let touched = ttl.touch("articles", ["rescued"], soon).await?;
            println!(
                "day {day:2}: somebody reads \"rescued\", which is {}",
                ["there", "gone"][usize::from(touched.missing > 0)]
            );
        }
        for collection in ["reads", "articles"] {
            let report = ttl.sweep(collection).await?;
            if report.deleted + report.kept > 0 {
                println!("day {day:2}: {collection}: {} deleted, {} kept", report.deleted, report.kept);
            }
        }
    }
    let left = articles.count().await?;
    println!("left: {left}, which is held");
    assert_eq!(left, 1);
    Ok(())
}
