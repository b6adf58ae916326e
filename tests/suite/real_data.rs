//! All flights that left New York in 2013, imported, swept by the command line, and counted again without it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

use futures_util::TryStreamExt;
use mongodb::bson::{DateTime, Document, RawDocumentBuf, doc};
use serde_json::{Value, json};
use ttl_index::EmbeddedStore;

use crate::support;
use crate::support::fetch::flights_jsonl;
use crate::support::program::Program;

const FLIGHTS: u64 = 336_776;
const BATCH: u64 = 5000;

/// How many flights there are for each `time_hour`.
type Hours = BTreeMap<DateTime, u64>;

/// Counted from the file, with nothing of what is under test.
fn hours_of_file(file: &Path) -> Hours {
    let mut hours = Hours::new();
    for line in BufReader::new(std::fs::File::open(file).unwrap()).lines() {
        // Cut out of the text, which is quicker than parsing all of it.
        let line = line.unwrap();
        let (_, hour) = line.split_once(r#""time_hour":{"$date":""#).unwrap();
        let (hour, _) = hour.split_once('"').unwrap();
        *hours.entry(DateTime::parse_rfc3339_str(hour).unwrap()).or_default() += 1;
    }
    assert_eq!(hours.values().sum::<u64>(), FLIGHTS);
    hours
}

/// Imports and sweeps, and returns which flights should be left.
fn sweep(program: &Program, file: &Path) -> Hours {
    let imported = program.json(&["import", "flights", file.to_str().unwrap()]);
    assert_eq!(imported, [json!({ "collection": "flights", "imported": FLIGHTS })]);

    // About half of the year is due.
    let july = DateTime::parse_rfc3339_str("2013-07-01T00:00:00Z").unwrap();
    let period = (DateTime::now().timestamp_millis() - july.timestamp_millis()) / 1000;
    program.json(&["create", "flights", "time_hour", "--expire-after", &format!("{period}s")]);
    let [report] = &program.json(&["sweep", "flights", "--batch-size", &BATCH.to_string()])[..] else {
        panic!("not one report");
    };

    let cutoff = DateTime::parse_rfc3339_str(report["cutoff"]["$date"].as_str().unwrap()).unwrap();
    let mut gone = hours_of_file(file);
    let left = gone.split_off(&DateTime::from_millis(cutoff.timestamp_millis() + 1));
    let due: u64 = gone.values().sum();
    assert!((FLIGHTS / 3..FLIGHTS * 2 / 3).contains(&due), "{due} are due at {cutoff}");

    let count = |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("{key} of {report}"));
    assert_eq!((count("found"), count("deleted"), report["ended"].as_str()), (due, due, Some("drained")), "{report}");
    assert_eq!(count("found"), count("deleted") + count("changed") + count("uncertain") + count("left"), "{report}");
    assert_eq!((count("batches"), count("disputed")), (due.div_ceil(BATCH), 0), "{report}");
    assert_eq!(report["oldest_due"], Value::Null, "{report}");
    left
}

fn note(hours: &mut Hours, flight: &RawDocumentBuf) {
    *hours.entry(flight.get_datetime("time_hour").unwrap()).or_default() += 1;
}

#[tokio::test]
async fn the_flights_left_by_a_sweep_of_mongodb_are_those_that_are_not_due() {
    let file = tokio::task::spawn_blocking(flights_jsonl).await.unwrap();
    let it = support::database().await;
    let expected = sweep(&Program::at(&it.uri), &file);
    let mut left = Hours::new();
    let flights = it.db.collection::<RawDocumentBuf>("flights");
    let mut cursor = flights.find(doc! {}).projection(doc! { "time_hour": 1 }).await.unwrap();
    while let Some(flight) = cursor.try_next().await.unwrap() {
        note(&mut left, &flight);
    }
    assert!(left == expected, "{} flights are left, not {}", sum(&left), sum(&expected));
    let by_server = it.db.collection::<Document>("flights").count_documents(doc! {}).await.unwrap();
    assert_eq!(by_server, sum(&expected));
    it.drop().await;
}

#[tokio::test]
async fn the_flights_left_by_a_sweep_of_an_embedded_file_are_those_that_are_not_due() {
    let file = tokio::task::spawn_blocking(flights_jsonl).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("flights");
    let expected = sweep(&Program::embedded(&store), &file);
    let mut left = Hours::new();
    let mut documents = EmbeddedStore::open(&store).unwrap().collection("flights").documents();
    while let Some(page) = documents.next_page(1000).await.unwrap() {
        for flight in &page {
            note(&mut left, flight);
        }
    }
    assert!(left == expected, "{} flights are left, not {}", sum(&left), sum(&expected));
}

fn sum(hours: &Hours) -> u64 {
    hours.values().sum()
}
