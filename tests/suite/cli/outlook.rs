//! `plan` of a database, and the price of a pause.

use serde_json::{Value, json};

use super::{Bench, expired};
use crate::support::program::Program;

fn filled(program: &Program) {
    program.json(&["create", "c", "t"]);
    let documents = expired(720).replace(r#""_id""#, r#""n""#);
    assert_eq!(program.run_with_input(&["import", "c", "-"], &documents).code, Some(0));
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn a_plan_has_a_curve_and_a_verdict() {
    let bench = Bench::new().await;
    for program in bench.programs() {
        filled(&program);
        let run = program.run(&["plan", "--target-lag", "1h", "--min-rate", "0"]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
        for words in ["a second", "│", "gone within 1h", "due       720 documents", "on time: peak 0.2", "done at 20"]
        {
            assert!(run.stdout.contains(words), "no {words:?} in\n{}", run.stdout);
        }
        let run = program.run(&["plan", "c", "--target-lag", "1h", "--max-rate", "0.1"]);
        assert_eq!(run.code, Some(3), "{run:?}");
        assert!(run.stdout.contains("impossible: 0.1/s allowed, 0.2/s needed, 1h late; raise"), "{run:?}");

        let run = program.run(&["plan", "--json", "--max-rate", "0.001", "--window", "Sat 09:00-17:00"]);
        assert_eq!(run.code, Some(3), "{run:?}");
        let [plan] = &run.lines()[..] else { panic!("{run:?}") };
        assert_eq!(
            keys(plan).join(" "),
            "now horizon target_lag_seconds max_rate min_rate closed rate peak backlog coming finish shortfall complete \
             paused price curve indexes"
        );
        assert_eq!((&plan["backlog"], &plan["complete"], &plan["price"]), (&json!(720), &json!(true), &Value::Null));
        assert_eq!(keys(&plan["shortfall"]), ["allowed", "needed", "late_seconds"]);
        assert_eq!(keys(&plan["curve"][0]), ["from", "until", "rate"]);
        assert_eq!(
            keys(&plan["indexes"][0]).join(" "),
            "collection index due coming oldest_due peak shortfall uncounted"
        );
        program.run(&["plan", "elsewhere"]).failed(3, "elsewhere has no TTL index");
        program.run(&["plan", "--max-rate", "nan"]).failed(3, "the rate must");
        program.run(&["plan", "c", "--trace", "-"]).failed(2, "--trace");
    }
    bench.mongo.drop().await;
}

#[tokio::test]
async fn a_pause_tells_its_price_beforehand() {
    let bench = Bench::new().await;
    for program in bench.programs() {
        filled(&program);
        program.json(&["tune", "--target-lag", "1h", "--max-rate", "0.32"]);
        let run = program.run(&["pause", "--for", "20m", "--dry-run"]);
        assert_eq!((run.code, run.stdout.lines().count()), (Some(0), 1), "{run:?}");
        assert!(run.stdout.starts_with("resuming at 20") && run.stdout.ends_with("Z needs 0.3/s\n"), "{run:?}");
        assert_eq!(program.json(&["status"])[0]["paused"], Value::Null);

        let priced = program.json(&["pause", "--for", "40m"]).swap_remove(0);
        assert_eq!(keys(&priced), ["paused", "price"]);
        let price = &priced["price"];
        assert_eq!(keys(price), ["resumed", "peak", "shortfall", "complete"]);
        assert!(price["shortfall"]["late_seconds"].as_f64().unwrap() > 60.0, "{priced}");
        assert!(program.run(&["plan"]).stdout.contains("the plan is made as if it were over"));
        let run = program.run(&["pause", "--for", "40m"]);
        assert!(run.stdout.contains("late; raise") && run.stdout.contains("sweeping is paused until 20"), "{run:?}");

        program.json(&["resume"]);
        let endless = program.json(&["pause"]).swap_remove(0);
        assert_eq!((&endless["paused"]["until"], &endless["price"]), (&Value::Null, &Value::Null));
        program.run(&["pause", "--dry-run"]).failed(2, "--for");
        program.json(&["resume"]);
    }
    bench.mongo.drop().await;
}
