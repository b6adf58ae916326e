//! Archive files that are full, gone, damaged, somebody else's, or in use.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mongodb::bson::{Document, doc};
use ttl_index::{Archive, CsvFields, EmbeddedStore, Ended, Error, Fault, HookedStore, TtlIndex, TtlRegistry};

use super::{OLD, lines};
use crate::support::program::{Program, Run};

/// A store in memory with due documents.
async fn bench(count: i32) -> (EmbeddedStore, TtlRegistry) {
    let store = EmbeddedStore::in_memory().unwrap();
    let ttl = TtlRegistry::open(store.clone()).await.unwrap();
    ttl.create_index("c", TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
    fill(&store, 0..count).await;
    (store, ttl)
}

async fn fill(store: &EmbeddedStore, ids: std::ops::Range<i32>) {
    let documents = ids.map(|id| doc! { "_id": id, "t": OLD, "text": "x".repeat(20) });
    store.collection("c").insert_many(documents.collect::<Vec<Document>>()).await.unwrap();
}

fn manifest(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.manifest", path.display()))
}

/// Asserts that the pass did not begin, or ended, because of the archive, in these words.
#[track_caller]
fn failed(outcome: ttl_index::Result<ttl_index::SweepReport>, kind: &str, words: &str) {
    let error = match outcome {
        Ok(report) => {
            assert_eq!(report.ended, Ended::Failed, "{report:?}");
            report.error.unwrap()
        }
        Err(error) => error,
    };
    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    let text = format!("{error}: {cause}");
    assert!(error.kind() == kind && text.contains(words), "{words:?} is not in {}: {text}", error.kind());
}

#[tokio::test]
async fn a_file_is_gone_on_with_and_read_by_other_programs() {
    let directory = tempfile::tempdir().unwrap();
    for (name, archive) in [
        ("plain", Archive::json_lines(directory.path().join("plain"))),
        ("packed", Archive::json_lines(directory.path().join("packed")).gzip()),
    ] {
        let path = directory.path().join(name);
        let (store, ttl) = bench(25).await;
        for round in 1..4 {
            let report = ttl.sweep("c").batch_size(10).archive(archive.clone()).await.unwrap();
            assert_eq!((report.deleted, report.ended), (25, Ended::Drained), "{report:?}");
            assert_eq!(lines(&path).len(), 25 * usize::try_from(round).unwrap());
            fill(&store, round * 25..round * 25 + 25).await;
        }
        if name == "packed" {
            let text = Command::new("gzip").arg("-dc").stdin(fs::File::open(&path).unwrap()).output().unwrap();
            assert_eq!(text.stdout.split(|byte| *byte == b'\n').count(), 76, "{text:?}");
        }
        // Header, and three batches in each of three rounds.
        assert_eq!(fs::read_to_string(manifest(&path)).unwrap().lines().count(), 10);
    }
}

#[tokio::test]
async fn csv_holds_the_fields_that_were_named_under_one_header() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("archive.csv");
    let archive = || Archive::csv(&path, CsvFields::new(["_id", "text", "none"]).unwrap());
    let (store, ttl) = bench(3).await;
    assert_eq!(ttl.sweep("c").archive(archive()).await.unwrap().deleted, 3);
    fill(&store, 3..4).await;
    assert_eq!(ttl.sweep("c").archive(archive()).await.unwrap().deleted, 1);
    let text = "x".repeat(20);
    let rows: Vec<String> = (0..4).map(|id| format!("{id},{text},\r\n")).collect();
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("_id,text,none\r\n{}", rows.concat()));
    let error = ttl.restore(&path).await.unwrap_err();
    assert!(error.refusal().is_some_and(|it| it.message().contains("cannot be restored from")), "{error}");
}

