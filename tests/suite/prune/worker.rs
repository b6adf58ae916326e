//! This test program, started again as a process of an application that prunes.

use std::process::Stdio;
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use ttl_index::{MongoStore, Pruned, TtlRegistry};

use super::HOUR;

/// The environment variable that makes [`worker`] work.
const TASK: &str = "TTL_INDEX_TEST_PRUNE";

/// What stands before a line of its own, among what the test harness prints.
const SAID: &str = "prune: ";

/// What a process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Task {
    /// For every line that it is told: so many ask at once, as in a process that remembers nothing.
    Ask(usize),
    /// Serve the site of the example, once without pruning and once with it.
    #[cfg(feature = "cli")]
    Serve(Duration),
}

/// How many were told what.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Answers {
    pub(super) swept: usize,
    pub(super) not_due: usize,
    pub(super) held_by: usize,
    pub(super) deleted: u64,
}

/// Does nothing, unless another test has started this program for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker() {
    let Ok(task) = std::env::var(TASK) else { return };
    let (uri, task): (String, Task) = serde_json::from_str(&task).unwrap();
    let database = mongodb::Client::with_uri_str(&uri).await.unwrap().default_database().unwrap();
    let registry = async || TtlRegistry::open(MongoStore::new(database.clone())).await.unwrap();
    match task {
        Task::Ask(askers) => {
            registry().await;
            say("ready");
            for _ in std::io::stdin().lines() {
                say(&ask(&registry().await, askers).await);
            }
        }
        #[cfg(feature = "cli")]
        Task::Serve(interval) => super::service::serve(&registry().await, interval).await,
    }
}

async fn ask(ttl: &TtlRegistry, askers: usize) -> Answers {
    let asking = (0..askers).map(|_| tokio::spawn(ttl.sweep_if_due(HOUR).into_future()));
    let mut answers = Answers::default();
    for pruned in join_all(asking).await {
        match pruned.unwrap().unwrap() {
            Pruned::Swept { passes, .. } => {
                answers.swept += 1;
                answers.deleted += passes.into_iter().map(|it| it.pass.unwrap().deleted).sum::<u64>();
            }
            Pruned::NotDue { .. } => answers.not_due += 1,
            Pruned::HeldBy { .. } => answers.held_by += 1,
            other => panic!("{other:?}"),
        }
    }
    answers
}

pub(super) fn say(what: &(impl Serialize + ?Sized)) {
    println!("{SAID}{}", serde_json::to_string(what).unwrap());
}

/// Such a process, killed when dropped.
pub(super) struct Worker {
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    pub(super) fn start(uri: &str, task: &Task) -> Worker {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["prune::worker::worker", "--exact", "--nocapture"])
            .env(TASK, serde_json::to_string(&(uri, task)).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        Worker { child, stdin, stdout }
    }

    /// Writes it a line.
    pub(super) async fn tell(&mut self) {
        self.stdin.write_all(b"go\n").await.unwrap();
    }

    pub(super) async fn says<T: for<'a> Deserialize<'a>>(&mut self) -> T {
        while let Some(line) = self.stdout.next_line().await.unwrap() {
            if let Some((_, said)) = line.split_once(SAID) {
                return serde_json::from_str(said).unwrap();
            }
        }
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).await.unwrap();
        panic!("it said nothing more: {stderr}");
    }

    /// As by a power cut. Returns what it wrote to stderr.
    pub(super) async fn kill(mut self) -> String {
        self.child.kill().await.unwrap();
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).await.unwrap();
        stderr
    }
}
