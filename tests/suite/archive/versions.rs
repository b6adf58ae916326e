//! Updates between archive and delete, with the interleaving held.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use std::time::Duration;

use mongodb::bson::{Bson, RawDocumentBuf, doc};
use ttl_index::{Archive, Ended, Error, Fault, HookedStore, MongoStore, TtlIndex, TtlRegistry};

use super::{LATER, OLD, Sink, by_id, id, raw_documents};
use crate::{
    race::{Setting, assert_adds_up},
    support::{database, place::Place},
};

/// What is written to the documents of the same name, which stay due.
const UPDATED: [&str; 9] =
    ["added", "added within", "removed", "reordered", "changed", "case", "list", "type", "number"];

async fn update_all(place: &Place) {
    place.update("c", "added", doc! { "$set": { "more": 1 } }).await;
    place.update("c", "added within", doc! { "$set": { "in": { "a": 1, "b": 2, "c": Bson::Null } } }).await;
    place.update("c", "removed", doc! { "$unset": { "word": "" } }).await;
    place.replace("c", "reordered", doc! { "t": OLD, "word": "a", "in": { "b": 2, "a": 1 }, "list": [1, 2] }).await;
    place.update("c", "changed", doc! { "$set": { "word": "b" } }).await;
    place.update("c", "case", doc! { "$set": { "word": "A" } }).await;
    place.update("c", "list", doc! { "$set": { "list": [2, 1] } }).await;
    place.update("c", "type", doc! { "$set": { "word": Bson::JavaScriptCode("a".to_owned()) } }).await;
    place.update("c", "number", doc! { "$set": { "list": [1.5, 2] } }).await;
    place.update("c", "same", doc! { "$set": { "word": "a" } }).await;
    place.update("c", "later", doc! { "$set": { "t": LATER } }).await;
    place.delete("c", "gone").await;
}

