//! `export`: what is due, CSV, and files that are whole.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use serde_json::{Value, json};
use ttl_index::{EmbeddedStore, TtlIndex};

use super::{Bench, expired};
use crate::support::place::Place;
use crate::support::program::{Program, Run};
use crate::support::{database, wait};

/// One value of every type, as exported.
const TYPES: &str = r#"{"_id":{"$numberInt":"1"},"array":[{"$numberLong":"9223372036854775807"},[],{}],"binary":{"$binary":{"base64":"AAH/","subType":"00"}},"uuid":{"$binary":{"base64":"AAAAAAAAAAAAAAAAAAAAAA==","subType":"04"}},"true":true,"code":{"$code":"1"},"scope":{"$code":"x","$scope":{"x":{"$numberInt":"1"}}},"date":{"$date":{"$numberLong":"-1"}},"last date":{"$date":{"$numberLong":"9223372036854775807"}},"decimal":{"$numberDecimal":"1.10"},"no decimal":{"$numberDecimal":"NaN"},"double":{"$numberDouble":"2.0"},"minus zero":{"$numberDouble":"-0.0"},"endless":{"$numberDouble":"-Infinity"},"no number":{"$numberDouble":"NaN"},"max":{"$maxKey":1},"min":{"$minKey":1},"null":null,"id":{"$oid":"00112233445566778899aabb"},"pointer":{"$dbPointer":{"$ref":"a.b","$id":{"$oid":"00112233445566778899aabb"}}},"regex":{"$regularExpression":{"pattern":"a/b","options":"im"}},"string":"\" \\ \n é \u0000","symbol":{"$symbol":"s"},"timestamp":{"$timestamp":{"t":4294967295,"i":1}},"undefined":{"$undefined":true},"":{"x.y":{"$numberInt":"-2147483648"}}}"#;

#[tokio::test]
async fn every_type_goes_in_and_comes_out_as_the_same_line() {
    let bench = Bench::new().await;
    for program in bench.programs() {
        assert_eq!(program.run_with_input(&["import", "c", "-"], TYPES).code, Some(0));
        let run = program.run(&["export", "c"]);
        assert_eq!((run.code, run.stderr.as_str(), run.stdout.trim_end()), (Some(0), "", TYPES));
    }
}

