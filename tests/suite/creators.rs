//! Many creators at once, in several processes, on one database.
//!
//! The processes are this test program itself, started again with the name of [`worker`] and a task.

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::process::Stdio;
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::future::join_all;
use mongodb::bson::{Document, doc};
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use ttl_index::{Error, IndexState, MongoStore, TtlIndex, TtlRegistry};

use crate::support::place::Place;
use crate::support::{TestDatabase, database};

const PROCESSES: usize = 4;
const TASKS: usize = 16;
const CREATORS: usize = PROCESSES * TASKS;

/// Of every collection that several creators want.
const CONTESTED: usize = 5;

/// The environment variable that makes [`worker`] work.
const TASK: &str = "TTL_INDEX_TEST_CREATORS";

/// What stands before a line of results, among what the test harness prints.
const RESULT: &str = "creators: ";

/// What a process is to do.
#[derive(Serialize, Deserialize)]
struct Task {
    uri: String,
    process: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum Kind {
    /// Every creator wants an index of its own kind on each contested collection.
    Different,
    /// Every creator wants the same index on each contested collection.
    Identical,
    /// Every creator wants an index on a collection of its own.
    NewCollections,
    /// Half of them create on one collection and half of them drop.
    Droppers,
}

/// What came of one request.
#[derive(Debug, Serialize, Deserialize)]
struct Outcome {
    collection: String,
    field: String,
    /// None: it succeeded.
    code: Option<i32>,
    message: String,
}

/// Does nothing, unless another test has started this program for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker() {
    let Ok(task) = std::env::var(TASK) else { return };
    let Task { uri, process, kind } = serde_json::from_str(&task).unwrap();
    let client = mongodb::Client::with_uri_str(&uri).await.unwrap();
    let db = client.default_database().unwrap();
    let ttl = TtlRegistry::open(MongoStore::new(db.clone())).await.unwrap();
    wait_for_all(&db, process).await;
    let creators =
        (process * TASKS..(process + 1) * TASKS).map(|creator| tokio::spawn(create(ttl.clone(), creator, kind)));
    for outcomes in join_all(creators).await {
        for outcome in outcomes.unwrap() {
            println!("{RESULT}{}", serde_json::to_string(&outcome).unwrap());
        }
    }
}

/// Waits until every process is there, so that they really run at the same time.
async fn wait_for_all(db: &mongodb::Database, process: usize) {
    let ready = db.collection::<Document>("ready");
    ready.insert_one(doc! { "_id": i64::try_from(process).unwrap() }).await.unwrap();
    crate::support::wait::until("the other processes", Duration::from_secs(60), async || {
        ready.count_documents(doc! {}).await.unwrap() == PROCESSES as u64
    })
    .await;
}

async fn create(ttl: TtlRegistry, creator: usize, kind: Kind) -> Vec<Outcome> {
    let index = |field: &str, seconds: u64| {
        TtlIndex::on(field).expire_after(Duration::from_secs(seconds)).supporting_index(false)
    };
    let mut outcomes = Vec::new();
    match kind {
        Kind::Different => {
            for contested in 0..CONTESTED {
                // Of all kinds: another field, another name, another period.
                let field = if creator.is_multiple_of(2) { format!("f{creator}") } else { "t".to_owned() };
                let mut index = index(&field, creator as u64);
                if matches!(creator % 4, 1 | 2) {
                    index = index.name("same");
                }
                outcomes.push(attempt(&ttl, format!("c{contested}"), field, index).await);
            }
        }
        Kind::Identical => {
            for contested in 0..CONTESTED {
                // This one with a supporting index, so that several find the creation unfinished and finish it.
                let index = TtlIndex::on("t").expire_after(Duration::from_secs(60));
                outcomes.push(attempt(&ttl, format!("c{contested}"), "t".to_owned(), index).await);
            }
        }
        Kind::NewCollections => {
            outcomes.push(attempt(&ttl, format!("new{creator}"), "t".to_owned(), index("t", 1)).await);
        }
        Kind::Droppers => {
            for round in 0..20 {
                if creator.is_multiple_of(2) {
                    let field = format!("f{creator}_{round}");
                    outcomes.push(attempt(&ttl, "c0".to_owned(), field.clone(), index(&field, 1)).await);
                } else if let Some(there) = ttl.list_indexes().await.unwrap().first() {
                    let dropped = ttl.drop_index("c0", there.key.clone()).await;
                    outcomes.push(outcome("c0".to_owned(), "dropped".to_owned(), dropped.err()));
                }
            }
        }
    }
    outcomes
}

async fn attempt(ttl: &TtlRegistry, collection: String, field: String, index: TtlIndex) -> Outcome {
    let created = ttl.create_index(&collection, index).await;
    outcome(collection, field, created.err())
}

