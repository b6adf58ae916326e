//! Processes killed at every step of a creation and of a drop, and what the next process makes of it.
//!
//! A fail point of the server holds the process at a step, by the command that would be next; then it is killed, and so is
//! what the server holds: it is never carried out.

use mongodb::bson::{Bson, Document, doc};
use serde_json::Value;

use super::{expired, fail_point, ordinary_indexes, stored_entry};
use crate::support::TestDatabase;
use crate::support::mongod::Mongod;
use crate::support::program::Program;
use crate::support::wait::{LONG, until};

/// What only the process to be killed calls itself, so that the fail point holds nobody else.
const VICTIM: &str = "victim";

const CREATE: [&str; 5] = ["create", "c", "t", "--expire-after", "1h"];
const DROP: [&str; 2] = ["drop", "c"];

/// The point at which a process is killed: before it has this command carried out, on this collection, after as many of
/// the same.
struct Step {
    what: &'static str,
    command: &'static str,
    collection: &'static str,
    after: i32,
}

const fn step(what: &'static str, command: &'static str, collection: &'static str, after: i32) -> Step {
    Step { what, command, collection, after }
}

const REGISTRY: &str = "ttl_index.registry";
const OPERATIONS: &str = "ttl_index.operations";

const OF_CREATION: [Step; 6] = [
    step("before the entry", "findAndModify", REGISTRY, 0),
    step("after the entry", "insert", OPERATIONS, 0),
    step("after the operation", "findAndModify", OPERATIONS, 0),
    step("during the build", "createIndexes", "c", 0),
    step("before ACTIVE", "findAndModify", REGISTRY, 1),
    step("before the end of the operation", "findAndModify", OPERATIONS, 1),
];

const OF_DROP: [Step; 4] = [
    step("before the operation", "insert", OPERATIONS, 0),
    step("before the entry is removed", "findAndModify", REGISTRY, 0),
    step("after the entry was removed", "dropIndexes", "c", 0),
    step("before the end of the operation", "findAndModify", OPERATIONS, 0),
];

/// Runs the program until it is held at the step, and kills it there.
async fn kill_at(it: &TestDatabase, step: &Step, arguments: &[&str]) {
    let data = doc! {
        "failCommands": [step.command],
        "namespace": format!("{}.{}", it.db.name(), step.collection),
        "appName": VICTIM,
        "blockConnection": true,
        "blockTimeMS": 3_600_000,
    };
    fail_point(it, "failCommand", doc! { "skip": step.after }, data).await;
    let held = kill_when(it, arguments, doc! { format!("command.{}", step.command): step.collection }).await;
    it.client.database("admin").run_command(doc! { "killOp": 1, "op": held }).await.unwrap();
    fail_point(it, "failCommand", "off", doc! {}).await;
}

/// Runs the program and kills it when the server is held at such an operation of its; returns which.
async fn kill_when(it: &TestDatabase, arguments: &[&str], operation: Document) -> Bson {
    let mut victim = Program::at(format!("{}&appName={VICTIM}", it.uri)).start(arguments);
    let mut current = doc! { "currentOp": 1, "$all": true, "appName": VICTIM, "active": true };
    current.extend(operation);
    // One that is not held is over sooner than it can be seen so often.
    let mut seen: Vec<Bson> = Vec::new();
    until("the process to be held", LONG, async || {
        assert!(victim.try_wait().unwrap().is_none(), "it ended before it was held");
        let found = it.client.database("admin").run_command(current.clone()).await.unwrap();
        let found = found.get_array("inprog").unwrap().first().and_then(|op| op.as_document()?.get("opid").cloned());
        seen.retain(|earlier| found.as_ref() == Some(earlier));
        seen.extend(found);
        seen.len() == 10
    })
    .await;
    victim.kill().unwrap();
    victim.wait().unwrap();
    seen.remove(0)
}

/// A database with the registry made, on a server that takes fail points.
async fn database(server: &Mongod, documents: i32) -> (TestDatabase, Program) {
    let it = server.database().await;
    let program = Program::at(&it.uri);
    // From here on every step is the same command, the first time as well.
    assert_eq!(program.run(&["create", "other", "t"]).code, Some(0));
    assert_eq!(program.run(&["drop", "other"]).code, Some(0));
    if documents > 0 {
        it.db.collection("c").insert_many(expired(documents)).await.unwrap();
    }
    (it, program)
}

/// The operations on the collection, newest first.
fn told(program: &Program) -> Vec<Value> {
    let all = program.json(&["operations"]);
    all.into_iter().filter(|operation| operation["metadata"]["collection"] == "c").collect()
}

