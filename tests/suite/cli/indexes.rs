//! `create`, `list`, `modify` and `drop`.

use serde_json::{Value, json};

use super::{Bench, Program};

/// The TTL indexes that the program printed, without the instants at which they were made.
fn printed(program: &Program, arguments: &[&str]) -> Vec<Value> {
    let mut indexes = program.json(arguments);
    for index in &mut indexes {
        let made = index.as_object_mut().unwrap().remove("createdAt").unwrap();
        assert!(made["$date"].is_string(), "{made}");
    }
    indexes
}

#[tokio::test]
async fn an_index_is_made_listed_modified_and_dropped() {
    let bench = Bench::new().await;
    for program in bench.programs() {
        let filter = r#"{"n":{"$gt":{"$numberLong":"5"}},"at":{"$gte":{"$date":"2013-07-01T00:00:00Z"}}}"#;
        let create =
            ["create", "sessions", "a.t", "--expire-after", "36h", "--name", "own", "--partial-filter", filter];
        let mut index = json!({
            "collection": "sessions", "name": "own", "key": { "a.t": 1 }, "expireAfterSeconds": 129_600,
            "state": "ACTIVE", "supportingIndex": { "name": "own", "created": true },
            "partialFilterExpression": { "n": { "$gt": 5 }, "at": { "$gte": { "$date": "2013-07-01T00:00:00Z" } } },
        });
        assert_eq!(printed(&program, &create), std::slice::from_ref(&index));
        assert_eq!(printed(&program, &create), std::slice::from_ref(&index), "again");

        let mut other = create;
        other[4] = "1h";
        program.run(&other).failed(3, "85 IndexOptionsConflict");
        index["expireAfterSeconds"] = json!(3600);
        assert_eq!(printed(&program, &[&other[..], &["--or-modify"]].concat()), std::slice::from_ref(&index));
        program.run(&["create", "sessions", "other"]).failed(3, "67 CannotCreateIndex");

        let plain = json!({
            "collection": "drafts", "name": "t_1", "key": { "t": 1 }, "expireAfterSeconds": 0,
            "state": "ACTIVE", "supportingIndex": null,
        });
        assert_eq!(
            printed(&program, &["create", "drafts", "t", "--no-supporting-index"]),
            std::slice::from_ref(&plain)
        );

        index["expireAfterSeconds"] = json!(2_592_000);
        assert_eq!(printed(&program, &["modify", "sessions", "--expire-after", "30d"]), std::slice::from_ref(&index));
        assert_eq!(printed(&program, &["list"]), [index.clone(), plain.clone()]);
        assert_eq!(printed(&program, &["list", "sessions"]), [index]);

        program.run(&["drop", "sessions", "a.t_1"]).failed(3, "27 IndexNotFound");
        let dropped = json!({ "collection": "sessions", "name": "own", "dropped": true });
        assert_eq!(program.json(&["drop", "sessions"]), [dropped]);
        assert_eq!(printed(&program, &["list"]), [plain]);
        assert_eq!(program.run(&["drop", "drafts", "t_1"]).stdout, "dropped the TTL index t_1 of drafts\n");
        assert!(printed(&program, &["list"]).is_empty());
    }
}

#[tokio::test]
async fn indexes_are_shown_as_a_table() {
    let bench = Bench::new().await;
    for program in bench.programs() {
        assert_eq!(program.run(&["list"]).stdout, "");
        let rows = |arguments: &[&str]| -> Vec<Vec<String>> {
            let run = program.run(arguments);
            assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
            let cells =
                |line: &str| line.split("  ").map(str::trim).filter(|c| !c.is_empty()).map(str::to_owned).collect();
            run.stdout.lines().map(cells).collect()
        };
        let titles = ["COLLECTION", "NAME", "KEY", "EXPIRE AFTER", "STATE", "SUPPORTING INDEX"];
        let plain = ["a", "t_1", r#"{"t":1}"#, "90s", "ACTIVE", "none"];
        assert_eq!(rows(&["create", "a", "t", "--expire-after", "90", "--no-supporting-index"]), [titles, plain]);
        let filtered = rows(&["create", "b", "t", "--expire-after", "30d", "--partial-filter", r#"{"n":1}"#]);
        assert_eq!(filtered[1], ["b", "t_1", r#"{"t":1}"#, "30d", "ACTIVE", "t_1", r#"{"n":1}"#]);
        assert_eq!(rows(&["list"]).len(), 3);
    }
}

#[test]
fn a_file_whose_making_was_killed_opens_the_next_time() {
    let directory = tempfile::tempdir().unwrap();
    for attempt in 0..60 {
        let program = Program::embedded(&directory.path().join(attempt.to_string()));
        let mut making = program.start(&["create", "c", "t"]);
        std::thread::sleep(std::time::Duration::from_micros(500 * attempt));
        making.kill().unwrap();
        making.wait().unwrap();
        assert_eq!(program.json(&["create", "c", "t"])[0]["state"], "ACTIVE", "attempt {attempt}");
    }
}
