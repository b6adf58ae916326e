//! What users may read who are no more than readers, and that nothing else is asked for.

use std::collections::BTreeSet;

use mongodb::{
    Client,
    bson::{Document, doc},
    options::ClientOptions,
};
use ttl_index::{Doctor, MongoStore, TtlRegistry};

use super::{
    bench::Bench,
    duties::{CHILDREN, Duty, LATE, SESSIONS, Way},
};
use crate::reports::wire::Wire;
use crate::support::program::Program;

/// Commands that change nothing, with those that a connection begins and ends with.
const READS: [&str; 10] = [
    "hello",
    "saslStart",
    "saslContinue",
    "find",
    "aggregate",
    "count",
    "getMore",
    "listCollections",
    "listIndexes",
    "endSessions",
];

#[tokio::test]
async fn a_reader_is_told_everything_and_asks_for_nothing_but_reads() {
    let bench = Bench::start().await;
    bench.set_the_stage(Duty::Look).await;
    bench.admin.run_command(doc! { "createUser": "reader", "pwd": "p", "roles": ["read"] }).await.unwrap();
    let uri = bench.uri.replace("user:u@", "reader:p@");
    let wire = Wire::default();
    let mut options = ClientOptions::parse(&uri).await.unwrap();
    wire.watch(&mut options);
    let reader = Client::with_options(options).unwrap().database(&bench.database);
    let before = bench.admin.list_collection_names().await.unwrap().into_iter().collect::<BTreeSet<_>>();

    let ttl = TtlRegistry::open(MongoStore::new(reader.clone())).await.unwrap();
    let report = ttl.doctor().await.unwrap();
    assert_eq!(report.notes, Vec::<String>::new());
    let collections: Vec<&str> = report.diagnoses.iter().map(|it| it.collection.as_str()).collect();
    assert_eq!(collections, [LATE, SESSIONS]);
    for diagnosis in &report.diagnoses {
        assert_eq!(diagnosis.notes, Vec::<String>::new());
        assert_eq!(diagnosis.sample.as_ref().unwrap().documents, 3);
        assert!(!diagnosis.findings.is_empty());
    }
    // At random, too, and for a store that takes its time from a collection otherwise.
    ttl.doctor().sample(1).await.unwrap();
    Doctor::of(MongoStore::new(reader).portable_only()).await.unwrap();

    let sent: BTreeSet<String> = wire.all().iter().filter_map(|it| it.keys().next().cloned()).collect();
    assert!(sent.iter().all(|command| READS.contains(&command.as_str())), "{sent:?}");
    for needed in ["find", "aggregate", "listCollections", "listIndexes"] {
        assert!(sent.contains(needed), "{needed} was not seen: {sent:?}");
    }
    let after = bench.admin.list_collection_names().await.unwrap().into_iter().collect::<BTreeSet<_>>();
    assert_eq!(after, before);
    for collection in [SESSIONS, LATE] {
        assert_eq!(bench.admin.collection::<Document>(collection).count_documents(doc! {}).await.unwrap(), 3);
    }
    assert_eq!(Program::at(&uri).run(&["doctor"]).code, Some(3));
}

#[tokio::test]
async fn what_may_not_be_read_is_noted_and_the_rest_is_told() {
    let bench = Bench::start().await;
    bench.set_the_stage(Duty::Look).await;
    // The role to look is enough.
    bench.give(&bench.role(Duty::Look, &[SESSIONS, LATE, "--children", CHILDREN]).await).await;
    let report = bench.registry(Way::Usual).await.unwrap().doctor().await.unwrap();
    assert!(report.notes.is_empty() && report.diagnoses.iter().all(|it| it.notes.is_empty()), "{report}");

    let on = |collection: &str, actions: &[&str]| doc! { "resource": { "db": &bench.database, "collection": collection }, "actions": actions };
    let run = |arguments: &[&str]| {
        let run = Program::at(&bench.uri).run(&[&["--json", "doctor"], arguments].concat());
        assert_eq!(run.stderr, "", "{run:?}");
        run
    };
    // Documents and the registry, but no indexes.
    let documents = [on(SESSIONS, &["find"]), on("ttl_index.registry", &["find"])];
    bench.give(&documents).await;
    let run_sessions = run(&[SESSIONS]);
    let lines = run_sessions.lines();
    assert_eq!(run_sessions.code, Some(3), "{run_sessions:?}");
    assert_eq!(lines[0]["index"]["name"], "t_1");
    assert_eq!(lines[0]["sample"]["documents"], 3);
    assert!(lines[0]["notes"].to_string().contains("the privilege listIndexes"), "{lines:?}");
    assert!(lines[1]["note"].to_string().contains("the privilege listCollections"), "{lines:?}");

    // Not even documents: nothing is found, and that is not said to be good.
    bench.give(&documents[1..]).await;
    let run_nothing = run(&[SESSIONS]);
    assert_eq!(run_nothing.code, Some(0), "{run_nothing:?}");
    assert!(run_nothing.lines()[0]["sample"].is_null(), "{run_nothing:?}");
    assert!(run_nothing.stdout.contains("the privilege find"), "{run_nothing:?}");

    // Nothing at all but documents.
    bench.give(&documents[..1]).await;
    let lines = run(&[SESSIONS]).lines();
    assert!(lines[0]["index"].is_null(), "{lines:?}");
    assert_eq!(lines[0]["candidates"][0]["field"], "t");
    assert!(lines.iter().any(|it| it["note"].to_string().contains("ttl_index.registry")), "{lines:?}");
}

#[tokio::test]
async fn where_nothing_may_be_read_that_is_an_error_and_not_said_to_be_good() {
    let bench = Bench::start().await;
    bench.set_the_stage(Duty::Look).await;
    let elsewhere = doc! { "resource": { "db": &bench.database, "collection": "elsewhere" }, "actions": ["find"] };
    bench.give(&[elsewhere]).await;
    for arguments in [&["doctor"][..], &["doctor", SESSIONS], &["--json", "doctor"]] {
        Program::at(&bench.uri).run(arguments).failed(1, "nothing could be looked at");
    }
}
