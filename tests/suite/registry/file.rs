//! An embedded file keeps everything, and belongs to one process.

use std::process::Stdio;
use std::time::Duration;

use mongodb::bson::{DateTime, doc};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use ttl_index::{EmbeddedStore, TtlIndex, TtlRegistry};

/// The environment variable that makes [`holder`] hold a file.
const HELD: &str = "TTL_INDEX_TEST_HELD_FILE";

#[tokio::test]
async fn a_file_that_is_opened_again_has_its_rules_and_documents() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("documents");
    let index = TtlIndex::on("t").expire_after(Duration::from_secs(60)).partial_filter(doc! { "s": 1 });
    let made = {
        let store = EmbeddedStore::open(&path).unwrap();
        let ttl = TtlRegistry::open(store.clone()).await.unwrap();
        let documents = [
            doc! { "_id": "due", "t": DateTime::from_millis(0), "s": 1 },
            doc! { "_id": "filtered", "t": DateTime::from_millis(0), "s": 2 },
            doc! { "_id": "later", "t": DateTime::MAX, "s": 1 },
        ];
        store.collection("c").insert_many(documents).await.unwrap();
        ttl.create_index("c", index).await.unwrap()
    };
    let store = EmbeddedStore::open(&path).unwrap();
    let ttl = TtlRegistry::open(store.clone()).await.unwrap();
    assert_eq!(ttl.list_indexes().await.unwrap(), [made]);
    assert_eq!(store.collection("c").count().await.unwrap(), 3);
    assert_eq!(ttl.sweep("c").await.unwrap().deleted, 1);
    assert_eq!(store.collection("c").find_one("due").await.unwrap(), None);
}

/// Does nothing, unless the test below has started this program for it.
#[test]
fn holder() {
    let Some(path) = std::env::var_os(HELD) else { return };
    let _held = EmbeddedStore::open(path).unwrap();
    println!("\nheld");
    // Until the other process closes its end, or is gone.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
}

#[tokio::test]
async fn a_file_that_another_process_holds_is_refused_clearly() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("documents");
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["registry::file::holder", "--exact", "--nocapture"])
        .env(HELD, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    while lines.next_line().await.unwrap().expect("the holder ended") != "held" {}

    let refused = EmbeddedStore::open(&path).unwrap_err().to_string();
    assert!(refused.contains("in use by another process"), "{refused}");
    assert!(refused.contains(path.to_str().unwrap()), "{refused}");

    drop(process.stdin.take());
    assert!(process.wait().await.unwrap().success());
    EmbeddedStore::open(&path).unwrap();
}

#[tokio::test]
async fn a_damaged_file_is_an_error_and_no_panic() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    {
        let store = EmbeddedStore::open(&path).unwrap();
        let documents = (0..1000).map(|id| doc! { "_id": id, "t": DateTime::now(), "x": "x".repeat(100) });
        store.collection("c").insert_many(documents).await.unwrap();
    }
    let mut bytes = std::fs::read(&path).unwrap();
    for at in (4096..bytes.len()).step_by(97) {
        bytes[at] ^= 0xFF;
    }
    std::fs::write(&path, bytes).unwrap();
    let refused = EmbeddedStore::open(&path).unwrap_err().to_string();
    assert!(refused.starts_with("opening ") && refused.contains("store"), "{refused}");
}
