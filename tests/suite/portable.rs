//! What is said to the backend: no more than every compatible one understands, unless this one was found to have more.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::TryStreamExt;
use mongodb::{
    Client,
    bson::{Bson, DateTime, Document, doc},
    event::{EventHandler, command::CommandEvent},
    options::ClientOptions,
};
use ttl_index::{Ended, MongoStore, Reference, Sweeper, TtlIndex, TtlRegistry};

use crate::support::{TestDatabase, database_with, mongod::Mongod, wait};

/// The commands that every compatible backend has.
const PORTABLE: [&str; 15] = [
    "hello",
    "insert",
    "find",
    "getMore",
    "killCursors",
    "update",
    "findAndModify",
    "delete",
    "count",
    "aggregate",
    "listCollections",
    "listIndexes",
    "createIndexes",
    "dropIndexes",
    "endSessions",
];

/// Of these, the ones that the life of a TTL index needs; a recording that lacks one has missed something.
const NEEDED: [&str; 11] = [
    "hello",
    "insert",
    "find",
    "getMore",
    "update",
    "findAndModify",
    "delete",
    "listCollections",
    "listIndexes",
    "createIndexes",
    "dropIndexes",
];

/// Names that some backend does not understand, wherever in a command they stand.
const FORBIDDEN: [&str; 13] = [
    "hint",
    "collation",
    "let",
    "$expr",
    "$$NOW",
    "collectionUUID",
    "maxTimeMS",
    "comment",
    "sort",
    "txnNumber",
    "startTransaction",
    "autocommit",
    "$natural",
];

/// The operators of a pipeline that counts.
const COUNTING: [&str; 16] = [
    "$match",
    "$and",
    "$gt",
    "$gte",
    "$lt",
    "$lte",
    "$type",
    "$sort",
    "$limit",
    "$group",
    "$sum",
    "$cond",
    "$isArray",
    "$floor",
    "$divide",
    "$subtract",
];

/// 0001-01-01, the first date that every backend can store.
const YEAR_1: i64 = -62_135_596_800_000;

/// The commands that a client sent.
#[derive(Clone, Default)]
struct Recording(Arc<Mutex<Vec<(String, Document)>>>);

impl Recording {
    fn listen(&self, options: &mut ClientOptions) {
        let commands = self.0.clone();
        options.command_event_handler = Some(EventHandler::callback(move |event| {
            if let CommandEvent::Started(started) = event {
                commands.lock().unwrap().push((started.command_name, started.command));
            }
        }));
    }

    fn commands(&self) -> Vec<(String, Document)> {
        self.0.lock().unwrap().clone()
    }

    /// Those of this name that concern this collection.
    fn on(&self, name: &str, collection: &str) -> Vec<Document> {
        let concerns = |command: &Document| command.get_str(name).ok() == Some(collection);
        self.commands().into_iter().map(|(_, command)| command).filter(concerns).collect()
    }
}

/// Puts expired documents into a collection by another client, whose commands are not recorded.
async fn insert_expired(it: &TestDatabase, collection: &str, count: i32) {
    let client = Client::with_uri_str(&it.uri).await.unwrap();
    let old = DateTime::from_millis(0);
    let document = |id| {
        if id % 7 == 0 {
            doc! { "_id": id, "n": 1, "t": [old] }
        } else {
            doc! { "_id": id, "n": 1, "t": old }
        }
    };
    let documents = (0..count).map(document);
    client.database(it.db.name()).collection(collection).insert_many(documents).await.unwrap();
}

async fn sweep_all(ttl: &TtlRegistry, collection: &str, expected: u64) {
    let report = ttl.sweep(collection).batch_size(40).await.unwrap();
    assert_eq!((report.deleted, report.ended), (expected, Ended::Drained), "{report:?}");
    assert!(report.batches > 1, "{report:?}");
}

