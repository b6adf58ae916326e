//! Documents as odd as MongoDB allows them: each is archived and deleted to the byte, or stays.

use std::collections::HashSet;
use std::time::Duration;

use mongodb::bson::{
    Binary, Bson, DateTime, Document, JavaScriptCodeWithScope, RawDocumentBuf, Timestamp, doc, oid::ObjectId,
    spec::BinarySubtype,
};
use ttl_index::{Ended, MongoStore, TtlIndex, TtlRegistry};

use super::{LATER, OLD, Sink, by_id, id, raw_documents};
use crate::support::{TestDatabase, database, place::Place};

/// Values of every type, and such as are easily taken for others.
fn values() -> Vec<Bson> {
    let decimal = |text: &str| Bson::Decimal128(text.parse().unwrap());
    let binary = |subtype: u8| Bson::Binary(Binary { subtype: BinarySubtype::from(subtype), bytes: vec![1; 16] });
    let scope = doc! { "x": 1, "y": { "z": [1.5] } };
    vec![
        Bson::Double(f64::NAN),
        Bson::Double(-0.0),
        Bson::Double(f64::INFINITY),
        Bson::Double(5e-324),
        Bson::Double(1e300),
        Bson::Int32(i32::MIN),
        Bson::Int64(i64::MAX),
        decimal("1.0"),
        decimal("1.00"),
        decimal("-0"),
        decimal("NaN"),
        decimal("Infinity"),
        decimal("1E+6000"),
        Bson::String("\u{0}\u{7f}\"\\\u{2028}é\u{1F600}\r\n".to_owned()),
        Bson::String(String::new()),
        Bson::Array(vec![]),
        Bson::Array(vec![Bson::Array(vec![Bson::Null]), Bson::Document(doc! {})]),
        Bson::Document(doc! { "": 1, "a.b": 2, "$set": 3, "a$": 4, "0": 5, ".": { "$": 6 } }),
        binary(0),
        binary(2),
        binary(4),
        binary(6),
        binary(0x80),
        Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![] }),
        Bson::ObjectId(ObjectId::from_bytes([0xff; 12])),
        Bson::Boolean(false),
        Bson::DateTime(DateTime::MIN),
        Bson::DateTime(DateTime::MAX),
        Bson::Null,
        Bson::Undefined,
        serde_json::json!({ "$regularExpression": { "pattern": "a/b\\/", "options": "ims" } }).try_into().unwrap(),
        Bson::JavaScriptCode("function() { return \"$x\"; }".to_owned()),
        Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope { code: "x".to_owned(), scope }),
        Bson::Symbol("symbol".to_owned()),
        Bson::Timestamp(Timestamp { time: u32::MAX, increment: 1 }),
        Bson::MinKey,
        Bson::MaxKey,
    ]
}

async fn insert_bytes(it: &TestDatabase, document: &[u8]) {
    let documents = bson_of(&[b"\x030\0", document]);
    let insert = bson_of(&[b"\x02insert\0\x02\0\0\0c\0\x04documents\0", &documents]);
    it.db.run_raw_command(RawDocumentBuf::from_bytes(insert).unwrap()).await.unwrap();
}

/// The elements as a document: behind their length, and before a zero.
fn bson_of(elements: &[&[u8]]) -> Vec<u8> {
    let elements = elements.concat();
    let length = i32::try_from(elements.len() + 5).unwrap();
    [&length.to_le_bytes()[..], &elements, b"\0"].concat()
}

