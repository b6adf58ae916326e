//! Documents, fields and collections as odd as MongoDB allows them.

use std::time::Duration;

use mongodb::bson::{
    Binary, Bson, DateTime, Document, RawDocumentBuf, Timestamp, doc, oid::ObjectId, spec::BinarySubtype,
};
use ttl_index::{Ended, Fault, MongoStore, TtlIndex, TtlRegistry};

use super::{LATER, OLD, Setting, assert_adds_up};
use crate::support::{database, place::Place};

fn odd_ids() -> Vec<Bson> {
    let nested = doc! { "when": OLD, "deep": { "list": [1, { "x": Bson::Null }], "bin": bytes(0) } };
    vec![
        Bson::Null,
        Bson::Double(f64::NAN),
        Bson::Double(f64::NEG_INFINITY),
        Bson::Double(0.1),
        Bson::Decimal128("0.1".parse().unwrap()),
        Bson::Decimal128("1E+6000".parse().unwrap()),
        Bson::Int64(i64::MIN),
        Bson::Int64(9_007_199_254_740_993),
        Bson::Int32(0),
        Bson::String(String::new()),
        // The same in print as the documents below.
        Bson::String("{ \"a\": 1 }".to_owned()),
        Bson::String("null".to_owned()),
        Bson::Document(doc! {}),
        Bson::Document(doc! { "a": 1 }),
        Bson::Document(doc! { "a": "x\", \"b\": \"y" }),
        Bson::Document(doc! { "a": "x", "b": "y" }),
        Bson::Document(doc! { "b": "y", "a": "x" }),
        Bson::Document(nested),
        Bson::DateTime(OLD),
        Bson::DateTime(DateTime::MIN),
        Bson::DateTime(DateTime::MAX),
        Bson::Boolean(true),
        Bson::Boolean(false),
        Bson::MinKey,
        Bson::MaxKey,
        Bson::Timestamp(Timestamp { time: 1, increment: 2 }),
        Bson::ObjectId(ObjectId::from_bytes([0; 12])),
        bytes(0),
        bytes(5),
        Bson::Symbol("symbol".to_owned()),
        Bson::JavaScriptCode("1".to_owned()),
        // Longer than an index key could once be.
        Bson::String("é".repeat(5_000)),
    ]
}

fn bytes(subtype: u8) -> Bson {
    Bson::Binary(Binary { subtype: BinarySubtype::from(subtype), bytes: vec![0; 16] })
}

#[tokio::test]
async fn a_document_is_deleted_or_spared_whatever_its_id() {
    for setting in Setting::all().await {
        let what = setting.describe();
        let ids = odd_ids();
        let spared: Vec<Bson> = ids.iter().step_by(2).cloned().collect();
        let count = ids.len() as u64;
        let (spared_count, first) = (spared.len() as u64, ids.len() as u64 - spared.len() as u64);
        let hook = |_| std::future::ready(Fault::None);
        let ttl = TtlRegistry::open(setting.hooked_store(hook).sparing(spared)).await.unwrap();
        ttl.create_index("c", setting.on("t")).await.unwrap();
        setting.place.insert("c", ids.iter().map(|id| doc! { "_id": id, "t": OLD }).collect()).await;

        // Batches smaller than what stays: it must be stepped over, by these ids.
        let report = ttl.sweep("c").batch_size(5).await.unwrap();
        assert_adds_up(&report, &what);
        assert_eq!((report.deleted, report.left, report.changed), (first, spared_count, 0), "{what}: {report:?}");
        assert_eq!((report.found, report.ended), (count, Ended::Drained), "{what}: {report:?}");
        let report = setting.place.registry().await.sweep("c").await.unwrap();
        assert_eq!((report.deleted, report.ended), (spared_count, Ended::Drained), "{what}: {report:?}");
    }
}

#[tokio::test]
async fn documents_of_sixteen_megabytes_fit_into_a_batch() {
    for portable in [false, true] {
        let it = database().await;
        let store = MongoStore::new(it.db.clone());
        let ttl = TtlRegistry::open(if portable { store.portable_only() } else { store }).await.unwrap();
        // The bulk is beside the date, below the same field.
        ttl.create_index("c", TtlIndex::on("a.t").expire_after(Duration::ZERO)).await.unwrap();
        let collection = it.db.collection::<RawDocumentBuf>("c");
        for id in 0..6 {
            let bulk = "x".repeat(16 * 1024 * 1024 - 200);
            let document = doc! { "_id": id, "a": { "bulk": bulk, "t": if id == 5 { LATER } else { OLD } } };
            collection.insert_one(RawDocumentBuf::try_from(&document).unwrap()).await.unwrap();
        }
        let report = ttl.sweep("c").await.unwrap();
        assert_eq!((report.deleted, report.batches, report.ended), (5, 1, Ended::Drained), "{report:?}");
        assert_eq!(collection.count_documents(doc! {}).await.unwrap(), 1);
    }
}