#[tokio::test]
async fn an_archive_collection_that_is_dropped_meanwhile_stops_the_pass_before_anything_more_is_deleted() {
    for before in [true, false] {
        let place = Arc::new(Place::Mongo(database().await));
        let Place::Mongo(it) = &*place else { unreachable!() };
        if before {
            place.insert("archive", vec![doc! { "_id": 1 }]).await;
        }
        let (dropping, calls) = (place.clone(), AtomicU64::new(0));
        let hooked = HookedStore::new(MongoStore::new(it.db.clone()), move |_| {
            let (place, second) = (dropping.clone(), calls.fetch_add(1, Ordering::SeqCst) == 1);
            async move {
                if second {
                    place.drop_collection("archive").await;
                }
                Fault::None
            }
        });
        let ttl = TtlRegistry::open(hooked).await.unwrap();
        ttl.create_index("c", TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
        place.insert("c", (0..50).map(|id| doc! { "_id": id, "t": OLD }).collect()).await;
        let report = ttl.sweep("c").batch_size(10).archive(Archive::collection("archive")).await.unwrap();
        assert_eq!((report.deleted, report.left, report.ended), (20, 10, Ended::Failed), "{report:?}");
        assert!(
            report.error.as_ref().is_some_and(|it| it.to_string().contains("archive is not the collection")),
            "{report:?}"
        );
        assert_eq!(place.count("c").await, 30);
    }
}

#[tokio::test]
async fn what_is_written_between_archive_and_delete_is_neither_lost_nor_falsely_archived() {
    for (number, setting) in Setting::all().await.into_iter().filter(|setting| !setting.portable).enumerate() {
        let sink = Sink::ALL[number % 3];
        let what = format!("{}, {sink:?}", setting.describe());
        let directory = tempfile::tempdir().unwrap();
        // Of each delete, the documents asked for as they were just then.
        let calls: Arc<Mutex<Vec<Vec<RawDocumentBuf>>>> = Arc::default();
        let (place, seen, done) = (setting.place.clone(), calls.clone(), AtomicBool::new(false));
        let ttl = setting
            .hooked(move |ids| {
                let (place, seen, first) = (place.clone(), seen.clone(), !done.swap(true, Ordering::SeqCst));
                async move {
                    if first {
                        update_all(&place).await;
                    }
                    let asked = |it: &RawDocumentBuf| ids.iter().any(|asked| asked.to_string() == id(it));
                    let there = raw_documents(&place, "c").await.into_iter().filter(asked).collect();
                    seen.lock().unwrap().push(there);
                    Fault::None
                }
            })
            .await;
        ttl.create_index("c", setting.on("t")).await.unwrap();
        let plain: Vec<String> = (0..20).map(|id| id.to_string()).collect();
        let names = UPDATED.iter().copied().chain(["same", "later", "gone"]).chain(plain.iter().map(String::as_str));
        let document = |name| doc! { "_id": name, "t": OLD, "word": "a", "in": { "a": 1, "b": 2 }, "list": [1, 2] };
        setting.place.insert("c", names.map(document).collect()).await;

        let report = ttl.sweep("c").archive(sink.archive(directory.path())).await.unwrap();
        assert_adds_up(&report, &what);
        let updated = UPDATED.len() as u64;
        assert_eq!((report.deleted, report.changed), (21 + updated, updated + 2), "{what}: {report:?}");
        assert_eq!((report.left, report.ended), (0, Ended::Drained), "{what}: {report:?}");

        // The first delete left those that were updated, and the second came with a new version of each in the archive.
        let calls = std::mem::take(&mut *calls.lock().unwrap());
        let [first, second] = &calls[..] else { panic!("{what}: {} deletes", calls.len()) };
        assert_eq!((first.len(), second.len()), (20 + UPDATED.len() + 2, UPDATED.len()), "{what}");
        let archived = sink.documents(&setting.place, directory.path()).await;
        assert_eq!(archived.len(), 20 + UPDATED.len() + 3 + UPDATED.len(), "{what}");
        let last = by_id(archived);
        for deleted in first.iter().filter(|it| !id(it).contains("later")) {
            assert_eq!(last[&id(deleted)].as_bytes(), deleted.as_bytes(), "{what}: {deleted:?}");
        }
        let survivors = raw_documents(&setting.place, "c").await;
        assert_eq!(survivors.iter().map(id).collect::<Vec<_>>(), ["\"later\""], "{what}");
    }
}

/// Written to between every archive and delete it would hold up the pass for ever.
#[tokio::test]
async fn a_document_that_is_written_to_all_the_time_is_left_to_the_next_pass() {
    for setting in Setting::all().await.into_iter().filter(|setting| !setting.portable) {
        let what = setting.describe();
        let directory = tempfile::tempdir().unwrap();
        let place = setting.place.clone();
        let ttl = setting
            .hooked(move |_| {
                let place = place.clone();
                async move {
                    place.update("c", "busy", doc! { "$set": { "n": rand() } }).await;
                    Fault::None
                }
            })
            .await;
        ttl.create_index("c", setting.on("t")).await.unwrap();
        let ids = ["busy", "a", "b", "d"];
        setting.place.insert("c", ids.iter().map(|id| doc! { "_id": *id, "t": OLD }).collect()).await;
        let report = ttl.sweep("c").batch_size(2).archive(Sink::Plain.archive(directory.path())).await.unwrap();
        assert_adds_up(&report, &what);
        assert_eq!((report.deleted, report.ended), (3, Ended::Drained), "{what}: {report:?}");
        assert!(report.oldest_due.is_some() && report.changed == 2, "{what}: {report:?}");
        assert_eq!(setting.place.count("c").await, 1, "{what}");
    }
}

/// Never the same twice.
fn rand() -> Bson {
    Bson::ObjectId(mongodb::bson::oid::ObjectId::new())
}

#[tokio::test]
async fn where_documents_cannot_be_compared_archiving_is_refused_unless_the_weaker_form_is_asked_for() {
    for setting in Setting::all().await.into_iter().filter(|setting| setting.portable) {
        let directory = tempfile::tempdir().unwrap();
        let ttl = setting
            .disturbed(async |place: Arc<Place>| {
                place.update("c", 1, doc! { "$set": { "more": 1 } }).await;
                place.update("c", 2, doc! { "$set": { "t": LATER } }).await;
            })
            .await;
        ttl.create_index("c", setting.on("t")).await.unwrap();
        setting.place.insert("c", (1..=3).map(|id| doc! { "_id": id, "t": OLD }).collect()).await;
        let archive = Sink::Plain.archive(directory.path());
        let report = ttl.sweep("c").archive(archive.clone()).await.unwrap();
        assert_eq!((report.ended, report.deleted), (Ended::Failed, 0), "{report:?}");
        let Some(Error::Refused(refusal)) = report.error else { panic!("{report:?}") };
        assert!(refusal.message().contains("only as it was archived"), "{refusal}");
        let report = ttl.sweep("c").archive(archive.match_date_only()).await.unwrap();
        // What was written beside the date is lost, as it says; what was renewed is not.
        assert_eq!((report.ended, report.deleted, report.changed), (Ended::Drained, 2, 1), "{report:?}");
        assert_eq!(Sink::Plain.documents(&setting.place, directory.path()).await.len(), 3);
    }
}

/// Nothing but the type of a number is not a change to MongoDB. The embedded store compares bytes.
#[tokio::test]
async fn a_change_of_a_numbers_type_alone_is_the_documented_exception() {
    for setting in Setting::all().await.into_iter().filter(|setting| !setting.portable) {
        let directory = tempfile::tempdir().unwrap();
        let ttl = setting
            .disturbed(async |place: Arc<Place>| place.update("c", 1, doc! { "$set": { "n": 1.0 } }).await)
            .await;
        ttl.create_index("c", setting.on("t")).await.unwrap();
        setting.place.insert("c", vec![doc! { "_id": 1, "t": OLD, "n": 1 }]).await;
        let report = ttl.sweep("c").archive(Sink::Plain.archive(directory.path())).await.unwrap();
        assert_eq!((report.deleted, report.ended), (1, Ended::Drained), "{report:?}");
        let archived = Sink::Plain.documents(&setting.place, directory.path()).await;
        let last = archived.last().unwrap().get("n").unwrap().unwrap();
        match &*setting.place {
            Place::Mongo(_) => assert_eq!((archived.len(), last.as_i32()), (1, Some(1))),
            Place::Embedded(_) => assert_eq!((archived.len(), last.as_f64()), (2, Some(1.0))),
        }
    }
}