#[tokio::test]
async fn a_file_that_is_another_archive_or_none_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("archive");
    let (store, ttl) = bench(5).await;
    ttl.create_index("d", TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
    store.collection("d").insert_one(doc! { "_id": 1, "t": OLD }).await.unwrap();
    ttl.sweep("c").archive(Archive::json_lines(&path)).await.unwrap();
    fill(&store, 5..10).await;
    let (data, vouching) = (fs::read(&path).unwrap(), fs::read(manifest(&path)).unwrap());

    failed(ttl.sweep("d").archive(Archive::json_lines(&path)).await, "refused", "is the archive of embedded.c");
    failed(ttl.sweep("c").archive(Archive::json_lines(&path).gzip()).await, "refused", "in the format json_lines");
    let fields = CsvFields::new(["_id"]).unwrap();
    failed(ttl.sweep("c").archive(Archive::csv(&path, fields)).await, "refused", "is the archive of");
    assert_eq!((fs::read(&path).unwrap(), fs::read(manifest(&path)).unwrap()), (data, vouching));

    let letter = directory.path().join("letter");
    fs::write(&letter, "Dear reader").unwrap();
    failed(ttl.sweep("c").archive(Archive::json_lines(&letter)).await, "refused", "has no manifest");
    assert!(!manifest(&letter).exists() && fs::read(&letter).unwrap() == b"Dear reader");
    fs::write(manifest(&letter), "").unwrap();
    failed(ttl.sweep("c").archive(Archive::json_lines(&letter)).await, "refused", "empty manifest");
    failed(ttl.sweep("c").archive(Archive::json_lines(directory.path())).await, "refused", "is no file");
    failed(ttl.sweep("c").archive(Archive::json_lines("/dev/full")).await, "refused", "is no file");
    let nowhere = directory.path().join("missing").join("archive");
    failed(ttl.sweep("c").archive(Archive::json_lines(&nowhere)).await, "archive", "missing/archive.manifest");
    failed(ttl.sweep("c").archive(Archive::collection("c")).await, "refused", "its own archive");
    failed(ttl.sweep("c").archive(Archive::collection("ttl_index.x")).await, "refused", "own data");
    assert_eq!((store.collection("c").count().await.unwrap(), store.collection("d").count().await.unwrap()), (5, 1));
}

#[tokio::test]
async fn one_pass_at_a_time_writes_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("archive");
    let (other, second) = (bench(5).await, path.clone());
    let store = EmbeddedStore::in_memory().unwrap();
    let waiting = other.1.clone();
    let hooked = HookedStore::new(store.clone(), move |_| {
        let (other, path) = (waiting.clone(), second.clone());
        async move {
            failed(other.sweep("c").archive(Archive::json_lines(path)).await, "archive", "another pass or process");
            Fault::None
        }
    });
    let ttl = TtlRegistry::open(hooked).await.unwrap();
    ttl.create_index("c", TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
    fill(&store, 0..5).await;
    assert_eq!(ttl.sweep("c").archive(Archive::json_lines(&path)).await.unwrap().deleted, 5);
    // The one that waited deleted nothing, and has its turn now.
    assert_eq!(other.0.collection("c").count().await.unwrap(), 5);
    assert_eq!(other.1.sweep("c").archive(Archive::json_lines(&path)).await.unwrap().deleted, 5);
}

#[tokio::test]
async fn a_file_that_is_removed_or_replaced_meanwhile_stops_the_pass_before_anything_more_is_deleted() {
    for (beside, replaced) in [(false, false), (false, true), (true, false), (true, true)] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive");
        let victim = if beside { manifest(&path) } else { path.clone() };
        let (store, calls) = (EmbeddedStore::in_memory().unwrap(), AtomicU64::new(0));
        let hooked = HookedStore::new(store.clone(), move |_| {
            if calls.fetch_add(1, Ordering::SeqCst) == 1 {
                fs::rename(&victim, victim.with_extension("moved")).unwrap();
                if replaced {
                    fs::write(&victim, "").unwrap();
                }
            }
            std::future::ready(Fault::None)
        });
        let ttl = TtlRegistry::open(hooked).await.unwrap();
        ttl.create_index("c", TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
        fill(&store, 0..50).await;
        let report = ttl.sweep("c").batch_size(10).archive(Archive::json_lines(&path)).await.unwrap();
        assert_eq!((report.deleted, report.left, report.found), (20, 10, 30), "{report:?}");
        failed(Ok(report), "archive", "archive");
        assert_eq!(store.collection("c").count().await.unwrap(), 30);
    }
}

