//! Once `drop_index` or `modify_index` has returned, nothing goes by the old rule any more: under load, and whatever becomes
//! of the process that sweeps. The server tells what was deleted when.

use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::future::join_all;
use mongodb::bson::{Bson, DateTime, Document, doc, oid::ObjectId};
use mongodb::{Client, Collection};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use ttl_index::{Code, Error, MongoStore, TtlRegistry};

use super::index;
use super::process::{Delete, Process, at_work, deletes, profile, taken};
use crate::support::mongod::Mongod;
use crate::support::program::Program;
use crate::support::proxy::{Fate, Proxy, nth};
use crate::support::{TestDatabase, wait};

const ROUNDS: usize = 28;
const DAY: Duration = Duration::from_secs(86_400);

/// The changes after which what is due by the old rule stays.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Drop,
    Modify,
}

impl Call {
    async fn make(self, ttl: &TtlRegistry, collection: &str) -> Result<(), Error> {
        match self {
            Call::Drop => ttl.drop_index(collection, "t_1").await,
            Call::Modify => ttl.modify_index(collection, DAY).await.map(drop),
        }
    }

    async fn make_by_program(self, uri: &str, collection: &'static str) {
        let program = Program::at(uri);
        let call = move || match self {
            Call::Drop => program.json(&["drop", collection]),
            Call::Modify => program.json(&["modify", collection, "--expire-after", "1d"]),
        };
        tokio::task::spawn_blocking(call).await.unwrap();
    }

    async fn take_back(self, ttl: &TtlRegistry, collection: &str) {
        match self {
            Call::Drop => ttl.create_index(collection, index()).await.map(drop).unwrap(),
            Call::Modify => ttl.modify_index(collection, Duration::ZERO).await.map(drop).unwrap(),
        }
    }
}

fn due() -> Document {
    doc! { "_id": ObjectId::new(), "t": DateTime::from_millis(DateTime::now().timestamp_millis() - 60_000) }
}

/// Keeps a collection full of documents that are due, for whoever deletes them.
fn fill(documents: Collection<Document>, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        while !stop.is_cancelled() {
            if documents.estimated_document_count().await.unwrap() < 2_000 {
                documents.insert_many((0..500).map(|_| due())).await.unwrap();
            } else {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    })
}

async fn ids(documents: &Collection<Document>) -> Vec<Bson> {
    let found = documents.find(doc! {}).projection(doc! { "_id": 1 }).await.unwrap();
    let found: Vec<Document> = found.try_collect().await.unwrap();
    found.iter().map(|document| document.get("_id").unwrap().clone()).collect()
}

async fn count(documents: &Collection<Document>, ids: &[Bson]) -> usize {
    let found = documents.count_documents(doc! { "_id": { "$in": ids } }).await.unwrap();
    usize::try_from(found).unwrap()
}

