//! The command `doctor`.

use serde_json::json;
use tempfile::TempDir;

use crate::support::{database, program::Program};

const LINES: &str = "{\"_id\":1,\"t\":\"2026-01-01\"}\n{\"_id\":2,\"t\":null}\n{\"_id\":3,\"t\":{\"$date\":\"2013-07-01T10:00:00Z\"}}\n";

#[tokio::test]
async fn findings_are_printed_and_give_an_exit_code_of_their_own() {
    let (mongo, directory) = (database().await, TempDir::new().unwrap());
    for program in [Program::at(&mongo.uri), Program::embedded(&directory.path().join("store"))] {
        program.run_with_input(&["import", "c", "-"], LINES);
        program.json(&["create", "c", "t", "--expire-after", "1d"]);
        let doctor = ["doctor", "c", "--now", "2013-07-02T00:00:00Z"];

        let run = program.run(&doctor);
        assert_eq!((run.code, run.stderr.as_str()), (Some(3), ""), "{run:?}");
        assert!(run.stdout.starts_with("c: TTL index t_1 on"), "{run:?}");
        assert!(run.stdout.contains("to mend: db.getCollection(\"c\").updateMany({$expr: {"), "{run:?}");

        let run = program.run(&[&["--json"], &doctor[..]].concat());
        let [diagnosis] = &run.lines()[..] else { panic!("{run:?}") };
        assert_eq!(run.code, Some(3));
        let sample =
            json!({ "documents": 3, "total": 3, "by": "all", "due": 0, "later": 1, "never": 2, "oldest_due": null });
        assert_eq!(diagnosis["sample"], sample);
        let first = &diagnosis["findings"][0];
        let kind = json!([first["kind"], first["harm"], first["rank"], first["documents"], first["percent"]]);
        assert_eq!(kind, json!(["iso_string", "keeps", 2, 1, 33.3]));
        assert_eq!(first["examples"], json!([{ "_id": 1, "found": "\"2026-01-01\"" }]));
        let convert = json!({ "$convert": { "input": "$t", "to": "date", "onError": "$t" } });
        assert_eq!(first["mend"]["pipeline"], json!([{ "$set": { "t": convert } }]));

        // What is meant to be so is left out.
        let run = program.run(&[&doctor[..], &["--except", "iso_string,null_field"]].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(run.stdout.ends_with("nothing found\n"), "{run:?}");
    }
}

#[test]
fn what_was_mistyped_is_told_apart_from_a_finding_by_its_words() {
    let memory = Program::at("embedded::memory:");
    memory.run(&["doctor", "--except", "strings"]).failed(2, "iso_string");
    memory.run(&["doctor", "--sample", "0"]).failed(3, "1 to 100000");
    memory.run(&["doctor", "ttl_index.lease"]).failed(3, "own data");
    assert_eq!(memory.run(&["doctor"]).stdout, "there is no TTL index\n");
    assert_eq!(memory.run(&["doctor"]).code, Some(0));
}
