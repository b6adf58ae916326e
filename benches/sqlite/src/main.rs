//! The same documents, deleted in the same batches: out of the embedded store by a sweep, or out of SQLite.
//!
//! ```text
//! sqlite-comparison embedded|sqlite|sqlite-bulk DOCUMENTS DIRECTORY
//! ```
//!
//! Each document has a number, a date and 200 bytes, and is found by its number and listed by its date. Only the deletion
//! is timed; each batch is on the disk before the next begins (SQLite: WAL, `synchronous` at `FULL`), and 16 MiB are kept in
//! memory at most. `sqlite` does what a sweep does of a batch: it reads what is due, and deletes each if it is still due.
//! `sqlite-bulk` is the most that SQLite can do, and reads nothing: one statement a batch. Both have it easy: the key is the
//! number of the row, which only a table with such keys can do, and no rule has to be looked at.

use std::{
    env,
    error::Error,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rusqlite::{Connection, params};
use ttl_index::{
    EmbeddedStore, TtlIndex, TtlRegistry,
    bson::{Binary, DateTime, doc, spec::BinarySubtype},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const BATCH: u32 = 500;
const PAGE: usize = 10_000;
const PAYLOAD: [u8; 200] = [b'x'; 200];
/// 2013-01-01.
const LONG_AGO: i64 = 1_356_998_400_000;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [store, documents, directory] = arguments.as_slice() else {
        return Err("usage: sqlite-comparison embedded|sqlite|sqlite-bulk DOCUMENTS DIRECTORY".into());
    };
    let (documents, directory) = (documents.parse()?, PathBuf::from(directory));
    let file = directory.join(format!("due.{store}"));
    let took = match store.as_str() {
        "embedded" => embedded(&file, documents)?,
        "sqlite" => sqlite(&file, documents, row_by_row)?,
        "sqlite-bulk" => sqlite(&file, documents, in_bulk)?,
        _ => return Err(format!("{store} is no store").into()),
    };
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(directory.join(format!("due.{store}{suffix}")));
    }
    let seconds = took.as_secs_f64();
    #[allow(clippy::cast_precision_loss)]
    let rate = documents as f64 / seconds;
    println!(r#"{{"seconds": {seconds:.3}, "documents_a_second": {rate:.1}}}"#);
    Ok(())
}

fn embedded(file: &Path, documents: i64) -> Outcome<Duration> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = EmbeddedStore::open(file)?;
        let ttl = TtlRegistry::open(store.clone()).await?;
        ttl.create_index("due", TtlIndex::on("t").expire_after(Duration::ZERO)).await?;
        let due = store.collection("due");
        let payload = Binary { subtype: BinarySubtype::Generic, bytes: PAYLOAD.to_vec() };
        for begin in (0..documents).step_by(PAGE) {
            let page = begin..documents.min(begin + i64::try_from(PAGE)?);
            due.insert_many(page.map(|number| {
                let date = DateTime::from_millis(LONG_AGO + number);
                doc! { "_id": number, "t": date, "payload": payload.clone() }
            }))
            .await?;
        }
        let began = Instant::now();
        let report = ttl.sweep("due").batch_size(BATCH).await?;
        let took = began.elapsed();
        match i64::try_from(report.deleted)? {
            deleted if deleted == documents && due.count().await? == 0 => Ok(took),
            deleted => Err(format!("{deleted} documents were swept, {}", report.ended).into()),
        }
    })
}

/// Deletes a batch in a transaction of its own, and returns how many that were.
type Delete = fn(&mut Connection, due: i64) -> rusqlite::Result<usize>;

fn sqlite(file: &Path, documents: i64, delete: Delete) -> Outcome<Duration> {
    let mut connection = Connection::open(file)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -16384;
         CREATE TABLE due (id INTEGER PRIMARY KEY, date INTEGER NOT NULL, payload BLOB NOT NULL);
         CREATE INDEX due_date ON due (date);",
    )?;
    for begin in (0..documents).step_by(PAGE) {
        let page = connection.transaction()?;
        let mut insert = page.prepare("INSERT INTO due VALUES (?1, ?2, ?3)")?;
        for number in begin..documents.min(begin + i64::try_from(PAGE)?) {
            insert.execute(params![number, LONG_AGO + number, PAYLOAD])?;
        }
        drop(insert);
        page.commit()?;
    }
    let began = Instant::now();
    while delete(&mut connection, LONG_AGO + documents)? > 0 {}
    let took = began.elapsed();
    let left: i64 = connection.query_row("SELECT count(*) FROM due", [], |row| row.get(0))?;
    if left > 0 { Err(format!("{left} rows are still there").into()) } else { Ok(took) }
}

/// What is due is read in order, and then deleted by its key if it is still due.
fn row_by_row(connection: &mut Connection, due: i64) -> rusqlite::Result<usize> {
    let found = connection
        .prepare_cached("SELECT id, date, payload FROM due WHERE date <= ?1 ORDER BY date LIMIT ?2")?
        .query_map(params![due, BATCH], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<Vec<(i64, i64, Vec<u8>)>>>()?;
    let batch = connection.transaction()?;
    let mut deleted = 0;
    for (id, date, _) in found {
        if date <= due {
            deleted += batch.prepare_cached("DELETE FROM due WHERE id = ?1 AND date <= ?2")?.execute([id, due])?;
        }
    }
    batch.commit()?;
    Ok(deleted)
}

/// One statement does it all.
fn in_bulk(connection: &mut Connection, due: i64) -> rusqlite::Result<usize> {
    connection
        .prepare_cached("DELETE FROM due WHERE id IN (SELECT id FROM due WHERE date <= ?1 ORDER BY date LIMIT ?2)")?
        .execute(params![due, BATCH])
}
