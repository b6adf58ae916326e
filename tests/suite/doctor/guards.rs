//! Documents that guards keep, and guards that cannot be asked well.

use mongodb::bson::{DateTime, Document, doc};
use ttl_index::{FindingKind, Reference};

use super::on_at;
use crate::support::place::Place;

#[tokio::test]
async fn what_a_guard_keeps_is_not_overdue_and_a_guard_that_cannot_be_asked_is_told() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        if let Place::Mongo(test) = &place {
            let index = doc! { "key": { "p": 1 }, "name": "p_1" };
            test.db.run_command(doc! { "createIndexes": "likes", "indexes": [index] }).await.unwrap();
        }
        ttl.create_index("c", on_at().keep_while(Reference::by("likes", "p"))).await.unwrap();
        let old = DateTime::from_millis(1_600_000_000_000);
        place.insert("c", (1..=3).map(|id| doc! { "_id": id, "at": old }).collect()).await;
        place.insert("likes", vec![doc! { "_id": 1, "p": [1, 2] }, doc! { "_id": 2, "p": 3 }]).await;
        let diagnosis = ttl.doctor().await.unwrap().diagnoses.remove(0);
        assert_eq!(diagnosis.findings, [], "{diagnosis}");
        assert!(
            diagnosis.to_string().contains("note: 3 documents that are overdue are kept by a guard"),
            "{diagnosis}"
        );

        place.delete("likes", 1).await;
        let diagnosis = ttl.doctor().await.unwrap().diagnoses.remove(0);
        let [overdue] = &diagnosis.findings[..] else { panic!("{diagnosis}") };
        assert_eq!((overdue.kind, overdue.documents), (FindingKind::Overdue, Some(2)));

        let Place::Mongo(test) = &place else { continue };
        let children = test.db.collection::<Document>("likes");
        let found = async || {
            let diagnosis = ttl.doctor().await.unwrap().diagnoses.remove(0);
            diagnosis.findings.iter().map(|it| (it.kind, it.harm.as_str())).collect::<Vec<_>>()
        };
        children.drop_index("p_1").await.unwrap();
        assert_eq!(found().await, [(FindingKind::Overdue, "keeps"), (FindingKind::GuardWithoutIndex, "costs")]);
        children.drop().await.unwrap();
        assert!(found().await.contains(&(FindingKind::GuardMissing, "keeps")));

        let guard = Reference::by("likes", "p").without_index();
        children.insert_one(doc! { "p": 3 }).await.unwrap();
        ttl.set_guards("c", [guard]).await.unwrap();
        assert_eq!(found().await, [(FindingKind::Overdue, "keeps")]);
    }
}
