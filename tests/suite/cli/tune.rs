//! `tune`.

use mongodb::bson::{DateTime, doc};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Bench;
use crate::support::program::Program;

#[tokio::test]
async fn what_is_set_is_printed_in_words_and_as_json() {
    let bench = Bench::new().await;
    for program in bench.programs() {
        program.json(&["create", "c", "t"]);
        let nothing = json!({
            "target_lag_seconds": null, "max_rate": null, "min_rate": null, "closed": null, "finish_now": null,
            "problem": null,
        });
        assert_eq!(program.json(&["tune"]), std::slice::from_ref(&nothing));
        let words = program.run(&["tune"]).stdout;
        assert!(words.starts_with("target lag: as the sweeper is told; 24h unless told\n"), "{words}");
        assert!(words.contains("\nclosed: as the sweeper is told; never unless told\n"), "{words}");

        let window = "Mon-Fri 09:00-17:00 Europe/Berlin";
        let set = program.json(&["tune", "--target-lag", "6h", "--max-rate", "300", "--window", window]);
        assert_eq!((&set[0]["target_lag_seconds"], &set[0]["max_rate"]), (&json!(21600.0), &json!(300.0)));
        assert_eq!((&set[0]["min_rate"], &set[0]["closed"]), (&Value::Null, &json!([window])));
        let words = program.run(&["tune", "--min-rate", "0", "--window", "22:00-06:00", "--finish-now"]).stdout;
        assert!(words.starts_with("target lag: 6h\nhighest rate: 300 documents a second\nlowest rate: 0 "), "{words}");
        assert!(words.contains("\nclosed: 22:00-06:00 UTC\nwhat was due at 20"), "{words}");
        let left = program.json(&["tune", "--always-open", "--no-finish-now"]);
        assert_eq!((&left[0]["closed"], &left[0]["finish_now"]), (&json!([]), &Value::Null));
        assert!(program.run(&["tune"]).stdout.contains("\nclosed: never\n"));
        assert_eq!(program.json(&["tune", "--reset"]), [nothing]);
    }
    bench.mongo.drop().await;
}

#[tokio::test]
async fn an_index_has_its_own_target_lag_and_rate() {
    let bench = Bench::new().await;
    for program in bench.programs() {
        program.json(&["create", "c", "t"]);
        assert!(!program.run(&["list"]).stdout.contains("TARGET LAG"));
        let set = program.json(&["tune", "c", "--target-lag", "90.5s", "--max-rate", "2.5"]);
        assert_eq!(set, [json!({ "collection": "c", "target_lag_seconds": 90.5, "max_rate": 2.5 })]);
        let listed = &program.json(&["list"])[0];
        assert_eq!((&listed["targetLagSeconds"], &listed["maxRate"]), (&json!(90.5), &json!(2.5)));
        let listed = program.run(&["list"]).stdout;
        assert!(listed.contains("TARGET LAG") && listed.contains("90.5s") && listed.contains("2.5"), "{listed}");
        let words = program.run(&["tune", "c"]).stdout;
        assert_eq!(words, "c\n  target lag: 90.5s\n  highest rate: 2.5 documents a second\n");
        let words = program.run(&["tune", "c", "--reset"]).stdout;
        assert_eq!(words, "c\n  target lag: as the database\n  highest rate: as the database\n");
    }
    bench.mongo.drop().await;
}

#[tokio::test]
async fn what_cannot_be_is_a_usage_error_or_refused() {
    let bench = Bench::new().await;
    for program in bench.programs() {
        // There is nothing yet.
        program.json(&["create", "c", "t"]);
        program.json(&["drop", "c"]);
        program.json(&["create", "c", "t"]);
        for (arguments, code, words) in [
            (&["--window", "25:00-26:00"][..], 2, "25:00 is no time of day; one is written HH:MM"),
            (&["--window", "09:00-17:00 Europe/Bonn"], 2, "Europe/Bonn is no time zone that is known"),
            (&["--window", "09:00-17:00", "--always-open"], 2, "cannot be used with"),
            (&["--finish-now", "--no-finish-now"], 2, "cannot be used with"),
            (&["--target-lag", "soon"], 2, "90, 90s, 36h or 30d"),
            (&["--max-rate", "many"], 2, "invalid float"),
            (&["--max-rate", "0"], 3, "the rate must be a number above 0"),
            (&["--min-rate", "-5"], 3, "the lowest rate must be 0"),
            (&["--target-lag", "400d"], 3, "1 s to 366 days"),
            (&["--window", "00:30-00:00"], 3, "only 3.5 hours of a week open, of which at least 8.4 are needed (5 %)"),
            (&["c", "--min-rate", "5"], 3, "for the whole database only, not for c"),
            (&["d", "--max-rate", "5"], 3, "d has no TTL index"),
        ] {
            program.run(&[&["tune"], arguments].concat()).failed(code, words);
        }
        assert_eq!(program.json(&["tune"])[0]["max_rate"], Value::Null);
    }
    bench.mongo.drop().await;
}

#[test]
fn without_a_ttl_index_there_is_nothing_to_set() {
    let memory = Program::at("embedded::memory:");
    memory.run(&["tune", "--max-rate", "5"]).failed(3, "the database has no TTL index; make one first");
    let directory = TempDir::new().unwrap();
    Program::embedded(&directory.path().join("mistyped")).run(&["tune"]).failed(1, "does not exist");
}

#[tokio::test]
async fn what_cannot_be_understood_is_printed() {
    let bench = Bench::new().await;
    let [program, _] = bench.programs();
    program.json(&["create", "c", "t"]);
    let registry = bench.mongo.db.collection::<mongodb::bson::Document>("ttl_index.registry");
    let odd = doc! { "$set": { "tuning": { "maxRate": "fast", "finishNow": DateTime::from_millis(0) } } };
    registry.update_one(doc! {}, odd).await.unwrap();
    let words = program.run(&["tune"]).stdout;
    assert!(words.contains("what was due at 1970-01-01T00:00:00Z is finished now"), "{words}");
    assert!(words.ends_with("cannot be understood: maxRate must be a number, but is \"fast\"\n"), "{words}");
    bench.mongo.drop().await;
}
