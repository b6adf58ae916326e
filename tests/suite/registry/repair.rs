//! Creations that were interrupted, entries that cannot be understood, and collections that are not the same any more.

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use ttl_index::{Ended, IndexState, TtlIndex};

use super::{on_t, ordinary_indexes, stored, tamper};
use crate::support::database;
use crate::support::place::Place;

fn expired() -> Vec<Document> {
    vec![doc! { "_id": 1, "t": DateTime::from_millis(0) }]
}

#[tokio::test]
async fn a_creation_that_was_interrupted_is_finished_by_the_same_again() {
    let place = Place::Mongo(database().await);
    let Place::Mongo(test) = &place else { panic!() };
    let ttl = place.registry().await;
    let made = ttl.create_index("c", on_t()).await.unwrap();
    // As it is between the entry and the index: the one is there, the other not, and no identity is known.
    test.db.collection::<Document>("c").drop().await.unwrap();
    tamper(test, doc! { "state": "CREATING", "collectionUUID": Bson::Null }).await;
    assert_eq!(ttl.list_indexes().await.unwrap()[0].state, IndexState::Creating);

    // Documents expire already.
    place.insert("c", expired()).await;
    assert_eq!(ttl.sweep("c").await.unwrap().deleted, 1);
    // Another definition does not get hold of it.
    assert_eq!(ttl.create_index("c", on_t().name("other")).await.unwrap_err().code(), Some(85));

    assert_eq!(ttl.create_index("c", on_t()).await.unwrap(), made);
    assert_eq!(ttl.list_indexes().await.unwrap(), [made]);
    assert_eq!(ordinary_indexes(test, "c").await, ["_id_", "t_1"]);
    let entry = stored(test).await.unwrap().get_array("indexes").unwrap()[0].as_document().unwrap().clone();
    assert!(matches!(entry.get("collectionUUID"), Some(Bson::Binary(_))), "{entry}");
}