/// The whole life of four TTL indexes: walking an index, walking one for some documents only, without any, and with a guard.
async fn live(it: &TestDatabase, ttl: &TtlRegistry) {
    let index = || TtlIndex::on("t").expire_after(Duration::from_secs(60));
    let guard = Reference::by("children", "parent").newer_than("at", Duration::from_secs(60)).without_index();
    insert_expired(it, "children", 1).await;
    let all = [
        ("walked", index()),
        ("partial", index().partial_filter(doc! { "n": { "$gte": 1 } })),
        ("scanned", index().supporting_index(false)),
        ("guarded", index().keep_while(guard)),
    ];
    for (collection, index) in all {
        let made = ttl.create_index(collection, index.clone()).await.unwrap();
        let again = ttl.create_index(collection, index).await.unwrap();
        assert_eq!(made.supporting_index, again.supporting_index);
        insert_expired(it, collection, 200).await;
        ttl.modify_index(collection, Duration::from_secs(30)).await.unwrap();
        assert_eq!(ttl.list_indexes().collection(collection).await.unwrap().len(), 1);
        if collection == "guarded" {
            // Plain dates, and those in arrays.
            let touched = ttl.touch(collection, 0..200, DateTime::from_millis(31_000)).await.unwrap();
            assert_eq!((touched.moved, touched.missing), (200, 0));
        }
        sweep_all(ttl, collection, 200).await;
        ttl.drop_index(collection, "t_1").await.unwrap();
    }
    assert_eq!(ttl.list_indexes().await.unwrap(), []);
}

#[tokio::test]
async fn the_portable_subset_is_enough_for_a_whole_life() {
    let recording = Recording::default();
    let it = database_with(|options| {
        options.retry_writes = Some(false);
        recording.listen(options);
    })
    .await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone()).portable_only()).await.unwrap();
    live(&it, &ttl).await;

    let commands = recording.commands();
    for (name, command) in &commands {
        assert!(PORTABLE.contains(&name.as_str()), "{command}");
        assert_portable(name, command);
    }
    let seen: BTreeSet<&str> = commands.iter().map(|(name, _)| name.as_str()).collect();
    for name in NEEDED {
        assert!(seen.contains(name), "{name} was never sent: {seen:?}");
    }
}

/// Which counts by what every backend with aggregations understands, and goes on without where they are not understood.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_portable_subset_is_enough_for_the_background_sweeper() {
    let recording = Recording::default();
    let it = database_with(|options| {
        options.retry_writes = Some(false);
        recording.listen(options);
    })
    .await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone()).portable_only()).await.unwrap();
    let index = || TtlIndex::on("t").expire_after(Duration::from_secs(60));
    for (collection, index) in [("walked", index()), ("partial", index().partial_filter(doc! { "n": { "$gte": 1 } }))] {
        ttl.create_index(collection, index).await.unwrap();
        insert_expired(&it, collection, 200).await;
    }
    let sweeper = Sweeper::new(ttl.clone()).start().unwrap();
    let counted = |of: &str| !recording.on("aggregate", of).is_empty();
    wait::until("all to go, and to be counted", wait::LONG, async || {
        ttl.counters().total.deleted == 400 && counted("walked") && counted("partial")
    })
    .await;
    sweeper.shutdown().await.unwrap();
    for (name, command) in &recording.commands() {
        assert!(PORTABLE.contains(&name.as_str()), "{command}");
        assert_portable(name, command);
    }
}

fn assert_portable(name: &str, command: &Document) {
    // What is written into a document is not a word of the command.
    let mut command = command.clone();
    command.remove("documents");
    let command = &command;
    for word in words(&Bson::Document(command.clone())) {
        assert!(!FORBIDDEN.contains(&word.as_str()), "{word}: {command}");
    }
    match name {
        "createIndexes" => assert_eq!(command.get_array("indexes").unwrap().len(), 1, "{command}"),
        "dropIndexes" => assert_ne!(command.get_str("index").unwrap(), "*", "{command}"),
        "listCollections" => assert!(!command.contains_key("filter"), "{command}"),
        "aggregate" => {
            let pipeline = Bson::Array(command.get_array("pipeline").unwrap().clone());
            for word in words(&pipeline).iter().filter(|word| word.starts_with('$') && **word != "$t") {
                assert!(COUNTING.contains(&word.as_str()), "{word}: {command}");
            }
        }
        _ if command.contains_key("pipeline") => panic!("an update by a pipeline: {command}"),
        _ => {}
    }
    let earliest = dates(&Bson::Document(command.clone())).into_iter().min();
    assert!(earliest.is_none_or(|date| date.timestamp_millis() >= YEAR_1), "{command}");
}

