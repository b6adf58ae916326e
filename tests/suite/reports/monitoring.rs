//! Reports about what is counted.

// Counts are whole numbers, and exact.
#![allow(clippy::float_cmp)]

use std::collections::BTreeSet;

use ttl_index::TtlIndex;

use super::play::Play;
use super::steps;
use crate::support::page::{self, Page};
use crate::support::place::Place;

/// Names with quotes and newlines are in `metrics`: this one is the report's.
#[tokio::test]
async fn ttl_125_collection_names() {
    page::counting();
    for mut play in Play::both("TTL-125").await {
        let database = match &*play.place {
            Place::Mongo(database) => database.db.name().to_owned(),
            Place::Embedded(_) => "embedded".to_owned(),
        };
        play.until_prose(
            "metric carries db=mydatabase, collection=my.collection; quotes, dollar signs or newlines in names are \
             escaped",
        )
        .await;
        let counters = play.ttl.counters();
        let of: Vec<_> =
            counters.indexes.iter().map(|index| (index.collection.as_str(), index.counts.deleted)).collect();
        assert_eq!((counters.database.as_str(), of), (database.as_str(), vec![("my.collection", 1)]));
        let labels = [("database", database.as_str()), ("collection", "my.collection"), ("index", "t_1")];
        assert_eq!(Page::now().await.sum("ttl_index_deleted_documents_total", &labels), 1.0);
        play.finish().await;
    }
}

#[tokio::test]
async fn ttl_153_monitoring() {
    page::counting();
    for mut play in Play::mongod("TTL-153").await {
        let step = play.until("create_index").await;
        let refused = play.ttl.create_index("c", TtlIndex::from(steps::specification(step))).await.unwrap_err();
        assert_eq!(refused.code(), Some(67), "{refused}");
        play.until_prose("error counter labelled with ns, index name and code").await;
        let database = play.database().db.name().to_owned();
        let page = Page::now().await;
        let found = page.samples("ttl_index_errors_total", &[("database", &database)]);
        let labels: BTreeSet<_> = found[0].labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let expected = [
            ("code", "67"),
            ("collection", "c"),
            ("database", database.as_str()),
            ("index", "a_1_b_1"),
            ("kind", "refused"),
        ];
        assert_eq!((found.len(), found[0].value, labels), (1, 1.0, expected.into()));
        play.finish().await;
    }
}
