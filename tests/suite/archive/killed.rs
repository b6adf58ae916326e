//! `ttl-index sweep --archive` killed at any instant, again and again, while documents are written to.

use std::collections::{BTreeSet, HashMap, hash_map::Entry};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mongodb::bson::{Bson, DateTime, RawDocumentBuf, doc};
use mongodb::{Client, Collection};
use serde_json::json;
use ttl_index::EmbeddedStore;

use super::{LATER, OLD, by_id, lines, raw_documents};
use crate::support::{database, dice::Dice, place::Place, program::Program};

/// The last version of every document there ever was.
type Versions = HashMap<String, RawDocumentBuf>;

fn version(id: i64, number: u64, dice: &mut Dice) -> RawDocumentBuf {
    let mut document = doc! { "_id": id, "t": OLD, "n": i64::try_from(number).unwrap() };
    for field in 0..dice.below(4) {
        document.insert(format!("f{field}"), "x".repeat(dice.below(50).try_into().unwrap()));
    }
    if dice.below(40) == 0 {
        document.insert("t", LATER);
    }
    RawDocumentBuf::try_from(&document).unwrap()
}

/// Inserts documents, and replaces those that are about to be swept, until it is told to stop.
async fn write(documents: Collection<RawDocumentBuf>, seed: u64, stop: Arc<AtomicBool>, last: Arc<Mutex<Versions>>) {
    let (mut dice, mut due, mut next) = (Dice::new(seed), BTreeSet::new(), 0);
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        if due.len() < 300 {
            let new: Vec<_> = (next..next + 50).map(|id| version(id, number, &mut dice)).collect();
            due.extend(next..next + 50);
            next += 50;
            documents.insert_many(&new).await.unwrap();
            last.lock().unwrap().extend(by_id(new));
        }
        let chosen = *due.iter().nth(dice.below(14).try_into().unwrap()).unwrap();
        let new = version(chosen, number, &mut dice);
        if documents.replace_one(doc! { "_id": chosen }, &new).await.unwrap().matched_count == 0 {
            due.remove(&chosen);
            continue;
        }
        if new.get_datetime("t").unwrap() == LATER {
            due.remove(&chosen);
        }
        last.lock().unwrap().insert(chosen.to_string(), new);
    }
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |it| it.len())
}

/// Starts the program and kills it: at some instant since its start, or since it has begun to archive. Says whether it had.
fn run_and_kill(program: &Program, file: &Path, dice: &mut Dice) -> bool {
    let manifest = PathBuf::from(format!("{}.manifest", file.display()));
    let before = size(&manifest);
    let mut command = program.command(&["sweep", "c", "--batch-size", "7", "--archive", file.to_str().unwrap()]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    if dice.below(3) > 0 {
        while size(&manifest) <= before && child.try_wait().unwrap().is_none() && began.elapsed().as_secs() < 20 {
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_micros(dice.below(30_000)));
    } else {
        std::thread::sleep(Duration::from_micros(dice.below(150_000)));
    }
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    let (code, said) = (output.status.code(), String::from_utf8_lossy(&output.stderr));
    // What the one before had sent may have taken the lease after its end.
    let held = code == Some(3) && said.contains("ConflictingOperationInProgress");
    assert!(held || matches!(code, None | Some(0 | 4)), "{code:?}: {said}");
    size(&manifest) > before
}

/// Everything is in the archive or in the collection, as it was last; returns how many are in the archive alone.
async fn assert_nothing_lost(place: &Place, file: &Path, last: &Versions, what: &str) -> u64 {
    let archived = by_id(lines(file));
    let there = by_id(raw_documents(place, "c").await);
    let mut deleted = 0;
    for (id, expected) in last {
        let found = there.get(id).or(archived.get(id)).unwrap_or_else(|| panic!("{what}: {id} is lost"));
        assert_eq!(found.as_bytes(), expected.as_bytes(), "{what}: {id} is {found:?} and was {expected:?}");
        deleted += u64::from(!there.contains_key(id));
    }
    assert!(there.keys().chain(archived.keys()).all(|id| last.contains_key(id)), "{what}");
    deleted
}

/// Restores, killed the first time; then everything is there again, and is not swept.
async fn assert_restored(
    place: &Place,
    program: &Program,
    file: &Path,
    last: &Versions,
    deleted: u64,
    dice: &mut Dice,
) {
    let survivors = by_id(raw_documents(place, "c").await);
    let mut command = program.command(&["restore", file.to_str().unwrap()]);
    let mut killed = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_micros(dice.below(400_000)));
    killed.kill().unwrap();
    killed.wait().unwrap();
    let already = place.count("c").await - survivors.len() as u64;
    let restored = &program.json(&["restore", file.to_str().unwrap()])[0];
    println!("{already} of {deleted} were restored when the first restore was killed: {restored}");
    // The server may have been at the last page of the first still.
    assert!(restored["inserted"].as_u64().unwrap() <= deleted - already && restored["refused"] == 0, "{restored}");
    let there = by_id(raw_documents(place, "c").await);
    assert_eq!(there.len(), last.len());
    for (id, expected) in last {
        let mut expected = mongodb::bson::Document::try_from(&**expected).unwrap();
        let mut found = mongodb::bson::Document::try_from(&*there[id]).unwrap();
        if !survivors.contains_key(id) {
            let date = found.remove("t").unwrap().as_datetime().copied().unwrap();
            assert!(date > DateTime::from_millis(DateTime::now().timestamp_millis() + 29 * 86_400_000), "{date}");
            expected.remove("t");
        }
        assert_eq!(found.to_string(), expected.to_string());
    }
    assert_eq!(program.json(&["sweep", "c"])[0]["found"], json!(0));
}