/// Who finishes what was interrupted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    /// The same command again.
    TheSameAgain,
    /// What a sweeper does, after a minute.
    #[cfg(feature = "test-util")]
    Sweeper,
}

const EVERYONE: &[Next] = &[
    Next::TheSameAgain,
    #[cfg(feature = "test-util")]
    Next::Sweeper,
];

impl Next {
    /// Returns the exit code.
    async fn comes(self, it: &TestDatabase, program: &Program, arguments: &[&str]) -> Option<i32> {
        match self {
            Next::TheSameAgain => {
                let _ = it;
                program.run(arguments).code
            }
            #[cfg(feature = "test-util")]
            Next::Sweeper => {
                super::left::a_minute_passes(it).await;
                super::left::sweeper_comes(it).await;
                Some(0)
            }
        }
    }
}

#[tokio::test]
async fn a_creation_killed_at_any_step_is_finished_by_the_next_process_and_told_as_one() {
    let server = Mongod::private(&["--setParameter", "enableTestCommands=1"]).await;
    for (step, documents) in OF_CREATION.iter().flat_map(|step| [(step, 0), (step, 5)]) {
        for next in EVERYONE {
            let case = format!("killed {}, {documents} documents, then {next:?}", step.what);
            let (it, program) = database(&server, documents).await;
            kill_at(&it, step, &CREATE).await;
            if step.what == "before the entry" {
                assert!(program.json(&["list"]).is_empty() && told(&program).is_empty(), "{case}");
                continue;
            }
            let begun = *stored_entry(&it).await.get_datetime("createdAt").unwrap();
            assert_eq!(told(&program).len(), usize::from(step.what != "after the entry"), "{case}");
            assert!(told(&program).iter().all(|operation| operation["done"] == false), "{case}");
            let state = if step.what.contains("end of the operation") { "ACTIVE" } else { "CREATING" };
            assert_eq!(program.json(&["list"])[0]["state"], state, "{case}");

            assert_eq!(next.comes(&it, &program, &CREATE).await, Some(0), "{case}");
            finished(&it, &program, documents, &case).await;
            let operations = told(&program);
            let [operation] = operations.as_slice() else { panic!("{case}: {operations:?}") };
            if *next == Next::TheSameAgain {
                let start = Bson::DateTime(begun).into_relaxed_extjson();
                assert_eq!(operation["metadata"]["startTime"], start, "{case}");
            }
            let id = stored_entry(&it).await.get_object_id("id").unwrap().to_hex();
            assert_eq!(operation["_id"], id.as_str(), "{case}");

            // And nobody's index stays behind.
            assert_eq!(program.run(&DROP).code, Some(0), "{case}");
            assert_eq!(ordinary_indexes(&it, "c").await, ["_id_"], "{case}");
            it.drop().await;
        }
    }
}

/// The index is in force, and the newest operation says so.
async fn finished(it: &TestDatabase, program: &Program, documents: i32, case: &str) {
    let listed = program.json(&["list"]);
    assert_eq!((&listed[0]["state"], &listed[0]["supportingIndex"]["created"]), (&"ACTIVE".into(), &true.into()));
    assert_eq!(ordinary_indexes(it, "c").await, ["_id_", "t_1"], "{case}");
    assert!(stored_entry(it).await.contains_key("collectionUUID"), "{case}");
    let operation = &told(program)[0];
    let metadata = &operation["metadata"];
    assert_eq!((&operation["done"], &metadata["state"]), (&true.into(), &"SUCCESSFUL".into()), "{case}");
    let progress = &metadata["progressDocuments"];
    assert_eq!((&progress["completedWork"], &progress["estimatedWork"]), (&documents.into(), &documents.into()));
    assert!(metadata["endTime"].is_object() && operation["error"].is_null(), "{case}: {operation}");
}

/// The server itself is in the middle of building when the process dies.
#[tokio::test]
async fn a_creation_killed_in_the_middle_of_the_servers_own_build_is_finished() {
    let server = Mongod::private(&["--setParameter", "enableTestCommands=1"]).await;
    for next in EVERYONE {
        let (it, program) = database(&server, 1000).await;
        fail_point(&it, "hangAfterStartingIndexBuild", "alwaysOn", doc! {}).await;
        kill_when(&it, &CREATE, doc! { "command.createIndexes": "c" }).await;
        fail_point(&it, "hangAfterStartingIndexBuild", "off", doc! {}).await;
        assert_eq!(next.comes(&it, &program, &CREATE).await, Some(0));
        finished(&it, &program, 1000, "in the middle of a build").await;
        assert_eq!(program.run(&DROP).code, Some(0));
        assert_eq!(ordinary_indexes(&it, "c").await, ["_id_"]);
    }
}

