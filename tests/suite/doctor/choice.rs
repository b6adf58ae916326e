//! Which documents are judged.

use mongodb::bson::{DateTime, doc};
use ttl_index::{FindingKind, MongoStore, SampledBy, TtlRegistry};

use super::on_at;
use crate::reports::wire::{Wire, watched};
use crate::support::mongod::Mongod;
use crate::support::place::Place;

/// Of every ten documents one has a string.
async fn fill(place: &Place, count: i32) {
    let documents = (0..count).map(|id| {
        if id % 10 == 0 {
            doc! { "_id": id, "at": "2026-01-01" }
        } else {
            doc! { "_id": id, "at": DateTime::MAX }
        }
    });
    place.insert("c", documents.collect()).await;
}

#[tokio::test]
async fn a_sample_is_spread_over_the_collection() {
    for (place, by) in Place::all().await.into_iter().zip([SampledBy::Spread, SampledBy::Random]) {
        let ttl = place.registry().await;
        ttl.create_index("c", on_at()).await.unwrap();
        fill(&place, 4_000).await;
        let diagnosis = ttl.doctor().sample(500).await.unwrap().diagnoses.remove(0);
        let sample = diagnosis.sample.unwrap();
        assert_eq!((sample.documents, sample.total, sample.by), (500, Some(4_000), by));
        let strings = diagnosis.findings.iter().find(|it| it.kind == FindingKind::IsoString).unwrap();
        assert!((2.0..25.0).contains(&strings.percent.unwrap()), "{strings:?}");

        // As many as there are, or more, are all of them.
        for size in [4_000, 4_001] {
            let sample = ttl.doctor().sample(size).await.unwrap().diagnoses.remove(0).sample.unwrap();
            assert_eq!((sample.documents, sample.by), (4_000, SampledBy::All), "{size}");
        }
        for size in [0, 100_001] {
            assert_eq!(ttl.doctor().sample(size).await.unwrap_err().code(), Some(2));
        }
    }
}

#[tokio::test]
async fn where_the_backend_has_no_sample_the_first_documents_are_judged_and_that_is_said() {
    let server = Mongod::private(&["--setParameter", "enableTestCommands=1"]).await;
    let place = Place::Mongo(server.database().await);
    let Place::Mongo(test) = &place else { panic!() };
    place.registry().await.create_index("c", on_at()).await.unwrap();
    fill(&place, 300).await;

    let fault = doc! { "failCommands": ["aggregate"], "errorCode": 40324 };
    let fail = doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": fault };
    test.client.database("admin").run_command(fail).await.unwrap();
    let report = place.registry().await.doctor().sample(100).await.unwrap();
    let sample = report.diagnoses[0].sample.clone().unwrap();
    assert_eq!((sample.documents, sample.by), (100, SampledBy::First));
    assert!(report.to_string().contains("the first 100 of about 300 documents, which may not be like"), "{report}");

    // Nor is it tried with the portable subset.
    let portable = TtlRegistry::open(MongoStore::new(test.db.clone()).portable_only()).await.unwrap();
    let report = portable.doctor().sample(100).await.unwrap();
    assert_eq!(report.diagnoses[0].sample.clone().unwrap().by, SampledBy::First);
}

#[tokio::test]
async fn every_query_has_a_limit_of_time() {
    let (test, wire): (_, Wire) = watched().await;
    let place = Place::Mongo(test);
    place.registry().await.create_index("c", on_at()).await.unwrap();
    fill(&place, 300).await;
    let ttl = place.registry().await;
    let before = wire.all().len();
    for size in [100, 1_000] {
        ttl.doctor().sample(size).await.unwrap();
    }
    let sent = wire.all().split_off(before);
    let on_documents =
        |name: &str| sent.iter().filter(|it| it.get_str(name).is_ok_and(|it| it == "c")).cloned().collect::<Vec<_>>();
    for (name, expected) in [("aggregate", 1), ("find", 1), ("count", 2)] {
        let commands = on_documents(name);
        assert_eq!(commands.len(), expected, "{name}");
        assert!(commands.iter().all(|command| command.contains_key("maxTimeMS")), "{commands:?}");
    }
}