#[tokio::test]
async fn what_is_due_is_exported_and_nothing_else() {
    let (past, future) = (DateTime::from_millis(1_000), DateTime::from_millis(32_000_000_000_000));
    let values = [
        Bson::from(past),
        future.into(),
        DateTime::MIN.into(),
        DateTime::MAX.into(),
        vec![future, past].into(),
        vec![future].into(),
        vec![vec![past]].into(),
        Bson::Array(vec![]),
        vec![Bson::from("x"), past.into(), Bson::Null].into(),
        doc! { "t": past }.into(),
        vec![doc! { "t": past }, doc! { "t": future }].into(),
        vec![doc! { "t": [past, future] }].into(),
        Bson::Null,
        5.into(),
        "2013-01-01T00:00:00Z".into(),
        Bson::MinKey,
        Bson::MaxKey,
    ];
    let on = |path: &str| TtlIndex::on(path).expire_after(Duration::from_secs(60));
    let indexes =
        [on("t"), on("t.t"), on("t").partial_filter(doc! { "state": { "$in": ["done", null] }, "n": { "$gt": 1 } })];
    let documents: Vec<Document> = values
        .iter()
        .flat_map(|t| {
            ["done", "open"].map(|state| doc! { "t": t.clone(), "state": state, "n": 2 }).into_iter().chain([
                doc! { "t": t.clone(), "n": [1, 2] },
                doc! { "t": t.clone(), "state": ["open", "done"], "n": 1.5 },
            ])
        })
        .zip(0..)
        .map(|(document, number)| doc! { "_id": number }.into_iter().chain(document).collect())
        .collect();

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("store");
    for place in [Place::Mongo(database().await), Place::Embedded(EmbeddedStore::open(&file).unwrap())] {
        let registry = place.registry().await;
        let mut expected = Vec::new();
        for (number, index) in indexes.iter().enumerate() {
            let collection = format!("c{number}");
            place.insert(&collection, documents.clone()).await;
            registry.create_index(&collection, index.clone()).await.unwrap();
            let rule = registry.rule(&collection).await.unwrap();
            let now = registry.now().await.unwrap();
            let is_due = |d: &&Document| rule.judge(&RawDocumentBuf::try_from(*d).unwrap(), now).due;
            let due: BTreeSet<i64> =
                documents.iter().filter(is_due).map(|d| d.get_i32("_id").unwrap().into()).collect();
            assert!(!due.is_empty() && due.len() < documents.len());
            if let Place::Mongo(it) = &place {
                let found = it.db.collection::<Document>(&collection).find(rule.due_filter(now)).await.unwrap();
                let found: Vec<Document> = found.try_collect().await.unwrap();
                let ids = found.iter().map(|d| i64::from(d.get_i32("_id").unwrap()));
                assert_eq!(ids.collect::<BTreeSet<_>>(), due, "by the query alone");
            }
            expected.push((collection, due));
        }
        let program = match place {
            Place::Mongo(it) => Program::at(it.uri),
            Place::Embedded(store) => {
                drop((store, registry));
                Program::embedded(&file)
            }
        };
        for (collection, due) in &expected {
            let run = program.run(&["export", collection, "--due"]);
            let id = |line: Value| line["_id"]["$numberInt"].as_str().unwrap().parse().unwrap();
            assert_eq!(run.lines().into_iter().map(id).collect::<BTreeSet<i64>>(), *due, "{collection}");
            let csv = program.run(&["export", collection, "--due", "--csv", "--fields", "_id"]);
            let ids = csv.stdout.lines().skip(1).map(|line| line.parse().unwrap());
            assert_eq!(ids.collect::<BTreeSet<i64>>(), *due, "{collection}");
            let swept = program.json(&["sweep", collection]);
            assert_eq!(swept[0]["deleted"], due.len(), "{collection}");
            assert_eq!(program.run(&["export", collection, "--due"]).stdout, "");
        }
        program.run(&["export", "other", "--due"]).failed(3, "other has no TTL index");
    }
}

#[tokio::test]
async fn csv_has_the_same_cells_to_every_reader_and_no_formula() {
    let texts = [
        "plain",
        "",
        "a,b",
        "say \"so\"",
        "line\r\nbreak",
        "line\nbreak",
        ";tab\t",
        "é 漢 😀",
        "=1+1",
        "=cmd|' /C calc'!A0",
        "+1+1",
        "-1+1",
        "@SUM(1)",
        "\t=1",
        "\r=1",
        "＝1",
        "-5",
        "+1.5e3",
        "'quoted",
        " =1",
    ];
    let guarded = ["=1+1", "=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", "＝1"];
    let cell = |text: &str| if guarded.contains(&text) { format!("'{text}") } else { text.to_owned() };
    let mut expected = vec![["_id", "a.=b", "n"].map(str::to_owned)];
    // Of two digits, so that they are in order in either store.
    expected.extend((10..).zip(texts).map(|(id, text): (i32, _)| [id.to_string(), cell(text), "-2.0".to_owned()]));

    let bench = Bench::new().await;
    for program in bench.programs() {
        let lines: Vec<String> = (10..)
            .zip(texts)
            .map(|(id, text): (i32, _)| {
                json!({ "_id": id, "a": { "=b": text }, "n": -2.0, "not": "asked for" }).to_string()
            })
            .collect();
        program.run_with_input(&["import", "c", "-"], &lines.join("\n"));
        let file = bench.directory.path().join("c.csv");
        let path = file.to_str().unwrap();
        let report = program.json(&["export", "c", "--csv", "--fields", "_id,a.=b,n", "-o", path]);
        assert_eq!(report, [json!({ "collection": "c", "exported": texts.len(), "inexact": 0 })]);
        assert_eq!(read_by_python(&file), expected);
        assert_eq!(read_by_the_csv_crate(&file), expected);
        std::fs::remove_file(&file).unwrap();
    }
}

