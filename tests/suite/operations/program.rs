//! `ttl-index operations` and `ttl-index repair`.

use serde_json::json;

use super::{expired, tamper};
use crate::support::database;
use crate::support::program::Program;

#[tokio::test]
async fn operations_are_printed_as_firestore_prints_them_and_as_a_table() {
    let it = database().await;
    it.db.collection("c").insert_many(expired(3)).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    for program in [Program::at(&it.uri), Program::embedded(&directory.path().join("store"))] {
        program.run(&["create", "c", "t"]);
        let mut operation = program.json(&["operations"]).remove(0);
        let id = operation["_id"].as_str().unwrap().to_owned();
        assert_eq!(program.json(&["operations", &id]), std::slice::from_ref(&operation));
        for date in ["startTime", "endTime"] {
            let date = operation["metadata"].as_object_mut().unwrap().remove(date).unwrap();
            assert!(date["$date"].is_string(), "{date}");
        }
        let documents = &operation["metadata"]["progressDocuments"]["estimatedWork"].clone();
        let expected = json!({
            "_id": id,
            "done": true,
            "metadata": {
                "state": "SUCCESSFUL", "collection": "c", "index": "t_1", "field": "t",
                "progressDocuments": { "estimatedWork": documents, "completedWork": documents },
                "ttlConfigDelta": { "changeType": "ADD" },
            },
            "response": { "ttlConfig": { "state": "ACTIVE" } },
        });
        assert_eq!(operation, expected);

        program.run(&["drop", "c"]);
        let table = program.run(&["operations"]).stdout;
        let lines: Vec<&str> = table.lines().map(str::trim).collect();
        assert!(lines[0].starts_with("ID ") && lines.len() == 3, "{table}");
        assert!(lines[1].contains("REMOVE") && lines[1].contains("SUCCESSFUL"), "{table}");
        assert!(lines[2].starts_with(&id) && lines[2].contains(&format!("{documents}/{documents}")), "{table}");
        program.run(&["operations", "none"]).failed(1, "no operation none");
    }
}

#[tokio::test]
async fn an_index_is_repaired_and_printed() {
    let it = database().await;
    let program = Program::at(&it.uri);
    program.run(&["repair", "c"]).failed(3, "27 IndexNotFound");
    program.run(&["create", "c", "t"]);
    tamper(&it, mongodb::bson::doc! { "state": "NEEDS_REPAIR", "problem": "look here" }).await;
    let listed = program.json(&["list"]);
    assert_eq!((&listed[0]["state"], &listed[0]["problem"]), (&json!("NEEDS_REPAIR"), &json!("look here")));
    program.run(&["sweep", "c"]).failed(3, "look here");
    let repaired = program.json(&["repair", "c"]);
    assert_eq!((&repaired[0]["state"], &repaired[0]["problem"]), (&json!("ACTIVE"), &json!(null)));
    assert_eq!(program.json(&["list"]), repaired);
    assert!(program.run(&["repair", "c"]).stdout.contains("ACTIVE"));
}