#[tokio::test]
async fn documents_with_values_of_every_type_are_archived_to_the_byte_and_deleted() {
    // MongoDB takes the others for no `_id`, and numbers that are equal for the same.
    let is_id = |value: &Bson| match value {
        Bson::Array(_) | Bson::RegularExpression(_) | Bson::Undefined => false,
        Bson::Document(it) => !it.contains_key("$set"),
        Bson::Decimal128(number) => number.to_string() == "1E+6000",
        _ => true,
    };
    for sink in Sink::ALL {
        for place in Place::all().await {
            let directory = tempfile::tempdir().unwrap();
            let ttl = place.registry().await;
            ttl.create_index("c", TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
            // As a value, in an array, and as an `_id` where it can be one.
            let mut documents: Vec<Document> = values()
                .into_iter()
                .zip(1000..)
                .map(|(value, id)| doc! { "_id": id, "v": value.clone(), "list": [1, value], "t": [LATER, OLD] })
                .collect();
            documents.extend(values().into_iter().filter(is_id).map(|id| doc! { "_id": id, "t": OLD }));
            let count = documents.len() as u64;
            place.insert("c", documents).await;
            let before = raw_documents(&place, "c").await;

            let report = ttl.sweep("c").batch_size(20).archive(sink.archive(directory.path())).await.unwrap();
            assert_eq!((report.deleted, report.left), (count, 0), "{sink:?}: {report:?}");
            assert_eq!((report.changed, report.ended), (0, Ended::Drained), "{sink:?}: {report:?}");
            let archived = sink.documents(&place, directory.path()).await;
            let bytes =
                |all: Vec<RawDocumentBuf>| all.into_iter().map(RawDocumentBuf::into_bytes).collect::<HashSet<_>>();
            assert_eq!((archived.len(), bytes(archived)), (before.len(), bytes(before)), "{sink:?}");
        }
    }
}

/// Each batch is one such document: a pass must not take them for a database that gets nothing done.
#[tokio::test]
async fn what_can_neither_be_archived_nor_repeated_stays_and_the_others_go() {
    for sink in Sink::ALL {
        let it = database().await;
        let directory = tempfile::tempdir().unwrap();
        let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
        ttl.create_index("c", TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
        let date = [b"\x09t\0".as_slice(), &OLD.timestamp_millis().to_le_bytes()].concat();
        // A field name twice, at the top and below; a string that is not UTF-8.
        insert_bytes(&it, &bson_of(&[b"\x10_id\0\x01\0\0\0", b"\x10a\0\x01\0\0\0\x10a\0\x02\0\0\0", &date])).await;
        let twice = bson_of(&[b"\x10a\0\x01\0\0\0\x10a\0\x01\0\0\0"]);
        insert_bytes(&it, &bson_of(&[b"\x10_id\0\x02\0\0\0\x03d\0", &twice, &date])).await;
        insert_bytes(&it, &bson_of(&[b"\x10_id\0\x03\0\0\0\x02s\0\x02\0\0\0\xff\0", &date])).await;
        let collection = it.db.collection::<Document>("c");
        let deep = (0..170).fold(Bson::Int32(1), |inner, _| Bson::Document(doc! { "a": inner }));
        let deepest = (0..179).fold(Bson::Int32(1), |inner, _| Bson::Document(doc! { "a": inner }));
        collection.insert_one(doc! { "_id": 4, "t": OLD, "a": deepest }).await.unwrap();
        collection.insert_one(doc! { "_id": 5, "t": OLD, "a": deep }).await.unwrap();
        // Extended JSON takes these for something else.
        collection.insert_one(doc! { "_id": 6, "t": OLD, "a": { "$oid": "x" } }).await.unwrap();
        collection.insert_one(doc! { "_id": 7, "t": OLD, "a": { "$numberInt": "1" } }).await.unwrap();
        let largest = "x".repeat(16 * 1024 * 1024 - 40);
        collection.insert_one(doc! { "_id": 8, "t": OLD, "a": largest }).await.unwrap();
        let plain = (10..60).map(|id| doc! { "_id": id, "t": DateTime::from_millis(id.into()) });
        collection.insert_many(plain).await.unwrap();
        let place = Place::Mongo(it);
        let before = by_id(raw_documents(&place, "c").await);

        let report = ttl.sweep("c").batch_size(1).archive(sink.archive(directory.path())).await.unwrap();
        let mut left: Vec<String> = raw_documents(&place, "c").await.iter().map(id).collect();
        left.sort();
        // A collection takes what no line can hold, and not what is too large or too deep inside of another document.
        let expected = if sink == Sink::Collection {
            vec!["1", "2", "3", "4", "8"]
        } else {
            vec!["1", "2", "3", "4", "5", "6", "7"]
        };
        assert_eq!(left, expected, "{sink:?}: {report:?}");
        let deleted = 58 - expected.len() as u64;
        assert_eq!((report.deleted, report.left), (deleted, expected.len() as u64), "{sink:?}: {report:?}");
        assert_eq!((report.changed, report.ended), (0, Ended::Drained), "{sink:?}: {report:?}");
        assert_eq!(report.oldest_due, Some(OLD), "{sink:?}");
        // None of those that stay is in the archive.
        let archived = sink.documents(&place, directory.path()).await;
        assert_eq!(archived.len() as u64, deleted, "{sink:?}");
        for document in archived {
            assert_eq!(before[&id(&document)].as_bytes(), document.as_bytes(), "{sink:?}");
        }
    }
}

/// The server can delete what is as deep and as large as it stores; CSV sets no limit of its own.
#[tokio::test]
async fn the_deepest_and_the_largest_documents_can_be_deleted_exactly() {
    let it = database().await;
    let directory = tempfile::tempdir().unwrap();
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    ttl.create_index("c", TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
    let deepest = (0..179).fold(Bson::Int32(1), |inner, _| Bson::Document(doc! { "a": inner }));
    let largest = "x".repeat(16 * 1024 * 1024 - 40);
    let collection = it.db.collection::<Document>("c");
    collection.insert_one(doc! { "_id": 1, "t": OLD, "a": deepest }).await.unwrap();
    collection.insert_one(doc! { "_id": 2, "t": OLD, "a": largest }).await.unwrap();
    let fields = ttl_index::CsvFields::new(["_id"]).unwrap();
    let archive = ttl_index::Archive::csv(directory.path().join("archive"), fields);
    let report = ttl.sweep("c").archive(archive).await.unwrap();
    assert_eq!((report.deleted, report.ended), (2, Ended::Drained), "{report:?}");
    let csv = std::fs::read_to_string(directory.path().join("archive")).unwrap();
    let mut rows: Vec<&str> = csv.lines().collect();
    rows.sort_unstable();
    assert_eq!(rows, ["1", "2", "_id"]);
}

/// What is said around a small document is many times its size.
#[tokio::test]
async fn a_large_batch_of_small_documents_is_deleted_exactly_in_commands_that_a_server_takes() {
    let it = database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    ttl.create_index("c", TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
    let documents = (0..5_000).map(|id| doc! { "_id": id, "t": OLD });
    it.db.collection::<Document>("c").insert_many(documents).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let report = ttl.sweep("c").batch_size(5_000).archive(Sink::Plain.archive(directory.path())).await.unwrap();
    assert_eq!((report.deleted, report.uncertain, report.left), (5_000, 0, 0), "{report:?}");
    assert_eq!((report.batches, report.ended), (1, Ended::Drained), "{report:?}");
}

/// A collation of the collection's own is of no use to a comparison that must be exact, and then nor is its index on `_id`.
#[tokio::test]
async fn strings_as_ids_under_a_collation_are_deleted_exactly_and_not_by_reading_the_collection_for_each() {
    let it = database().await;
    let directory = tempfile::tempdir().unwrap();
    let collation = doc! { "locale": "fr", "strength": 1 };
    it.db.run_command(doc! { "create": "c", "collation": collation }).await.unwrap();
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    ttl.create_index("c", TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
    let documents = (0..10_000).map(|id| doc! { "_id": format!("id {id}"), "t": [OLD, LATER], "word": "a" });
    it.db.collection("c").insert_many(documents).await.unwrap();
    it.db.run_command(doc! { "profile": 2 }).await.unwrap();
    let sweeping = ttl.sweep("c").batch_size(300).max_batches(1);
    let report = sweeping.archive(Sink::Gzip.archive(directory.path())).await.unwrap();
    it.db.run_command(doc! { "profile": 0 }).await.unwrap();
    assert_eq!((report.deleted, report.ended), (300, Ended::LimitReached), "{report:?}");
    // One after the other they are found among those of the same date that are still there.
    let removals = doc! { "op": "remove", "ns": format!("{}.c", it.db.name()) };
    let profile = it.db.collection::<Document>("system.profile");
    let costly = profile.count_documents(doc! { "$and": [removals.clone(), { "docsExamined": { "$gt": 1_000 } }] });
    assert_eq!(costly.await.unwrap(), 0);
    assert_eq!(profile.count_documents(removals).await.unwrap(), 300);
}
