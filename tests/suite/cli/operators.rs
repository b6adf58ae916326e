//! `run`, as far as it is no sweeping.

use std::io::Read;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use mongodb::bson::{Bson, Document, doc};
use ttl_index::{MongoStore, Sweeper, TtlIndex, TtlRegistry};

use crate::support::program::{Program, Run};
use crate::support::{self, wait};

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap().success());
}

async fn ended(child: &mut Child) -> ExitStatus {
    let mut status = None;
    wait::until("the process to end", wait::LONG, async || {
        status = child.try_wait().unwrap();
        status.is_some()
    })
    .await;
    status.unwrap()
}

/// Starts it, and hands it back with the first line that it logs.
fn started(program: &Program) -> (Child, String) {
    let mut child = program.start(&["run"]);
    let (log, mut line, mut byte) = (child.stderr.as_mut().unwrap(), Vec::new(), [0]);
    while log.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        line.extend(byte);
    }
    (child, String::from_utf8(line).unwrap())
}

#[tokio::test]
async fn a_database_that_is_away_at_the_start_is_told_of_once() {
    let (mut child, line) = started(&Program::at("mongodb://127.0.0.1:1/db?serverSelectionTimeoutMS=500"));
    assert!(line.contains("WARN") && line.contains("the registry cannot be read"), "{line}");
    // Several more attempts.
    tokio::time::sleep(Duration::from_secs(7)).await;
    signal(&child, "TERM");
    assert!(ended(&mut child).await.success());
    let rest = Run::of(child.wait_with_output().unwrap()).stderr;
    assert!(!rest.contains("WARN"), "{rest}");
}

/// The driver looks for a server for half a minute.
#[tokio::test]
async fn a_signal_ends_it_while_the_database_is_away() {
    let mut child = Program::at("mongodb://127.0.0.1:1/db").start(&["run"]);
    // There is nothing to see of it yet.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked = Instant::now();
    signal(&child, "TERM");
    ended(&mut child).await;
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
}

#[tokio::test]
async fn a_log_that_nobody_reads_ends_no_daemon() {
    let (mut child, line) = started(&Program::at("embedded::memory:"));
    assert!(line.contains("sweeper started"), "{line}");
    // What is logged from now on meets a broken pipe.
    drop(child.stderr.take());
    tokio::time::sleep(Duration::from_secs(1)).await;
    signal(&child, "TERM");
    assert_eq!(ended(&mut child).await.code(), Some(0));
}

/// Else the right to sweep would be handed to a process that is gone.
#[tokio::test]
async fn a_sweep_that_is_stopped_while_it_waits_takes_its_request_back() {
    let it = support::database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    ttl.create_index("c", TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
    let sweeper = Sweeper::new(ttl).name("the holder").start().unwrap();
    let lease = || async {
        it.db
            .collection::<Document>("ttl_index.lease")
            .find_one(doc! { "_id": "lease" })
            .await
            .unwrap()
            .unwrap_or_default()
    };
    wait::until("it to sweep", wait::LONG, async || lease().await.get_str("holder").is_ok()).await;
    let mut waiting = Program::at(&it.uri).start(&["sweep", "c", "--wait"]);
    wait::until("it to be asked", wait::LONG, async || lease().await.get_str("vacate").is_ok()).await;
    signal(&waiting, "INT");
    assert_eq!(ended(&mut waiting).await.code(), Some(4));
    let record = lease().await;
    assert_eq!(record.get("vacate"), Some(&Bson::Null), "{record}");
    let holder = record.get_str("holder").unwrap_or_default();
    assert!(!holder.starts_with(&format!("process {}", waiting.id())), "{record}");
    sweeper.shutdown().await.unwrap();
    it.drop().await;
}
