//! The page that `ttl-index run` serves.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command};
use std::sync::mpsc;
use std::time::Duration;

use mongodb::bson::{DateTime, doc};
use ttl_index::{METRICS, MongoStore, TtlIndex, TtlRegistry};

use crate::support::page::{self, Page};
use crate::support::program::{Program, Run};
use crate::support::{TestDatabase, database, wait};

/// `run` in a process of its own, with a page.
struct Daemon {
    child: Child,
    address: SocketAddr,
}

impl Daemon {
    fn start(place: &TestDatabase) -> Daemon {
        // Something in the URI that nobody may see.
        let joint = if place.uri.contains('?') { '&' } else { '?' };
        let program = Program::at(format!("{}{joint}appName=hidden-secret", place.uri));
        let mut child = program.start(&["run", "--metrics-listen", "127.0.0.1:0", "--interval", "1s"]);
        let address = announced(child.stderr.take().unwrap());
        Daemon { child, address }
    }

    async fn page(&self) -> Page {
        let (head, body) = page::ask(self.address, "/metrics").await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        Page::read(&body)
    }

    /// Asks it to stop, as a supervisor does.
    fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

/// The address that the log names; the log is read on, so that it never fills up.
fn announced(log: ChildStderr) -> SocketAddr {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            if let Some((_, address)) = line.split_once("serving metrics address=") {
                let _ = tell.send(address.trim().parse().unwrap());
            }
        }
    });
    told.recv_timeout(wait::LONG).expect("no address in the log")
}

#[tokio::test]
async fn the_daemon_shows_all_that_is_documented_and_nothing_secret() {
    let place = database().await;
    let ttl = TtlRegistry::open(MongoStore::new(place.db.clone())).await.unwrap();
    ttl.create_index("my.collection", TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
    let expired = DateTime::from_millis(ttl.now().await.unwrap().timestamp_millis() - 60_000);
    let documents = (0..5).map(|n| doc! { "_id": format!("{n}-secret"), "t": expired });
    place.db.collection("my.collection").insert_many(documents).await.unwrap();

    let daemon = Daemon::start(&place);
    let labels = [("database", place.db.name()), ("collection", "my.collection"), ("index", "t_1")];
    wait::until("five deleted documents on the page", wait::LONG, async || {
        daemon.page().await.sum("ttl_index_deleted_documents_total", &labels) >= 5.0
    })
    .await;
    // It cannot be swept, and fails.
    place.db.collection::<mongodb::bson::Document>("my.collection").drop().await.unwrap();
    place.db.create_collection("my.collection").await.unwrap();
    wait::until("an index in need of repair on the page", wait::LONG, async || {
        let state = [("database", place.db.name()), ("state", "NEEDS_REPAIR")];
        daemon.page().await.sum("ttl_index_indexes", &state) > 0.0
    })
    .await;

    let page = daemon.page().await;
    for metric in METRICS.iter().filter(|metric| metric.name != "ttl_index_errors_total") {
        let found = page.families.iter().find(|family| metric.name.trim_end_matches("_total") == family.name);
        let family = found.unwrap_or_else(|| panic!("{} is missing:\n{}", metric.name, page.text));
        assert_eq!(family.r#type, metric.kind.as_str(), "{family:?}");
    }
    let of_database = [("database", place.db.name())];
    assert_eq!(page.sum("ttl_index_lease_held", &of_database), 1.0);
    assert!(page.sum("ttl_index_lease_term", &of_database) >= 1.0);
    let success = page.sum("ttl_index_last_success_timestamp_seconds", &of_database);
    assert!(success * 1000.0 >= 60_000.0 + number(expired.timestamp_millis()), "{success}");
    for secret in ["secret", "127.0.0.1", "mongodb://"] {
        assert!(!page.text.contains(secret), "{secret} is on the page:\n{}", page.text);
    }
    daemon.stop();
    place.drop().await;
}

#[tokio::test]
async fn the_daemon_does_not_start_without_its_page() {
    let place = database().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let child = Program::at(&place.uri).start(&["run", "--metrics-listen", &address]);
    Run::of(child.wait_with_output().unwrap()).failed(1, &format!("listening for metrics on {address}"));
    place.drop().await;
}

#[allow(clippy::cast_precision_loss)]
fn number(millis: i64) -> f64 {
    millis as f64
}
