//! `sweep --if-due`.

use mongodb::bson::DateTime;
use serde_json::json;
use ttl_index::{MongoStore, TtlRegistry};

use super::{Bench, expired};
use crate::support::program::Program;

fn fill(program: &Program, collection: &str, count: usize) {
    assert_eq!(program.run_with_input(&["import", collection, "-"], &expired(count)).code, Some(0));
}

#[tokio::test]
async fn the_second_time_it_is_not_due_and_that_is_no_failure() {
    let bench = Bench::new().await;
    for program in bench.programs() {
        fill(&program, "c", 30);
        program.json(&["create", "c", "t"]);
        let [report] = &program.json(&["sweep", "--if-due", "1h"])[..] else { panic!("not one report") };
        assert_eq!(
            (&report["collection"], &report["deleted"], &report["ended"]),
            (&json!("c"), &json!(30), &json!("drained"))
        );

        fill(&program, "c", 30);
        let [told] = &program.json(&["sweep", "--if-due", "1h"])[..] else { panic!("not one line") };
        assert_eq!(told["outcome"], json!("not_due"));
        let next = DateTime::parse_rfc3339_str(told["next"]["$date"].as_str().unwrap()).unwrap();
        let wait = next.timestamp_millis() - DateTime::now().timestamp_millis();
        assert!((3_600_000 - 600_000..3_600_000 + 600_000).contains(&wait), "{told}");
        assert_eq!(told.as_object().unwrap().len(), 2, "{told}");
        let words = program.run(&["sweep", "--if-due", "1h"]);
        assert_eq!((words.code, words.stderr.as_str()), (Some(0), ""), "{words:?}");
        assert!(words.stdout.starts_with("not due before 2"), "{words:?}");
        assert_eq!(program.run(&["export", "c"]).lines().len(), 30);

        // Named, it is another claim; and what is left behind is told by the exit code.
        let limited =
            program.run(&["--json", "sweep", "c", "--if-due", "1h", "--batch-size", "10", "--max-batches", "2"]);
        assert_eq!((limited.code, &limited.lines()[0]["deleted"]), (Some(4), &json!(20)), "{limited:?}");
        let no_time = program.run(&["--json", "sweep", "c", "c", "--if-due", "1ms", "--max-time", "0"]);
        assert_eq!(
            (no_time.code, no_time.lines()),
            (Some(4), vec![json!({ "outcome": "unvisited", "collection": "c" })])
        );
    }
}

#[tokio::test]
async fn beside_somebody_who_sweeps_it_says_who_and_is_no_failure() {
    let bench = Bench::new().await;
    let [program, _] = bench.programs();
    program.json(&["create", "c", "t"]);
    let ttl = TtlRegistry::open(MongoStore::new(bench.mongo.db.clone())).await.unwrap();
    let claim = ttl.claim_sweep().await.unwrap();
    let uri = bench.mongo.uri.clone();
    let beside =
        tokio::task::spawn_blocking(move || Program::at(uri).json(&["sweep", "--if-due", "1h"])).await.unwrap();
    assert_eq!(beside[0]["outcome"], json!("held_by"));
    let holder = ttl.status().await.unwrap().holder.unwrap();
    assert_eq!(beside, [json!({ "outcome": "held_by", "holder": holder })]);
    claim.release().await;
    assert_eq!(program.json(&["sweep", "--if-due", "1h"])[0]["ended"], json!("drained"));
}

#[test]
fn what_goes_against_it_is_a_usage_error() {
    let memory = Program::at("embedded::memory:");
    memory.run(&["sweep", "--if-due", "1h", "--wait"]).failed(2, "cannot be used with");
    memory.run(&["sweep", "--if-due", "1h", "--cutoff", "2013-07-01T00:00:00Z"]).failed(2, "cannot be used with");
    memory.run(&["sweep", "--if-due", "soon"]).failed(2, "90, 90s, 36h or 30d");
    memory.run(&["sweep", "--if-due", "0"]).failed(3, "the interval must be longer than 0");
    let nothing = memory.run(&["sweep", "--if-due", "1h"]);
    assert_eq!((nothing.code, nothing.stderr.as_str()), (Some(0), "there is no TTL index in this database\n"));
}
