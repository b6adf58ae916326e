//! `ttl-index run` as a process of its own, and what the server saw it delete.

use std::io::Read;
use std::process::{Child, Command};
use std::thread::JoinHandle;

use futures_util::TryStreamExt;
use mongodb::Database;
use mongodb::bson::{DateTime, Document, doc};

use crate::support::program::{Program, Run};
use crate::support::wait;

/// A sweeper in a process of its own, killed when dropped.
pub(super) struct Process {
    /// As the server and the lease know it.
    pub(super) name: String,
    child: Child,
    /// Reads what it says, so that it never waits for a reader.
    said: Option<JoinHandle<String>>,
}

impl Process {
    pub(super) fn start(uri: &str, name: &str, arguments: &[&str]) -> Process {
        let joint = if uri.contains('?') { '&' } else { '?' };
        let program = Program::at(format!("{uri}{joint}appName={name}"));
        let mut child = program.start(&[&["run", "--name", name], arguments].concat());
        let mut stderr = child.stderr.take().unwrap();
        let said = std::thread::spawn(move || {
            let mut said = String::new();
            stderr.read_to_string(&mut said).unwrap();
            said
        });
        Process { name: name.to_owned(), child, said: Some(said) }
    }

    pub(super) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// As by a power cut.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop, and waits until it has.
    pub(super) async fn stop(mut self) -> Run {
        self.signal("TERM");
        self.ended().await
    }

    pub(super) async fn ended(&mut self) -> Run {
        let mut code = None;
        wait::until("the process to end", wait::LONG, async || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        })
        .await;
        let stderr = self.said.take().unwrap().join().unwrap();
        Run { code: code.unwrap().code(), stdout: String::new(), stderr }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A statement that the server carried out.
#[derive(Clone, Debug)]
pub(super) struct Delete {
    pub(super) by: String,
    /// By the server's clock, in milliseconds.
    pub(super) begun: i64,
    pub(super) ended: i64,
    pub(super) documents: i64,
    pub(super) failed: bool,
}

/// Has the server write down every delete in this database, and nothing else: level 2 would overrule the filter.
pub(super) async fn profile(db: &Database) {
    let capped = doc! { "create": "system.profile", "capped": true, "size": 32 * 1024 * 1024 };
    db.run_command(capped).await.unwrap();
    db.run_command(doc! { "profile": 1, "filter": { "op": "remove" } }).await.unwrap();
}

/// What was deleted in a collection, in the order in which it ended.
pub(super) async fn deletes(db: &Database, collection: &str) -> Vec<Delete> {
    deletes_since(db, collection, 0).await
}

/// The same, of those that ended after this instant.
async fn deletes_since(db: &Database, collection: &str, since: i64) -> Vec<Delete> {
    let written = db.collection::<Document>("system.profile");
    let ns = format!("{}.{collection}", db.name());
    let found = written.find(doc! { "op": "remove", "ns": ns, "ts": { "$gt": DateTime::from_millis(since) } });
    let fields = doc! { "appName": 1, "ts": 1, "millis": 1, "ndeleted": 1, "errCode": 1 };
    let found = found.projection(fields).sort(doc! { "$natural": 1 }).await.unwrap();
    let found: Vec<Document> = found.try_collect().await.unwrap();
    let number = |row: &Document, field: &str| match row.get(field) {
        Some(value) => value.as_i64().or(value.as_i32().map(i64::from)).unwrap(),
        None => 0,
    };
    let read = |row: &Document| {
        let ended = row.get_datetime("ts").unwrap().timestamp_millis();
        Delete {
            by: row.get_str("appName").unwrap().to_owned(),
            begun: ended - number(row, "millis"),
            ended,
            documents: number(row, "ndeleted"),
            failed: row.contains_key("errCode"),
        }
    };
    found.iter().map(read).collect()
}

/// The name of the process that holds the lease.
pub(super) async fn holder(db: &Database) -> Option<String> {
    let lease = db.collection::<Document>("ttl_index.lease").find_one(doc! { "_id": "lease" }).await.unwrap()?;
    let holder = lease.get_str("holder").ok()?;
    Some(holder.split_once('/').unwrap().0.to_owned())
}

/// Waits until this process holds the lease.
pub(super) async fn taken(db: &Database, name: &str) {
    wait::until("it to take the lease", wait::LONG, async || holder(db).await.as_deref() == Some(name)).await;
}

/// Waits until a process has deleted something since this instant, and returns its name.
pub(super) async fn at_work(db: &Database, collection: &str, since: i64) -> String {
    let mut by = None;
    wait::until("a process to delete", wait::LONG, async || {
        let last = deletes_since(db, collection, since).await.into_iter().rfind(|delete| delete.documents > 0);
        by = last.filter(|last| last.begun > since).map(|last| last.by);
        by.is_some() && by == holder(db).await
    })
    .await;
    by.unwrap()
}
