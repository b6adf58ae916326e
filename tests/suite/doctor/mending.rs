//! The updates that are proposed, carried out on a real server.

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, Timestamp, doc, oid::ObjectId};
use ttl_index::{FindingKind, TtlIndex};

use super::{kinds, on_at};
use crate::support::database;
use crate::support::place::Place;

/// 2018-05-25T00:00:00Z.
const SECONDS: i64 = 1_527_206_400;

fn when() -> DateTime {
    DateTime::from_millis(SECONDS * 1000)
}

/// Finds one thing of this kind, mends it as proposed, finds nothing, and hands over what is in the collection then.
async fn mended(field: &str, kind: FindingKind, documents: Vec<Document>) -> Vec<Document> {
    let place = Place::Mongo(database().await);
    let Place::Mongo(test) = &place else { panic!() };
    let ttl = place.registry().await;
    let index = TtlIndex::on(field).expire_after(Duration::from_secs(3600)).supporting_index(false);
    ttl.create_index("c", index).await.unwrap();
    place.insert("c", documents.clone()).await;
    let examine = async || ttl.doctor().collection("c").await.unwrap().diagnoses.remove(0);

    let diagnosis = examine().await;
    let finding = diagnosis.findings.iter().find(|finding| finding.kind == kind);
    let finding = finding.unwrap_or_else(|| panic!("no {kind} in {diagnosis}"));
    let mend = finding.mend.clone().unwrap_or_else(|| panic!("{diagnosis}"));
    let update = async || {
        let collection = test.db.collection::<Document>("c");
        let update = collection.update_many(mend.filter.clone(), mend.pipeline.clone());
        update.await.unwrap_or_else(|error| panic!("{mend}: {error}")).modified_count
    };
    assert_eq!(Some(update().await), finding.documents, "{mend}");
    let after = examine().await;
    assert!(!kinds(&after).contains(&kind), "{diagnosis}{after}");
    // A second time there is nothing to do.
    assert_eq!(update().await, 0, "{mend}");
    let mut documents = place.documents("c").await;
    documents.sort_by_key(|document| document.get("_id").unwrap().to_string());
    test.db.drop().await.unwrap();
    documents
}

#[tokio::test]
async fn what_is_proposed_turns_a_value_into_the_date_that_was_meant() {
    let text = "2018-05-25T00:00:00Z";
    let oid = ObjectId::parse_str(format!("{SECONDS:08x}0000000000000000")).unwrap();
    for (kind, value) in [
        (FindingKind::IsoString, Bson::from(text)),
        (FindingKind::IsoString, "2018-05-25".into()),
        (FindingKind::DateString, "Fri, 25 May 2018 00:00:00 GMT".into()),
        (FindingKind::DateString, "2018/05/25".into()),
        (FindingKind::DateString, "20180525".into()),
        (FindingKind::EpochString, SECONDS.to_string().into()),
        (FindingKind::EpochString, format!("{SECONDS}000").into()),
        (FindingKind::EpochSeconds, i32::try_from(SECONDS).unwrap().into()),
        (FindingKind::EpochSeconds, Bson::Double(1_527_206_400.0)),
        (FindingKind::EpochMilliseconds, (SECONDS * 1000).into()),
        (FindingKind::EpochMilliseconds, Bson::Decimal128("1527206400000".parse().unwrap())),
        (FindingKind::EpochMicroseconds, (SECONDS * 1_000_000).into()),
        (FindingKind::EpochNanoseconds, (SECONDS * 1_000_000_000).into()),
        (FindingKind::Timestamp, Bson::Timestamp(Timestamp { time: u32::try_from(SECONDS).unwrap(), increment: 7 })),
        (FindingKind::ObjectId, oid.into()),
        (FindingKind::SecondsForMilliseconds, DateTime::from_millis(SECONDS).into()),
        (FindingKind::MillisecondsForSeconds, DateTime::from_millis(SECONDS * 1_000_000).into()),
    ] {
        let good = DateTime::from_millis(SECONDS * 1000 + 1);
        // Values that are none of its business stay as they are.
        let others = doc! { "_id": 1, "at": "no date at all" };
        let documents = vec![
            doc! { "_id": 0, "at": value.clone() },
            others.clone(),
            doc! { "_id": 2, "at": good },
            doc! { "_id": 3 },
        ];
        let after = mended("at", kind, documents).await;
        let expected = [doc! { "_id": 0, "at": when() }, others, doc! { "_id": 2, "at": good }, doc! { "_id": 3 }];
        assert_eq!(after, expected, "{value}");
    }
}

#[tokio::test]
async fn what_is_proposed_puts_a_date_where_it_belongs() {
    let date = when();
    for (field, kind, before, after) in [
        ("ts", FindingKind::DateDeeper, doc! { "ts": { "date": "2018-05-25" } }, doc! { "ts": date }),
        ("ts", FindingKind::DateDeeper, doc! { "ts": { "value": date } }, doc! { "ts": date }),
        ("a.b", FindingKind::LiteralDottedName, doc! { "a.b": date }, doc! { "a.b": date, "a": { "b": date } }),
        (
            "a.b.c",
            FindingKind::LiteralDottedName,
            doc! { "a": { "b.c": date } },
            doc! { "a": { "b.c": date, "b": { "c": date } } },
        ),
        ("ts", FindingKind::ArrayWithoutDate, doc! { "ts": ["2018-05-25", "2018-05-25"] }, doc! { "ts": [date, date] }),
        ("a.ts", FindingKind::ArrayWithoutDate, doc! { "a": { "ts": [SECONDS] } }, doc! { "a": { "ts": [date] } }),
        (
            "a.b.ts",
            FindingKind::EpochSeconds,
            doc! { "a": { "b": { "ts": SECONDS } } },
            doc! { "a": { "b": { "ts": date } } },
        ),
    ] {
        let with_id = |document: Document| doc! { "_id": 0 }.into_iter().chain(document).collect::<Document>();
        // The last one has a date that counts.
        let others = [doc! { "_id": 1, "x": 1 }, doc! { "_id": 2, "ts": [date, [date]] }];
        let found = mended(field, kind, vec![with_id(before), others[0].clone(), others[1].clone()]).await;
        assert_eq!(found[1..], others, "{field} {kind}");
        assert_eq!(found[0], with_id(after), "{field} {kind}");
    }
}

#[tokio::test]
async fn nothing_is_proposed_where_it_would_be_a_guess() {
    let place = Place::embedded();
    let ttl = place.registry().await;
    ttl.create_index("c", on_at()).await.unwrap();
    let values: [Bson; 6] = ["01/02/2020".into(), "soon".into(), 3600.into(), Bson::Null, doc! {}.into(), true.into()];
    let documents = (0..).zip(values).map(|(id, value)| doc! { "_id": id, "at": value });
    place.insert("c", documents.collect()).await;
    let diagnosis = ttl.doctor().await.unwrap().diagnoses.remove(0);
    assert_eq!(kinds(&diagnosis), [FindingKind::OtherType, FindingKind::DateString, FindingKind::NullField]);
    assert!(diagnosis.findings.iter().all(|finding| finding.mend.is_none()), "{diagnosis}");
}
