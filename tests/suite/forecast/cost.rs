//! What a count costs the server: keys of one index, and no document.

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use ttl_index::{TtlIndex, TtlRegistry};

use super::{PERIOD, at, hooked, mongo};
use crate::support::{TestDatabase, mongod::Mongod};

const DOCUMENTS: i32 = 20_000;
const FIRST: i64 = 1_000_000_000_000;

/// Made by the server itself, which is quickest.
async fn seed(it: &TestDatabase, documents: i32) {
    let seed = it.db.collection::<Document>("seed");
    seed.insert_one(doc! {}).await.unwrap();
    let make = [
        doc! { "$project": { "_id": 0, "n": { "$range": [0, documents] } } },
        doc! { "$unwind": "$n" },
        doc! { "$project": { "_id": "$n", "t": { "$add": [at(FIRST), "$n"] }, "s": { "$mod": ["$n", 10] } } },
        doc! { "$out": "c" },
    ];
    seed.aggregate(make).await.unwrap();
}

/// The keys and documents that the statements on the collection have read.
async fn read(it: &TestDatabase) -> (i64, i64) {
    let profile = it.db.collection::<Document>("system.profile");
    let ops = doc! { "ns": format!("{}.c", it.db.name()), "op": { "$in": ["command", "query", "getmore"] } };
    let ops: Vec<Document> = profile.find(ops).await.unwrap().try_collect().await.unwrap();
    let number = |op: &Document, field: &str| match op.get(field) {
        Some(Bson::Int32(n)) => i64::from(*n),
        Some(Bson::Int64(n)) => *n,
        _ => 0,
    };
    let sum = |field: &str| ops.iter().map(|op| number(op, field)).sum();
    (sum("keysExamined"), sum("docsExamined"))
}

#[tokio::test]
async fn a_count_reads_the_keys_it_counts_and_no_document() {
    let filters = [None, Some(doc! { "s": { "$lt": 5 } }), Some(doc! { "t": { "$type": "date" } })];
    for (filter, share) in filters.into_iter().zip([1, 2, 1]) {
        let it = Mongod::shared().await.database().await;
        seed(&it, DOCUMENTS).await;
        let store = hooked(mongo(&it, false));
        let ttl = TtlRegistry::open(store.clone()).await.unwrap();
        let mut index = TtlIndex::on("t").expire_after(PERIOD);
        if let Some(filter) = &filter {
            index = index.partial_filter(filter.clone());
        }
        ttl.create_index("c", index).await.unwrap();
        // What is probed once is no part of it.
        store.count_by_date("c", (None, at(0)), PERIOD, 10).await.unwrap();
        it.db.run_command(doc! { "profile": 2 }).await.unwrap();
        let half = at(FIRST + i64::from(DOCUMENTS / 2) - 1);
        let counted = store.count_by_date("c", (Some(half), at(2 * FIRST)), PERIOD, 1_000_000).await.unwrap().unwrap();
        let limited = store.count_by_date("c", (None, half), PERIOD, 1_000).await.unwrap().unwrap();
        it.db.run_command(doc! { "profile": 0 }).await.unwrap();
        let documents = |counted: &ttl_index::CountedByDate| counted.0.iter().map(|(_, n)| *n).sum::<u64>();
        let there = u64::try_from(DOCUMENTS / 2 / share).unwrap();
        assert_eq!((documents(&counted), documents(&limited)), (there, 1_000), "{filter:?}");
        let (keys, fetched) = read(&it).await;
        let least = i64::try_from(there).unwrap() + 1_000;
        println!("{filter:?}: {keys} keys, {fetched} documents read for {least} counted");
        assert!((least..least + 10).contains(&keys) && fetched == 0, "{filter:?}: {keys} keys, {fetched} documents");
    }
}