/// Calls again and again while the process deletes and others insert; returns how long each took.
async fn rounds(uri: &str, call: Call, collection: &'static str) -> Vec<Duration> {
    let client = Client::with_uri_str(uri).await.unwrap();
    let db = client.default_database().unwrap();
    let ttl = TtlRegistry::open(MongoStore::new(db.clone())).await.unwrap();
    ttl.create_index(collection, index()).await.unwrap();
    let documents = db.collection::<Document>(collection);
    let stop = CancellationToken::new();
    let filling = fill(documents.clone(), stop.clone());
    let (mut took, mut windows) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let at = DateTime::now().timestamp_millis();
        at_work(&db, collection, at).await;
        // At any moment of a batch, and between two.
        tokio::time::sleep(Duration::from_millis(u64::try_from(round * 7 % 10 * 20).unwrap())).await;
        if round % 11 == 10 {
            call.make_by_program(uri, collection).await;
        } else {
            let began = Instant::now();
            call.make(&ttl, collection).await.unwrap();
            took.push(began.elapsed());
        }
        let returned = DateTime::now().timestamp_millis();
        documents.insert_many((0..10).map(|_| due())).await.unwrap();
        let there = ids(&documents).await;
        tokio::time::sleep(Duration::from_millis(if round % 10 == 0 { 1_000 } else { 100 })).await;
        assert_eq!(count(&documents, &there).await, there.len(), "{call:?}, round {round}");
        windows.push(returned..DateTime::now().timestamp_millis());
        call.take_back(&ttl, collection).await;
    }
    stop.cancel();
    filling.await.unwrap();
    let deletes = deletes(&db, collection).await;
    let within = |delete: &&Delete| {
        delete.documents > 0 && windows.iter().any(|window| delete.ended > window.start && delete.begun < window.end)
    };
    assert_eq!(deletes.iter().filter(within).count(), 0, "{call:?}: {windows:?} {deletes:?}");
    let sum: i64 = deletes.iter().map(|delete| delete.documents).sum();
    println!("{call:?} {collection}: {sum} documents deleted by {} statements", deletes.len());
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_changes_under_load_are_confirmed_within_a_second() {
    let it = Mongod::shared().await.database().await;
    profile(&it.db).await;
    // Batches so large that a call often meets one.
    let arguments = ["--max-rate", "20000", "--min-rate", "20000", "--batch-size", "1000", "--interval", "50ms"];
    let (holder, standby) = (Process::start(&it.uri, "p0", &arguments), Process::start(&it.uri, "p1", &arguments));
    let lanes = [(Call::Drop, "a"), (Call::Drop, "b"), (Call::Modify, "c"), (Call::Modify, "d")];
    let took = join_all(lanes.map(|(call, collection)| rounds(&it.uri, call, collection))).await;
    // A hundred are needed to tell the 99th percentile.
    for (what, took) in [("drop_index", &took[..2]), ("modify_index", &took[2..]), ("both", &took[..])] {
        let mut took = took.concat();
        took.sort_unstable();
        let [median, p99] = [50, 99].map(|percent| took[took.len() * percent / 100 - 1]);
        println!("{what}: {} calls, median {median:?}, p99 {p99:?}, longest {:?}", took.len(), took[took.len() - 1]);
        assert!(took.len() < 100 || p99 < Duration::from_secs(1), "{what}: {took:?}");
    }
    assert_eq!(holder.stop().await.code, Some(0));
    assert_eq!(standby.stop().await.code, Some(0));
    it.drop().await;
}

/// A database with much due in `c`, and a process that is deleting it.
struct Scene {
    it: TestDatabase,
    ttl: TtlRegistry,
    process: Process,
}

impl Scene {
    async fn at(uri: impl FnOnce(&TestDatabase) -> String, lease_time: &str) -> Scene {
        let it = Mongod::shared().await.database().await;
        let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
        ttl.create_index("c", index()).await.unwrap();
        it.db.collection("c").insert_many((0..20_000).map(|_| due())).await.unwrap();
        profile(&it.db).await;
        let arguments = ["--lease-time", lease_time, "--max-rate", "2000", "--min-rate", "2000"];
        let process = Process::start(&uri(&it), "p0", &arguments);
        Scene { it, ttl, process }
    }

    async fn deleting(lease_time: &str) -> Scene {
        let scene = Scene::at(|it| it.uri.clone(), lease_time).await;
        at_work(&scene.it.db, "c", 0).await;
        scene
    }

    fn documents(&self) -> Collection<Document> {
        self.it.db.collection("c")
    }

    /// Nothing that is there now goes, whoever may sweep, while this is done.
    async fn nothing_goes(&self, meanwhile: impl AsyncFnOnce()) {
        self.documents().insert_one(due()).await.unwrap();
        let there = ids(&self.documents()).await;
        meanwhile().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(count(&self.documents(), &there).await, there.len());
    }
}

