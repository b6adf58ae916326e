//! Documents put back.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use ttl_index::{Archive, Ended, Fault, Restored, TtlIndex};

use super::{LATER, OLD};
use crate::race::Setting;
use crate::support::{database, place::Place};

const DAY: Duration = Duration::from_secs(86_400);

fn on(field: &str) -> TtlIndex {
    TtlIndex::on(field).expire_after(Duration::ZERO)
}

fn counts(restored: &Restored) -> [u64; 4] {
    [restored.inserted, restored.there, restored.skipped, restored.refused]
}

#[track_caller]
fn date(document: &Document, field: &str) -> DateTime {
    *document.get_datetime(field).unwrap_or_else(|_| panic!("{document}"))
}

#[tokio::test]
async fn documents_come_back_as_they_were_with_later_dates_and_nothing_is_overwritten() {
    for place in Place::all().await {
        let directory = tempfile::tempdir().unwrap();
        let archive = Archive::json_lines(directory.path().join("archive"));
        let ttl = place.registry().await;
        let filter = doc! { "s": { "$gte": 1 } };
        let index = TtlIndex::on("t.at").expire_after(Duration::from_secs(60)).partial_filter(filter);
        ttl.create_index("c", index).await.unwrap();
        let at = |date: DateTime| doc! { "at": date };
        let documents = vec![
            doc! { "_id": 1, "x": 1.5, "t": at(OLD), "s": 1 },
            doc! { "_id": "two", "t": [at(OLD), at(LATER), { "at": "no date" }, at(DateTime::MIN)], "s": 2 },
            doc! { "_id": { "three": 3 }, "t": at(OLD), "s": 3 },
            doc! { "_id": "newer", "t": at(OLD), "s": 1 },
        ];
        place.insert("c", documents.clone()).await;
        assert_eq!(ttl.sweep("c").archive(archive.clone()).await.unwrap().deleted, 4);
        place.insert("c", vec![doc! { "_id": "newer", "t": at(LATER), "s": 1, "new": true }]).await;

        let now = ttl.now().await.unwrap().timestamp_millis();
        let restored = ttl.restore(directory.path().join("archive")).extend(2 * DAY).await.unwrap();
        assert_eq!(counts(&restored), [3, 1, 0, 0], "{restored:?}");
        assert_eq!(restored.collection, "c");
        assert_eq!(ttl.sweep("c").await.unwrap().found, 0);
        let first = place.find("c", 1).await.unwrap();
        let raised = date(first.get_document("t").unwrap(), "at");
        // A minute after its date it expires, two days from now.
        let earliest = now + 2 * 86_400_000 - 60_000;
        assert!((earliest..earliest + 60_000).contains(&raised.timestamp_millis()), "{raised} is not about {earliest}");
        assert_eq!(first, doc! { "_id": 1, "x": 1.5, "t": at(raised), "s": 1 });
        let second = place.find("c", "two").await.unwrap();
        let at = |index: usize| second.get_array("t").unwrap()[index].as_document().unwrap().clone();
        assert!(date(&at(0), "at") == date(&at(3), "at") && date(&at(0), "at").timestamp_millis() >= earliest);
        assert_eq!((date(&at(1), "at"), at(2)), (LATER, doc! { "at": "no date" }));
        assert!(place.find("c", "newer").await.unwrap().contains_key("new"));
        let again = ttl.restore(directory.path().join("archive")).await.unwrap();
        assert_eq!(counts(&again), [0, 4, 0, 0], "{again:?}");

        // Without a TTL index, as they were.
        ttl.drop_index("c", "t.at_1").await.unwrap();
        place.drop_collection("c").await;
        let restored = ttl.restore(directory.path().join("archive")).await.unwrap();
        assert_eq!(counts(&restored), [4, 0, 0, 0], "{restored:?}");
        assert_eq!(place.find("c", "two").await.unwrap(), documents[1]);
        // By the TTL index there is now, elsewhere.
        ttl.create_index("elsewhere", on("t.at")).await.unwrap();
        let restored = ttl.restore(directory.path().join("archive")).into_collection("elsewhere").await.unwrap();
        assert_eq!((counts(&restored), &*restored.collection), ([4, 0, 0, 0], "elsewhere"), "{restored:?}");
        let first = place.find("elsewhere", 1).await.unwrap();
        assert!(date(first.get_document("t").unwrap(), "at").timestamp_millis() >= now + 30 * 86_400_000);
        assert_eq!(ttl.sweep("elsewhere").await.unwrap().found, 0);
        let error = ttl.restore(directory.path().join("archive")).into_collection("a$b").await.unwrap_err();
        assert!(error.refusal().is_some(), "{error}");
    }
}

