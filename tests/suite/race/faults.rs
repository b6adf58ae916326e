//! Deletes that fail, whose reply is lost or lies, and documents that cannot be deleted.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use mongodb::bson::{Bson, DateTime, Document, doc};
use tokio::sync::{Notify, Semaphore, oneshot};
use ttl_index::{Ended, Error, Fault, SweepReport, TtlRegistry};

use super::{LATER, OLD, Setting, assert_adds_up};
use crate::support::wait;

fn due(count: i32) -> Vec<Document> {
    (0..count).map(|id| doc! { "_id": id, "t": DateTime::from_millis(id.into()) }).collect()
}

/// A pass over 1,000 documents in batches of 100, with the fault in its third batch.
async fn sweep_with(setting: &Setting, fault: Fault) -> (TtlRegistry, SweepReport) {
    let calls = AtomicU64::new(0);
    let ttl = setting
        .hooked(move |_| {
            let third = calls.fetch_add(1, Ordering::SeqCst) == 2;
            std::future::ready(if third { fault } else { Fault::None })
        })
        .await;
    ttl.create_index("c", setting.on("t")).await.unwrap();
    setting.place.insert("c", due(1_000)).await;
    let report = ttl.sweep("c").batch_size(100).await.unwrap();
    assert_adds_up(&report, &setting.describe());
    (ttl, report)
}

async fn assert_next_drains(setting: &Setting, ttl: &TtlRegistry, expected: u64) {
    let what = setting.describe();
    let report = ttl.sweep("c").batch_size(100).await.unwrap();
    assert_eq!((report.deleted, report.ended), (expected, Ended::Drained), "{what}: {report:?}");
    assert_eq!(setting.place.count("c").await, 0, "{what}");
}

#[tokio::test]
async fn a_lost_reply_ends_the_pass_and_what_is_gone_is_counted_as_uncertain() {
    for setting in Setting::all().await {
        let (ttl, report) = sweep_with(&setting, Fault::ReplyLost).await;
        let what = setting.describe();
        assert_eq!((report.found, report.deleted, report.uncertain), (300, 200, 100), "{what}: {report:?}");
        assert_eq!((report.left, report.ended), (0, Ended::Failed), "{what}: {report:?}");
        assert!(report.error.is_some(), "{what}");
        assert_next_drains(&setting, &ttl, 700).await;
    }
}

#[tokio::test]
async fn a_failed_delete_ends_the_pass_and_leaves_the_documents() {
    for setting in Setting::all().await {
        let (ttl, report) = sweep_with(&setting, Fault::Fails).await;
        let what = setting.describe();
        assert_eq!((report.found, report.deleted, report.left), (300, 200, 100), "{what}: {report:?}");
        assert_eq!((report.uncertain, report.ended), (0, Ended::Failed), "{what}: {report:?}");
        assert_next_drains(&setting, &ttl, 800).await;
    }
}