/// Every field name and every string in a value.
fn words(value: &Bson) -> Vec<String> {
    match value {
        Bson::String(text) => vec![text.clone()],
        Bson::Array(items) => items.iter().flat_map(words).collect(),
        Bson::Document(document) => {
            document.iter().flat_map(|(name, value)| [vec![name.clone()], words(value)].concat()).collect()
        }
        _ => Vec::new(),
    }
}

fn dates(value: &Bson) -> Vec<DateTime> {
    match value {
        Bson::DateTime(date) => vec![*date],
        Bson::Array(items) => items.iter().flat_map(dates).collect(),
        Bson::Document(document) => document.iter().flat_map(|(_, value)| dates(value)).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn what_mongodb_has_beyond_the_subset_is_used() {
    let recording = Recording::default();
    let it = Mongod::shared().await.database_with(|options| recording.listen(options)).await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    live(&it, &ttl).await;

    for collection in ["walked", "partial", "scanned"] {
        let deletes = recording.on("delete", collection);
        assert!(deletes.len() > 1);
        for delete in deletes {
            assert!(matches!(delete.get("collectionUUID"), Some(Bson::Binary(_))), "{delete}");
            let statements = delete.get_array("deletes").unwrap();
            for statement in statements {
                let hint = statement.as_document().unwrap().get_document("hint").ok();
                assert_eq!(hint, Some(&doc! { "_id": 1 }), "{delete}");
            }
        }
    }
    for collection in ["walked", "partial"] {
        let finds = recording.on("find", collection);
        assert!(finds.len() > 1);
        for find in finds {
            assert_eq!(find.get_str("hint").ok(), Some("t_1"), "{find}");
            assert_eq!(find.get_i64("limit").ok(), Some(40), "{find}");
            assert!(!find.contains_key("sort"), "{find}");
        }
    }
}

#[tokio::test]
async fn a_server_that_deletes_nothing_by_itself_is_swept() {
    let server = Mongod::private(&["--setParameter", "ttlMonitorEnabled=false"]).await;
    let it = server.database().await;
    let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
    for (collection, supporting) in [("walked", true), ("scanned", false)] {
        let index = TtlIndex::on("t").expire_after(Duration::ZERO).supporting_index(supporting);
        ttl.create_index(collection, index).await.unwrap();
        insert_expired(&it, collection, 200).await;
        sweep_all(&ttl, collection, 200).await;
    }
    let mut names = Vec::new();
    for collection in it.db.list_collection_names().await.unwrap() {
        let command = doc! { "listIndexes": &collection };
        let indexes = it.db.run_cursor_command(command).await.unwrap();
        for index in indexes.try_collect::<Vec<Document>>().await.unwrap() {
            assert!(!index.contains_key("expireAfterSeconds"), "{collection}: {index}");
            names.push(format!("{collection}.{}", index.get_str("name").unwrap()));
        }
    }
    assert!(names.contains(&"walked.t_1".to_owned()), "{names:?}");
}

#[tokio::test]
async fn probes_do_not_meet_in_the_collection_that_they_share() {
    let recording = Recording::default();
    let it = Mongod::shared().await.database_with(|options| recording.listen(options)).await;
    // What a process left that was killed in its probe.
    let left_over = doc! { "_id": 1, "probe": 0, "at": DateTime::from_millis(0) };
    let shared = it.db.collection::<Document>("ttl_index.probe");
    shared.insert_one(&left_over).await.unwrap();
    let names: Vec<String> = (0..8).map(|n| format!("c{n}")).collect();
    let sweeps = names.iter().map(async |name| {
        // Each handle finds out for itself.
        let ttl = TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap();
        ttl.create_index(name, TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
        insert_expired(&it, name, 50).await;
        sweep_all(&ttl, name, 50).await;
    });
    futures_util::future::join_all(sweeps).await;
    for name in &names {
        for delete in recording.on("delete", name) {
            let guards = ["collectionUUID", "maxTimeMS"];
            assert!(guards.iter().all(|guard| delete.contains_key(guard)), "{delete}");
        }
    }
    let there: Vec<Document> = shared.find(doc! {}).await.unwrap().try_collect().await.unwrap();
    assert_eq!(there, [left_over]);
}
