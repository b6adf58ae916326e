//! `doctor` and `explain` name the right cause for each report about documents that do not expire as somebody meant.
//!
//! `tests/data/diagnoses.txt` holds their whole texts, which `TTL_INDEX_TEST_UPDATE=1` writes anew. The table below holds
//! what must be named in them, so that a wrong text is not taken for the right one with it.

use std::fmt::Write;

use mongodb::bson::{Document, RawDocumentBuf, doc};
use ttl_index::TtlIndex;

use super::catalogue::{Report, all};
use super::steps::{collection, specification};
use crate::support::json;
use crate::support::place::Place;

/// Whether a kind of report is about what stands in documents.
fn is_about_documents(kind: &str) -> bool {
    let kinds =
        ["missing-or-null-field", "array-or-nested-path", "time-zone", "future-past-extreme-date", "partial-filter"];
    kind.starts_with("value-type:") || kinds.contains(&kind)
}

/// What must be found, and nothing else; and what must be said when the index is made or when a document is explained.
///
/// Where nothing is to be found the report's fault was in the program, and its documents are as they should be.
const CAUSES: [(&str, &[&str], &[&str]); 16] = [
    ("TTL-001", &["iso_string", "overdue"], &["1: never expires: \"deleted\" is a string", "2: due since 2020-01-01"]),
    ("TTL-003", &["iso_string"], &["\"struct\": never expires: \"lastProcessDate\" is a string"]),
    ("TTL-005", &["date_deeper"], &["in expireAt.date", "1: never expires: \"expireAt\" is a document"]),
    (
        "TTL-007",
        &["epoch_milliseconds", "epoch_seconds"],
        &["2: never expires: \"_createdAt\" is a number", "as seconds since 1970 it is 2018-05-25T00:00:00Z"],
    ),
    ("TTL-009", &[], &["1: due since 2025-12-31T23:00:00Z"]),
    ("TTL-011", &["milliseconds_for_seconds", "overdue"], &["meant 2022-12-15T00:00:00Z", "2: due since 2022-12-15"]),
    ("TTL-013", &["missing_field", "null_field"], &["\"perm1\": never expires: \"expiredAt\" is null"]),
    ("TTL-015", &["missing_field"], &["keeps: missing_field, 1000 documents (100 %)", "\"created_at\" is missing"]),
    ("TTL-017", &["time_zone_suspected"], &["_id \"utc+2 writer\": 2026-01-01T01:59:00Z"]),
    ("TTL-019", &[], &["1: due since 2026-01-01T00:00:00Z", "2: expires 2026-01-01T00:00:00.001Z"]),
    ("TTL-021", &["far_future", "future_date", "implausibly_old"], &["_id 3: 1969-12-31", "1: expires 2038-08-16"]),
    ("TTL-023", &[], &["\"29d\": expires 2026-01-02", "\"31d\": due since 2025-12-31"]),
    (
        "TTL-025",
        &["empty_array", "iso_string", "time_zone_suspected"],
        &["\"u1\": due since 2025-12-31T23:59:00Z", "an array on the way to it is empty"],
    ),
    ("TTL-027", &["literal_dotted_name"], &["\"a.b.c\": 20", "\"b.c\": 20", "dots included, which a path never sees"]),
    ("TTL-065", &["null_field", "overdue"], &["refused: ", "$ne", "67 CannotCreateIndex", "\"deletedAt\" is null"]),
    ("TTL-067", &["overdue", "partial_filter"], &["by applyStatus, 2 documents (66.7 %)", "applyStatus: \"failed\""]),
];

