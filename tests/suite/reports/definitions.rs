//! Reports about what may be a TTL index, and what becomes of it.

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use ttl_index::{Code, IndexState, TtlIndex};

use super::play::Play;
use super::steps;

/// The report tells the document in prose.
#[tokio::test]
async fn ttl_005_value_type_string_date() {
    for mut play in Play::both("TTL-005").await {
        play.until("insert_raw").await;
        play.place.insert("c", vec![doc! { "_id": 1, "expireAt": { "date": "2020-01-01T00:00:00Z" } }]).await;
        play.finish().await;
    }
}

/// On the real server, whose registry anybody can write to.
#[tokio::test]
async fn ttl_029_expireafterseconds_invalid_value() {
    for mut play in Play::mongod("TTL-029").await {
        let entry = play.until("load_registry_entry_directly").await;
        // An entry as it is stored, with what the report puts into it.
        let spec = doc! { "created": 1, "expireAfterSeconds": 60 };
        play.ttl.create_index("c", TtlIndex::from(spec)).await.unwrap();
        let stored = Bson::String(entry["entry"]["expireAfterSeconds"].as_str().unwrap().to_owned());
        let registry = play.database().db.collection::<Document>("ttl_index.registry");
        let update = doc! { "$set": { "indexes.0.expireAfterSeconds": stored }, "$inc": { "revision": 1_i64 } };
        assert_eq!(registry.update_one(doc! { "_id": "registry" }, update).await.unwrap().modified_count, 1);
        let other = TtlIndex::on("t").expire_after(Duration::ZERO);
        play.ttl.create_index("other", other).await.unwrap();
        play.place.insert("other", vec![doc! { "t": DateTime::from_millis(0) }]).await;

        play.until_prose("index listed as invalid, counted in a metric, other indexes still swept").await;
        let listed = play.ttl.list_indexes().await.unwrap();
        assert_eq!((listed[0].state, listed[0].expire_after), (IndexState::NeedsRepair, None));
        assert!(listed[0].problem.as_ref().is_some_and(|why| why.contains("expireAfterSeconds")), "{listed:?}");
        assert_eq!(play.place.count("other").await, 0);
        play.finish().await;
    }
}

/// An explicit null is refused.
#[tokio::test]
async fn ttl_031_expireafterseconds_invalid_value() {
    for mut play in Play::both("TTL-031").await {
        play.until("create_index").await;
        let spec = doc! { "key": { "a": 1 }, "expireAfterSeconds": Bson::Null };
        let refused = play.ttl.create_index("c", TtlIndex::from(spec)).await.unwrap_err();
        assert_eq!(refused.refusal().map(ttl_index::Refusal::code), Some(Code::CannotCreateIndex), "{refused}");
        let play = play.finish().await;
        assert!(play.ttl.list_indexes().await.unwrap().is_empty());
    }
}

/// The third index would be refused as a second one on the collection, too: that its period is what is refused shows in
/// the message.
#[tokio::test]
async fn ttl_033_expireafterseconds_invalid_value() {
    for mut play in Play::both("TTL-033").await {
        for outcome in ["out of range", "good", "out of range"] {
            let step = play.until("create_index").await;
            let created = play.ttl.create_index("c", TtlIndex::from(steps::specification(step))).await;
            match created {
                Ok(_) => assert_eq!(outcome, "good", "{step}"),
                Err(error) => {
                    assert_eq!((error.code(), outcome), (Some(67), "out of range"), "{error} in {step}");
                    assert!(error.to_string().contains("acceptable range"), "{error} in {step}");
                }
            }
        }
        play.finish().await;
    }
}

#[tokio::test]
async fn ttl_049_option_change_ignored() {
    for mut play in Play::both("TTL-049").await {
        let step = play.until("concurrently").await;
        let watching = async {
            while play.place.count("c").await > 0 {
                let listed = play.ttl.list_indexes().collection("c").await.unwrap();
                assert_eq!(listed.iter().map(|index| index.name.as_str()).collect::<Vec<_>>(), ["ts_1"]);
            }
        };
        tokio::join!(watching, steps::play(&play, step));
        play.until_prose("never an instant in which list_indexes lacks ts_1; all 500 are gone at the end").await;
        let play = play.finish().await;
        assert_eq!(play.place.count("c").await, 0);
        let listed = play.ttl.list_indexes().await.unwrap();
        assert_eq!((listed.len(), listed[0].expire_after), (1, Some(Duration::from_secs(60))));
    }
}

/// A collection has one TTL index at most: periods that hold side by side in the report hold in a collection each.
#[tokio::test]
async fn ttl_067_partial_filter() {
    for mut play in Play::both("TTL-067").await {
        let mut names = Vec::new();
        for expected in [None, Some(67), Some(67)] {
            let step = play.until("create_index").await;
            let spec = steps::specification(step);
            let name = spec.get_str("name").unwrap().to_owned();
            let refused = play.ttl.create_index("c", TtlIndex::from(spec.clone())).await.err();
            assert_eq!(refused.and_then(|error| error.code()), expected, "{name}");
            play.ttl.create_index(&name, TtlIndex::from(spec)).await.unwrap();
            names.push(name);
        }
        let documents = play.until("insert").await;
        for document in documents["docs"].as_array().unwrap() {
            let document = play.stage.document(document);
            let name = format!("t_{}", document.get_str("applyStatus").unwrap());
            play.place.insert(&name, vec![document]).await;
        }
        play.until("expect_ids").await;
        let mut left = Vec::new();
        for name in &names {
            left.extend(steps::ids(&play.place, name).await);
        }
        assert_eq!(left, ["\"d\"", "\"f\""]);
        play.until("drop_index").await;
        play.ttl.drop_index("t_failed", "t_failed").await.unwrap();
        play.until("list_indexes").await;
        let listed = play.ttl.list_indexes().await.unwrap();
        let listed: Vec<_> = listed.iter().map(|index| (index.collection.as_str(), index.name.as_str())).collect();
        assert_eq!(listed, [("c", "t_applied"), ("t_applied", "t_applied"), ("t_dropped", "t_dropped")]);
    }
}

/// The second index, whose period nobody would get, is refused, and the refusal names the one that is there.
#[tokio::test]
async fn ttl_069_unintended_or_leftover_index() {
    for mut play in Play::both("TTL-069").await {
        let first = play.until("create_index").await;
        play.play(first).await;
        let second = play.until("create_index").await;
        let refused = play.ttl.create_index("c", TtlIndex::from(steps::specification(second))).await.unwrap_err();
        assert_eq!(refused.code(), Some(67));
        assert!(refused.to_string().contains("updatedAt_1"), "{refused}");
        play.until_prose("deletion event/metric names index updatedAt_1").await;
        let report = play.last_sweep();
        assert_eq!((report.index.as_str(), report.deleted), ("updatedAt_1", 1));
        play.finish().await;
    }
}
