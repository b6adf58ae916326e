//! The program `ttl-index`: its contract with scripts.

mod daemon;
mod explain;
mod export;
mod if_due;
mod indexes;
mod operators;
mod outlook;
mod secrets;
mod sweep;
mod transfer;
mod tune;

use mongodb::bson::{DateTime, doc};
use tempfile::TempDir;
use ttl_index::EmbeddedStore;

use crate::support::{self, TestDatabase, program::Program};

/// One database of each kind, and the program for it.
struct Bench {
    mongo: TestDatabase,
    /// Holds the embedded file.
    directory: TempDir,
}

impl Bench {
    async fn new() -> Bench {
        Bench { mongo: support::database().await, directory: tempfile::tempdir().unwrap() }
    }

    fn programs(&self) -> [Program; 2] {
        [Program::at(&self.mongo.uri), Program::embedded(&self.directory.path().join("store"))]
    }
}

/// `count` documents whose `t` is long past, as JSON Lines.
fn expired(count: usize) -> String {
    use std::fmt::Write;
    (0..count).fold(String::new(), |mut lines, id| {
        writeln!(lines, r#"{{"_id":{id},"t":{{"$date":"2013-01-01T00:00:00Z"}}}}"#).unwrap();
        lines
    })
}

#[test]
fn a_mistyped_path_is_not_taken_for_an_empty_store() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("mistyped");
    for command in
        [&["list"][..], &["sweep"], &["export", "c"], &["explain", "c"], &["drop", "c"], &["pause"], &["run"]]
    {
        Program::embedded(&missing).run(command).failed(1, "does not exist");
        assert!(!missing.exists());
    }
}

#[test]
fn what_was_mistyped_is_a_usage_error() {
    let alone = Program::alone();
    alone.run(&["list"]).failed(2, "TTL_INDEX_URI");
    Program::at("").run(&["list"]).failed(2, "TTL_INDEX_URI");
    for uri in ["mongodb://127.0.0.1:1", "mongodb://127.0.0.1:1/", "mongodb://127.0.0.1:1/?tls=false"] {
        Program::at(uri).run(&["list"]).failed(2, "names no database");
    }
    for uri in ["postgres://h/db", "app.redb", ":"] {
        Program::at(uri).run(&["list"]).failed(2, "a URI is mongodb://…/DB");
    }
    Program::at("embedded:").run(&["list"]).failed(2, "path of a file");
    Program::at("mongodb://127.0.0.1:x/db").run(&["list"]).failed(2, "port");

    let memory = Program::at("embedded::memory:");
    for (arguments, words) in [
        (&["frobnicate"][..], "unrecognized subcommand"),
        (&["create", "c"], "<FIELD>"),
        (&["create", "c", "t", "--expire-after", "-1s"], "negative"),
        (&["create", "c", "t", "--expire-after", "-1"], "negative"),
        (&["create", "c", "t", "--expire-after", "soon"], "90, 90s, 36h or 30d"),
        (&["create", "c", "t", "--expire-after", "NaN"], "90, 90s, 36h or 30d"),
        (&["create", "c", "t", "--expire-after", ""], "value was empty"),
        (&["create", "c", "t", "--partial-filter", "{"], "not JSON"),
        (&["create", "c", "t", "--partial-filter", "5"], "not a document"),
        (&["create", "c", "t", "--partial-filter", r#"{"$oid":"x"}"#], "not Extended JSON"),
        (&["modify", "c"], "--expire-after"),
        (&["sweep", "c", "--batch-size", "many"], "--batch-size"),
        (&["sweep", "c", "--cutoff", "yesterday"], "2013-07-01T00:00:00Z"),
        (&["explain"], "give a collection"),
        (&["explain", "--field", "t", "{}"], "--expire-after"),
        (&["explain", "--field", "t", "--expire-after", "0"], "no document is given"),
        (&["explain", "--expire-after", "0", "{}"], "--field"),
        (&["import", "ttl_index.registry", "-"], "own data"),
    ] {
        memory.run(arguments).failed(2, words);
    }
}

#[test]
fn what_the_library_refuses_is_told_apart() {
    let memory = Program::at("embedded::memory:");
    for (arguments, words) in [
        (&["create", "c", "t", "--expire-after", "1.5s"][..], "a whole number of seconds"),
        (&["create", "c", "t", "--expire-after", "0.5"], "a whole number of seconds"),
        (&["create", "c", "t", "--expire-after", "2147483648"], "the largest is 2147483647"),
        (&["create", "c", "t", "--expire-after", "99999999999999999999999d"], "the largest is 2147483647"),
        (&["create", "c", "_id"], "_id"),
        (&["create", "system.c", "t"], "73 InvalidNamespace"),
        (&["create", "c", "t", "--partial-filter", r#"{"a":{"$ne":1}}"#], "67 CannotCreateIndex"),
        (&["modify", "c", "--expire-after", "1"], "27 IndexNotFound"),
        (&["drop", "c"], "c has no TTL index"),
        (&["drop", "c", "t_1"], "c has no TTL index"),
        (&["sweep", "c"], "sweeping c: c has no TTL index"),
        (&["sweep", "c", "--batch-size", "0"], "the batch size must be"),
        (&["sweep", "c", "--rate", "-1"], "the rate must be"),
        (&["sweep", "c", "--rate", "nan"], "the rate must be"),
        (&["explain", "c"], "c has no TTL index"),
        (&["explain", "--field", "t", "--expire-after", "1.5s", "{}"], "a whole number of seconds"),
    ] {
        memory.run(arguments).failed(3, words);
    }
}

#[test]
fn help_and_version_are_no_errors() {
    for (arguments, words) in [(["--help"], "sweep"), (["--version"], env!("CARGO_PKG_VERSION"))] {
        let run = Program::alone().run(&arguments);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
        assert!(run.stdout.contains(words), "{run:?}");
    }
}

#[tokio::test]
async fn an_embedded_file_belongs_to_one_process_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("store");
    let program = Program::embedded(&file);
    let held = EmbeddedStore::open(&file).unwrap();
    held.collection("c").insert_one(doc! { "t": DateTime::MIN }).await.unwrap();
    for arguments in [&["list"][..], &["create", "c", "t"], &["sweep"], &["export", "c"]] {
        program.run(arguments).failed(1, "an embedded file belongs to one process at a time");
    }
    drop(held);
    assert_eq!(program.run(&["export", "c"]).lines().len(), 1);
    assert!(program.json(&["list"]).is_empty());
}

#[test]
fn a_file_that_is_no_store_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("letter");
    std::fs::write(&file, "Dear reader").unwrap();
    Program::embedded(&file).run(&["sweep"]).failed(1, "letter");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "Dear reader");
}

#[test]
fn logs_go_to_stderr_when_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::embedded(&directory.path().join("store"));
    let run = program.run(&["--json", "create", "c", "t"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    let run = program.run(&["--json", "-v", "drop", "c"]);
    assert!(run.stderr.contains("TTL index dropped"), "{run:?}");
    assert_eq!(run.lines().len(), 1);
}
