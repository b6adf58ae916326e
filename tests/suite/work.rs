//! How much the server reads for a sweep, by its own profiler: in proportion to what is deleted, whatever the backlog.

use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::{
    Database,
    bson::{Bson, DateTime, Document, doc},
};
use ttl_index::{Ended, Fault, HookedStore, MongoStore, SweepReport, TtlIndex, TtlRegistry};

use crate::support::{TestDatabase, mongod::Mongod};

const DUE: i32 = 200_000;
const LIVE: i32 = 100_000;
const OLD: DateTime = DateTime::from_millis(1_000_000_000_000);
const LATER: DateTime = DateTime::from_millis(4_000_000_000_000);

/// What was read for the statements of one kind.
#[derive(Debug, Default, PartialEq)]
struct Read {
    keys: i64,
    documents: i64,
    statements: i64,
}

/// What the profiler saw.
#[derive(Debug)]
struct Work {
    find: Read,
    delete: Read,
}

#[derive(Clone, Copy, Debug)]
struct Variant {
    /// One array among the dates makes the index list several keys for a document, for good.
    arrays: bool,
    /// The partial filter matches one of a hundred.
    partial: bool,
    portable: bool,
}

impl Variant {
    fn store(self, it: &TestDatabase) -> MongoStore {
        let store = MongoStore::new(it.db.clone());
        if self.portable { store.portable_only() } else { store }
    }

    fn index(self) -> TtlIndex {
        let index = TtlIndex::on("t").expire_after(Duration::ZERO);
        if self.partial { index.partial_filter(doc! { "s": 7 }) } else { index }
    }
}

/// 200,000 due documents with dates of their own, and 100,000 that live; made by the server itself, which is quickest.
async fn seed(it: &TestDatabase, variant: Variant) {
    let seed = it.db.collection::<Document>("seed");
    seed.insert_one(doc! {}).await.unwrap();
    let date = doc! { "$cond": [{ "$lt": ["$n", DUE] }, { "$add": [OLD, "$n"] }, { "$add": [LATER, "$n"] }] };
    let make = [
        doc! { "$project": { "_id": 0, "n": { "$range": [0, DUE + LIVE] } } },
        doc! { "$unwind": "$n" },
        doc! { "$project": { "_id": { "$toString": "$n" }, "t": date, "s": { "$mod": ["$n", 100] } } },
        doc! { "$out": "c" },
    ];
    seed.aggregate(make).await.unwrap();
    if variant.arrays {
        let at = |n: i32| DateTime::from_millis(OLD.timestamp_millis() + i64::from(n));
        let arrays = [doc! { "t": [LATER, at(-1)], "s": 7 }, doc! { "t": [LATER, at(DUE / 2)], "s": 7 }];
        it.db.collection("c").insert_many(arrays).await.unwrap();
    }
}

/// Runs a pass under the profiler.
async fn profiled(db: &Database, pass: ttl_index::Sweep) -> (SweepReport, Work) {
    let profile = db.collection::<Document>("system.profile");
    profile.drop().await.unwrap();
    // Large enough to keep every statement with its ids.
    db.create_collection("system.profile").capped(true).size(256 * 1024 * 1024).await.unwrap();
    db.run_command(doc! { "profile": 2 }).await.unwrap();
    let report = pass.await.unwrap();
    db.run_command(doc! { "profile": 0 }).await.unwrap();
    let namespace = format!("{}.c", db.name());
    let group = doc! {
        "_id": { "$cond": [{ "$eq": ["$op", "remove"] }, "delete", "find"] },
        "keys": { "$sum": "$keysExamined" }, "documents": { "$sum": "$docsExamined" }, "statements": { "$sum": 1 },
    };
    let ops = doc! { "ns": namespace, "op": { "$in": ["query", "getmore", "remove"] } };
    let sums = profile.aggregate([doc! { "$match": ops }, doc! { "$group": group }]).await.unwrap();
    let sums: Vec<Document> = sums.try_collect().await.unwrap();
    let of = |kind: &str| sums.iter().find(|sum| sum.get_str("_id").unwrap() == kind).cloned().unwrap_or_default();
    let read = |kind: &str| {
        let of = of(kind);
        Read { keys: number(&of, "keys"), documents: number(&of, "documents"), statements: number(&of, "statements") }
    };
    (report, Work { find: read("find"), delete: read("delete") })
}

fn number(document: &Document, field: &str) -> i64 {
    match document.get(field) {
        Some(Bson::Int32(n)) => i64::from(*n),
        Some(Bson::Int64(n)) => *n,
        None | Some(Bson::Null) => 0,
        other => panic!("{field}: {other:?}"),
    }
}

fn assert_in_proportion(what: &str, report: &SweepReport, work: &Work) {
    let most = 3 * i64::try_from(report.deleted).unwrap();
    println!("{what}: {} deleted in {} batches, {work:?}", report.deleted, report.batches);
    // The profiler saw the statements at all.
    let batches = i64::try_from(report.batches).unwrap();
    assert_eq!(work.delete.statements, batches, "{what}: {work:?}");
    assert!(work.find.statements >= batches, "{what}: {work:?}");
    for read in [&work.find, &work.delete] {
        assert!(read.keys <= most && read.documents <= most, "{what}: more than {most}: {work:?}");
    }
}