fn read_by_python(file: &Path) -> Vec<Vec<String>> {
    let script = "import csv, json, sys; print(json.dumps(list(csv.reader(open(sys.argv[1], newline='', encoding='utf-8'), strict=True))))";
    let output = Command::new("python3").args(["-c", script]).arg(file).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

fn read_by_the_csv_crate(file: &Path) -> Vec<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_path(file).unwrap();
    reader.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect()
}

#[tokio::test]
async fn columns_are_found_and_what_cannot_be_one_is_refused() {
    let bench = Bench::new().await;
    for program in bench.programs() {
        let lines = [
            json!({ "b": { "c": 1, "d": { "e": true } }, "_id": 1 }),
            json!({ "_id": 2, "list": [{ "x": 1 }], "b": "text" }),
            json!({ "_id": 3, "empty": {}, "inner": { "dotted.name": 1 } }),
        ];
        program.run_with_input(&["import", "c", "-"], &lines.map(|line| line.to_string()).join("\n"));
        let run = program.run(&["export", "c", "--csv"]);
        let rows: Vec<&str> = run.stdout.split("\r\n").collect();
        assert_eq!(
            rows,
            [
                "_id,b.c,b.d.e,list,b,empty,inner",
                r#"1,1,true,,"{""c"":{""$numberInt"":""1""},""d"":{""e"":true}}",,"#,
                r#"2,,,"[{""x"":{""$numberInt"":""1""}}]",text,,"#,
                r#"3,,,,,{},"{""dotted.name"":{""$numberInt"":""1""}}""#,
                ""
            ]
        );
        assert_eq!(program.run(&["export", "nothing", "--csv"]).stdout, "_id\r\n");

        program.run_with_input(&["import", "c", "-"], r#"{"_id":"odd","dotted.name":1}"#);
        let run = program.run(&["export", "c", "--csv"]);
        run.failed(3, "the document of c with the _id \"odd\" cannot be exported");
        assert!(run.stderr.contains("\"dotted.name\" cannot be named by a path; name the fields"), "{run:?}");
        assert_eq!(program.run(&["export", "c", "--csv", "--fields", "_id"]).stdout.lines().count(), 5);
        program.run(&["export", "c", "--fields", "_id"]).failed(2, "--csv");
        program.run(&["export", "c", "--csv", "--fields", "a,,b"]).failed(3, "empty name");
    }
}

/// What is in the directory besides the embedded store.
fn files(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "store").collect()
}

#[tokio::test]
async fn a_document_that_cannot_be_read_is_named_and_leaves_no_half_of_a_file() {
    let bench = Bench::new().await;
    let [program, _] = bench.programs();
    program.run_with_input(&["import", "c", "-"], &expired(300));
    // {_id: "bad", text: "\xFF"}: the server does not look at it.
    let fields = [&b"\x02_id\0\x04\0\0\0bad\0\x02text\0\x02\0\0\0\xFF\0\0"[..]].concat();
    let length = i32::try_from(fields.len() + 4).unwrap();
    let unreadable = RawDocumentBuf::from_bytes([&length.to_le_bytes()[..], &fields].concat()).unwrap();
    bench.mongo.db.collection::<RawDocumentBuf>("c").insert_one(unreadable).await.unwrap();

    let file = bench.directory.path().join("out");
    std::fs::write(&file, "of yesterday").unwrap();
    let path = file.to_str().unwrap();
    for arguments in [&["export", "c", "-o", path][..], &["export", "c", "--csv", "-o", path]] {
        program.run(arguments).failed(1, "the document of c with the _id \"bad\" cannot be exported");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "of yesterday");
        assert_eq!(files(bench.directory.path()), ["out"]);
    }
    assert_eq!(program.run(&["export", "c"]).code, Some(1));
    let run = program.run(&["export", "c", "--csv", "--fields", "_id", "-o", path]);
    assert_eq!(run.stdout, format!("exported 301 documents of c to {path}\n"));
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 302);
}