/// Loads what the report's documents and definitions are before the first sweep, and tells all there is to tell.
async fn told(report: &Report, place: &Place) -> (String, Vec<String>) {
    let ttl = place.registry().await;
    let mut text = String::new();
    let mut name = "";
    for step in report.steps().iter().take_while(|step| step["op"] != "sweep_until_idle") {
        match step["op"].as_str().unwrap() {
            "create_index" => {
                name = collection(step);
                let created = ttl.create_index(name, TtlIndex::from(specification(step))).await;
                if let Err(error) = created {
                    writeln!(text, "refused: {error}").unwrap();
                }
            }
            "insert" => {
                let documents = step["docs"].as_array().unwrap().iter().map(json::document);
                place.insert(name, documents.collect()).await;
            }
            "insert_raw" => {
                // Described in words.
                assert_eq!(report.id, "TTL-005");
                place.insert(name, vec![doc! { "_id": 1, "expireAt": { "date": "2020-01-01T00:00:00Z" } }]).await;
            }
            "insert_many_generated" => {
                let template = json::document(&step["template"]);
                let numbered = |id: i32| {
                    let mut document = template.clone();
                    document.insert("_id", id);
                    document
                };
                let count = i32::try_from(step["count"].as_i64().unwrap()).unwrap();
                // In the order in which both stores hand them out.
                let mut ids: Vec<i32> = (0..count).collect();
                ids.sort_by_key(ToString::to_string);
                place.insert(name, ids.into_iter().map(numbered).collect()).await;
            }
            // What a program does is not what its documents are.
            "start_sweeper_before_connection_ready" | "connection_ready" => {}
            op => panic!("{}: {op}", report.id),
        }
    }
    let diagnosis = ttl.doctor().collection(name).at(report.now()).await.unwrap();
    write!(text, "{diagnosis}").unwrap();
    let [diagnosis] = &diagnosis.diagnoses[..] else { panic!("{}: {diagnosis}", report.id) };
    let mut found: Vec<String> = diagnosis.findings.iter().map(|finding| finding.kind.to_string()).collect();
    found.sort_unstable();
    found.dedup();

    let rule = ttl.rule(name).await.unwrap();
    let explained = |document: &Document| {
        let verdict = rule.judge(&RawDocumentBuf::try_from(document).unwrap(), report.now());
        format!("  {}: {verdict}\n", document.get("_id").unwrap())
    };
    let mut lines: Vec<String> = place.documents(name).await.iter().map(explained).collect();
    lines.sort_unstable();
    // A thousand times the same is not worth keeping.
    text.extend(lines.into_iter().take(5));
    (text, found)
}

/// What is kept of a report: its whole text under its name.
fn kept(snapshot: &str, id: &str) -> Option<String> {
    let (_, rest) = snapshot.split_once(&format!("== {id} "))?;
    let (_, text) = rest.split_once('\n')?;
    Some(text.split("\n== ").next()?.trim_end().to_owned())
}

#[tokio::test]
async fn doctor_and_explain_name_the_cause_of_every_report_on_both_stores() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/diagnoses.txt");
    let update = std::env::var_os("TTL_INDEX_TEST_UPDATE").is_some();
    let snapshot = std::fs::read_to_string(file).unwrap_or_default();
    let reports: Vec<&Report> = all().iter().filter(|report| is_about_documents(&report.kind)).collect();
    assert_eq!(reports.iter().map(|report| report.id.as_str()).collect::<Vec<_>>(), CAUSES.map(|(id, ..)| id));

    let mut written = Vec::new();
    for (report, (id, kinds, words)) in reports.into_iter().zip(CAUSES) {
        let mut texts = Vec::new();
        for place in Place::all().await {
            let (text, found) = told(report, &place).await;
            assert_eq!(found, kinds, "{id}:\n{text}");
            for words in words {
                assert!(text.contains(words), "{id} does not say {words:?}:\n{text}");
            }
            texts.push(text);
        }
        assert_eq!(texts[0], texts[1], "{id}: the stores differ");
        if !update {
            assert_eq!(Some(texts[0].trim_end()), kept(&snapshot, id).as_deref(), "{id}");
        }
        written.push(format!("== {id} {}\n{}", report.kind, texts[0]));
    }
    if update {
        std::fs::write(file, written.join("\n")).unwrap();
    }
}
