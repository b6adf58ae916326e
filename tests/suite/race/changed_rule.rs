//! A TTL index that is changed or dropped, or a collection that is made anew, while a pass is under way.

use std::{sync::Arc, time::Duration};

use mongodb::bson::{Document, doc, oid::ObjectId};
use ttl_index::{Code, Ended, SweepReport, TtlRegistry};

use super::{NO_TIME, OLD, Setting, assert_adds_up, unconfirmed};
use crate::support::place::Place;

fn due(count: i32) -> Vec<Document> {
    (0..count).map(|id| doc! { "_id": id, "t": OLD }).collect()
}

/// At most the batch that was under way was deleted, and the report says so.
async fn assert_stopped_after_one_batch(setting: &Setting, report: &SweepReport) {
    let what = setting.describe();
    assert_eq!((report.ended, report.batches), (Ended::Cancelled, 1), "{what}: {report:?}");
    let refusal = report.error.as_ref().and_then(|error| error.refusal()).unwrap_or_else(|| panic!("{what}"));
    assert_eq!(refusal.code(), Code::IndexNotFound, "{what}");
    assert_adds_up(report, &what);
    // The embedded store looks at the rule in the transaction that deletes, and deletes nothing.
    let expected = if matches!(*setting.place, Place::Embedded(_)) { 0 } else { 10 };
    assert_eq!(report.deleted, expected, "{what}: {report:?}");
    assert_eq!(setting.place.count("c").await, 100 - report.deleted, "{what}: {report:?}");
}

#[tokio::test]
async fn a_pass_ends_cancelled_when_its_ttl_index_is_dropped() {
    for setting in Setting::all().await {
        let ttl = setting
            .disturbed(async |place: Arc<Place>| {
                unconfirmed(&place.registry().await.drop_index("c", "t_1").max_wait(NO_TIME).await);
            })
            .await;
        ttl.create_index("c", setting.on("t")).await.unwrap();
        setting.place.insert("c", due(100)).await;
        let report = ttl.sweep("c").batch_size(10).await.unwrap();
        assert_stopped_after_one_batch(&setting, &report).await;
    }
}

#[tokio::test]
async fn a_pass_ends_cancelled_when_its_period_becomes_longer() {
    for setting in Setting::all().await {
        let ttl = setting
            .disturbed(async |place: Arc<Place>| {
                let century = Duration::from_secs(2_000_000_000);
                unconfirmed(&place.registry().await.modify_index("c", century).max_wait(NO_TIME).await);
            })
            .await;
        ttl.create_index("c", setting.on("t")).await.unwrap();
        setting.place.insert("c", due(100)).await;
        let report = ttl.sweep("c").batch_size(10).await.unwrap();
        assert_stopped_after_one_batch(&setting, &report).await;
        let report = ttl.sweep("c").await.unwrap();
        assert_eq!((report.found, report.ended), (0, Ended::Drained), "{}: {report:?}", setting.describe());
    }
}

#[tokio::test]
async fn a_pass_ends_cancelled_when_its_ttl_index_is_dropped_and_another_is_made() {
    for setting in Setting::all().await {
        let other = setting.on("t").partial_filter(doc! { "keep": false });
        let ttl = setting
            .disturbed(move |place: Arc<Place>| {
                let other = other.clone();
                async move {
                    let ttl = place.registry().await;
                    unconfirmed(&ttl.drop_index("c", "t_1").max_wait(NO_TIME).await);
                    ttl.create_index("c", other).await.unwrap();
                }
            })
            .await;
        ttl.create_index("c", setting.on("t")).await.unwrap();
        setting.place.insert("c", due(100)).await;
        let report = ttl.sweep("c").batch_size(10).await.unwrap();
        assert_stopped_after_one_batch(&setting, &report).await;
    }
}