#[tokio::test]
async fn a_drop_killed_at_any_step_is_finished_by_the_next_process_and_told_as_one() {
    let server = Mongod::private(&["--setParameter", "enableTestCommands=1"]).await;
    for step in &OF_DROP {
        for next in EVERYONE {
            let case = format!("killed {}, then {next:?}", step.what);
            let (it, program) = database(&server, 5).await;
            assert_eq!(program.run(&CREATE).code, Some(0));
            kill_at(&it, step, &DROP).await;
            let left = told(&program);
            let dropped = program.json(&["list"]).is_empty();
            assert_eq!(dropped, step.what.starts_with("after") || step.what.contains("end"), "{case}");
            let begun = step.what != "before the operation";
            assert_eq!(left.len(), 1 + usize::from(begun), "{case}: {left:?}");
            assert_eq!(left[0]["done"] == false, begun, "{case}: {left:?}");

            let code = next.comes(&it, &program, &DROP).await;
            if *next == Next::TheSameAgain {
                // It is gone already: the next process says so, after it has finished the drop.
                assert_eq!(code, Some(if dropped { 3 } else { 0 }), "{case}");
                if begun {
                    assert_eq!(told(&program)[0]["metadata"]["startTime"], left[0]["metadata"]["startTime"], "{case}");
                }
            }
            let gone = dropped || *next == Next::TheSameAgain;
            assert_eq!(program.json(&["list"]).is_empty(), gone, "{case}");
            assert_eq!(ordinary_indexes(&it, "c").await, if gone { &["_id_"][..] } else { &["_id_", "t_1"] }, "{case}");
            let operations = told(&program);
            if begun || gone {
                assert_eq!(operations.len(), 2, "{case}: {operations:?}");
                let is_drop = |it: &&Value| it["metadata"]["ttlConfigDelta"]["changeType"] == "REMOVE";
                let drop = operations.iter().find(is_drop).unwrap();
                let state = if gone { "SUCCESSFUL" } else { "CANCELLED" };
                assert_eq!(drop["metadata"]["state"], state, "{case}: {operations:?}");
            }
            it.drop().await;
        }
    }
}

/// The supporting index of a TTL index that is gone is not taken for one of the user's own.
#[tokio::test]
async fn an_index_made_after_an_interrupted_drop_has_an_index_of_its_own() {
    let server = Mongod::private(&["--setParameter", "enableTestCommands=1"]).await;
    let (it, program) = database(&server, 5).await;
    assert_eq!(program.run(&CREATE).code, Some(0));
    kill_at(&it, &OF_DROP[2], &DROP).await;
    assert_eq!(ordinary_indexes(&it, "c").await, ["_id_", "t_1"]);
    let made = program.json(&CREATE);
    assert_eq!(made[0]["supportingIndex"]["created"], true);
    assert!(told(&program).iter().all(|operation| operation["metadata"]["state"] == "SUCCESSFUL"));
    assert_eq!(told(&program).len(), 3);
    assert_eq!(program.run(&DROP).code, Some(0));
    assert_eq!(ordinary_indexes(&it, "c").await, ["_id_"]);
}

/// One that somebody made meanwhile walks it by now: it is handed over.
#[cfg(feature = "test-util")]
#[tokio::test]
async fn an_index_that_another_ttl_index_walks_by_now_is_handed_over() {
    let server = Mongod::private(&["--setParameter", "enableTestCommands=1"]).await;
    let (it, program) = database(&server, 5).await;
    assert_eq!(program.run(&CREATE).code, Some(0));
    kill_at(&it, &OF_DROP[2], &DROP).await;
    // As it is when a creation has read the indexes before the drop, and writes its entry after it.
    let operations = it.db.collection::<Document>(OPERATIONS);
    let unfinished = operations.find_one_and_delete(doc! { "done": false }).await.unwrap().unwrap();
    assert_eq!(program.json(&CREATE)[0]["supportingIndex"]["created"], false);
    operations.insert_one(unfinished).await.unwrap();

    super::left::a_minute_passes(&it).await;
    super::left::sweeper_comes(&it).await;
    assert_eq!(ordinary_indexes(&it, "c").await, ["_id_", "t_1"]);
    assert_eq!(program.json(&["list"])[0]["supportingIndex"]["created"], true);
    assert!(told(&program).iter().all(|operation| operation["done"] == true));
    assert_eq!(program.run(&DROP).code, Some(0));
    assert_eq!(ordinary_indexes(&it, "c").await, ["_id_"]);
}
