//! Databases that this library does not know yet.

use mongodb::bson::{Bson, DateTime, Document, doc};
use ttl_index::{Doctor, FindingKind, MongoStore};

use super::{kinds, on_at};
use crate::support::mongod::Mongod;
use crate::support::place::Place;

/// A server whose own monitor deletes nothing meanwhile.
async fn idle() -> (Mongod, Place) {
    let server = Mongod::private(&["--setParameter", "ttlMonitorEnabled=false"]).await;
    let place = Place::Mongo(server.database().await);
    (server, place)
}

async fn native(place: &Place, collection: &str, name: &str, key: Document, period: impl Into<Bson>, more: Document) {
    let Place::Mongo(test) = place else { panic!() };
    let mut spec = doc! { "key": key, "name": name, "expireAfterSeconds": period.into() };
    spec.extend(more);
    test.db.run_command(doc! { "createIndexes": collection, "indexes": [spec] }).await.unwrap();
}

#[tokio::test]
async fn the_databases_own_ttl_indexes_are_judged_by_their_own_rule() {
    let (_server, place) = idle().await;
    let Place::Mongo(test) = &place else { panic!() };
    let ts = || doc! { "ts": 1 };
    let documents =
        |values: Vec<Bson>| (0..).zip(values).map(|(id, ts)| doc! { "_id": id, "ts": ts, "s": id }).collect::<Vec<_>>();
    native(&place, "a_good", "t", ts(), 3600, doc! {}).await;
    place.insert("a_good", documents(vec![DateTime::MAX.into()])).await;
    native(&place, "b_strings", "t", ts(), 3600, doc! { "partialFilterExpression": { "s": 1 } }).await;
    place
        .insert("b_strings", documents(vec![DateTime::from_millis(1_700_000_000_000).into(), "2026-01-01".into()]))
        .await;
    native(&place, "c_never", "t", ts(), f64::NAN, doc! {}).await;
    native(&place, "e_hashed", "t", doc! { "ts": "hashed" }, 60, doc! {}).await;
    native(&place, "f_two", "one", ts(), 60, doc! {}).await;
    native(&place, "f_two", "two", doc! { "other": 1 }, 60, doc! {}).await;
    place.insert("g_none", documents(vec!["2026-01-01".into()])).await;

    let before = everything(test).await;
    let report = Doctor::of(MongoStore::new(test.db.clone())).await.unwrap();
    assert!(report.diagnoses.iter().all(|it| it.index.as_ref().unwrap().native), "{report}");
    let found: Vec<(&str, Vec<FindingKind>)> =
        report.diagnoses.iter().map(|it| (it.collection.as_str(), kinds(it))).collect();
    assert_eq!(
        found,
        [
            ("a_good", vec![FindingKind::FarFuture]),
            ("b_strings", vec![FindingKind::IsoString, FindingKind::PartialFilter]),
            ("c_never", vec![FindingKind::NeverExpiringPeriod]),
            ("e_hashed", vec![FindingKind::NativeNeverDeletes]),
            ("f_two", vec![]),
            ("f_two", vec![]),
        ],
        "{report}"
    );
    assert_eq!(report.notes, Vec::<String>::new());
    assert_eq!(everything(test).await, before);
}

/// What collections and documents there are.
async fn everything(test: &crate::support::TestDatabase) -> Vec<(String, u64)> {
    let mut names = test.db.list_collection_names().await.unwrap();
    names.sort_unstable();
    let mut all = Vec::new();
    for name in names {
        let count = test.db.collection::<Document>(&name).count_documents(doc! {}).await.unwrap();
        all.push((name, count));
    }
    all
}

#[tokio::test]
async fn an_index_of_the_database_beside_one_of_ours_is_told() {
    let (_server, place) = idle().await;
    let ttl = place.registry().await;
    ttl.create_index("c", on_at()).await.unwrap();
    native(&place, "c", "theirs", doc! { "other": 1 }, 60, doc! {}).await;
    let report = ttl.doctor().await.unwrap();
    let [ours, theirs] = &report.diagnoses[..] else { panic!("{report}") };
    assert_eq!((ours.index.as_ref().unwrap().native, theirs.index.as_ref().unwrap().native), (false, true));
    assert_eq!((kinds(ours), kinds(theirs)), (vec![FindingKind::NativeBesides], vec![]), "{report}");
    assert_eq!(ours.findings[0].detail.as_deref(), Some("theirs"));
}

#[tokio::test]
async fn of_a_collection_without_a_ttl_index_it_is_told_which_fields_one_could_be_on() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        let document = |id: i32| doc! { "_id": id, "at": DateTime::MIN, "meta": { "seen": "2026-01-01" }, "n": id };
        let mut documents: Vec<Document> = (0..3).map(document).collect();
        documents.push(doc! { "_id": 3, "at": "2026-01-01" });
        place.insert("c", documents).await;
        let report = ttl.doctor().collection("c").await.unwrap();
        let [diagnosis] = &report.diagnoses[..] else { panic!("{report}") };
        assert!(diagnosis.index.is_none() && !report.has_findings(), "{report}");
        let candidates: Vec<_> =
            diagnosis.candidates.iter().map(|it| (it.field.as_str(), it.dates, it.convertible)).collect();
        assert_eq!(candidates, [("at", 75.0, 25.0), ("meta.seen", 0.0, 75.0)]);

        // Nothing is said of it unless it is asked for, and nothing of what is not there.
        assert!(ttl.doctor().await.unwrap().diagnoses.is_empty());
        let report = ttl.doctor().collection("nowhere").await.unwrap();
        assert!(report.to_string().contains("it is empty, or there is no such collection"), "{report}");
        assert_eq!(ttl.doctor().collection("ttl_index.lease").await.unwrap_err().code(), Some(73));
    }
}
