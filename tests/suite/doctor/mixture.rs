//! One collection with everything that can stand in a field: what is proposed for one finding leaves all else alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use mongodb::bson::{Bson, DateTime, Document, Timestamp, doc, oid::ObjectId};
use ttl_index::{Diagnosis, Finding, TtlIndex};

use crate::support::{database, place::Place};

/// 2018-05-25T00:00:00Z.
const SECONDS: i64 = 1_527_206_400;

fn scalars() -> Vec<Bson> {
    let ids = [ObjectId::parse_str("5b07520000000000000000aa").unwrap(), ObjectId::from_bytes([0xff; 12])];
    let texts = [
        "2018-05-25",
        "2018-05-25T00:00:00Z",
        "2018-05-25 10:00",
        "2018-99-99",
        "2018-05-25X",
        " 2018-05-25",
        "2018-05-25\n",
        "2018-05-25T10",
        "2018-05-25Tsoon",
        "03/12/2026",
        "12.03.2026",
        "2018/05/25",
        "2018/05",
        "2018 05 25",
        "20180525",
        "20180525T000000Z",
        "20181325",
        "20180525 10:00",
        "Fri, 25 May 2018 00:00:00 GMT",
        "May 2018",
        "mayor 7 of 2018",
        "x2018/05/25",
        "1527206400",
        "1527206400000",
        "100000000",
        "0001527206400",
        "-1527206400",
        "+1527206400",
        "1527206400\n",
        "99999999999999999999",
        "9223372036854775807",
        "soon",
        "",
        "5",
        "2018",
        "31 12 1999",
        "a 1 2 1999",
        "2018-05-25T00:00:00+02:00, or later, but not after 2019-01-01T00:00:00Z",
        "۲۰۱۸-۰۵-۲۵",
    ];
    let numbers = [5, 100_000_000, SECONDS, SECONDS * 1000, SECONDS * 1_000_000, SECONDS * 1_000_000_000, -SECONDS];
    let decimals = ["1527206400", "1527206400.5", "1527206400000", "1.5E+400", "NaN"];
    let dates =
        [0, SECONDS, SECONDS * 1000, SECONDS * 1_000_000, 1_900_000_000_000, i64::MAX, -5].map(DateTime::from_millis);
    let mut all: Vec<Bson> = texts.map(Bson::from).to_vec();
    all.extend(numbers.map(Bson::from));
    all.extend([1_527_206_400.0, 1_527_206_400.5, 1e300, f64::INFINITY].map(Bson::from));
    all.extend(decimals.map(|it| Bson::Decimal128(it.parse().unwrap())));
    all.extend(dates.map(Bson::from));
    all.extend(ids.map(Bson::from));
    all.extend([Bson::Null, true.into(), Bson::Timestamp(Timestamp { time: 1_527_206_400, increment: 1 })]);
    all
}

/// Scalars, and arrays and documents of them, with and without a date beside.
fn values() -> Vec<Bson> {
    let (scalars, later) = (scalars(), Bson::from(DateTime::from_millis(1_900_000_000_000)));
    let around = |value: &Bson| {
        let value = || value.clone();
        let array = Bson::Array;
        [
            value(),
            array(vec![value()]),
            array(vec![value(), value()]),
            array(vec![later.clone(), value()]),
            array(vec![value(), "2018-05-25".into()]),
            array(vec![SECONDS.into(), value()]),
            array(vec![array(vec![value()])]),
            array(vec![array(vec![array(vec![value()])]), value()]),
            doc! { "date": value() }.into(),
            doc! { "date": value(), "x": 1 }.into(),
            doc! { "when": later.clone(), "date": value() }.into(),
        ]
    };
    scalars.iter().flat_map(around).chain([Bson::Array(Vec::new()), doc! {}.into()]).collect()
}

fn documents(field: &str) -> Vec<Document> {
    let at = || field.to_owned();
    let all: Vec<Document> = if field == "at" {
        let beside =
            scalars().into_iter().flat_map(|value| [doc! { "At": value.clone() }, doc! { "x": { "at": value } }]);
        values().into_iter().map(|value| doc! { "at": value }).chain(beside).chain([doc! {}]).collect()
    } else {
        let inner = values().into_iter().map(|value| doc! { "m": { "at": value } });
        let placed = scalars().into_iter().flat_map(|value| {
            let date = DateTime::from_millis(SECONDS * 1000);
            [
                doc! { at(): value.clone() },
                doc! { at(): value.clone(), "at": date },
                doc! { at(): date, "m": value.clone() },
                doc! { at(): date, "m": { "x": value.clone() } },
                doc! { at(): date, "m": { "at": value.clone() } },
                doc! { at(): date, "m": [{ "at": value.clone() }] },
                doc! { "m": [{ "at": value.clone() }, { "at": date }] },
                doc! { "m": [{ "at": [value.clone()] }, { "at": value.clone() }] },
                doc! { "at": value.clone() },
                doc! { "m": { "At": value } },
            ]
        });
        inner.chain(placed).collect()
    };
    // Each with what a partial filter matches, and with what it does not.
    let twice = all.into_iter().flat_map(|it| [0, 1].map(|k| (it.clone(), k)));
    twice
        .enumerate()
        .map(|(id, (it, k))| doc! { "_id": i32::try_from(id).unwrap(), "k": k }.into_iter().chain(it).collect())
        .collect()
}