/// Without the registry there are no rules, and a new registry is not the old one, even if as much happened to it.
#[tokio::test]
async fn a_pass_ends_cancelled_when_the_whole_registry_is_made_anew() {
    for setting in Setting::all().await {
        let Place::Mongo(it) = &*setting.place else { continue };
        let registry = it.db.collection::<Document>("ttl_index.registry");
        let again = setting.on("t").expire_after(Duration::from_secs(2_000_000_000));
        let ttl = setting
            .disturbed(move |place: Arc<Place>| {
                let (registry, again) = (registry.clone(), again.clone());
                async move {
                    registry.drop().await.unwrap();
                    place.registry().await.create_index("c", again).await.unwrap();
                }
            })
            .await;
        ttl.create_index("c", setting.on("t")).await.unwrap();
        setting.place.insert("c", due(100)).await;
        let report = ttl.sweep("c").batch_size(10).await.unwrap();
        assert_stopped_after_one_batch(&setting, &report).await;
    }
}

/// Runs a pass in the middle of which the collection is made anew, with the same documents.
async fn sweep_while_made_anew(setting: &Setting, adopt: bool) -> (TtlRegistry, SweepReport) {
    let index = setting.on("t");
    let again = index.clone();
    let ttl = setting
        .disturbed(move |place: Arc<Place>| {
            let again = again.clone();
            async move {
                place.drop_collection("c").await;
                place.insert("c", due(100)).await;
                if adopt {
                    place.registry().await.create_index("c", again).await.unwrap();
                }
            }
        })
        .await;
    ttl.create_index("c", index).await.unwrap();
    setting.place.insert("c", due(100)).await;
    let report = ttl.sweep("c").batch_size(10).await.unwrap();
    (ttl, report)
}

#[tokio::test]
async fn nothing_is_deleted_from_a_collection_that_was_made_anew_meanwhile() {
    // Without the identity of collections the batch under way cannot be held back.
    for setting in Setting::all().await.into_iter().filter(|setting| !setting.portable) {
        let what = setting.describe();
        for adopt in [false, true] {
            let (ttl, report) = sweep_while_made_anew(&setting, adopt).await;
            assert_eq!((report.deleted, report.uncertain, report.found), (0, 0, 10), "{what}: {report:?}");
            assert_eq!(setting.place.count("c").await, 100, "{what}: {report:?}");
            assert_adds_up(&report, &what);
            if matches!(*setting.place, Place::Embedded(_)) {
                assert_eq!(report.ended, Ended::Cancelled, "{what}: {report:?}");
            } else {
                assert_eq!(report.ended, Ended::Failed, "{what}: {report:?}");
                let code = report.error.as_ref().and_then(ttl_index::Error::code);
                assert_eq!(code, Some(Code::CollectionUuidMismatch.number()), "{what}: {report:?}");
            }
            // Adopted, it is swept like any other; else it is left alone.
            if adopt {
                assert_eq!(ttl.sweep("c").await.unwrap().deleted, 100, "{what}");
                ttl.drop_index("c", "t_1").await.unwrap();
            } else {
                // Refused, or failed with the refusal.
                let again = ttl.sweep("c").await;
                assert!(!matches!(&again, Ok(report) if report.ended != Ended::Failed), "{what}: {again:?}");
                assert_eq!(setting.place.count("c").await, 100, "{what}");
                let _ = ttl.drop_index("c", "t_1").await;
            }
            setting.place.drop_collection("c").await;
        }
    }
}

#[tokio::test]
async fn a_pass_ends_when_its_collection_is_dropped() {
    for setting in Setting::all().await {
        let what = setting.describe();
        let ttl = setting.disturbed(async |place: Arc<Place>| place.drop_collection("c").await).await;
        ttl.create_index("c", setting.on("t")).await.unwrap();
        setting.place.insert("c", due(100)).await;
        let report = ttl.sweep("c").batch_size(10).await.unwrap();
        let fates = (report.found, report.deleted, report.changed, report.uncertain);
        assert_eq!(fates, (10, 0, 10, 0), "{what}: {report:?}");
        assert!(report.batches <= 1, "{what}: {report:?}");
    }
}

