//! `explain`.

use serde_json::json;

use super::{Bench, expired};
use crate::support::program::Program;

#[test]
fn documents_are_explained_without_any_database() {
    let run = Program::alone()
        .run_with_input(&["explain", "--field", "ts", "--expire-after", "1h", "-"], "{\"ts\":\"2026-01-01\"}\n");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    assert_eq!(run.stdout, "never expires: \"ts\" is a string; TTL needs a BSON Date\n");

    let due = r#"{"t":{"$date":{"$numberLong":"1372636800000"}},"n":1}"#;
    let filtered = r#"{"t":{"$date":"2013-07-01T00:00:00Z"},"n":2}"#;
    let not_yet = r#"{"t":[null,{"$date":"2013-07-01T00:00:00.001Z"}],"n":1}"#;
    let explain = ["--json", "explain", "--field", "t", "--expire-after", "1d", "--partial-filter", r#"{"n":1}"#];
    let arguments = [&explain[..], &["--now", "2013-07-02T00:00:00Z", due, filtered, "-", r#"{"_id":1}"#]].concat();
    let run = Program::alone().run_with_input(&arguments, &format!("\n{not_yet}\r\n"));
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    assert_eq!(
        run.lines(),
        [
            json!({ "due": true, "expires_at": { "$date": "2013-07-02T00:00:00Z" },
                "reason": "the earliest date in \"t\" is past its period" }),
            json!({ "due": false, "expires_at": null,
                "reason": "the partial filter { \"n\": 1 } does not match" }),
            json!({ "due": false, "expires_at": { "$date": "2013-07-02T00:00:00.001Z" },
                "reason": "the period after the earliest date in \"t\" is not over" }),
            json!({ "due": false, "expires_at": null, "reason": "\"t\" is missing; TTL needs a BSON Date" }),
        ]
    );
}

#[tokio::test]
async fn the_documents_of_a_collection_are_explained_by_its_index() {
    let bench = Bench::new().await;
    for program in bench.programs() {
        let lines = expired(30) + "{\"_id\":{\"$oid\":\"507f1f77bcf86cd799439011\"},\"t\":1}\n";
        program.run_with_input(&["import", "c", "-"], &lines);
        program.json(&["create", "c", "t", "--expire-after", "1d"]);

        assert_eq!(program.json(&["explain", "c"]).len(), 20);
        assert_eq!(program.json(&["explain", "c", "--limit", "0"]).len(), 0);
        let all = program.json(&["explain", "c", "--limit", "1000"]);
        assert_eq!(all.len(), 31);
        let first = all.iter().find(|verdict| verdict["_id"] == json!(0)).unwrap();
        assert_eq!((&first["due"], &first["expires_at"]), (&json!(true), &json!({ "$date": "2013-01-02T00:00:00Z" })));
        let number = all.iter().find(|verdict| verdict["due"] == json!(false)).unwrap();
        assert_eq!(number["_id"], json!({ "$oid": "507f1f77bcf86cd799439011" }));
        assert_eq!(number["reason"], "\"t\" is a number; TTL needs a BSON Date");

        // Before it expired, and for a document that is not in the collection.
        let early = ["explain", "c", "--now", "2013-01-01T12:00:00Z", "--limit", "1"];
        assert_eq!(program.json(&early)[0]["due"], json!(false));
        let given = program.json(&["explain", "c", r#"{"_id":0,"t":null}"#]);
        assert_eq!(
            given,
            [json!({ "due": false, "expires_at": null, "reason": "\"t\" is null; TTL needs a BSON Date" })]
        );
        let line = program.run(&["explain", "c", "--limit", "1"]).stdout;
        assert!(line.starts_with("0: due since 2013-01-02"), "{line}");
    }
}

#[test]
fn a_line_that_is_no_document_is_named_by_its_number() {
    let explain = ["explain", "--field", "t", "--expire-after", "0", "-"];
    for (bad, why) in [
        ("{", "not JSON"),
        ("nonsense", "not JSON"),
        ("[1]", "not a document"),
        ("null", "not a document"),
        ("{} {}", "not JSON"),
        (r#"{"t":1e999}"#, "not JSON"),
        (r#"{"$date":"2013"}"#, "not Extended JSON"),
        (r#"{"t":{"$date":"2013-07-01"}}"#, "not Extended JSON"),
        (r#"{"t":{"$date":{"$numberLong":"9223372036854775808"}}}"#, "not Extended JSON"),
        (r#"{"t":{"$oid":"z"}}"#, "not Extended JSON"),
        (r#"{"t":{"$binary":{"base64":"?","subType":"00"}}}"#, "not Extended JSON"),
        (r#"{"t":{"$binary":{"base64":"","subType":"🦀"}}}"#, "not Extended JSON"),
        (r#"{"t":{"$uuid":"🦀"}}"#, "not Extended JSON"),
        (r#"{"t":{"$numberDecimal":"🦀"}}"#, "not Extended JSON"),
        (r#"{"t":{"$timestamp":{"t":-1,"i":1}}}"#, "not Extended JSON"),
        (&"[".repeat(100_000), "not JSON"),
    ] {
        let run = Program::alone().run_with_input(&explain, &format!("{{}}\n\n{bad}\n{{}}\n"));
        assert_eq!(run.code, Some(2), "{run:?}");
        assert_eq!(run.stdout.lines().count(), 1, "{run:?}");
        assert!(run.stderr.contains(&format!("line 3 of standard input is {why}")), "{run:?}");
    }
    Program::alone()
        .run(&["explain", "--field", "t", "--expire-after", "0", "5", "{}"])
        .failed(2, "document 1 is not a document");
    // A NUL in a name is JSON, and no BSON.
    let run = Program::alone().run_with_input(&explain, "{\"a\\u0000b\":1}\n");
    assert_ne!(run.code, Some(0), "{run:?}");
}
