//! Dates that are moved on: all that are too early, none backwards, and nothing else.

use std::future::IntoFuture;

use futures_util::future::join_all;
use mongodb::Client;
use mongodb::bson::{Bson, DateTime, Document, doc};
use ttl_index::{EmbeddedStore, MongoStore, Touched, TtlIndex, TtlRegistry};

use super::{HOUR, articles};
use crate::support::mongod::Mongod;
use crate::support::proxy::{Fate, Proxy, nth};
use crate::support::{json, place::Place};

fn date(seconds: i64) -> DateTime {
    DateTime::from_millis(1000 * seconds)
}

fn counts(touched: Touched) -> [u64; 4] {
    [touched.moved, touched.later, touched.never, touched.missing]
}

#[tokio::test]
async fn all_dates_in_the_field_are_moved_and_nothing_else() {
    // An hour before what is asked for.
    let (until, d) = (date(103_600), date(100_000));
    let rows: Vec<(Document, Document)> = vec![
        (doc! { "a": { "t": date(1), "n": 1 } }, doc! { "a": { "t": d, "n": 1 } }),
        (doc! { "a": { "t": [date(1), "x", date(200_000)] } }, doc! { "a": { "t": [d, "x", date(200_000)] } }),
        (
            doc! { "a": [{ "t": date(1), "n": 1.0 }, { "t": date(200_000) }, 5_i64, { "t": [date(2), [date(3)]] }], "x": 1 },
            doc! { "a": [{ "t": d, "n": 1.0 }, { "t": date(200_000) }, 5_i64, { "t": [d, [date(3)]] }], "x": 1 },
        ),
        (doc! { "a": { "t": [] , "u": date(1) } }, doc! { "a": { "t": [], "u": date(1) } }),
        (doc! { "a": { "t": d } }, doc! { "a": { "t": d } }),
        (doc! { "a": { "t": date(200_000) } }, doc! { "a": { "t": date(200_000) } }),
        (doc! { "a": { "t": "1970-01-01" } }, doc! { "a": { "t": "1970-01-01" } }),
        (doc! { "x": date(1) }, doc! { "x": date(1) }),
        (doc! { "a": { "t": date(1) }, "s": "draft" }, doc! { "a": { "t": date(1) }, "s": "draft" }),
    ];
    for place in Place::all().await {
        let ttl = place.registry().await;
        let index = TtlIndex::on("a.t").expire_after(HOUR).partial_filter(doc! { "s": "done" });
        ttl.create_index("articles", index).await.unwrap();
        let numbered = |row: &Document, id: usize| {
            let mut document = doc! { "_id": i32::try_from(id).unwrap(), "s": "done" };
            document.extend(row.clone());
            document
        };
        place.insert("articles", rows.iter().enumerate().map(|(id, (before, _))| numbered(before, id)).collect()).await;
        let all = || (0..rows.len()).map(|id| i32::try_from(id).unwrap());
        let touched = ttl.touch("articles", all().chain([99, 0, 99]), until).await.unwrap();
        assert_eq!(counts(touched), [3, 2, 4, 1]);
        for (id, (_, after)) in rows.iter().enumerate() {
            let found = place.find("articles", i32::try_from(id).unwrap()).await.unwrap();
            assert_eq!(found.to_string(), numbered(after, id).to_string());
        }
        assert_eq!(counts(ttl.touch("articles", all(), until).await.unwrap()), [0, 5, 4, 0], "again");
        assert_eq!(counts(ttl.touch("articles", all(), date(0)).await.unwrap()), [0, 5, 4, 0], "backwards");
        assert_eq!(
            counts(ttl.touch("articles", all(), DateTime::MIN).await.unwrap()),
            [0, 5, 4, 0],
            "the first instant"
        );
    }
}

#[tokio::test]
async fn what_cannot_be_touched_is_refused() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        assert_eq!(ttl.touch("articles", [1], date(1)).await.unwrap_err().code(), Some(27));
        ttl.create_index("articles", articles()).await.unwrap();
        let pattern = serde_json::json!({ "id": { "$regularExpression": { "pattern": ".", "options": "" } } });
        let pattern = json::document(&pattern).get("id").unwrap().clone();
        for id in [pattern, Bson::Array(vec![]), Bson::Undefined] {
            assert_eq!(ttl.touch("articles", [id], date(1)).await.unwrap_err().code(), Some(2));
        }
        assert_eq!(ttl.touch("articles", [] as [Bson; 0], date(1)).await.unwrap(), Touched::default());
    }
}

/// Plain dates and dates in arrays, while others write something else into the same fields.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_touches_at_once_the_latest_wins() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        ttl.create_index("articles", articles()).await.unwrap();
        let documents = vec![doc! { "_id": 0, "at": date(1) }, doc! { "_id": 1, "at": [date(1), "x", date(2)] }];
        place.insert("articles", documents).await;
        let at_once = (1..=50).map(|n| {
            let ttl = ttl.clone();
            tokio::spawn(async move { ttl.touch("articles", [0, 1], date(100 + (n * 37) % 51)).await.unwrap() })
        });
        let touched = join_all(at_once).await;
        assert!(touched.iter().all(|it| it.as_ref().is_ok_and(|it| it.moved + it.later == 2)), "{touched:?}");
        assert_eq!(place.find("articles", 0).await.unwrap(), doc! { "_id": 0, "at": date(150) });
        assert_eq!(place.find("articles", 1).await.unwrap(), doc! { "_id": 1, "at": [date(150), "x", date(150)] });
    }
}