#[tokio::test]
async fn a_change_after_the_holder_was_killed_waits_until_its_lease_is_over() {
    for call in [Call::Drop, Call::Modify] {
        let mut scene = Scene::deleting("3s").await;
        scene.process.kill();
        let began = Instant::now();
        call.make(&scene.ttl, "c").await.unwrap();
        let took = began.elapsed();
        println!("{call:?} after a kill took {took:?}");
        assert!(took >= Duration::from_secs(2), "nobody could know yet that it is gone: {took:?}");
        let successor = Process::start(&scene.it.uri, "p1", &["--interval", "100ms", "--lease-time", "3s"]);
        scene.nothing_goes(async || taken(&scene.it.db, "p1").await).await;
        assert_eq!(successor.stop().await.code, Some(0));
        scene.it.drop().await;
    }
}

#[tokio::test]
async fn a_change_that_a_frozen_holder_cannot_confirm_says_so() {
    let scene = Scene::deleting("3s").await;
    scene.process.signal("STOP");
    let error = scene.ttl.drop_index("c", "t_1").max_wait(Duration::from_millis(500)).await.unwrap_err();
    let Error::NotYetGuaranteed { holder, waited } = &error else { panic!("{error:?}") };
    assert!(holder.starts_with("p0/") && *waited == Duration::from_millis(500), "{error:?}");
    // It is dropped all the same.
    assert!(scene.ttl.list_indexes().await.unwrap().is_empty());
    let again = scene.ttl.drop_index("c", "t_1").await.unwrap_err();
    assert_eq!(again.refusal().unwrap().code(), Code::IndexNotFound);
    // Whoever asks with more patience is told the truth, although it is still frozen.
    scene.ttl.pause().await.unwrap();
    scene.ttl.resume().await.unwrap();
    scene.nothing_goes(async || scene.process.signal("CONT")).await;
    assert_eq!(scene.process.stop().await.code, Some(0));
    scene.it.drop().await;
}

/// Waits for the server to be done with the statement that was held up, which is the first.
async fn first_delete(scene: &Scene) -> Delete {
    let mut first = None;
    wait::until("the delete to arrive", wait::LONG, async || {
        first = deletes(&scene.it.db, "c").await.first().cloned();
        first.is_some()
    })
    .await;
    first.unwrap()
}

#[tokio::test]
async fn a_delete_held_up_until_its_senders_lease_is_over_deletes_nothing() {
    let proxy = Proxy::before(Mongod::shared().await.port());
    let mut held = proxy.catch(nth(1, "delete", "c"));
    let mut scene = Scene::at(|it| proxy.uri(it.db.name()), "3s").await;
    held.request().await;
    scene.process.kill();
    scene.ttl.drop_index("c", "t_1").await.unwrap();
    scene
        .nothing_goes(async || {
            held.then(Fate::Pass);
            let late = first_delete(&scene).await;
            assert_eq!((late.documents, late.failed), (0, false), "{late:?}");
        })
        .await;
    scene.it.drop().await;
}

/// Its sender lives and keeps its lease, but does not wait for an answer for ever.
#[tokio::test]
async fn a_change_does_not_wait_for_a_delete_that_is_held_up_in_the_network() {
    let proxy = Proxy::before(Mongod::shared().await.port());
    let mut held = proxy.catch(nth(1, "delete", "c"));
    let scene = Scene::at(|it| proxy.uri(it.db.name()), "15s").await;
    held.request().await;
    let began = Instant::now();
    scene.ttl.drop_index("c", "t_1").await.unwrap();
    println!("drop_index with a delete held up took {:?}", began.elapsed());
    scene
        .nothing_goes(async || {
            held.then(Fate::Pass);
            let late = first_delete(&scene).await;
            assert_eq!((late.documents, late.failed), (0, false), "{late:?}");
        })
        .await;
    assert_eq!(scene.process.stop().await.code, Some(0));
    scene.it.drop().await;
}
