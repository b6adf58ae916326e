//! Several processes on one database: one deletes at a time, at the rate, whatever becomes of it; told by the server.

use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use ttl_index::{MongoStore, TtlRegistry};

use super::index;
use super::process::{Delete, Process, at_work, deletes, holder, profile};
use crate::support::mongod::Mongod;
use crate::support::{TestDatabase, wait};

const DOCUMENTS: i32 = 30_000;
const RATE: i64 = 2_000;
const LEASE: Duration = Duration::from_secs(5);

struct Crew {
    it: TestDatabase,
    processes: Vec<Process>,
    /// Who swept, one after the other.
    tenures: Vec<String>,
}

impl Crew {
    async fn of(number: usize) -> Crew {
        let it = Mongod::shared().await.database().await;
        let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
        ttl.create_index("c", index()).await.unwrap();
        let due = (0..DOCUMENTS).map(|id| doc! { "_id": id, "t": DateTime::from_millis(i64::from(id)) });
        it.db.collection("c").insert_many(due).await.unwrap();
        profile(&it.db).await;
        let arguments = ["--max-rate", "2000", "--min-rate", "2000", "--lease-time", "5s"];
        let start = |number| Process::start(&it.uri, &format!("p{number}"), &arguments);
        Crew { processes: (0..number).map(start).collect(), it, tenures: Vec::new() }
    }

    /// Takes the process out that is deleting, once it has since this instant.
    async fn sweeping(&mut self, since: i64) -> Process {
        let name = at_work(&self.it.db, "c", since).await;
        let at = self.processes.iter().position(|process| process.name == name).unwrap();
        self.tenures.push(name);
        self.processes.remove(at)
    }

    async fn count(&self) -> u64 {
        self.it.db.collection::<Document>("c").count_documents(doc! {}).await.unwrap()
    }

    /// What is left while nobody sweeps, once the last statement of who did is over.
    async fn left(&self) -> u64 {
        // On a busy machine it may begin late; the next holder begins later still, when the lease is over.
        let (mut counted, mut times) = (self.count().await, 0);
        while times < 6 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = self.count().await;
            times = if now == counted { times + 1 } else { 0 };
            counted = now;
        }
        counted
    }

    async fn drained(&self) -> Vec<Delete> {
        wait::until("all that is due to go", 2 * wait::LONG, async || self.count().await == 0).await;
        // The server notes a statement when its majority has acknowledged it, a moment after its documents are gone.
        let running = doc! { "currentOp": 1, "active": true, "ns": format!("{}.c", self.it.db.name()) };
        let admin = self.it.client.database("admin");
        wait::until("the last statement to be over", wait::LONG, async || {
            let reply = admin.run_command(running.clone()).await.unwrap();
            reply.get_array("inprog").unwrap().is_empty()
        })
        .await;
        deletes(&self.it.db, "c").await
    }
}

fn now() -> i64 {
    DateTime::now().timestamp_millis()
}

fn millis(duration: Duration) -> i64 {
    duration.as_millis().try_into().unwrap()
}

/// How long nobody deleted from this instant on.
fn gap(deletes: &[Delete], by: &Process, from: i64) -> i64 {
    let next = deletes.iter().find(|delete| delete.by != by.name && delete.begun > from);
    next.unwrap().begun - from
}

/// Each tenure is one block of deletes, and no two overlap.
fn assert_one_at_a_time(deletes: &[Delete], tenures: &[String]) {
    let mut blocks: Vec<&str> = deletes.iter().map(|delete| &*delete.by).collect();
    blocks.dedup();
    assert_eq!(blocks, tenures, "{deletes:#?}");
    for pair in deletes.windows(2) {
        // Instants are whole milliseconds.
        assert!(pair[0].ended <= pair[1].begun + 1, "they overlap: {pair:?}");
    }
}

