//! `run`, `status`, `pause` and `resume`, and `sweep` beside them: processes of their own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use mongodb::bson::{DateTime, Document, doc};
use serde_json::{Value, json};

use super::expired;
use crate::support::mongod::{Mongod, Stop};
use crate::support::program::{Program, Run};
use crate::support::{TestDatabase, database, wait};

/// `run`, whose log is read on so that it never fills up.
struct Daemon {
    child: Child,
    log: Arc<Mutex<String>>,
    reading: JoinHandle<()>,
}

impl Daemon {
    fn start(program: &Program, name: &str) -> Daemon {
        Daemon::of(program.start(&["run", "--interval", "1s", "--lease-time", "3s", "--name", name]))
    }

    /// Any command that goes on for a while.
    fn of(mut child: Child) -> Daemon {
        let log = Arc::new(Mutex::new(String::new()));
        let (lines, filled) = (BufReader::new(child.stderr.take().unwrap()).lines(), log.clone());
        let reading = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                filled.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        Daemon { child, log, reading }
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    async fn says(&self, words: &str) {
        wait::until(words, wait::LONG, async || self.log().contains(words)).await;
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }

    /// Its end, with all that it has said.
    fn end(self) -> Run {
        let Daemon { child, log, reading } = self;
        let mut run = Run::of(child.wait_with_output().unwrap());
        reading.join().unwrap();
        run.stderr.clone_from(&log.lock().unwrap());
        assert!(!run.stderr.contains("panicked"), "{run:?}");
        run
    }
}

/// A database with a TTL index on `c`, and the program for it.
async fn ready() -> (TestDatabase, Program) {
    let it = database().await;
    let program = Program::at(&it.uri);
    program.json(&["create", "c", "t"]);
    (it, program)
}

fn fill(program: &Program, count: usize) {
    let documents = expired(count).replace(r#""_id""#, r#""n""#);
    assert_eq!(program.run_with_input(&["import", "c", "-"], &documents).code, Some(0));
}

async fn gone(it: &TestDatabase) {
    let c = it.db.collection::<Document>("c");
    wait::until("all to be gone", wait::LONG, async || c.count_documents(doc! {}).await.unwrap() == 0).await;
}

fn status(program: &Program) -> Value {
    program.json(&["status"]).swap_remove(0)
}

#[tokio::test]
async fn it_sweeps_until_it_is_told_to_stop() {
    for signal in ["TERM", "INT"] {
        let (it, program) = ready().await;
        fill(&program, 100);
        let daemon = Daemon::start(&program, "a");
        gone(&it).await;
        fill(&program, 100);
        gone(&it).await;
        daemon.signal(signal);
        let run = daemon.end();
        assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{run:?}");
        assert!(run.stderr.contains("gave the lease back") && run.stderr.contains("sweeper stopped"), "{run:?}");
        assert_eq!(status(&program)["activity"], "nobody");
        it.drop().await;
    }
}

#[tokio::test]
async fn a_pass_beside_it_is_refused_or_waits() {
    let (it, program) = ready().await;
    let daemon = Daemon::start(&program, "the daemon");
    daemon.says("took the lease").await;
    let refused = program.run(&["sweep", "c"]);
    refused.failed(3, "the daemon/");
    assert!(refused.stderr.contains("117 ConflictingOperationInProgress"), "{refused:?}");

    // While the passes last nobody else sweeps, and afterwards it goes on by itself.
    let [report] = &program.json(&["sweep", "--wait"])[..] else { panic!("not one report") };
    assert_eq!(report["ended"], "drained");
    daemon.says("gave the lease back").await;
    fill(&program, 10);
    gone(&it).await;
    assert!(status(&program)["holder"].as_str().unwrap().starts_with("the daemon/"));
    daemon.signal("TERM");
    assert_eq!(daemon.end().code, Some(0));
    it.drop().await;
}

/// Stopped while it waits, it no longer asks.
#[tokio::test]
async fn a_pass_that_waits_for_another_can_be_stopped() {
    let (it, program) = ready().await;
    fill(&program, 1000);
    let first = program.start(&["--json", "sweep", "c", "--rate", "10", "--batch-size", "1"]);
    wait::until("the first to sweep", wait::LONG, async || status(&program)["holder"].is_string()).await;
    let second = Daemon::of(program.start(&["-v", "sweep", "c", "--wait"]));
    let lease = it.db.collection::<Document>("ttl_index.lease");
    let asked = async || {
        let lease = lease.find_one(doc! { "_id": "lease" }).await.unwrap().unwrap();
        lease.get_str("vacate").is_ok()
    };
    wait::until("the second to ask", wait::LONG, asked).await;
    second.signal("INT");
    assert_eq!(second.end().code, Some(4));
    wait::until("the request to be taken back", wait::LONG, async || !asked().await).await;
    let pid = first.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
    assert_eq!(first.wait_with_output().unwrap().status.code(), Some(4));
    it.drop().await;
}

#[tokio::test]
async fn another_takes_over_from_one_that_is_killed() {
    let (it, program) = ready().await;
    let first = Daemon::start(&program, "first");
    first.says("took the lease").await;
    let second = Daemon::start(&program, "second");
    second.says("sweeper started").await;
    first.signal("KILL");
    first.end();
    fill(&program, 10);
    gone(&it).await;
    let told = status(&program);
    assert!(told["holder"].as_str().unwrap().starts_with("second/"), "{told}");
    assert!(told["term"].as_i64().unwrap() >= 2, "{told}");
    second.signal("TERM");
    assert_eq!(second.end().code, Some(0));
    it.drop().await;
}

#[tokio::test]
async fn a_pause_holds_until_it_is_resumed() {
    let (it, program) = ready().await;
    let daemon = Daemon::start(&program, "a");
    daemon.says("took the lease").await;
    let paused = program.json(&["pause"]).swap_remove(0);
    assert_eq!(paused["paused"]["until"], Value::Null, "{paused}");
    fill(&program, 10);
    let told = status(&program);
    assert_eq!((&told["activity"], &told["paused"]), (&json!("paused"), &paused["paused"]), "{told}");
    let words = program.run(&["status"]);
    assert!(words.stdout.starts_with("paused; since ") && words.stdout.contains("until it is resumed"), "{words:?}");
    // Whoever else would sweep does not either.
    let report = program.run(&["--json", "sweep", "c", "--wait"]);
    assert_eq!((report.code, &report.lines()[0]["ended"]), (Some(4), &json!("paused")), "{report:?}");
    assert_eq!(it.db.collection::<Document>("c").count_documents(doc! {}).await.unwrap(), 10);
    assert_eq!(program.json(&["resume"]), [json!({ "resumed": true })]);
    gone(&it).await;
    assert_eq!(program.run(&["resume"]).stdout, "sweeping was not paused\n");
    assert_eq!(program.run(&["pause", "--for", "1s"]).code, Some(0));
    fill(&program, 10);
    gone(&it).await;
    program.run(&["pause", "--for", "soon"]).failed(2, "90, 90s, 36h or 30d");
    daemon.signal("TERM");
    assert_eq!(daemon.end().code, Some(0));
    it.drop().await;
}

#[tokio::test]
async fn the_status_has_the_keys_that_scripts_depend_on() {
    let (it, program) = ready().await;
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let told = status(&program);
    assert_eq!(
        keys(&told),
        ["activity", "holder", "term", "since", "silent_since", "paused", "max_rate", "pace", "told_at", "indexes"]
    );
    assert_eq!((&told["activity"], &told["holder"]), (&json!("nobody"), &Value::Null));
    assert_eq!(keys(&told["indexes"][0]), ["collection", "index", "state", "problem"]);

    fill(&program, 5);
    let daemon = Daemon::start(&program, "a");
    // The one is told along with the visits, the other with the lease.
    let both = async || {
        let told = status(&program);
        told["indexes"][0]["visits"]["ended"] == "drained" && told["max_rate"].is_number()
    };
    wait::until("visits and the rate to be told", wait::LONG, both).await;
    let told = status(&program);
    assert_eq!((&told["activity"], &told["max_rate"]), (&json!("sweeping"), &json!(1000.0)), "{told}");
    let visits = &told["indexes"][0]["visits"];
    assert_eq!(
        keys(visits),
        ["last", "ended", "deleted", "kept", "oldest_due", "backlog", "deadline", "shortfall", "failures", "error"]
    );
    let pace = &told["pace"];
    assert_eq!(
        keys(pace),
        [
            "rate",
            "planned",
            "peak",
            "target_lag_seconds",
            "max_rate",
            "min_rate",
            "closed",
            "backlog",
            "counted",
            "finish",
            "shortfall",
            "closed_until",
            "finishing",
            "held_back",
            "warning"
        ]
    );
    assert_eq!((&pace["target_lag_seconds"], &pace["min_rate"]), (&json!(86_400.0), &json!(50.0)), "{pace}");
    assert_eq!((&visits["ended"], &visits["deleted"], &visits["failures"]), (&json!("drained"), &json!(5), &json!(0)));
    let words = program.run(&["status"]).stdout;
    assert!(words.starts_with("sweeping") && words.contains("a/") && words.contains("t_1"), "{words}");
    assert!(words.contains("/s planned") && words.contains("documents due"), "{words}");
    daemon.signal("TERM");
    assert_eq!(daemon.end().code, Some(0));
    it.drop().await;
}

#[tokio::test]
async fn it_waits_for_a_server_that_is_not_there_yet() {
    let mut server = Mongod::private(&[]).await;
    let it = server.database().await;
    let program = Program::at(&it.uri);
    program.json(&["create", "c", "t"]);
    it.db.collection("c").insert_one(doc! { "t": DateTime::from_millis(0) }).await.unwrap();
    server.stop(Stop::Cleanly).await;
    let away = Program::at(format!("{}&serverSelectionTimeoutMS=500", it.uri));
    let daemon = Daemon::start(&away, "a");
    daemon.says("the registry cannot be read, so nothing is swept; trying again").await;
    server.start_again().await;
    let c = it.db.collection::<Document>("c");
    // The client of before may have to find that out first.
    let gone = async || c.count_documents(doc! {}).await.is_ok_and(|count| count == 0);
    wait::until("it to be swept", wait::LONG, gone).await;
    // One that is stopped while the server is away ends as well.
    server.stop(Stop::Kill).await;
    daemon.signal("TERM");
    assert_eq!(daemon.end().code, Some(0));
    let waiting = Daemon::start(&away, "b");
    waiting.says("the registry cannot be read, so nothing is swept; trying again").await;
    waiting.signal("INT");
    assert_eq!(waiting.end().code, Some(0));
}

#[tokio::test]
async fn no_password_is_in_its_log() {
    let server = Mongod::shared().await.uri().replace("mongodb://", "").replace("/?", "/db?");
    let secrets = |run: &Run| ["s3cret", "%21Pass"].iter().any(|part| format!("{run:?}").contains(part));
    for address in [server.as_str(), "127.0.0.1:1/db?serverSelectionTimeoutMS=200"] {
        let program = Program::at(format!("mongodb://somebody:s3cret%21Pass@{address}"));
        let daemon = Daemon::of(program.start(&["run", "-vv"]));
        daemon.says("the registry cannot be read, so nothing is swept; trying again").await;
        daemon.signal("TERM");
        let run = daemon.end();
        assert!(run.code == Some(0) && !secrets(&run), "{run:?}");
        for arguments in [&["status"][..], &["status", "--json"], &["pause"], &["resume"]] {
            let run = program.run(arguments);
            assert!(run.code == Some(1) && !secrets(&run), "{run:?}");
        }
    }
}

#[tokio::test]
async fn a_lease_that_cannot_be_read_is_told_by_all() {
    let (it, program) = ready().await;
    fill(&program, 10);
    let lease = it.db.collection::<Document>("ttl_index.lease");
    lease.insert_one(doc! { "_id": "lease", "holder": 5 }).await.unwrap();
    let unreadable = "the lease in ttl_index.lease has no readable holder (5), so nobody sweeps";
    let daemon = Daemon::start(&program, "a");
    daemon.says(unreadable).await;
    program.run(&["status"]).failed(1, unreadable);
    program.run(&["sweep"]).failed(1, unreadable);
    assert_eq!(it.db.collection::<Document>("c").count_documents(doc! {}).await.unwrap(), 10);
    lease.delete_one(doc! { "_id": "lease" }).await.unwrap();
    gone(&it).await;
    daemon.signal("TERM");
    assert_eq!(daemon.end().code, Some(0));
    it.drop().await;
}

#[test]
fn what_it_is_told_must_make_sense() {
    let memory = Program::at("embedded::memory:");
    for (arguments, code, words) in [
        (&["run", "--max-rate", "0"][..], 3, "the rate must be a number above 0"),
        (&["run", "--max-rate", "nan"], 3, "the rate must be a number above 0"),
        (&["run", "--min-rate", "-1"], 3, "the lowest rate must be 0 or a number above"),
        (&["run", "--target-lag", "0"], 3, "the target lag must be 1 s to 366 days"),
        (&["run", "--window", "00:00-12:00", "--window", "12:00-24:00"], 3, "only 0.0 hours of a week open"),
        (&["run", "--window", "25:00-26:00"], 2, "25:00 is no time of day"),
        (&["run", "--batch-size", "0"], 3, "the batch size must be 1 to 100000"),
        (&["run", "--interval", "0"], 3, "the interval between visits must be above 0"),
        (&["run", "--lease-time", "0s"], 3, "the lease time must be 1 s to 1 day"),
        (&["run", "--interval", "soon"], 2, "90, 90s, 36h or 30d"),
    ] {
        let run = memory.run(arguments);
        assert_eq!((run.code, run.stdout.as_str()), (Some(code), ""), "{run:?}");
        assert!(run.stderr.contains(words), "{run:?}");
    }
}
