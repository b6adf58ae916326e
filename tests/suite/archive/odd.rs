//! Documents as odd as MongoDB allows them: each is archived and deleted, or stays and says why.

use std::time::Duration;

use mongodb::bson::{
    Binary, Bson, DateTime, DbPointer, Decimal128, Document, JavaScriptCodeWithScope, RawDocumentBuf, Regex, Timestamp,
    doc, oid::ObjectId, spec::BinarySubtype,
};
use ttl_index::{Ended, MongoStore, TtlIndex, TtlRegistry};

use super::{OLD, Sink, raw_documents};
use crate::support::{database, place::Place};

#[tokio::test]
async fn probe_depth() {
    let it = database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    ttl.create_index("c", TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
    for depth in [50, 60, 62, 64, 80, 100, 120, 150, 170, 180, 185, 190, 195, 199, 200] {
        let mut value = Bson::Int32(1);
        for _ in 1..depth {
            value = Bson::Document(doc! { "a": value });
        }
        let inserted = it.db.collection::<Document>("c").insert_one(doc! { "_id": depth, "t": OLD, "a": value }).await;
        if let Err(error) = inserted {
            println!("insert {depth}: {error}");
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let report = ttl.sweep("c").archive(Sink::Plain.archive(directory.path())).await.unwrap();
    println!("{report:?}");
    for left in it.db.collection::<Document>("c").distinct("_id", doc! {}).await.unwrap() {
        println!("left {left}");
    }
    let report = ttl.sweep("c").archive(Sink::Collection.archive(directory.path())).await.unwrap();
    println!("{report:?}");
    for left in it.db.collection::<Document>("c").distinct("_id", doc! {}).await.unwrap() {
        println!("left {left}");
    }
    for size in [16 * 1024 * 1024 - 100, 16 * 1024 * 1024 - 2000, 16 * 1024 * 1024 - 17000] {
        let doc = doc! { "_id": i64::try_from(size).unwrap(), "t": OLD, "a": "x".repeat(size) };
        it.db.collection::<Document>("c").insert_one(doc).await.unwrap();
    }
    let report = ttl.sweep("c").archive(Sink::Plain.archive(directory.path())).await.unwrap();
    println!("{report:?}");
    for left in it.db.collection::<Document>("c").distinct("_id", doc! {}).await.unwrap() {
        println!("left {left}");
    }
    panic!();
}