/// A statement names every document of its batch, and must fit into one message to the server.
#[tokio::test]
async fn ids_too_long_for_one_message_are_deleted_in_smaller_batches() {
    for setting in Setting::all().await {
        let what = setting.describe();
        let ttl = setting.hooked(|_| std::future::ready(Fault::None)).await;
        ttl.create_index("c", setting.on("t")).await.unwrap();
        for first in (0..300).step_by(100) {
            let long = |id: i32| doc! { "_id": format!("{id}{}", "0".repeat(100_000)), "t": OLD };
            setting.place.insert("c", (first..first + 100).map(long).collect()).await;
        }
        let report = ttl.sweep("c").await.unwrap();
        assert_eq!((report.deleted, report.ended), (300, Ended::Drained), "{what}: {report:?}");
    }
}

#[tokio::test]
async fn names_of_collections_and_fields_may_be_anything_that_is_allowed() {
    for setting in Setting::all().await {
        let names = [
            ("logs.of.today", "t"),
            ("日本 語", "期限"),
            ("with space", "expires at"),
            ("c-1/2", "a.b c.é"),
            ("é.ü", "0"),
            ("c", "x'\"\\"),
            ("numbers", "list.0.t"),
        ];
        let ttl = setting.hooked(|_| std::future::ready(Fault::None)).await;
        for (collection, field) in names {
            let what = format!("{}, {collection}, {field}", setting.describe());
            ttl.create_index(collection, setting.on(field)).await.unwrap();
            let with = |id: i32, date: DateTime| {
                let nest = |value: Bson, part: &str| Bson::Document([(part.to_owned(), value)].into_iter().collect());
                let mut document = doc! { "_id": id };
                let Bson::Document(value) = field.rsplit('.').fold(Bson::DateTime(date), nest) else { panic!() };
                document.extend(value);
                document
            };
            setting.place.insert(collection, vec![with(1, OLD), with(2, LATER), doc! { "_id": 3 }]).await;
            let report = ttl.sweep(collection).await.unwrap();
            assert_eq!((report.found, report.deleted, report.ended), (1, 1, Ended::Drained), "{what}: {report:?}");
            assert_eq!(setting.place.count(collection).await, 2, "{what}");
        }
    }
}

/// A collection in the order of its `_id`s has no index on them to hint at by name, and string ids may be compared by a
/// collation.
#[tokio::test]
async fn clustered_collections_and_collations_are_swept_like_any_other() {
    for setting in Setting::all().await {
        let Place::Mongo(it) = &*setting.place else { continue };
        let clustered = doc! { "create": "clustered", "clusteredIndex": { "key": { "_id": 1 }, "unique": true } };
        it.db.run_command(clustered).await.unwrap();
        let collation = doc! { "locale": "fr", "strength": 1 };
        it.db.run_command(doc! { "create": "collation", "collation": collation }).await.unwrap();
        let ttl = setting.hooked(|_| std::future::ready(Fault::None)).await;
        for name in ["clustered", "collation"] {
            let what = format!("{}, {name}", setting.describe());
            ttl.create_index(name, setting.on("t")).await.unwrap();
            let ids = ["a", "b", "é-1", "Z"];
            setting.place.insert(name, ids.iter().map(|id| doc! { "_id": *id, "t": OLD }).collect()).await;
            setting.place.insert(name, vec![doc! { "_id": "y", "t": LATER }]).await;
            let report = ttl.sweep(name).batch_size(2).await.unwrap();
            assert_eq!((report.deleted, report.ended), (4, Ended::Drained), "{what}: {report:?}");
            assert_eq!(setting.place.count(name).await, 1, "{what}");
        }
    }
}

/// The alternatives of a partial filter may lead the server to walk the index twice, which is not in the order of dates.
#[tokio::test]
async fn a_partial_filter_with_alternatives_on_the_date_hides_nothing() {
    for setting in Setting::all().await {
        let what = setting.describe();
        let at = |millis: i32| DateTime::from_millis(millis.into());
        let filter = doc! { "$or": [{ "t": { "$gt": at(500) } }, { "t": { "$lt": at(400) } }] };
        let spared: Vec<Bson> = (600..650).map(Bson::Int32).collect();
        let store = setting.hooked_store(|_| std::future::ready(Fault::None)).sparing(spared);
        let ttl = TtlRegistry::open(store).await.unwrap();
        ttl.create_index("c", setting.on("t").partial_filter(filter)).await.unwrap();
        let documents: Vec<Document> = (0..1_000).map(|id| doc! { "_id": id, "t": at(id) }).collect();
        setting.place.insert("c", documents).await;
        let report = ttl.sweep("c").batch_size(50).await.unwrap();
        assert_adds_up(&report, &what);
        assert_eq!((report.deleted, report.left, report.ended), (849, 50, Ended::Drained), "{what}: {report:?}");
        assert_eq!(setting.place.count("c").await, 151, "{what}: {report:?}");
    }
}