#[tokio::test]
async fn what_a_line_does_not_hold_exactly_is_told_and_counted() {
    let bench = Bench::new().await;
    let odd = |id: i32| doc! { "_id": id, "a": { "$symbol": "x" } };
    let file = bench.directory.path().join("store");
    bench.mongo.db.collection("c").insert_many((0..12).map(odd)).await.unwrap();
    EmbeddedStore::open(&file).unwrap().collection("c").insert_many((0..12).map(odd)).await.unwrap();
    for program in bench.programs() {
        let run = program.run(&["export", "c"]);
        assert_eq!((run.code, run.stdout.lines().count()), (Some(3), 12));
        let told: Vec<&str> = run.stderr.lines().collect();
        assert_eq!(told.len(), 11);
        assert!(
            told[0].starts_with("warning: c, _id 0: the line does not hold it exactly: \"a\", of the type"),
            "{run:?}"
        );
        assert_eq!(told[10], "warning: 2 documents more are not held exactly");
        let path = bench.directory.path().join("out");
        let run = program.run(&["--json", "export", "c", "-o", path.to_str().unwrap()]);
        assert_eq!(run.code, Some(3));
        assert_eq!(run.lines(), [json!({ "collection": "c", "exported": 12, "inexact": 12 })]);
    }
}

#[test]
fn where_nothing_can_be_written_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::embedded(&directory.path().join("store"));
    program.run_with_input(&["import", "c", "-"], &expired(2));
    let missing = directory.path().join("missing/file");
    program.run(&["export", "c", "-o", missing.to_str().unwrap()]).failed(1, "No such file");
    let itself = directory.path().to_str().unwrap();
    program.run(&["export", "c", "-o", itself]).failed(1, "is not an ordinary file");
    assert_eq!(files(directory.path()), Vec::<String>::new());
    #[cfg(target_os = "linux")]
    {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ttl-index"));
        command.args(["--uri", &format!("embedded:{}", directory.path().join("store").display()), "export", "c"]);
        let run = Run::of(command.stdout(full).output().unwrap());
        run.failed(1, "writing to standard output: No space left");
    }
}

#[test]
fn a_reader_that_has_enough_ends_it_quietly() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::embedded(&directory.path().join("store"));
    // More than a pipe holds.
    program.run_with_input(&["import", "c", "-"], &expired(5000));
    for arguments in [&["export", "c"][..], &["export", "c", "--csv"]] {
        let mut exporting = program.start(arguments);
        let mut first = [0; 20];
        exporting.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let run = Run::of(exporting.wait_with_output().unwrap());
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    }
}

#[tokio::test]
async fn an_export_that_is_stopped_leaves_the_whole_file_or_none() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let documents = (0..20_000).map(|id| doc! { "_id": id, "text": "x".repeat(50) });
    EmbeddedStore::open(&store).unwrap().collection("c").insert_many(documents).await.unwrap();
    let program = Program::embedded(&store);
    let file = directory.path().join("out");
    for (signal, leaves) in [("TERM", 0), ("KILL", 1)] {
        let exporting = program.start(&["export", "c", "-o", file.to_str().unwrap()]);
        wait::until("the export to begin", wait::LONG, async || !files(directory.path()).is_empty()).await;
        let pid = exporting.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        let run = Run::of(exporting.wait_with_output().unwrap());
        if run.code == Some(0) {
            assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 20_000);
            assert_eq!(files(directory.path()), ["out"]);
            continue;
        }
        assert!(!file.exists(), "{run:?}");
        assert!(files(directory.path()).len() <= leaves, "{run:?}");
    }
}