type Findings = BTreeSet<(&'static str, Option<String>)>;

fn what(finding: &Finding) -> (&'static str, Option<String>) {
    (finding.kind.as_str(), finding.detail.clone())
}

/// What is found of each document when it is alone.
async fn alone(index: &TtlIndex, documents: &[Document]) -> BTreeMap<String, Findings> {
    let place = Place::embedded();
    let ttl = place.registry().await;
    ttl.create_index("c", index.clone()).await.unwrap();
    let mut all = BTreeMap::new();
    for document in documents {
        place.insert("c", vec![document.clone()]).await;
        let diagnosis = ttl.doctor().await.unwrap().diagnoses.remove(0);
        let id = document.get("_id").unwrap().clone();
        all.insert(id.to_string(), diagnosis.findings.iter().map(what).collect());
        place.delete("c", id).await;
    }
    all
}

async fn examine(field: &str, partial_filter: Option<Document>, expected: &[&str]) {
    let place = Place::Mongo(database().await);
    let Place::Mongo(test) = &place else { panic!() };
    let mut index = TtlIndex::on(field).expire_after(Duration::from_secs(3600)).supporting_index(false);
    if let Some(filter) = partial_filter {
        index = index.partial_filter(filter);
    }
    let documents = documents(field);
    let alone = alone(&index, &documents).await;
    let ttl = place.registry().await;
    ttl.create_index("c", index).await.unwrap();
    place.insert("c", documents).await;
    let diagnosis: Diagnosis = ttl.doctor().sample(100_000).await.unwrap().diagnoses.remove(0);
    let before = texts(&place).await;
    assert_eq!(before.len(), alone.len());

    let collection = test.db.collection::<Document>("c");
    let mut mended = BTreeSet::new();
    for finding in &diagnosis.findings {
        let Some(mend) = &finding.mend else { continue };
        let update = async || {
            let update = collection.update_many(mend.filter.clone(), mend.pipeline.clone());
            update.await.unwrap_or_else(|error| panic!("{mend}: {error}"))
        };
        let modified = update().await.modified_count;
        let after = texts(&place).await;
        let changed: Vec<&String> = before.keys().filter(|id| before[*id] != after[*id]).collect();
        assert!(modified > 0 && modified == changed.len() as u64, "{mend}: {modified}");
        for id in &changed {
            assert!(alone[*id].contains(&what(finding)), "{:?}\n{mend}\nchanged {}", what(finding), before[*id]);
        }
        assert_eq!(update().await.modified_count, 0, "{mend}");
        mended.insert(finding.kind.as_str());
        let changed: Vec<Bson> = changed.iter().map(|id| Bson::Int32(id.parse().unwrap())).collect();
        collection.delete_many(doc! { "_id": { "$in": changed.clone() } }).await.unwrap();
        let again = self::documents(field).into_iter().filter(|it| changed.contains(it.get("_id").unwrap()));
        collection.insert_many(again).await.unwrap();
    }
    assert_eq!(mended.into_iter().collect::<Vec<_>>(), expected);
    test.db.drop().await.unwrap();
}

async fn texts(place: &Place) -> BTreeMap<String, String> {
    let documents = place.documents("c").await;
    documents.iter().map(|it| (it.get("_id").unwrap().to_string(), it.to_string())).collect()
}

const IN_PLACE: [&str; 13] = [
    "array_without_date",
    "date_deeper",
    "date_string",
    "epoch_microseconds",
    "epoch_milliseconds",
    "epoch_nanoseconds",
    "epoch_seconds",
    "epoch_string",
    "iso_string",
    "milliseconds_for_seconds",
    "object_id",
    "seconds_for_milliseconds",
    "timestamp",
];

#[tokio::test]
async fn a_mend_changes_documents_of_its_finding_alone_and_nothing_the_second_time() {
    examine("at", None, &IN_PLACE).await;
}

#[tokio::test]
async fn so_it_does_where_a_partial_filter_is() {
    examine("at", Some(doc! { "k": 1 }), &IN_PLACE).await;
}

#[tokio::test]
async fn so_it_does_at_a_path() {
    let mut expected = IN_PLACE.to_vec();
    expected.insert(9, "literal_dotted_name");
    examine("m.at", None, &expected).await;
}
