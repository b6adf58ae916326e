//! Documents counted by their date, which plans are made from: right on both stores, at little cost, and never in the way.

mod cost;
mod trouble;

use std::{collections::BTreeMap, time::Duration};

use mongodb::bson::{Bson, DateTime, Document, doc};
use ttl_index::{EmbeddedStore, Fault, HookedStore, MongoStore, TtlIndex, TtlRegistry};

use crate::support::{TestDatabase, database, dice::Dice};

const PERIOD: Duration = Duration::from_secs(60);

fn at(millis: i64) -> DateTime {
    DateTime::from_millis(millis)
}

fn hooked(store: impl ttl_index::IntoStore) -> HookedStore {
    HookedStore::new(store, |_| std::future::ready(Fault::None))
}

fn mongo(it: &TestDatabase, portable: bool) -> MongoStore {
    let store = MongoStore::new(it.db.clone());
    if portable { store.portable_only() } else { store }
}

/// What a count should say of these dates: the documents of each slice, from the oldest on.
fn expected(dates: &[i64], (from, until): (Option<i64>, i64), slice: i64, limit: usize) -> Vec<(DateTime, u64)> {
    let mut within: Vec<i64> =
        dates.iter().copied().filter(|date| from.is_none_or(|from| *date > from) && *date <= until).collect();
    within.sort_unstable();
    let mut slices = BTreeMap::new();
    for date in within.into_iter().take(limit) {
        *slices.entry(date.div_euclid(slice).saturating_mul(slice)).or_default() += 1;
    }
    slices.into_iter().map(|(start, n)| (at(start), n)).collect()
}

fn random_dates(dice: &mut Dice) -> Vec<i64> {
    let around = |dice: &mut Dice, middle: i64| middle + i64::try_from(dice.below(2_000_000)).unwrap() - 1_000_000;
    let mut dates: Vec<i64> = (0..150).map(|_| around(dice, 0)).collect();
    dates.extend((0..100).map(|_| around(dice, 1_800_000_000_000)));
    dates.extend([-1, 0, 1, 5, 5, 5, -250, -251, -249, 249, 250, 251, -250, i64::from(i32::MIN)]);
    dates
}

/// With a filter that keeps every second document, if one is wanted, and things that are no dates.
fn documents(dates: &[i64]) -> Vec<Document> {
    let first = dates.iter().map(|date| doc! { "a": { "t": at(*date) }, "s": 1 });
    let second = dates.iter().map(|date| doc! { "a": { "t": at(*date) }, "s": 2 });
    let odd = [Bson::Null, "1970-01-01".into(), 0.into(), f64::NAN.into(), doc! { "t": at(0) }.into()];
    first.chain(second).chain(odd.map(|odd| doc! { "a": { "t": odd }, "s": 1 })).collect()
}

async fn counts_right(store: HookedStore, insert: impl AsyncFn(&str, Vec<Document>)) {
    let ttl = TtlRegistry::open(store.clone()).await.unwrap();
    let mut dice = Dice::new(7);
    let dates = random_dates(&mut dice);
    let twice: Vec<i64> = dates.iter().chain(&dates).copied().collect();
    for (name, filter, all) in [("plain", None, &twice), ("partial", Some(doc! { "s": 1 }), &dates)] {
        let mut index = TtlIndex::on("a.t").expire_after(PERIOD);
        if let Some(filter) = filter {
            index = index.partial_filter(filter);
        }
        ttl.create_index(name, index).await.unwrap();
        insert(name, documents(&dates)).await;
        for round in 0..60 {
            let pick = |dice: &mut Dice| all[usize::try_from(dice.below(all.len() as u64)).unwrap()];
            let (from, until) = (pick(&mut dice), pick(&mut dice));
            let range = ((round % 3 > 0).then_some(from), until);
            let slice = [1, 250, 360_000, 86_400_000][round % 4];
            let limit = [100_000, 100, 7][usize::try_from(dice.below(3)).unwrap()];
            let asked = (range.0.map(at), at(range.1));
            let counted = store.count_by_date(name, asked, Duration::from_millis(slice), limit).await.unwrap().unwrap();
            let most = usize::try_from(limit).unwrap();
            let slices = expected(all, range, i64::try_from(slice).unwrap(), most);
            let total: u64 = slices.iter().map(|(_, n)| n).sum();
            let reached = if total == limit { slices.last().map(|(start, _)| *start) } else { None };
            assert_eq!(counted, (slices, reached, 0), "{name}, {range:?}, {slice} ms, {limit}");
        }
    }
}