#[tokio::test]
async fn the_version_that_was_deleted_last_comes_back() {
    for place in Place::all().await {
        let directory = tempfile::tempdir().unwrap();
        let archive = Archive::json_lines(directory.path().join("archive")).gzip();
        let ttl = place.registry().await;
        ttl.create_index("c", on("t")).await.unwrap();
        for version in 1..=3 {
            place.insert("c", (0..10).map(|id| doc! { "_id": id, "t": OLD, "v": version }).collect()).await;
            assert_eq!(ttl.sweep("c").batch_size(4).archive(archive.clone()).await.unwrap().deleted, 10);
        }
        let restored = ttl.restore(directory.path().join("archive")).await.unwrap();
        assert_eq!(counts(&restored), [10, 0, 20, 0], "{restored:?}");
        assert!(place.documents("c").await.iter().all(|document| document.get_i32("v").unwrap() == 3));
    }
}

/// Renewed between archive and delete, it lived on, and whatever became of it then is not for the archive to undo.
#[tokio::test]
async fn what_was_archived_and_not_deleted_is_left_out_with_all_before_it() {
    for setting in Setting::all().await.into_iter().filter(|setting| !setting.portable) {
        let (what, directory) = (setting.describe(), tempfile::tempdir().unwrap());
        let archive = Archive::json_lines(directory.path().join("archive"));
        let ttl = setting
            .hooked({
                let place = setting.place.clone();
                move |ids: Vec<Bson>| {
                    let place: Arc<Place> = place.clone();
                    async move {
                        if ids.contains(&Bson::Int32(1)) {
                            place.update("c", 1, doc! { "$set": { "t": LATER } }).await;
                        }
                        ttl_index::Fault::None
                    }
                }
            })
            .await;
        ttl.create_index("c", setting.on("t")).await.unwrap();
        setting.place.insert("c", vec![doc! { "_id": 1, "t": OLD }, doc! { "_id": 2, "t": OLD }]).await;
        let report = ttl.sweep("c").archive(archive.clone()).await.unwrap();
        assert_eq!((report.deleted, report.changed, report.ended), (1, 1, Ended::Drained), "{what}: {report:?}");
        setting.place.delete("c", 1).await;
        let restored = ttl.restore(directory.path().join("archive")).await.unwrap();
        assert_eq!(counts(&restored), [1, 0, 1, 0], "{what}: {restored:?}");
        assert!(setting.place.find("c", 1).await.is_none() && setting.place.find("c", 2).await.is_some(), "{what}");
    }
}

#[tokio::test]
async fn no_older_version_comes_back_in_the_place_of_a_newer_one_that_is_not_taken() {
    let place = Place::Mongo(database().await);
    let Place::Mongo(it) = &place else { unreachable!() };
    let directory = tempfile::tempdir().unwrap();
    let ttl = place.registry().await;
    ttl.create_index("c", on("t")).await.unwrap();
    let unique = doc! { "key": { "mail": 1 }, "name": "mail", "unique": true };
    it.db.run_command(doc! { "createIndexes": "c", "indexes": [unique] }).await.unwrap();
    let (path, beside) = (directory.path().join("archive"), directory.path().join("archive.manifest"));
    let mut older = Vec::new();
    for version in ["first", "second"] {
        place.insert("c", vec![doc! { "_id": 1, "t": OLD, "mail": version }]).await;
        older.push(std::fs::read(&beside).unwrap_or_default());
        assert_eq!(ttl.sweep("c").archive(Archive::json_lines(&path)).await.unwrap().deleted, 1);
    }
    place.insert("c", vec![doc! { "_id": 7, "mail": "second" }]).await;
    let restored = ttl.restore(&path).await.unwrap();
    assert_eq!(counts(&restored), [0, 0, 1, 1], "{restored:?}");

    // Nor if both are in one batch.
    let header = older[1].iter().position(|byte| *byte == b'\n').unwrap() + 1;
    std::fs::write(&beside, &older[1][..header]).unwrap();
    ttl.sweep("c").archive(Archive::json_lines(&path)).await.unwrap();
    let restored = ttl.restore(&path).await.unwrap();
    assert_eq!((counts(&restored), place.count("c").await), ([0, 0, 1, 1], 1), "{restored:?}");
}

