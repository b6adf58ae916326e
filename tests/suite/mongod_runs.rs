//! The server that the other tests stand on.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use mongodb::IndexModel;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::IndexOptions;

use crate::support::mongod::{Mongod, Stop};
use crate::support::{self, TestDatabase, fetch, json, wait};

#[tokio::test]
async fn a_document_is_stored() {
    let test = support::database().await;
    let collection = test.db.collection::<Document>("c");
    collection.insert_one(doc! { "_id": 1 }).await.unwrap();
    assert_eq!(collection.count_documents(doc! {}).await.unwrap(), 1);
    test.drop().await;
}

#[tokio::test]
async fn the_uri_leads_to_the_same_database() {
    let test = support::database().await;
    let collection = test.db.collection::<Document>("c");
    collection.insert_one(doc! { "_id": 1 }).await.unwrap();

    let other = mongodb::Client::with_uri_str(&test.uri).await.unwrap();
    let same = other.default_database().unwrap();
    assert_eq!(same.name(), test.db.name());
    let collection = same.collection::<Document>("c");
    assert_eq!(collection.count_documents(doc! {}).await.unwrap(), 1);
    test.drop().await;
}

#[tokio::test]
async fn commands_can_be_watched() {
    let (sender, started) = mpsc::channel();
    let test = support::database_with(|options| {
        options.command_event_handler = Some(EventHandler::callback(move |event| {
            if let CommandEvent::Started(event) = event {
                // The test may have ended.
                let _ = sender.send(event.command_name);
            }
        }));
    })
    .await;
    test.client.database("admin").run_command(doc! { "ping": 1 }).await.unwrap();
    assert!(started.try_iter().any(|name| name == "ping"));
    test.drop().await;
}

/// Leaves one expired document in a collection with a native TTL index.
async fn insert_expired(test: &TestDatabase) -> mongodb::Collection<Document> {
    let collection = test.db.collection::<Document>("c");
    let options = IndexOptions::builder().expire_after(Duration::ZERO).build();
    let index = IndexModel::builder().keys(doc! { "at": 1 }).options(options);
    collection.create_index(index.build()).await.unwrap();
    let at = DateTime::from_system_time(SystemTime::UNIX_EPOCH);
    collection.insert_one(doc! { "at": at }).await.unwrap();
    collection
}

#[tokio::test]
async fn the_servers_own_ttl_monitor_runs_every_second() {
    let test = Mongod::shared().await.database().await;
    let collection = insert_expired(&test).await;
    wait::until("the TTL monitor", Duration::from_secs(30), async || {
        collection.count_documents(doc! {}).await.unwrap() == 0
    })
    .await;
    test.drop().await;
}

#[tokio::test]
async fn a_private_server_takes_arguments() {
    let server = Mongod::private(&["--setParameter", "ttlMonitorEnabled=false"]).await;
    let test = server.database_with(|options| options.app_name = Some("private".into())).await;
    let parameter = doc! { "getParameter": 1, "ttlMonitorEnabled": 1 };
    let answer = test.client.database("admin").run_command(parameter).await.unwrap();
    assert!(!answer.get_bool("ttlMonitorEnabled").unwrap());

    let uri = server.uri();
    drop(server);
    let address = uri.trim_start_matches("mongodb://").split('/').next().unwrap();
    assert!(std::net::TcpStream::connect(address).is_err(), "still listening");
}

#[test]
fn the_flights_are_complete() {
    let file = File::open(fetch::flights_jsonl()).unwrap();
    let mut lines = BufReader::new(file).lines();
    let first = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let first = json::document(&first);
    assert_eq!(first.get_i32("dep_time").unwrap(), 517);
    assert_eq!(first.get_str("tailnum").unwrap(), "N14228");
    let hour = first.get_datetime("time_hour").unwrap();
    assert_eq!(hour.try_to_rfc3339_string().unwrap(), "2013-01-01T10:00:00Z");
    assert_eq!(1 + lines.count(), 336_776);
}

#[tokio::test]
async fn a_server_that_was_stopped_comes_back_with_its_data() {
    let mut server = Mongod::private(&[]).await;
    for (written, how) in [(0, Stop::Kill), (1, Stop::Cleanly), (2, Stop::Kill)] {
        // A client of its own each time: one from before does not know yet that the server is back.
        let client = mongodb::Client::with_uri_str(server.uri()).await.unwrap();
        let c = client.database("db").collection::<Document>("c");
        assert_eq!(c.count_documents(doc! {}).await.unwrap(), written, "{how:?}");
        // Acknowledged by a majority, a document is in the journal.
        c.insert_one(doc! {}).await.unwrap();
        server.stop(how).await;
        assert!(std::net::TcpStream::connect(("127.0.0.1", server.port())).is_err(), "{how:?}: still listening");
        server.start_again().await;
    }
}

#[tokio::test]
async fn a_server_that_is_frozen_answers_later() {
    let server = Mongod::private(&[]).await;
    let it = server.database().await;
    let c = it.db.collection::<Document>("c");
    c.insert_one(doc! { "_id": 1 }).await.unwrap();
    server.freeze().await;
    let mut reading = tokio::spawn(async move { c.find_one(doc! {}).await });
    tokio::time::timeout(Duration::from_millis(500), &mut reading).await.expect_err("it is frozen");
    server.thaw().await;
    assert!(reading.await.unwrap().unwrap().is_some());
    // The end of a frozen server is the end of the test, too.
    server.freeze().await;
}

/// However the test process ends, and in whatever state the server is.
#[test]
fn a_supervisor_whose_input_ends_leaves_nothing_behind() {
    use std::process::{Command, Stdio};
    for orders in [&["STOP"][..], &["KILL"], &["KILL", "start"], &["KILL", "start", "STOP"]] {
        let directory = tempfile::tempdir().unwrap().keep();
        let mark = format!("{}", 100_000 + u64::from(std::process::id()));
        let mut supervisor = Command::new("sh")
            .args(["-c", include_str!("support/supervise.sh"), "supervise"])
            .arg(&directory)
            .args(["sh", "-c", "echo $$ >>\"$0/pids\"; exec sleep \"$1\""])
            .arg(&directory)
            .arg(&mark)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut runs = 1;
        let pids = || -> Vec<String> {
            let text = std::fs::read_to_string(directory.join("pids")).unwrap_or_default();
            text.lines().map(str::to_owned).collect()
        };
        let wait = |what: &str, condition: &dyn Fn() -> bool| {
            let began = std::time::Instant::now();
            while !condition() {
                assert!(began.elapsed() < wait::LONG, "{what}");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        for order in orders {
            wait("the command to run", &|| pids().len() == runs);
            std::io::Write::write_all(supervisor.stdin.as_mut().unwrap(), format!("{order}\n").as_bytes()).unwrap();
            if *order == "KILL" {
                wait("the command to end", &|| directory.join(format!("exit.{runs}")).exists());
            }
            runs += usize::from(*order == "start");
        }
        wait("the command to run", &|| pids().len() == runs);
        let pids = pids();
        drop(supervisor.stdin.take());
        assert!(supervisor.wait().unwrap().success(), "{orders:?}");
        assert!(!directory.exists(), "{orders:?}");
        for pid in pids {
            assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "{orders:?}");
        }
    }
}
