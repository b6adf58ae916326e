//! Many requests in many processes at once.

use futures_util::future::join_all;
use ttl_index::{MongoStore, TtlRegistry};

use super::worker::{Answers, Task, Worker};
use super::{HOUR_MS, expired, index, move_claim};
use crate::support::{TestDatabase, database};

const PROCESSES: usize = 4;
const ASKERS: usize = 50;

/// Has all of them ask at once.
async fn all_ask(workers: &mut [Worker]) -> Answers {
    for worker in &mut *workers {
        worker.tell().await;
    }
    let mut sum = Answers::default();
    for answers in join_all(workers.iter_mut().map(|worker| worker.says::<Answers>())).await {
        let Answers { swept, not_due, held_by, deleted } = answers;
        sum.swept += swept;
        sum.not_due += not_due;
        sum.held_by += held_by;
        sum.deleted += deleted;
    }
    sum
}

async fn insert(it: &TestDatabase) {
    it.db.collection("c").insert_many(expired(0..100)).await.unwrap();
}

#[tokio::test]
async fn of_two_hundred_in_four_processes_exactly_one_sweeps_in_an_interval() {
    let it = database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    ttl.create_index("c", index()).await.unwrap();
    let mut workers: Vec<Worker> = (0..PROCESSES).map(|_| Worker::start(&it.uri, &Task::Ask(ASKERS))).collect();
    for ready in join_all(workers.iter_mut().map(|worker| worker.says::<String>())).await {
        assert_eq!(ready, "ready");
    }
    let others = PROCESSES * ASKERS - 1;
    for interval in 0..8 {
        insert(&it).await;
        let answers = all_ask(&mut workers).await;
        assert_eq!(answers, Answers { swept: 1, not_due: others, held_by: 0, deleted: 100 }, "interval {interval}");
        // Within the interval nobody does.
        let answers = all_ask(&mut workers).await;
        assert_eq!(answers, Answers { not_due: others + 1, ..Answers::default() }, "interval {interval}");
        move_claim(&it, "all", HOUR_MS).await;
    }
    it.drop().await;
}