#[tokio::test]
async fn nothing_is_put_where_the_server_would_delete_it_by_an_index_of_its_own() {
    let place = Place::Mongo(database().await);
    let Place::Mongo(it) = &place else { unreachable!() };
    let directory = tempfile::tempdir().unwrap();
    let (ttl, path) = (place.registry().await, directory.path().join("archive"));
    ttl.create_index("c", on("t")).await.unwrap();
    place.insert("c", vec![doc! { "_id": 1, "t": OLD }]).await;
    ttl.sweep("c").archive(Archive::json_lines(&path)).await.unwrap();
    let native = doc! { "key": { "t": 1 }, "name": "native", "expireAfterSeconds": 0 };
    it.db.run_command(doc! { "createIndexes": "other", "indexes": [native] }).await.unwrap();
    let error = ttl.restore(&path).into_collection("other").await.unwrap_err();
    assert!(error.refusal().is_some_and(|it| it.message().contains("the TTL index native")), "{error}");
    assert_eq!(place.count("other").await, 0);
    it.db.run_command(doc! { "dropIndexes": "other", "index": "native" }).await.unwrap();
    assert_eq!(ttl.restore(&path).into_collection("other").await.unwrap().inserted, 1);
}

#[tokio::test]
async fn what_the_database_does_not_take_is_told_and_the_others_go_on() {
    let it = database().await;
    let place = Place::Mongo(it);
    let directory = tempfile::tempdir().unwrap();
    let ttl = place.registry().await;
    ttl.create_index("c", on("t")).await.unwrap();
    place.insert("c", (0..500).map(|id| doc! { "_id": id, "t": OLD, "name": format!("n{id}") }).collect()).await;
    let archive = Archive::json_lines(directory.path().join("archive"));
    assert_eq!(ttl.sweep("c").archive(archive).await.unwrap().deleted, 500);
    let Place::Mongo(it) = &place else { unreachable!() };
    let unique = doc! { "key": { "name": 1 }, "name": "name", "unique": true };
    it.db.run_command(doc! { "createIndexes": "c", "indexes": [unique] }).await.unwrap();
    place.insert("c", vec![doc! { "_id": "a", "name": "n7" }, doc! { "_id": "b", "name": "n123" }]).await;
    let restored = ttl.restore(directory.path().join("archive")).await.unwrap();
    assert_eq!(counts(&restored), [498, 0, 0, 2], "{restored:?}");
    assert!(restored.refusal.as_ref().is_some_and(|why| why.contains("dup key: { name:")), "{restored:?}");

    let program = crate::support::program::Program::at(&it.uri);
    let run = program.run(&["--json", "restore", directory.path().join("archive").to_str().unwrap()]);
    assert_eq!((run.code, run.lines().len()), (Some(3), 1), "{run:?}");
    assert!(run.stderr.contains("error: c does not take 2 of the documents"), "{run:?}");
    let expected = serde_json::json!({
        "collection": "c", "inserted": 0, "there": 498, "skipped": 0, "refused": 2, "beyond": 0,
    });
    assert_eq!(run.lines()[0], expected);
}

/// What lived on after a delete that failed is not for the archive to bring back.
#[tokio::test]
async fn documents_that_a_failed_delete_left_are_not_restored() {
    for setting in Setting::all().await.into_iter().filter(|setting| !setting.portable) {
        for fault in [Fault::Fails, Fault::Breaks, Fault::Ineffective] {
            let what = format!("{}, {fault:?}", setting.describe());
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("archive");
            let ttl = setting.hooked(move |_| std::future::ready(fault)).await;
            let collection = format!("c_{fault:?}");
            ttl.create_index(&collection, setting.on("t")).await.unwrap();
            setting.place.insert(&collection, (0..3).map(|id| doc! { "_id": id, "t": OLD }).collect()).await;
            let report = ttl.sweep(&collection).archive(Archive::json_lines(&path)).await.unwrap();
            assert_eq!((report.deleted, report.left), (0, 3), "{what}: {report:?}");
            for id in 0..3 {
                setting.place.delete(&collection, id).await;
            }
            let restored = ttl.restore(&path).await.unwrap();
            assert_eq!(restored.inserted, 0, "{what}: {restored:?}");
        }
    }
}