#[tokio::test]
async fn an_interrupted_creation_can_be_dropped() {
    let place = Place::Mongo(database().await);
    let Place::Mongo(test) = &place else { panic!() };
    let ttl = place.registry().await;
    ttl.create_index("c", on_t()).await.unwrap();
    test.db.collection::<Document>("c").drop().await.unwrap();
    tamper(test, doc! { "state": "CREATING", "collectionUUID": Bson::Null }).await;
    ttl.drop_index("c", "t_1").await.unwrap();
    assert!(ttl.list_indexes().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_entry_that_cannot_be_understood_deletes_nothing_and_stops_nobody() {
    let place = Place::Mongo(database().await);
    let Place::Mongo(test) = &place else { panic!() };
    let ttl = place.registry().await;
    let index = TtlIndex::on("t").expire_after(Duration::ZERO);
    for collection in ["broken", "sound"] {
        ttl.create_index(collection, index.clone()).await.unwrap();
        place.insert(collection, expired()).await;
    }
    tamper(test, doc! { "expireAfterSeconds": f64::NAN }).await;

    let listed = ttl.list_indexes().await.unwrap();
    assert_eq!((listed[0].collection.as_str(), listed[0].state), ("broken", IndexState::NeedsRepair));
    assert_eq!((listed[0].name.as_str(), listed[0].expire_after), ("t_1", None));
    assert!(listed[0].problem.as_ref().unwrap().contains("NaN"), "{listed:?}");
    assert_eq!((listed[1].state, &listed[1].problem), (IndexState::Active, &None));
    for refused in [
        ttl.sweep("broken").await.unwrap_err(),
        ttl.rule("broken").await.unwrap_err(),
        ttl.create_index("broken", index.clone()).await.unwrap_err(),
        ttl.create_index("broken", index).or_modify(true).await.unwrap_err(),
    ] {
        assert_eq!(refused.code(), Some(72), "{refused}");
        assert!(refused.to_string().contains("modify its period"), "{refused}");
    }
    assert_eq!(place.count("broken").await, 1);
    assert_eq!(ttl.sweep("sound").await.unwrap().deleted, 1);
    ttl.create_index("third", on_t()).await.unwrap();

    let mended = ttl.modify_index("broken", Duration::from_secs(3600)).await.unwrap();
    assert_eq!((mended.state, mended.problem), (IndexState::Active, None));
    assert_eq!(ttl.sweep("broken").await.unwrap().deleted, 1);
}

#[tokio::test]
async fn an_entry_that_cannot_be_understood_can_be_dropped() {
    let place = Place::Mongo(database().await);
    let Place::Mongo(test) = &place else { panic!() };
    let ttl = place.registry().await;
    ttl.create_index("c", on_t()).await.unwrap();
    place.insert("c", expired()).await;
    tamper(test, doc! { "state": "SLEEPING" }).await;
    assert_eq!(ttl.sweep("c").await.unwrap_err().code(), Some(72));
    ttl.drop_index("c", "t_1").await.unwrap();
    assert!(ttl.list_indexes().await.unwrap().is_empty());
    assert_eq!(place.count("c").await, 1);
}

/// A registry that is not readable as a whole is an error of every call, and never an empty one.
#[tokio::test]
async fn a_registry_that_cannot_be_understood_means_that_nothing_is_done() {
    let place = Place::Mongo(database().await);
    let Place::Mongo(test) = &place else { panic!() };
    let ttl = place.registry().await;
    ttl.create_index("c", on_t()).await.unwrap();
    place.insert("c", expired()).await;
    let registry = test.db.collection::<Document>("ttl_index.registry");
    for damage in [doc! { "indexes": 5 }, doc! { "revision": "5" }] {
        let sound = stored(test).await.unwrap();
        registry.update_one(doc! {}, doc! { "$set": damage }).await.unwrap();
        assert!(matches!(ttl.sweep("c").await.unwrap_err(), ttl_index::Error::Unreadable(_)));
        assert!(matches!(ttl.list_indexes().await.unwrap_err(), ttl_index::Error::Unreadable(_)));
        assert!(ttl.create_index("d", on_t()).await.is_err());
        assert_eq!(place.count("c").await, 1);
        registry.replace_one(doc! {}, sound).await.unwrap();
    }
    assert_eq!(ttl.sweep("c").await.unwrap().deleted, 1);
}

/// Whatever it is that stands among the entries, it deletes nothing and is listed.
#[tokio::test]
async fn an_entry_that_is_no_document_does_not_stop_the_others() {
    let place = Place::Mongo(database().await);
    let Place::Mongo(test) = &place else { panic!() };
    let ttl = place.registry().await;
    ttl.create_index("c", on_t()).await.unwrap();
    place.insert("c", expired()).await;
    let registry = test.db.collection::<Document>("ttl_index.registry");
    registry.update_one(doc! {}, doc! { "$push": { "indexes": 5 } }).await.unwrap();
    assert_eq!(ttl.sweep("c").await.unwrap().deleted, 1);
    let states: Vec<_> = ttl.list_indexes().await.unwrap().into_iter().map(|index| index.state).collect();
    assert_eq!(states, [IndexState::Active, IndexState::NeedsRepair]);
}

#[tokio::test]
async fn a_collection_that_was_made_anew_is_not_swept_until_it_is_asked_for_again() {
    for supporting in [true, false] {
        let place = Place::Mongo(database().await);
        let Place::Mongo(test) = &place else { panic!() };
        let ttl = place.registry().await;
        test.db.create_collection("c").await.unwrap();
        ttl.create_index("c", on_t().supporting_index(supporting)).await.unwrap();
        place.drop_collection("c").await;
        // Nothing there: nothing to delete.
        assert_eq!(ttl.sweep("c").await.unwrap().ended, Ended::Drained);
        place.insert("c", expired()).await;
        let report = ttl.sweep("c").await.unwrap();
        assert_eq!((report.ended, report.found, report.deleted), (Ended::Failed, 0, 0), "{report:?}");
        assert_eq!(report.error.unwrap().code(), Some(361));
        assert_eq!(place.count("c").await, 1);

        let bound = ttl.create_index("c", on_t().supporting_index(supporting)).await.unwrap();
        assert_eq!(bound.state, IndexState::Active);
        assert_eq!(ordinary_indexes(test, "c").await.len(), if supporting { 2 } else { 1 });
        let report = ttl.sweep("c").await.unwrap();
        assert_eq!((report.ended, report.deleted), (Ended::Drained, 1), "{report:?}");
    }
}

/// Dropping the TTL index of a collection that was made anew leaves alone what the user built there.
#[tokio::test]
async fn an_index_in_a_collection_that_was_made_anew_is_not_ours() {
    let place = Place::Mongo(database().await);
    let Place::Mongo(test) = &place else { panic!() };
    let ttl = place.registry().await;
    ttl.create_index("c", on_t()).await.unwrap();
    place.drop_collection("c").await;
    let theirs = doc! { "key": { "t": 1 }, "name": "t_1" };
    test.db.run_command(doc! { "createIndexes": "c", "indexes": [theirs] }).await.unwrap();
    ttl.drop_index("c", "t_1").await.unwrap();
    assert_eq!(ordinary_indexes(test, "c").await, ["_id_", "t_1"]);
}

/// The embedded store drops the TTL index with the collection, as MongoDB does.
#[tokio::test]
async fn dropping_an_embedded_collection_drops_its_rule() {
    let place = Place::embedded();
    let ttl = place.registry().await;
    ttl.create_index("c", on_t()).await.unwrap();
    place.insert("c", expired()).await;
    place.drop_collection("c").await;
    assert!(ttl.list_indexes().await.unwrap().is_empty());
    place.insert("c", expired()).await;
    assert_eq!(ttl.sweep("c").await.unwrap_err().code(), Some(27));
    assert_eq!(place.count("c").await, 1);
}

#[tokio::test]
async fn two_entries_that_cannot_be_told_apart_delete_nothing_and_are_listed_so() {
    let place = Place::Mongo(database().await);
    let Place::Mongo(test) = &place else { panic!() };
    let ttl = place.registry().await;
    // As a copy of an entry for another collection leaves them, its identity not changed, or its collection.
    for (field, mended) in [("id", false), ("collection", true)] {
        for collection in ["c", "d"] {
            ttl.create_index(collection, on_t()).await.unwrap();
            place.insert(collection, expired()).await;
        }
        let registry = stored(test).await.unwrap();
        let second = registry.get_array("indexes").unwrap()[1].as_document().unwrap();
        tamper(test, doc! { field: second.get(field).unwrap().clone() }).await;

        for index in ttl.list_indexes().await.unwrap() {
            assert_eq!(index.state, IndexState::NeedsRepair, "{index:?}");
            assert!(index.problem.unwrap().starts_with("another entry"));
        }
        let before = stored(test).await.unwrap();
        assert!(ttl.sweep("d").await.is_err());
        if mended {
            // The one in question goes, and the other is clear again.
            ttl.drop_index("d", "t_1").await.unwrap();
            assert_eq!(ttl.sweep("d").await.unwrap().deleted, 1);
        } else {
            // A change of one would be a change of both.
            ttl.modify_index("d", Duration::ZERO).await.unwrap_err();
            ttl.drop_index("d", "t_1").await.unwrap_err();
            assert_eq!(stored(test).await.unwrap(), before);
        }
        assert_eq!(place.count("c").await, 1);
        test.db.drop().await.unwrap();
    }
}