/// NaN is not equal to itself, which must not make a rule differ from itself.
#[tokio::test]
async fn a_partial_filter_that_compares_with_nan_is_the_same_filter_all_along() {
    for setting in Setting::all().await {
        let what = setting.describe();
        let filter = doc! { "n": { "$gte": f64::NAN } };
        let ttl = setting.hooked(|_| std::future::ready(Fault::None)).await;
        ttl.create_index("c", setting.on("t").partial_filter(filter)).await.unwrap();
        let nan = doc! { "_id": 1, "t": OLD, "n": f64::NAN };
        setting.place.insert("c", vec![nan, doc! { "_id": 2, "t": OLD, "n": 1 }]).await;
        let report = ttl.sweep("c").await.unwrap();
        assert_eq!((report.found, report.deleted, report.ended), (1, 1, Ended::Drained), "{what}: {report:?}");
    }
}

/// The elements as a document: behind their length, and before a zero.
fn bson_of(elements: &[&[u8]]) -> Vec<u8> {
    let elements = elements.concat();
    let length = i32::try_from(elements.len() + 5).unwrap();
    [&length.to_le_bytes()[..], &elements, b"\0"].concat()
}

/// Written again, such an `_id` would be another: the delete would miss, and the next find bring the document back.
#[tokio::test]
async fn a_document_that_no_query_can_name_neither_holds_up_the_others_nor_goes_unsaid() {
    // { "_id": { "a": 1, "a": 2 }, "t": a date } and { "_id": "\xff", "t": a date }, by the byte.
    let date = [b"\x09t\0".as_slice(), &OLD.timestamp_millis().to_le_bytes()].concat();
    let twice = b"\x03_id\0\x13\0\0\0\x10a\0\x01\0\0\0\x10a\0\x02\0\0\0\0".as_slice();
    let garbled = b"\x02_id\0\x02\0\0\0\xff\0".as_slice();
    for (odd, supporting) in [(twice, true), (twice, false), (garbled, true), (garbled, false)] {
        let it = database().await;
        let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
        let index = TtlIndex::on("t").expire_after(Duration::ZERO).supporting_index(supporting);
        ttl.create_index("c", index).await.unwrap();
        // As bytes to the end: the driver, too, would look at the `_id`.
        let document = bson_of(&[odd, &date]);
        let documents = bson_of(&[b"\x030\0", &document]);
        let insert = bson_of(&[b"\x02insert\0\x02\0\0\0c\0\x04documents\0", &documents]);
        it.db.run_raw_command(RawDocumentBuf::from_bytes(insert).unwrap()).await.unwrap();
        let others = (0..50).map(|id| doc! { "_id": id, "t": DateTime::from_millis(i64::from(id) * 100) });
        it.db.collection("c").insert_many(others).await.unwrap();

        let sweeping = ttl.sweep("c").batch_size(10).max_batches(1_000);
        let report = sweeping.await.unwrap();
        assert_eq!((report.deleted, report.changed, report.ended), (50, 0, Ended::Failed), "{report:?}");
        assert!(report.error.unwrap().to_string().contains("no query can name it"));
        assert_eq!(it.db.collection::<Document>("c").count_documents(doc! {}).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn a_partial_filter_may_look_at_a_field_without_a_name() {
    for setting in Setting::all().await {
        let ttl = setting.place.registry().await;
        for (name, filter, field) in
            [("c", doc! { "": 1 }, doc! { "": 1 }), ("d", doc! { ".a": 1 }, doc! { "": { "a": 1 } })]
        {
            ttl.create_index(name, setting.on("t").partial_filter(filter)).await.unwrap();
            let mut matching = doc! { "_id": 1, "t": OLD };
            matching.extend(field);
            setting.place.insert(name, vec![matching, doc! { "_id": 2, "t": OLD }]).await;
            let report = ttl.sweep(name).await.unwrap();
            let what = setting.describe();
            assert_eq!((report.deleted, report.ended), (1, Ended::Drained), "{what}: {report:?}");
            assert!(setting.place.find(name, 2).await.is_some(), "{what}");
        }
    }
}