async fn killed_on_mongod(seed: u64, name: &str) {
    let it = database().await;
    let directory = tempfile::tempdir().unwrap();
    let (file, program) = (directory.path().join(name), Program::at(&it.uri));
    println!("{name}: seed {seed}");
    program.json(&["create", "c", "t"]);
    let (last, stop) = (Arc::<Mutex<Versions>>::default(), Arc::new(AtomicBool::new(false)));
    // Its own client: this thread is busy killing.
    let (uri, db, stopped, versions) = (it.uri.clone(), it.db.name().to_owned(), stop.clone(), last.clone());
    let writer = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = Client::with_uri_str(uri).await.unwrap();
            write(client.database(&db).collection("c"), seed, stopped, versions).await;
        });
    });
    let mut dice = Dice::new(seed);
    let mut while_archiving = 0;
    for _ in 0..50 {
        // Whoever was killed holds the lease for seconds; it is known here to be dead.
        it.db.collection::<Bson>("ttl_index.lease").delete_many(doc! {}).await.unwrap();
        while_archiving += u32::from(run_and_kill(&program, &file, &mut dice));
    }
    stop.store(true, Ordering::SeqCst);
    writer.join().unwrap();
    it.db.collection::<Bson>("ttl_index.lease").delete_many(doc! {}).await.unwrap();
    let place = Place::Mongo(it);
    let last = std::mem::take(&mut *last.lock().unwrap());
    assert_nothing_lost(&place, &file, &last, name).await;
    let drained = program.run(&["sweep", "c", "--archive", file.to_str().unwrap()]);
    assert_eq!(drained.code, Some(0), "{drained:?}");
    let deleted = assert_nothing_lost(&place, &file, &last, name).await;
    let archived = lines(&file);
    println!(
        "{name}: {while_archiving} of 50 killed while archiving; {} documents, {deleted} deleted, {} lines",
        last.len(),
        archived.len()
    );
    assert!(while_archiving >= 10 && deleted > 0);
    assert!(raw_documents(&place, "c").await.iter().all(|it| it.get_datetime("t").unwrap() == LATER));
    assert_restored(&place, &program, &file, &last, deleted, &mut dice).await;
}

#[tokio::test]
async fn killed_at_any_instant_it_loses_nothing_in_plain_lines() {
    killed_on_mongod(1, "archive.jsonl").await;
}

#[tokio::test]
async fn killed_at_any_instant_it_loses_nothing_in_gzip() {
    killed_on_mongod(2, "archive.jsonl.gz").await;
}

/// A file belongs to one process: documents are written to between the runs.
#[tokio::test]
async fn killed_at_any_instant_it_loses_nothing_on_the_embedded_store() {
    let directory = tempfile::tempdir().unwrap();
    let (file, store) = (directory.path().join("archive.jsonl"), directory.path().join("store"));
    let program = Program::embedded(&store);
    program.json(&["create", "c", "t"]);
    let (mut dice, mut last, mut while_archiving) = (Dice::new(3), Versions::new(), 0);
    println!("seed 3");
    for round in 0..20 {
        let opened = EmbeddedStore::open(&store).unwrap();
        for _ in 0..300 {
            let chosen = i64::try_from(dice.below(1_000)).unwrap();
            let new = version(chosen, round, &mut dice);
            let document = mongodb::bson::Document::try_from(&*new).unwrap();
            let name = chosen.to_string();
            if opened.collection("c").replace_one(chosen, document.clone()).await.unwrap() {
                last.insert(name, new);
            } else if let Entry::Vacant(never) = last.entry(name) {
                opened.collection("c").insert_one(document).await.unwrap();
                never.insert(new);
            }
        }
        drop(opened);
        while_archiving += u32::from(run_and_kill(&program, &file, &mut dice));
    }
    let drained = program.run(&["sweep", "c", "--archive", file.to_str().unwrap()]);
    assert_eq!(drained.code, Some(0), "{drained:?}");
    let place = Place::Embedded(EmbeddedStore::open(&store).unwrap());
    let deleted = assert_nothing_lost(&place, &file, &last, "embedded").await;
    println!("{while_archiving} of 20 killed while archiving; {} documents, {deleted} deleted", last.len());
    assert!(while_archiving >= 4 && deleted > 0);
}