#[tokio::test]
async fn a_count_above_what_was_asked_for_ends_the_pass() {
    for setting in Setting::all().await {
        for claimed in [101, u64::MAX] {
            let (ttl, report) = sweep_with(&setting, Fault::Count(claimed)).await;
            let what = setting.describe();
            assert_eq!((report.deleted, report.uncertain), (200, 100), "{what}: {report:?}");
            assert_eq!(report.ended, Ended::Failed, "{what}: {report:?}");
            assert!(matches!(report.error, Some(Error::Unfit(_))), "{what}: {report:?}");
            assert_next_drains(&setting, &ttl, 700).await;
            ttl.drop_index("c", "t_1").await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_count_below_what_was_deleted_is_not_taken_for_deletions() {
    for setting in Setting::all().await {
        let (_, report) = sweep_with(&setting, Fault::Count(0)).await;
        let what = setting.describe();
        assert_eq!((report.found, report.deleted, report.changed), (1_000, 900, 100), "{what}: {report:?}");
        assert_eq!((report.left, report.ended), (0, Ended::Drained), "{what}: {report:?}");
        assert_eq!(setting.place.count("c").await, 0, "{what}");
    }
}

#[tokio::test]
async fn a_batch_that_cannot_be_deleted_is_passed_and_told() {
    for setting in Setting::all().await {
        let (ttl, report) = sweep_with(&setting, Fault::Ineffective).await;
        let what = setting.describe();
        assert_eq!((report.found, report.deleted, report.left), (1_000, 900, 100), "{what}: {report:?}");
        assert_eq!((report.ended, report.oldest_due.is_some()), (Ended::Drained, true), "{what}: {report:?}");
        assert_next_drains(&setting, &ttl, 100).await;
    }
}

/// 1,200 documents that cannot be deleted, older than 3,000 others: some of the very same date, some arrays.
fn undeletable_first() -> (Vec<Document>, Vec<Bson>) {
    let date = |millis: i32| DateTime::from_millis(millis.into());
    let undeletable = (0..1_200).map(|id| match id {
        // A whole batch and more at one instant.
        0..700 => doc! { "_id": id, "t": date(7) },
        700..800 => doc! { "_id": id, "t": [LATER, date(8)] },
        // Found again by their later dates, among what can be deleted.
        800..900 => doc! { "_id": id, "t": [date(9), date(10_000 + id)] },
        _ => doc! { "_id": id, "t": date(id) },
    });
    let deletable = (1_200..4_200).map(|id| match id {
        // Some at the last instants of those that stay, some arrays that begin before them.
        1_200..1_300 => doc! { "_id": id, "t": date(1_199) },
        1_300..1_310 => doc! { "_id": id, "t": date(7) },
        1_310..1_320 => doc! { "_id": id, "t": [date(7), LATER] },
        _ => doc! { "_id": id, "t": date(9_000 + id / 3) },
    });
    let documents: Vec<Document> = undeletable.chain(deletable).collect();
    (documents, (0..1_200).map(Bson::Int32).collect())
}

#[tokio::test]
async fn documents_that_cannot_be_deleted_never_block_those_behind_them() {
    for setting in Setting::all().await {
        let what = setting.describe();
        let (documents, undeletable) = undeletable_first();
        let store = setting.hooked_store(|_| std::future::ready(Fault::None)).sparing(undeletable);
        let ttl = TtlRegistry::open(store).await.unwrap();
        ttl.create_index("c", setting.on("t")).await.unwrap();
        setting.place.insert("c", documents).await;

        let report = ttl.sweep("c").batch_size(500).await.unwrap();
        assert_adds_up(&report, &what);
        assert_eq!((report.deleted, report.left), (3_000, 1_200), "{what}: {report:?}");
        assert_eq!((report.changed, report.ended), (0, Ended::Drained), "{what}: {report:?}");
        assert_eq!(report.oldest_due, Some(DateTime::from_millis(7)), "{what}: {report:?}");
        assert_eq!(setting.place.count("c").await, 1_200, "{what}");
        assert!(report.batches <= 12, "{what}: {report:?}");
    }
}

#[tokio::test]
async fn a_limited_pass_over_documents_that_cannot_be_deleted_says_what_is_left() {
    // Elsewhere it is not known which of the documents are found first.
    for setting in Setting::all().await.into_iter().filter(|setting| setting.supporting && !setting.portable) {
        let what = setting.describe();
        let spared: Vec<Bson> = (0..150).map(Bson::Int32).collect();
        let store = setting.hooked_store(|_| std::future::ready(Fault::None)).sparing(spared);
        let ttl = TtlRegistry::open(store).await.unwrap();
        ttl.create_index("c", setting.on("t")).await.unwrap();
        setting.place.insert("c", due(300)).await;
        let report = ttl.sweep("c").batch_size(100).max_batches(2).await.unwrap();
        assert_eq!((report.deleted, report.left, report.ended), (50, 150, Ended::LimitReached), "{what}: {report:?}");
        assert_eq!(report.oldest_due, Some(DateTime::from_millis(0)), "{what}");
        // The limit falls together with the last document that was to be looked at.
        let report = ttl.sweep("c").batch_size(125).max_batches(2).await.unwrap();
        assert_eq!((report.deleted, report.left, report.ended), (100, 150, Ended::Drained), "{what}: {report:?}");
        assert_eq!(report.oldest_due, Some(DateTime::from_millis(0)), "{what}");
    }
}

#[tokio::test]
async fn a_dropped_pass_finishes_its_batch_and_begins_no_other() {
    for setting in Setting::all().await {
        let what = setting.describe();
        let (held, go) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
        let (reached, release) = (held.clone(), go.clone());
        let ttl = setting
            .hooked(move |_| {
                let (reached, release) = (reached.clone(), release.clone());
                async move {
                    reached.notify_one();
                    release.acquire().await.unwrap().forget();
                    Fault::None
                }
            })
            .await;
        ttl.create_index("c", setting.on("t")).await.unwrap();
        setting.place.insert("c", due(1_000)).await;
        let mut sweep = ttl.sweep("c").batch_size(100).into_future();
        tokio::select! {
            ended = &mut sweep => panic!("{what}: {ended:?}"),
            () = held.notified() => {}
        }
        drop(sweep);
        go.add_permits(1_000);
        // The hook is gone, and what it holds, when the pass in the background has let go of the store.
        drop(ttl);
        wait::until("the dropped pass to end", wait::LONG, async || Arc::strong_count(&go) == 1).await;
        assert_eq!(setting.place.count("c").await, 900, "{what}");
        let left: Vec<Document> = setting.place.documents("c").await;
        let first_left = left.iter().filter_map(|document| document.get_i32("_id").ok()).min();
        if setting.supporting {
            assert_eq!(first_left, Some(100), "{what}: the oldest are gone as a whole");
        }
        let ttl = setting.place.registry().await;
        assert_eq!(ttl.sweep("c").await.unwrap().deleted, 900, "{what}");
    }
}

#[tokio::test]
async fn a_signal_stops_a_pass_between_two_batches() {
    for setting in Setting::all().await {
        let what = setting.describe();
        let (signal, signalled) = oneshot::channel();
        let (signal, calls) = (Mutex::new(Some(signal)), AtomicU64::new(0));
        let ttl = setting
            .hooked(move |_| {
                let second = calls.fetch_add(1, Ordering::SeqCst) == 1;
                let signal = second.then(|| signal.lock().unwrap().take()).flatten();
                async move {
                    if let Some(signal) = signal {
                        signal.send(()).unwrap();
                        // Long enough for the signal to have been seen before the batch ends.
                        tokio::task::yield_now().await;
                    }
                    Fault::None
                }
            })
            .await;
        ttl.create_index("c", setting.on("t")).await.unwrap();
        setting.place.insert("c", due(1_000)).await;
        setting.place.insert("c", vec![doc! { "_id": "lives", "t": LATER }]).await;
        let sweep = ttl.sweep("c").batch_size(100);
        let report = sweep.stop_when(async { signalled.await.unwrap() }).await.unwrap();
        assert_eq!((report.ended, report.batches, report.deleted), (Ended::Cancelled, 2, 200), "{what}: {report:?}");
        assert!(report.error.is_none() && report.oldest_due.is_some(), "{what}: {report:?}");
        assert_adds_up(&report, &what);
        // One that was given before the pass began stops it before its first batch.
        let report = ttl.sweep("c").stop_when(std::future::ready(())).await.unwrap();
        assert_eq!((report.ended, report.batches), (Ended::Cancelled, 0), "{what}: {report:?}");
        assert_eq!(setting.place.count("c").await, 801, "{what}");
    }
}

/// The hook is called with what is about to be deleted, and with nothing else.
#[tokio::test]
async fn only_what_is_due_is_asked_for() {
    for setting in Setting::all().await {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = seen.clone();
        let ttl = setting
            .hooked(move |ids| {
                noted.lock().unwrap().extend(ids);
                std::future::ready(Fault::None)
            })
            .await;
        ttl.create_index("c", setting.on("t").partial_filter(doc! { "n": { "$lt": 5 } })).await.unwrap();
        let documents = vec![
            doc! { "_id": 1, "t": OLD, "n": 1 },
            doc! { "_id": 2, "t": OLD, "n": 5 },
            doc! { "_id": 3, "t": LATER, "n": 1 },
            doc! { "_id": 4, "t": "old", "n": 1 },
            doc! { "_id": 5, "n": 1 },
        ];
        setting.place.insert("c", documents).await;
        assert_eq!(ttl.sweep("c").await.unwrap().deleted, 1, "{}", setting.describe());
        assert_eq!(*seen.lock().unwrap(), [Bson::Int32(1)], "{}", setting.describe());
    }
}

#[tokio::test]
async fn documents_are_counted_even_if_the_delete_breaks_or_cannot_be_looked_after() {
    for (fault, fates) in [(Fault::Breaks, (4, 0)), (Fault::Blinds, (0, 4))] {
        for setting in Setting::all().await {
            let what = format!("{}, {fault:?}", setting.describe());
            let ttl = setting.hooked(move |_| std::future::ready(fault)).await;
            ttl.create_index("c", setting.on("t")).await.unwrap();
            setting.place.insert("c", due(4)).await;
            let report = ttl.sweep("c").await.unwrap();
            assert_adds_up(&report, &what);
            assert_eq!((report.ended, (report.left, report.uncertain)), (Ended::Failed, fates), "{what}: {report:?}");
        }
    }
}
