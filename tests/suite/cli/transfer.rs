//! `import` and `export`.

use std::collections::BTreeMap;

use mongodb::bson::{Bson, DateTime, Document, doc};
use serde_json::{Value, json};

use super::{Bench, expired};
use crate::support::json::{bson, cases, document_at};
use crate::support::program::{Program, Run};

/// Exported lines by their `_id`, understood.
fn by_id(run: &Run) -> BTreeMap<String, Document> {
    let parse = |line: Value| {
        let Bson::Document(document) = bson(&line) else { panic!("{line} is no document") };
        (document.get("_id").unwrap().to_string(), document)
    };
    run.lines().into_iter().map(parse).collect()
}

#[tokio::test]
async fn documents_of_every_type_come_out_as_they_went_in() {
    let bench = Bench::new().await;
    let now = DateTime::now();
    let documents: Vec<Document> = (0..)
        .zip(cases())
        .map(|(number, case)| doc! { "_id": number, "it": document_at(&case.document, now) })
        .collect();
    // An Int64 that fits an Int32, and a Double that is whole: relaxed Extended JSON would lose both.
    let plain = doc! { "_id": "numbers", "long": 1_i64, "double": 2.0, "long _id": { "n": i64::MAX } };
    let lines: Vec<String> = documents
        .iter()
        .chain([&plain])
        .map(|document| canonical(&Bson::Document(document.clone())).to_string())
        .collect();
    for program in bench.programs() {
        let file = bench.directory.path().join("in.jsonl");
        std::fs::write(&file, lines.join("\n")).unwrap();
        let imported = program.json(&["import", "c", file.to_str().unwrap()]);
        assert_eq!(imported, [json!({ "collection": "c", "imported": 622 })]);

        let run = program.run(&["export", "c"]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
        let exported = by_id(&run);
        assert_eq!(exported.len(), 622);
        for document in documents.iter().chain([&plain]) {
            // As text, because NaN is not equal to itself.
            let id = document.get("_id").unwrap().to_string();
            assert_eq!(format!("{:?}", exported[&id]), format!("{document:?}"));
        }
        assert!(run.stdout.contains(r#""long":{"$numberLong":"1"},"double":{"$numberDouble":"2.0"}"#));

        let copy = bench.directory.path().join("out.jsonl");
        let report = program.json(&["export", "c", "-o", copy.to_str().unwrap()]);
        assert_eq!(report, [json!({ "collection": "c", "exported": 622, "inexact": 0 })]);
        assert_eq!(std::fs::read_to_string(&copy).unwrap(), run.stdout);
        assert_eq!(program.run(&["export", "nothing"]).stdout, "");
    }
}

/// Written without the conversion that the program uses.
fn canonical(value: &Bson) -> Value {
    match value {
        Bson::Document(document) => document.iter().map(|(k, v)| (k.clone(), canonical(v))).collect(),
        Bson::Array(items) => items.iter().map(canonical).collect(),
        Bson::Int32(n) => json!({ "$numberInt": n.to_string() }),
        Bson::Int64(n) => json!({ "$numberLong": n.to_string() }),
        Bson::Double(n) if n.is_nan() => json!({ "$numberDouble": "NaN" }),
        Bson::Double(n) if n.is_infinite() => {
            json!({ "$numberDouble": if *n > 0.0 { "Infinity" } else { "-Infinity" } })
        }
        Bson::Double(n) => json!({ "$numberDouble": n.to_string() }),
        Bson::DateTime(date) => json!({ "$date": { "$numberLong": date.timestamp_millis().to_string() } }),
        other => other.clone().into_canonical_extjson(),
    }
}

#[tokio::test]
async fn a_bad_line_is_named_and_the_pages_before_it_stay() {
    let bench = Bench::new().await;
    for program in bench.programs() {
        let lines = expired(450) + "\n{oh no}\n" + &expired(1);
        let run = program.run_with_input(&["import", "c", "-"], &lines);
        run.failed(2, "line 452 of standard input is not JSON");
        assert!(run.stderr.contains("400 documents were imported into c"), "{run:?}");
        assert_eq!(program.run(&["export", "c"]).stdout.lines().count(), 400);
    }
}

#[tokio::test]
async fn an_id_that_is_taken_ends_an_import_and_is_named() {
    let bench = Bench::new().await;
    let lines = expired(300) + &expired(1) + &expired(1);
    let [mongo, embedded] = bench.programs();
    for (program, code, imported) in [(mongo, 1, 300), (embedded, 3, 200)] {
        let run = program.run_with_input(&["import", "c", "-"], &lines);
        run.failed(code, "E11000");
        assert!(run.stderr.contains(&format!("{imported} documents were imported into c")), "{run:?}");
        assert_eq!(program.run(&["export", "c"]).stdout.lines().count(), imported);
    }
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let missing = missing.to_str().unwrap();
    Program::at("embedded::memory:").run(&["import", "c", missing]).failed(1, missing);
}
