//! What is counted, and how it is shown.

// Counts are whole numbers, and exact.
#![allow(clippy::float_cmp)]

mod numbers;
mod program;
mod table;

use std::time::Duration;

use mongodb::bson::doc;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use ttl_index::{MongoStore, TtlIndex, TtlRegistry};

use crate::support::database;
use crate::support::page::{self, Page};
use crate::support::place::Place;

/// Where names are hard to print: in pairs that a careless escape makes the same.
const ODD_NAMES: [&str; 10] =
    ["a.b", "a\"b", "a\\\"b", "a\\b", "a\\\\b", "a\nb", "a\\nb", "a\\\nb", "日本 {le=\"1\"}", "back\\"];

#[tokio::test]
async fn odd_names_come_through_whole_and_stay_apart() {
    page::counting();
    let place = database().await;
    let ttl = TtlRegistry::open(MongoStore::new(place.db.clone())).await.unwrap();
    for name in ODD_NAMES {
        // The collection may not have such a name; its failure is counted under it all the same.
        let index = TtlIndex::from(doc! { "key": { "a": 1, "b": 1 }, "name": format!("${name}") });
        ttl.create_index(name, index).await.unwrap_err();
    }
    ttl.create_index("a$b", TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap_err();

    let page = Page::now().await;
    for name in ODD_NAMES {
        let labels = [("database", place.db.name()), ("collection", name)];
        let found = page.samples("ttl_index_errors_total", &labels);
        assert_eq!(found.len(), 1, "{name:?}: {found:?}");
        assert_eq!((found[0].labels["index"].as_str(), found[0].value), (format!("${name}").as_str(), 1.0));
    }
    let labels = [("database", place.db.name()), ("collection", "a$b"), ("index", "t_1"), ("code", "73")];
    assert_eq!(page.sum("ttl_index_errors_total", &labels), 1.0);
    place.drop().await;
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let error = page::bind(address).await.unwrap_err();
    let text = format!("{error:#}");
    assert!(text.contains(&address.to_string()) && text.contains("in use"), "{text}");
}

#[tokio::test]
async fn the_listener_serves_two_pages_and_no_other() {
    let (head, body) = page::get("/healthz").await;
    assert!(head.starts_with("HTTP/1.1 200 ") && body == "ok\n", "{head} {body}");
    for other in ["/", "/metrics/", "/debug"] {
        let (head, body) = page::get(other).await;
        assert!(head.starts_with("HTTP/1.1 404 ") && body.is_empty(), "{other}: {head} {body}");
    }
}

#[tokio::test]
async fn a_request_that_never_ends_does_not_hold_up_the_end() {
    let (address, end, serving) = page::serve().await;
    let mut slow = TcpStream::connect(address).await.unwrap();
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n").await.unwrap();
    // Accepted in the order of arrival: once this one is answered, the slow one is there.
    page::ask(address, "/healthz").await;
    end.send(()).unwrap();
    serving.await.unwrap().unwrap();
    drop(slow);
}

/// Every kind of request that can fail is counted, with the index's name as far as it is known.
#[tokio::test]
async fn a_request_that_fails_is_counted_once_under_its_names() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        let index = || TtlIndex::on("t").expire_after(Duration::from_secs(60));
        ttl.create_index("c", index()).await.unwrap();
        assert_eq!(ttl.counters().indexes, [], "what goes well is no failure");
        let of_clone = ttl.clone();
        of_clone.create_index("c", TtlIndex::on("u").name("mine").expire_after(Duration::ZERO)).await.unwrap_err();
        ttl.drop_index("c", doc! { "v": -1 }).await.unwrap_err();
        ttl.drop_index("nowhere", "x").await.unwrap_err();
        ttl.modify_index("nowhere", Duration::ZERO).await.unwrap_err();
        let counters = ttl.counters();
        let failures: Vec<_> = counters
            .indexes
            .iter()
            .map(|index| (index.collection.as_str(), index.index.as_str(), index.counts.errors.clone()))
            .collect();
        let once = |code| [(("refused", Some(code)), 1)].into();
        assert_eq!(
            failures,
            [("c", "mine", once(67)), ("c", "v_-1", once(27)), ("nowhere", "", once(27)), ("nowhere", "x", once(27)),]
        );
        assert_eq!(counters.total.errors, [(("refused", Some(27)), 3), (("refused", Some(67)), 1)].into());

        ttl.drop_index("c", "t_1").await.unwrap();
        let after = ttl.counters();
        assert_eq!(after.indexes.iter().filter(|index| index.collection == "c").count(), 0, "{after:?}");
        assert_eq!(after.total, counters.total, "a total never goes down");
    }
}