#[tokio::test]
async fn an_embedded_store_counts_as_one_by_one() {
    let store = EmbeddedStore::in_memory().unwrap();
    let insert = async |name: &str, documents: Vec<Document>| {
        store.collection(name).insert_many(documents).await.unwrap();
    };
    counts_right(hooked(store.clone()), insert).await;
}

#[tokio::test]
async fn mongodb_counts_as_one_by_one() {
    let it = database().await;
    let insert = async |name: &str, documents: Vec<Document>| {
        it.db.collection(name).insert_many(documents).await.unwrap();
    };
    counts_right(hooked(mongo(&it, false)), insert).await;
}

#[tokio::test]
async fn the_portable_subset_counts_as_one_by_one() {
    let it = database().await;
    let insert = async |name: &str, documents: Vec<Document>| {
        it.db.collection(name).insert_many(documents).await.unwrap();
    };
    counts_right(hooked(mongo(&it, true)), insert).await;
}

/// An index that was there already may run the other way.
#[tokio::test]
async fn a_descending_index_is_counted_from_the_oldest_date_on() {
    let it = database().await;
    for name in ["plain", "partial"] {
        let index = doc! { "key": { "a.t": -1 }, "name": "mine" };
        it.db.run_command(doc! { "createIndexes": name, "indexes": [index] }).await.unwrap();
    }
    let insert = async |name: &str, documents: Vec<Document>| {
        it.db.collection(name).insert_many(documents).await.unwrap();
    };
    counts_right(hooked(mongo(&it, false)), insert).await;
}

#[tokio::test]
async fn documents_with_several_dates_are_told_apart() {
    for portable in [false, true] {
        for filter in [None, Some(doc! { "s": 1 })] {
            let it = database().await;
            let store = hooked(mongo(&it, portable));
            let ttl = TtlRegistry::open(store.clone()).await.unwrap();
            let mut index = TtlIndex::on("t").expire_after(PERIOD);
            if let Some(filter) = filter.clone() {
                index = index.partial_filter(filter);
            }
            ttl.create_index("c", index).await.unwrap();
            let mut documents: Vec<Document> = (0..50).map(|n| doc! { "t": at(n * 10), "s": 1 }).collect();
            documents.extend((0..5).map(|n| doc! { "t": [at(n), at(400 + n)], "s": 1 }));
            it.db.collection("c").insert_many(documents).await.unwrap();
            let slice = Duration::from_millis(100);
            let all = store.count_by_date("c", (None, at(1000)), slice, 1000).await.unwrap().unwrap();
            let slices: Vec<_> = (0..5).map(|n| (at(n * 100), 10)).collect();
            assert_eq!(all.0, slices, "{portable}, {filter:?}");
            assert!(all.2 >= 5, "{portable}, {filter:?}: {all:?}");
        }
    }
}

/// Whatever stands there is counted or left out, and nothing overflows.
#[tokio::test]
async fn dates_at_the_ends_of_time_are_counted() {
    let ends = [i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX];
    let documents = || ends.iter().map(|date| doc! { "t": at(*date) }).collect::<Vec<_>>();
    let it = database().await;
    it.db.collection("c").insert_many(documents()).await.unwrap();
    let embedded = EmbeddedStore::in_memory().unwrap();
    embedded.collection("c").insert_many(documents()).await.unwrap();
    for store in [hooked(embedded), hooked(mongo(&it, false)), hooked(mongo(&it, true))] {
        let ttl = TtlRegistry::open(store.clone()).await.unwrap();
        ttl.create_index("c", TtlIndex::on("t").expire_after(PERIOD)).await.unwrap();
        for slice in [1, 1000, u64::MAX] {
            for (range, there) in [
                ((None, DateTime::MAX), 4),
                ((Some(DateTime::MIN), DateTime::MAX), 3),
                ((None, at(0)), 2),
                ((Some(DateTime::MAX), DateTime::MAX), 0),
                ((None, DateTime::MIN), 1),
            ] {
                let counted = store.count_by_date("c", range, Duration::from_millis(slice), 100).await.unwrap();
                let (slices, reached, several) = counted.unwrap();
                let total: u64 = slices.iter().map(|(_, n)| n).sum();
                assert_eq!((total, reached, several), (there, None, 0), "{store:?}, {range:?}, {slice}: {slices:?}");
            }
        }
    }
}