fn outcome(collection: String, field: String, error: Option<Error>) -> Outcome {
    let code = error.as_ref().map(|error| error.code().unwrap_or_else(|| panic!("without a code: {error:?}")));
    Outcome { collection, field, code, message: error.map(|error| error.to_string()).unwrap_or_default() }
}

/// Has four processes with sixteen creators each work on the database, and collects what came of it.
async fn race(test: &TestDatabase, kind: Kind) -> Vec<Outcome> {
    let processes = (0..PROCESSES).map(|process| {
        let task = Task { uri: test.uri.clone(), process, kind };
        Command::new(std::env::current_exe().unwrap())
            .args(["creators::worker", "--exact", "--nocapture"])
            .env(TASK, serde_json::to_string(&task).unwrap())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
    });
    let mut outcomes = Vec::new();
    for output in join_all(processes).await {
        let output = output.unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
        let results = printed.lines().filter_map(|line| line.split_once(RESULT));
        outcomes.extend(results.map(|(_, json)| serde_json::from_str::<Outcome>(json).unwrap()));
    }
    outcomes
}

/// The registry as it is stored: its revision and its entries.
async fn stored(test: &TestDatabase) -> (i64, Vec<Document>) {
    let registry = test.db.collection::<Document>("ttl_index.registry");
    let found: Vec<Document> = registry.find(doc! {}).await.unwrap().try_collect().await.unwrap();
    let [document] = found.as_slice() else { panic!("not one registry: {found:?}") };
    assert_eq!(document.get_str("_id").unwrap(), "registry");
    let entries = document.get_array("indexes").unwrap();
    (document.get_i64("revision").unwrap(), entries.iter().map(|entry| entry.as_document().unwrap().clone()).collect())
}

/// No collection has two entries, and what the library lists is what is stored.
async fn check_one_each(test: &TestDatabase) -> Vec<Document> {
    let (_, entries) = stored(test).await;
    let collections: HashSet<&str> = entries.iter().map(|entry| entry.get_str("collection").unwrap()).collect();
    assert_eq!(collections.len(), entries.len(), "a collection has two TTL indexes: {entries:?}");
    let ttl = TtlRegistry::open(MongoStore::new(test.db.clone())).await.unwrap();
    let listed = ttl.list_indexes().await.unwrap();
    let names = |name: &str, collection: &str| (name.to_owned(), collection.to_owned());
    let listed_names: Vec<_> = listed.iter().map(|index| names(&index.name, &index.collection)).collect();
    let stored_names: Vec<_> = entries
        .iter()
        .map(|entry| names(entry.get_str("name").unwrap(), entry.get_str("collection").unwrap()))
        .collect();
    assert_eq!(listed_names, stored_names);
    assert!(listed.iter().all(|index| index.state == IndexState::Active), "{listed:?}");
    entries
}

#[tokio::test]
async fn of_different_definitions_exactly_one_wins_on_each_collection() {
    let test = database().await;
    let outcomes = race(&test, Kind::Different).await;
    assert_eq!(outcomes.len(), CREATORS * CONTESTED);
    let entries = check_one_each(&test).await;
    assert_eq!(entries.len(), CONTESTED);
    let mut winners = BTreeMap::new();
    for outcome in &outcomes {
        match outcome.code {
            None => {
                let second = winners.insert(outcome.collection.clone(), outcome.field.clone());
                assert_eq!(second, None, "two won: {outcome:?}");
            }
            Some(67 | 85 | 86) => {
                assert!(outcome.message.contains("existing index: {"), "{outcome:?}");
            }
            Some(_) => panic!("{outcome:?}"),
        }
    }
    let stored: BTreeMap<String, String> = entries
        .iter()
        .map(|entry| {
            let field = entry.get_document("key").unwrap().keys().next().unwrap().clone();
            (entry.get_str("collection").unwrap().to_owned(), field)
        })
        .collect();
    assert_eq!(winners, stored);
    test.drop().await;
}

#[tokio::test]
async fn of_identical_definitions_everyone_succeeds() {
    let test = database().await;
    let outcomes = race(&test, Kind::Identical).await;
    assert_eq!(outcomes.len(), CREATORS * CONTESTED);
    assert!(outcomes.iter().all(|outcome| outcome.code.is_none()), "{outcomes:?}");
    assert_eq!(check_one_each(&test).await.len(), CONTESTED);
    for contested in 0..CONTESTED {
        let names = test.db.collection::<Document>(&format!("c{contested}")).list_index_names().await.unwrap();
        assert_eq!(names, ["_id_", "t_1"]);
    }
    test.drop().await;
}