/// On MongoDB a field is written back under the condition that it is as it was read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_touch_overwrites_nothing_that_others_write_into_the_field() {
    let place = Place::Mongo(crate::support::database().await);
    let Place::Mongo(it) = &place else { return };
    let ttl = place.registry().await;
    ttl.create_index("articles", TtlIndex::on("a.t").expire_after(HOUR)).await.unwrap();
    place.insert("articles", vec![doc! { "_id": 0, "a": [{ "t": date(1), "n": 0 }] }]).await;
    let documents = it.db.collection::<Document>("articles");
    let counting = tokio::spawn(async move {
        for _ in 0..200 {
            documents.update_one(doc! { "_id": 0 }, doc! { "$inc": { "a.0.n": 1 } }).await.unwrap();
        }
    });
    for n in 1..=50 {
        ttl.touch("articles", [0], date(10_000 + n)).await.unwrap();
    }
    counting.await.unwrap();
    let found = place.find("articles", 0).await.unwrap();
    assert_eq!(found, doc! { "_id": 0, "a": [{ "t": date(10_050 - 3600), "n": 200 }] });
}

/// What was read is not what is there when the update arrives: nothing but dates is written, each at its own place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_touch_that_arrives_late_writes_nothing_but_dates() {
    let server = Mongod::shared().await;
    let [early, later, d] = [date(1), date(2), date(100_000)];
    for (what, read, meanwhile, expected) in [
        (
            "an element around it",
            doc! { "a": [{ "t": early }] },
            doc! { "a": [[{ "t": early }], { "t": early, "precious": 1 }] },
            doc! { "a": [[{ "t": early }], { "t": d, "precious": 1 }] },
        ),
        (
            "a field more",
            doc! { "a": [{ "t": early, "who": "smith" }] },
            doc! { "a": [{ "t": later, "who": "SMITH" }] },
            doc! { "a": [{ "t": d, "who": "SMITH" }] },
        ),
        (
            "a date less",
            doc! { "a": [{ "t": early }, { "t": early }] },
            doc! { "a": [{ "t": early }] },
            doc! { "a": [{ "t": d }] },
        ),
        ("no array", doc! { "a": [{ "t": early }] }, doc! { "a": { "t": early } }, doc! { "a": { "t": d } }),
        (
            "an array in it",
            doc! { "a": [{ "t": early }] },
            doc! { "a": [{ "t": [early] }] },
            doc! { "a": [{ "t": [d] }] },
        ),
    ] {
        let (it, proxy) = (server.database().await, Proxy::before(server.port()));
        let client = Client::with_uri_str(proxy.uri(it.db.name())).await.unwrap();
        let ttl = TtlRegistry::open(MongoStore::new(client.database(it.db.name()))).await.unwrap();
        ttl.create_index("articles", TtlIndex::on("a.t").expire_after(HOUR)).await.unwrap();
        let documents = it.db.collection::<Document>("articles");
        let with_id = |mut document: Document| {
            document.insert("_id", 0);
            document
        };
        documents.insert_one(with_id(read)).await.unwrap();
        // The first is for fields without arrays.
        let mut late = proxy.catch(nth(2, "update", "articles"));
        let write = async {
            late.request().await;
            documents.replace_one(doc! {}, meanwhile).await.unwrap();
            late.then(Fate::Pass);
        };
        let (touched, ()) = tokio::join!(ttl.touch("articles", [0], date(103_600)).into_future(), write);
        let touched = touched.unwrap();
        let mut found = documents.find_one(doc! {}).await.unwrap().unwrap();
        found.remove("_id");
        assert_eq!((counts(touched), found), ([1, 0, 0, 0], expected), "{what}");
    }
}

/// A touch lists the document anew, so that a sweep finds it at its new date.
#[tokio::test]
async fn a_touched_document_goes_at_its_new_date() {
    let clock = ttl_index::ManualClock::at(date(50));
    let store = EmbeddedStore::in_memory().unwrap().with_clock(clock.clone());
    let ttl = TtlRegistry::open(store.clone()).await.unwrap();
    ttl.create_index("articles", articles()).await.unwrap();
    store.collection("articles").insert_one(doc! { "_id": 1, "at": [date(1), date(9)] }).await.unwrap();
    ttl.touch("articles", [1], date(100)).await.unwrap();
    assert_eq!(ttl.sweep("articles").await.unwrap().found, 0);
    clock.advance(std::time::Duration::from_secs(50));
    assert_eq!(ttl.sweep("articles").await.unwrap().deleted, 1);
}