/// What the others deleted is what the killed one had left, to the document. Of the killed one itself the server may not have
/// noted the last statement, whose client was gone: at most one batch.
fn assert_exactly_once(deletes: &[Delete], killed: &Process, left: u64) {
    let noted = |by_killed| deletes.iter().filter(move |it| (it.by == killed.name) == by_killed).map(|it| it.documents);
    assert_eq!(noted(false).sum::<i64>(), i64::try_from(left).unwrap());
    let unnoted = i64::from(DOCUMENTS) - i64::try_from(left).unwrap() - noted(true).sum::<i64>();
    assert!((0..=500).contains(&unnoted), "{unnoted} went that no delete accounts for");
}

fn assert_rate_kept(deletes: &[Delete]) {
    for first in deletes {
        let window = deletes.iter().filter(|delete| (0..10_000).contains(&(delete.ended - first.ended)));
        let sum: i64 = window.map(|delete| delete.documents).sum();
        assert!(sum <= RATE * 11, "{sum} in 10 s from {}", first.ended);
    }
}

#[tokio::test]
async fn of_two_processes_the_other_goes_on_within_the_lease_time_after_a_kill() {
    let mut crew = Crew::of(2).await;
    let mut killed = crew.sweeping(0).await;
    wait::until("it to be in the middle", wait::LONG, async || crew.count().await < 27_000).await;
    let at = now();
    killed.kill();
    let left = crew.left().await;
    let other = crew.sweeping(at).await;
    let deletes = crew.drained().await;
    let gap = gap(&deletes, &killed, at);
    println!("after a kill: {gap} ms");
    assert!(gap <= millis(LEASE) + 1_000, "nobody deleted for {gap} ms");
    assert_one_at_a_time(&deletes, &crew.tenures);
    assert_exactly_once(&deletes, &killed, left);
    assert_rate_kept(&deletes);
    assert_eq!(other.stop().await.code, Some(0));
    crew.it.drop().await;
}

#[tokio::test]
async fn five_processes_take_turns_through_a_kill_a_stop_and_a_freeze() {
    let mut crew = Crew::of(5).await;

    let mut killed = crew.sweeping(0).await;
    let killed_at = now();
    killed.kill();
    let left = crew.left().await;

    let mut stopped = crew.sweeping(killed_at).await;
    let asked_at = now();
    stopped.signal("TERM");

    let frozen = crew.sweeping(asked_at).await;
    let run = stopped.ended().await;
    assert_eq!(run.code, Some(0), "{run:?}");
    let frozen_at = now();
    frozen.signal("STOP");

    let fourth = crew.sweeping(frozen_at).await;
    // Longer than the lease, and until the other has done something more.
    wait::until("the lease to be long over", wait::LONG, async || now() > frozen_at + millis(LEASE) + 1_000).await;
    let thawed_at = now();
    frozen.signal("CONT");
    wait::until("the other to go on", wait::LONG, async || now() > thawed_at + 1_500).await;
    assert_eq!(holder(&crew.it.db).await.as_ref(), Some(&fourth.name));

    // With nobody else left, the one that was frozen takes its turn.
    let fifth = crew.processes.remove(0);
    assert_eq!(fifth.stop().await.code, Some(0));
    assert_eq!(fourth.stop().await.code, Some(0));
    crew.tenures.push(frozen.name.clone());
    let deletes = crew.drained().await;

    let (after_kill, after_stop) = (gap(&deletes, &killed, killed_at), gap(&deletes, &stopped, asked_at));
    let after_freeze = gap(&deletes, &frozen, frozen_at);
    println!("after a kill: {after_kill} ms, after a stop: {after_stop} ms, after a freeze: {after_freeze} ms");
    assert!(after_kill <= millis(LEASE) + 1_000, "nobody deleted for {after_kill} ms");
    assert!(after_freeze <= millis(LEASE) + 1_000, "nobody deleted for {after_freeze} ms");
    // Given back, not left to lapse.
    assert!(after_stop <= 2_000, "nobody deleted for {after_stop} ms");
    assert!(deletes.iter().all(|delete| !delete.failed), "{deletes:#?}");
    assert_one_at_a_time(&deletes, &crew.tenures);
    assert_exactly_once(&deletes, &killed, left);
    assert_rate_kept(&deletes);
    assert_eq!(frozen.stop().await.code, Some(0));
    crew.it.drop().await;
}
