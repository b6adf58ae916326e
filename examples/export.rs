//! What is about to be deleted, as CSV for a spreadsheet, without any server.
//!
//! ```sh
//! cargo run --example export --features archive
//! ```
//!
//! On a database of yours it is `ttl-index export orders --due --csv --fields _id,customer.name,total,paidAt -o due.csv`.

use std::{
    io::{self, Write},
    time::Duration,
};

use ttl_index::{
    CsvFields, EmbeddedStore, TtlIndex, TtlRegistry,
    bson::{DateTime, doc},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = EmbeddedStore::in_memory()?;
    let ttl = TtlRegistry::open(store.clone()).await?;
    let a_year = Duration::from_secs(365 * 86_400);
    ttl.create_index("orders", TtlIndex::on("paidAt").expire_after(a_year)).await?;

    let long_ago = DateTime::parse_rfc3339_str("2020-02-29T12:00:00Z")?;
    let orders = store.collection("orders");
    orders
        .insert_many([
            doc! { "_id": 1, "customer": { "name": "Ada, Countess" }, "total": 12.5, "paidAt": long_ago },
            // What would be calculated in a spreadsheet comes out as text.
            doc! { "_id": 2, "customer": { "name": "=HYPERLINK(\"http://evil.example\")" }, "total": -3, "paidAt": long_ago },
            doc! { "_id": 3, "customer": { "name": "Grace" }, "total": 7, "paidAt": DateTime::now() },
            doc! { "_id": 4, "customer": { "name": "Alan" }, "total": 1 },
        ])
        .await?;

    let (rule, now) = (ttl.rule("orders").await?, ttl.now().await?);
    let fields = CsvFields::new(["_id", "customer.name", "total", "paidAt"])?;
    let mut out = io::stdout().lock();
    out.write_all(&fields.header()?)?;
    let mut documents = orders.documents();
    while let Some(page) = documents.next_page(200).await? {
        for document in page.iter().filter(|document| rule.judge(document, now).due) {
            out.write_all(&fields.row(document)?)?;
        }
    }
    Ok(())
}
