//! What the indexes show, and what has become of a collection.

use mongodb::bson::{Document, doc};
use ttl_index::{Diagnosis, FindingKind, TtlRegistry};

use super::{kinds, on_at};
use crate::support::database;
use crate::support::place::Place;

async fn examined(ttl: &TtlRegistry) -> Diagnosis {
    ttl.doctor().await.unwrap().diagnoses.into_iter().find(|it| it.collection == "c").unwrap()
}

#[tokio::test]
async fn other_indexes_with_the_field_and_none_at_all_are_told() {
    let place = Place::Mongo(database().await);
    let Place::Mongo(test) = &place else { panic!() };
    let ttl = place.registry().await;
    ttl.create_index("c", on_at()).await.unwrap();
    assert_eq!(kinds(&examined(&ttl).await), []);
    for key in [doc! { "at": 1, "user": 1 }, doc! { "user": 1, "at": -1 }, doc! { "user": 1 }] {
        let name = key.keys().cloned().collect::<Vec<_>>().join("_");
        test.db.run_command(doc! { "createIndexes": "c", "indexes": [{ "key": key, "name": name }] }).await.unwrap();
    }
    let diagnosis = examined(&ttl).await;
    assert_eq!(kinds(&diagnosis), [FindingKind::FieldInOtherIndex; 2], "{diagnosis}");
    let told = diagnosis.to_string();
    assert!(told.contains("at leads at_user") && told.contains("at is a further part of user_at"), "{told}");

    ttl.drop_index("c", "at_1").await.unwrap();
    ttl.create_index("c", on_at().supporting_index(false)).await.unwrap();
    assert!(kinds(&examined(&ttl).await).contains(&FindingKind::NoSupportingIndex));

    // A store that lists by date itself needs none.
    let ttl = Place::embedded().registry().await;
    ttl.create_index("c", on_at().supporting_index(false)).await.unwrap();
    assert_eq!(kinds(&examined(&ttl).await), []);
}

#[tokio::test]
async fn what_has_become_of_a_collection_is_told_before_any_sweeper_has_noticed() {
    let place = Place::Mongo(database().await);
    let Place::Mongo(test) = &place else { panic!() };
    let ttl = place.registry().await;
    let documents = test.db.collection::<Document>("c");
    let detail = async |kind| {
        let diagnosis = examined(&ttl).await;
        assert_eq!(kinds(&diagnosis), [kind], "{diagnosis}");
        diagnosis.findings[0].detail.clone().unwrap()
    };
    documents.insert_one(doc! { "_id": 1, "at": mongodb::bson::DateTime::now() }).await.unwrap();
    ttl.create_index("c", on_at()).await.unwrap();

    documents.drop_index("at_1").await.unwrap();
    assert!(detail(FindingKind::NeedsRepair).await.contains("is gone or hidden"));
    ttl.repair("c").await.unwrap();
    assert_eq!(kinds(&examined(&ttl).await), []);
    test.db.run_command(doc! { "collMod": "c", "index": { "name": "at_1", "hidden": true } }).await.unwrap();
    assert!(detail(FindingKind::NeedsRepair).await.contains("is gone or hidden"));
    test.db.run_command(doc! { "collMod": "c", "index": { "name": "at_1", "hidden": false } }).await.unwrap();

    let rename = |from: &str, to: &str| {
        doc! { "renameCollection": format!("{}.{from}", test.db.name()), "to": format!("{}.{to}", test.db.name()) }
    };
    test.client.database("admin").run_command(rename("c", "d")).await.unwrap();
    assert_eq!(detail(FindingKind::Renamed).await, "it is d");
    test.client.database("admin").run_command(rename("d", "c")).await.unwrap();

    documents.drop().await.unwrap();
    assert_eq!(kinds(&examined(&ttl).await), []);
    documents.insert_one(doc! { "_id": 1 }).await.unwrap();
    let diagnosis = examined(&ttl).await;
    assert!(kinds(&diagnosis).contains(&FindingKind::NeedsRepair), "{diagnosis}");
    assert!(diagnosis.to_string().contains("was dropped and made again"), "{diagnosis}");

    // An entry that nobody understands.
    let broken = doc! { "$set": { "indexes.0.expireAfterSeconds": f64::NAN } };
    test.db.collection::<Document>("ttl_index.registry").update_one(doc! {}, broken).await.unwrap();
    let told = examined(&ttl).await.to_string();
    assert!(told.contains("needs_repair") && told.contains("NaN"), "{told}");
}
