//! `sweep`.

use std::process::Command;
use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use serde_json::{Value, json};

use super::{Bench, expired};
use crate::support::program::{Program, Run};
use crate::support::{self, wait};

fn fill(program: &Program, collection: &str, count: usize) {
    assert_eq!(program.run_with_input(&["import", collection, "-"], &expired(count)).code, Some(0));
}

#[tokio::test]
async fn a_report_has_the_keys_that_scripts_depend_on() {
    let bench = Bench::new().await;
    for program in bench.programs() {
        fill(&program, "c", 1000);
        program.json(&["create", "c", "t", "--expire-after", "1d"]);
        let limited = program.run(&["--json", "sweep", "c", "--max-batches", "1", "--batch-size", "300"]);
        assert_eq!((limited.code, limited.stderr.as_str()), (Some(4), ""));
        let [report] = &limited.lines()[..] else { panic!("{limited:?}") };
        let keys: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "collection",
                "index",
                "cutoff",
                "found",
                "deleted",
                "changed",
                "batches",
                "ended",
                "oldest_due",
                "uncertain",
                "left",
                "kept",
                "disputed"
            ]
        );
        let mut expected = json!({
            "collection": "c", "index": "t_1", "cutoff": report["cutoff"], "found": 300, "deleted": 300, "changed": 0,
            "batches": 1, "ended": "limit_reached", "oldest_due": { "$date": "2013-01-02T00:00:00Z" },
            "uncertain": 0, "left": 0, "kept": 0, "disputed": 0,
        });
        assert_eq!(report, &expected);
        let cutoff = DateTime::parse_rfc3339_str(report["cutoff"]["$date"].as_str().unwrap()).unwrap();
        let age = DateTime::now().timestamp_millis() - cutoff.timestamp_millis();
        assert!((86_400_000..86_400_000 + 600_000).contains(&age), "{cutoff} is {age} ms ago");

        let [report] = &program.json(&["sweep", "--batch-size", "500"])[..] else { panic!("not one report") };
        for (key, value) in [("found", 700), ("deleted", 700), ("batches", 2)] {
            expected[key] = json!(value);
        }
        (expected["ended"], expected["oldest_due"]) = (json!("drained"), Value::Null);
        expected["cutoff"] = report["cutoff"].clone();
        assert_eq!(report, &expected);

        let words = program.run(&["sweep", "c"]);
        assert_eq!(words.code, Some(0));
        assert!(words.stdout.starts_with("c (t_1): drained; 0 deleted of 0 found due, with dates up to "), "{words:?}");
    }
}

#[tokio::test]
async fn the_options_bound_a_pass() {
    let bench = Bench::new().await;
    for program in bench.programs() {
        fill(&program, "c", 50);
        program.json(&["create", "c", "t"]);
        let run = program.run(&["--json", "sweep", "c", "--max-time", "0"]);
        assert_eq!((run.code, &run.lines()[0]["deleted"]), (Some(4), &json!(0)), "{run:?}");
        // None of the documents is that old.
        let reports = program.json(&["sweep", "c", "--cutoff", "2012-12-31T23:59:59.999Z"]);
        assert_eq!((&reports[0]["found"], &reports[0]["ended"]), (&json!(0), &json!("drained")));
        assert_eq!(reports[0]["cutoff"], json!({ "$date": "2012-12-31T23:59:59.999Z" }));
        program.run(&["sweep", "c", "--cutoff", "9000-01-01T00:00:00Z"]).failed(3, "is too late");
        let reports = program.json(&["sweep", "c", "--cutoff", r#"{"$date":"2013-01-01T00:00:00Z"}"#]);
        assert_eq!(reports[0]["deleted"], json!(50));
    }
}

#[tokio::test]
async fn one_collection_that_fails_does_not_stop_the_others() {
    let it = support::database().await;
    let program = Program::at(&it.uri);
    for collection in ["a", "b", "c"] {
        fill(&program, collection, 3);
        program.json(&["create", collection, "t"]);
    }
    // Another collection under the same name: its documents are not those the index was made for.
    it.db.collection::<Document>("b").drop().await.unwrap();
    fill(&program, "b", 3);
    let run = program.run(&["--json", "sweep"]);
    assert_eq!(run.code, Some(3), "{run:?}");
    let reports = run.lines();
    let deleted: Vec<_> =
        reports.iter().map(|r| (r["collection"].as_str(), r["ended"].as_str(), &r["deleted"])).collect();
    assert_eq!(
        deleted,
        [
            (Some("a"), Some("drained"), &json!(3)),
            (Some("b"), Some("failed"), &json!(0)),
            (Some("c"), Some("drained"), &json!(3)),
        ]
    );
    assert!(reports[1]["error"].as_str().unwrap().contains("361"), "{run:?}");
    assert_eq!(run.stderr.matches("is not the collection that the TTL index").count(), 1, "{run:?}");
    assert!(run.stderr.starts_with("error: sweeping b: "), "{run:?}");
    // What a sweep would not go by explains nothing.
    program.run(&["explain", "b"]).failed(3, "is not the collection that the TTL index");

    // What cannot be swept at all weighs more than what is left behind.
    fill(&program, "c", 3);
    let run = program.run(&["--json", "sweep", "missing", "c"]);
    assert_eq!((run.code, run.lines().len()), (Some(3), 1), "{run:?}");
    assert_eq!(it.db.collection::<Document>("b").count_documents(doc! {}).await.unwrap(), 3);
}

#[tokio::test]
async fn a_signal_ends_the_passes_between_two_batches() {
    for signal in ["TERM", "INT"] {
        let it = support::database().await;
        let program = Program::at(&it.uri);
        for collection in ["a", "b"] {
            fill(&program, collection, 1000);
            program.json(&["create", collection, "t"]);
        }
        let sweeping = program.start(&["--json", "sweep", "a", "b", "--rate", "20", "--batch-size", "10"]);
        let documents = it.db.collection::<Document>("a");
        wait::until("the second batch", Duration::from_secs(60), async || {
            documents.count_documents(doc! {}).await.unwrap() <= 980
        })
        .await;
        let pid = sweeping.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        let run = Run::of(sweeping.wait_with_output().unwrap());
        assert_eq!(run.code, Some(4), "{run:?}");
        assert_eq!(run.stderr, "stopping after the batch under way; once more stops at once\n");
        let [a, b] = &run.lines()[..] else { panic!("not two reports: {run:?}") };
        assert_eq!((a["ended"].as_str(), b["ended"].as_str()), (Some("cancelled"), Some("cancelled")));
        assert_eq!((&a["oldest_due"], &b["deleted"]), (&json!({ "$date": "2013-01-01T00:00:00Z" }), &json!(0)));
        let deleted = a["deleted"].as_u64().unwrap();
        assert_eq!((deleted % 10, &a["found"]), (0, &a["deleted"]), "{run:?}");
        assert_eq!(documents.count_documents(doc! {}).await.unwrap(), 1000 - deleted);
        it.drop().await;
    }
}