/// Another collection under the name, with its own documents, is not the one the pass began with.
#[tokio::test]
async fn a_collection_renamed_into_place_is_left_alone() {
    for setting in Setting::all().await.into_iter().filter(|setting| !setting.portable) {
        let what = setting.describe();
        let Place::Mongo(it) = &*setting.place else { continue };
        let (admin, db) = (it.client.database("admin"), it.db.name().to_owned());
        let ttl = setting
            .disturbed(move |_| {
                let (admin, db) = (admin.clone(), db.clone());
                async move {
                    let rename = doc! {
                        "renameCollection": format!("{db}.other"), "to": format!("{db}.c"), "dropTarget": true,
                    };
                    admin.run_command(rename).await.unwrap();
                }
            })
            .await;
        ttl.create_index("c", setting.on("t")).await.unwrap();
        setting.place.insert("c", due(100)).await;
        setting.place.insert("other", due(100)).await;
        let report = ttl.sweep("c").batch_size(10).await.unwrap();
        assert_eq!((report.deleted, report.ended), (0, Ended::Failed), "{what}: {report:?}");
        assert_eq!(setting.place.count("c").await, 100, "{what}");
    }
}

/// The index that the pass walks is an ordinary one, and anybody may drop it.
#[tokio::test]
async fn a_pass_whose_supporting_index_disappears_is_made_good_by_the_next() {
    for setting in Setting::all().await.into_iter().filter(|setting| setting.supporting) {
        let what = setting.describe();
        let Place::Mongo(it) = &*setting.place else { continue };
        let db = it.db.clone();
        let ttl = setting
            .disturbed(move |_| {
                let db = db.clone();
                async move {
                    db.run_command(doc! { "dropIndexes": "c", "index": "t_1" }).await.unwrap();
                }
            })
            .await;
        ttl.create_index("c", setting.on("t")).await.unwrap();
        let mut documents = due(100);
        documents.push(doc! { "_id": ObjectId::new(), "t": super::LATER });
        setting.place.insert("c", documents).await;
        let first = ttl.sweep("c").batch_size(10).await.unwrap();
        assert_adds_up(&first, &what);
        let second = ttl.sweep("c").await.unwrap();
        assert_eq!(
            (first.deleted + second.deleted, second.ended),
            (100, Ended::Drained),
            "{what}: {first:?} {second:?}"
        );
        assert_eq!(setting.place.count("c").await, 1, "{what}");
    }
}

/// Nor is anything deleted by the old period after the same index was asked for with another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_period_changed_by_asking_for_the_index_again_is_in_force_when_that_returns() {
    use ttl_index::{Fault, TtlIndex};
    for setting in Setting::all().await {
        let what = setting.describe();
        let (began, go_on) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
        let (beginning, going_on) = (began.clone(), go_on.clone());
        let ttl = setting
            .hooked(move |_| {
                let (began, go_on) = (beginning.clone(), going_on.clone());
                async move {
                    began.notify_one();
                    go_on.notified().await;
                    Fault::None
                }
            })
            .await;
        ttl.create_index("c", setting.on("t")).await.unwrap();
        setting.place.insert("c", due(10)).await;
        let other = setting.place.registry().await;
        let sweeping = tokio::spawn(async move { ttl.sweep("c").await });
        began.notified().await;
        let longer = setting.on("t").expire_after(Duration::from_secs(2_000_000_000));
        let change = |index: TtlIndex| async { other.create_index("c", index).or_modify(true).await };
        let early = tokio::time::timeout(Duration::from_secs(1), change(longer.clone())).await;
        let at_return = setting.place.count("c").await;
        go_on.notify_one();
        sweeping.await.unwrap().unwrap();
        if let Ok(changed) = early {
            changed.unwrap();
            assert_eq!(setting.place.count("c").await, at_return, "{what}");
        }
    }
}

/// Without the refusal of the server's own, a pass looks for itself.
#[tokio::test]
async fn a_pass_without_extensions_leaves_a_collection_that_was_made_anew_alone() {
    for setting in Setting::all().await.into_iter().filter(|setting| setting.portable) {
        let what = setting.describe();
        let ttl = setting
            .disturbed(async |place: Arc<Place>| {
                place.drop_collection("c").await;
                place.insert("c", (1000..1100).map(|id| doc! { "_id": id, "t": OLD }).collect()).await;
            })
            .await;
        // It has the identity from the start.
        setting.place.insert("c", due(100)).await;
        ttl.create_index("c", setting.on("t")).await.unwrap();
        let report = ttl.sweep("c").batch_size(10).await.unwrap();
        assert_eq!(setting.place.count("c").await, 100, "{what}: {report:?}");
    }
}