#[tokio::test]
async fn the_five_hundredth_index_is_the_last_whoever_comes() {
    let test = database().await;
    let ttl = TtlRegistry::open(MongoStore::new(test.db.clone())).await.unwrap();
    let index = TtlIndex::on("t").expire_after(Duration::ZERO).supporting_index(false);
    for number in 0..490 {
        ttl.create_index(format!("old{number}"), index.clone()).await.unwrap();
    }
    let outcomes = race(&test, Kind::NewCollections).await;
    assert_eq!(outcomes.len(), CREATORS);
    let (created, refused): (Vec<_>, Vec<_>) = outcomes.iter().partition(|outcome| outcome.code.is_none());
    assert_eq!((created.len(), refused.len()), (10, CREATORS - 10));
    for outcome in refused {
        assert_eq!(outcome.code, Some(67), "{outcome:?}");
        assert!(outcome.message.contains("500"), "{outcome:?}");
    }
    assert_eq!(check_one_each(&test).await.len(), 500);
    test.drop().await;
}

#[tokio::test]
async fn creators_and_droppers_leave_one_entry_at_most_and_the_revision_only_rises() {
    let test = database().await;
    let ttl = TtlRegistry::open(MongoStore::new(test.db.clone())).await.unwrap();
    ttl.create_index("c0", TtlIndex::on("first").expire_after(Duration::ZERO)).await.unwrap();
    let mut revisions = vec![stored(&test).await.0];
    let done = Cell::new(false);
    let racing = async {
        let outcomes = race(&test, Kind::Droppers).await;
        done.set(true);
        outcomes
    };
    let watching = async {
        while !done.get() {
            let (revision, entries) = stored(&test).await;
            revisions.push(revision);
            assert!(entries.len() <= 1, "{entries:?}");
        }
    };
    let (outcomes, ()) = tokio::join!(racing, watching);
    let (last, entries) = stored(&test).await;
    revisions.push(last);
    assert!(revisions.is_sorted(), "{revisions:?}");
    assert!(entries.len() <= 1, "{entries:?}");
    let dropped = |outcome: &&Outcome| outcome.field == "dropped";
    let (drops, creations): (Vec<_>, Vec<_>) = outcomes.iter().partition(dropped);
    let count = |outcomes: &[&Outcome], code| outcomes.iter().filter(|outcome| outcome.code == code).count();
    // A creation that was told of no such index had made its entry, and somebody dropped it before it was finished.
    let (made, gone) = (1 + count(&creations, None) + count(&creations, Some(27)), count(&drops, None));
    assert_eq!(made - gone, entries.len(), "{outcomes:?}");
    assert!(made > 1 && gone > 0, "nothing was raced for: {outcomes:?}");
    // Every change is one step of the revision: the entry itself, and that it is active.
    let steps = i64::try_from(made + gone + 1 + count(&creations, None)).unwrap();
    // The first index was two steps, from whatever number this registry began with.
    assert_eq!(last - (revisions[0] - 2), steps);
    assert!(creations.iter().all(|it| matches!(it.code, None | Some(27 | 67))), "{creations:?}");
    assert!(drops.iter().all(|it| matches!(it.code, None | Some(27))), "{drops:?}");
    test.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_embedded_store_holds_both_limits_as_well() {
    let place = Place::embedded();
    let ttl = place.registry().await;
    let all = |kind| join_all((0..CREATORS).map(|creator| tokio::spawn(create(ttl.clone(), creator, kind))));
    let outcomes = |results: Vec<Result<Vec<Outcome>, _>>| -> Vec<Outcome> {
        results.into_iter().flat_map(|result: Result<_, tokio::task::JoinError>| result.unwrap()).collect()
    };
    let different = outcomes(all(Kind::Different).await);
    let won = different.iter().filter(|outcome| outcome.code.is_none()).count();
    assert_eq!(won, CONTESTED, "{different:?}");
    assert!(different.iter().all(|it| matches!(it.code, None | Some(67 | 85 | 86))), "{different:?}");
    for index in ttl.list_indexes().await.unwrap() {
        ttl.drop_index(index.collection, index.name).await.unwrap();
    }
    let identical = outcomes(all(Kind::Identical).await);
    assert!(identical.iter().all(|outcome| outcome.code.is_none()), "{identical:?}");

    let index = TtlIndex::on("t").expire_after(Duration::ZERO);
    for number in CONTESTED..490 {
        ttl.create_index(format!("old{number}"), index.clone()).await.unwrap();
    }
    let new = outcomes(all(Kind::NewCollections).await);
    assert_eq!(new.iter().filter(|outcome| outcome.code.is_none()).count(), 10, "{new:?}");
    assert!(new.iter().all(|it| it.code.is_none() || it.code == Some(67) && it.message.contains("500")), "{new:?}");
    let listed = ttl.list_indexes().await.unwrap();
    assert_eq!(listed.iter().map(|index| &index.collection).collect::<HashSet<_>>().len(), 500);
    assert_eq!(listed.len(), 500);
}