#[tokio::test]
async fn what_is_not_as_it_was_written_is_neither_gone_on_with_nor_restored_from() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("archive");
    let (store, ttl) = bench(20).await;
    ttl.sweep("c").batch_size(5).archive(Archive::json_lines(&path)).await.unwrap();
    fill(&store, 20..25).await;
    let (data, vouching) = (fs::read(&path).unwrap(), fs::read(manifest(&path)).unwrap());
    let restored = async |words: &str| {
        let error = ttl.restore(&path).into_collection("restored").await.unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(
            matches!(error, Error::Archive { .. }) && cause.contains(words),
            "{words:?} is not in {error}: {cause}"
        );
        assert_eq!(store.collection("restored").count().await.unwrap(), 0);
    };

    fs::write(&path, &data[..data.len() - 1]).unwrap();
    failed(ttl.sweep("c").archive(Archive::json_lines(&path)).await, "archive", "its manifest tells of");
    restored("its manifest tells of").await;
    fs::remove_file(&path).unwrap();
    failed(ttl.sweep("c").archive(Archive::json_lines(&path)).await, "archive", "it is gone or empty");
    for at in [0, data.len() / 2, data.len() - 1] {
        let mut flipped = data.clone();
        flipped[at] ^= 1;
        fs::write(&path, &flipped).unwrap();
        restored("are not those that were written").await;
    }
    fs::write(&path, &data).unwrap();
    let ends: Vec<usize> = vouching.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
    for at in [10, ends[0] + 5, ends[1] + 40, ends[3] + 1, vouching.len() - 3] {
        let mut flipped = vouching.clone();
        flipped[at] ^= 1;
        fs::write(manifest(&path), &flipped).unwrap();
        restored("is not as it was written").await;
        failed(ttl.sweep("c").archive(Archive::json_lines(&path)).await, "archive", "is not as it was written");
    }
    // A line that is left out.
    fs::write(manifest(&path), [&vouching[..=ends[1]], &vouching[ends[2] + 1..]].concat()).unwrap();
    restored("is not as it was written").await;
    assert_eq!(store.collection("c").count().await.unwrap(), 5);

    // An older manifest, such as a backup brings: what it does not tell of is not thrown away.
    for (until, beyond) in [(vouching.len() - 1, 5), (ends[1] + 1, 15)] {
        fs::write(manifest(&path), &vouching[..until]).unwrap();
        let into = format!("restored{beyond}");
        let restored = ttl.restore(&path).into_collection(into).await.unwrap();
        assert_eq!((restored.inserted, restored.beyond), (20, beyond), "{restored:?}");
    }
    fs::write(manifest(&path), &vouching[..=ends[1]]).unwrap();
    assert_eq!(ttl.sweep("c").archive(Archive::json_lines(&path)).await.unwrap().deleted, 5);
    assert_eq!(lines(&path).len(), 25);
    assert_eq!(ttl.restore(&path).into_collection("restored").await.unwrap().inserted, 25);
}

/// A limit on the size of files, which cuts a write short as a full disk does.
#[tokio::test]
async fn a_full_disk_ends_the_pass_and_the_next_goes_on_where_there_is_room_again() {
    for (name, limit) in [("archive.jsonl", 64), ("archive.jsonl.gz", 8)] {
        let it = crate::support::database().await;
        let directory = tempfile::tempdir().unwrap();
        let (path, program) = (directory.path().join(name), Program::at(&it.uri));
        program.json(&["create", "c", "t"]);
        let text = |id: i32| format!("{id}-{}", mongodb::bson::oid::ObjectId::new()).repeat(8);
        let documents = (0..800).map(|id| doc! { "_id": id, "t": OLD, "text": text(id) });
        it.db.collection::<Document>("c").insert_many(documents).await.unwrap();
        let sweep = ["sweep", "c", "--batch-size", "50", "--archive", path.to_str().unwrap()];
        let script = format!("trap '' XFSZ; ulimit -f {limit}; exec \"$@\"");
        let mut shell = Command::new("bash");
        shell.args(["-c", &script, "-", env!("CARGO_BIN_EXE_ttl-index")]).args(sweep).env("TTL_INDEX_URI", &it.uri);
        let run = Run::of(shell.output().unwrap());
        assert!(run.code == Some(1) && run.stderr.contains("error: sweeping c: writing "), "{run:?}");
        let left = it.db.collection::<Document>("c").count_documents(doc! {}).await.unwrap();
        assert!((50..800).contains(&left), "{left}: {run:?}");

        let run = program.run(&sweep);
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(run.stderr.contains("what a crash left of a batch"), "{run:?}");
        let restored = &program.json(&["restore", path.to_str().unwrap()])[0];
        assert_eq!(restored["inserted"], 800, "{restored}");
    }
}

#[test]
fn an_archive_is_named_by_what_its_file_shall_be() {
    let memory = Program::at("embedded::memory:");
    for (arguments, code, words) in [
        (&["sweep", "--archive", "a.jsonl"][..], 2, "of one collection"),
        (&["sweep", "a", "b", "--archive", "a.jsonl"], 2, "of one collection"),
        (&["sweep", "a", "--archive", "a.json"], 2, ".jsonl, .jsonl.gz, .csv, .csv.gz"),
        (&["sweep", "a", "--archive", ".csv.gz"], 2, ".jsonl, .jsonl.gz, .csv, .csv.gz"),
        (&["sweep", "a", "--archive", "a.csv"], 2, "--fields"),
        (&["sweep", "a", "--archive", "a.jsonl", "--fields", "b"], 2, "--fields"),
        (&["sweep", "a", "--fields", "b"], 2, "--archive"),
        // It would prune without archiving.
        (&["sweep", "a", "--archive", "a.jsonl", "--if-due", "1h"], 2, "cannot be used with"),
        (&["sweep", "a", "--archive", "a.csv", "--fields", "b,b"], 3, "given twice"),
        (&["restore", "missing.jsonl"], 1, "missing.jsonl.manifest"),
        (&["restore", "a.jsonl", "--extend", "soon"], 2, "36h"),
        (&["restore"], 2, "<FILE>"),
    ] {
        memory.run(arguments).failed(code, words);
    }
}