async fn holds_for(variant: Variant) {
    let what = format!("{variant:?}");
    let it = Mongod::shared().await.database().await;
    seed(&it, variant).await;
    let ttl = TtlRegistry::open(variant.store(&it)).await.unwrap();
    ttl.create_index("c", variant.index()).await.unwrap();
    let size = if variant.partial { 50 } else { 500 };

    let (report, work) = profiled(&it.db, ttl.sweep("c").batch_size(size).max_batches(20)).await;
    assert_eq!((report.deleted, report.ended), (20 * u64::from(size), Ended::LimitReached), "{what}: {report:?}");
    assert_in_proportion(&format!("bounded, {what}"), &report, &work);

    let (report, work) = profiled(&it.db, ttl.sweep("c").batch_size(size * 10)).await;
    assert_eq!(report.ended, Ended::Drained, "{what}: {report:?}");
    assert_in_proportion(&format!("drained, {what}"), &report, &work);

    // A little that is due before much that lives: the end of what is due is found without reading on.
    let few: Vec<Document> = (0..500).map(|n| doc! { "t": DateTime::from_millis(n), "s": 7 }).collect();
    it.db.collection("c").insert_many(few).await.unwrap();
    let (report, work) = profiled(&it.db, ttl.sweep("c").batch_size(100)).await;
    assert_eq!((report.deleted, report.ended), (500, Ended::Drained), "{what}: {report:?}");
    assert_in_proportion(&format!("few, {what}"), &report, &work);

    // The last look of a drained pass, and every pass with nothing to do, must not read what lives.
    let (report, work) = profiled(&it.db, ttl.sweep("c")).await;
    assert_eq!((report.found, report.ended), (0, Ended::Drained), "{what}: {report:?}");
    println!("nothing due, {what}: {work:?}");
    assert!(work.find.keys <= 2 && work.find.documents <= 2 && work.delete.statements == 0, "{what}: {work:?}");
}

#[tokio::test]
async fn work_is_in_proportion_to_what_is_deleted() {
    holds_for(Variant { arrays: false, partial: false, portable: false }).await;
}

#[tokio::test]
async fn work_is_in_proportion_with_arrays_among_the_dates() {
    holds_for(Variant { arrays: true, partial: false, portable: false }).await;
}

#[tokio::test]
async fn work_is_in_proportion_under_a_partial_filter() {
    holds_for(Variant { arrays: false, partial: true, portable: false }).await;
}

#[tokio::test]
async fn work_is_in_proportion_with_arrays_under_a_partial_filter() {
    holds_for(Variant { arrays: true, partial: true, portable: false }).await;
}

#[tokio::test]
async fn the_portable_subset_works_in_proportion() {
    holds_for(Variant { arrays: false, partial: false, portable: true }).await;
}

#[tokio::test]
async fn the_portable_subset_works_in_proportion_with_arrays_among_the_dates() {
    holds_for(Variant { arrays: true, partial: false, portable: true }).await;
}

#[tokio::test]
async fn the_portable_subset_works_in_proportion_under_a_partial_filter() {
    holds_for(Variant { arrays: false, partial: true, portable: true }).await;
}

#[tokio::test]
async fn the_portable_subset_works_in_proportion_with_arrays_under_a_partial_filter() {
    holds_for(Variant { arrays: true, partial: true, portable: true }).await;
}

/// What stays behind is passed once, and not read again for every batch behind it.
#[tokio::test]
async fn documents_that_stay_behind_are_not_read_again_for_every_batch() {
    for arrays in [false, true] {
        let what = format!("stay behind, arrays: {arrays}");
        let variant = Variant { arrays, partial: false, portable: false };
        let it = Mongod::shared().await.database().await;
        seed(&it, variant).await;
        let store = HookedStore::new(variant.store(&it), |_| std::future::ready(Fault::None));
        let store = store.sparing((0..5_000).map(|n| Bson::String(n.to_string())));
        let ttl = TtlRegistry::open(store).await.unwrap();
        ttl.create_index("c", variant.index()).await.unwrap();
        let (report, work) = profiled(&it.db, ttl.sweep("c").batch_size(100).max_batches(100)).await;
        println!("{what}: {report:?}, {work:?}");
        assert_eq!((report.found, report.left), (10_000, 5_000), "{what}: {report:?}");
        assert!(work.find.keys <= 3 * 10_000, "{what}: {work:?}");
    }
}

/// A partial filter may speak of the date itself, as in "only where there is one".
#[tokio::test]
async fn work_is_in_proportion_under_a_partial_filter_on_the_date_itself() {
    let the_date =
        [doc! { "t": { "$type": "date" } }, doc! { "$or": [{ "t": { "$gt": OLD } }, { "t": { "$lt": OLD } }] }];
    for filter in the_date {
        let what = format!("partial on the date, {filter}");
        let variant = Variant { arrays: false, partial: false, portable: false };
        let it = Mongod::shared().await.database().await;
        seed(&it, variant).await;
        let ttl = TtlRegistry::open(variant.store(&it)).await.unwrap();
        ttl.create_index("c", variant.index().partial_filter(filter)).await.unwrap();
        let (report, work) = profiled(&it.db, ttl.sweep("c").batch_size(100).max_batches(20)).await;
        assert_eq!(report.deleted, 2_000, "{what}: {report:?}");
        assert_in_proportion(&what, &report, &work);
        it.db.collection::<Document>("c").delete_many(doc! { "t": { "$lt": LATER } }).await.unwrap();
        let few: Vec<Document> = (0..500).map(|n| doc! { "t": DateTime::from_millis(n + 1), "s": 7 }).collect();
        it.db.collection("c").insert_many(few).await.unwrap();
        let (report, work) = profiled(&it.db, ttl.sweep("c").batch_size(100)).await;
        assert_eq!((report.deleted, report.ended), (500, Ended::Drained), "{what}: {report:?}");
        assert_in_proportion(&what, &report, &work);
    }
}
