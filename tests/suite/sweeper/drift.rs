//! What becomes of the collections and of this library's own records behind its back, while a sweeper runs.

use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use ttl_index::{Activity, IndexInfo, IndexState, MongoStore, Sweeper, SweeperHandle, TtlRegistry};

use super::{Stage, index};
use crate::reports::wire::watched;
use crate::support::TestDatabase;
use crate::support::place::Place;

/// A sweeper on a real server, that sweeps.
struct Scene {
    stage: Stage,
    ttl: TtlRegistry,
    sweeper: SweeperHandle,
}

impl Scene {
    async fn new() -> Scene {
        let mut stage = Stage::mongod().await;
        // Indexes are looked at once in 15 intervals.
        stage.interval = Duration::from_millis(200);
        let ttl = stage.registry().await;
        let sweeper = stage.start("a").await;
        stage.until("it to sweep", async || sweeper.status().activity == Activity::Sweeping).await;
        Scene { stage, ttl, sweeper }
    }

    /// With a TTL index on each of these, one due document in it that is gone by now, and one that lives.
    async fn with(collections: &[&str]) -> Scene {
        let scene = Scene::new().await;
        for collection in collections {
            scene.ttl.create_index(*collection, index()).await.unwrap();
            scene.insert(collection).await;
            scene.swept(collection).await;
        }
        scene
    }

    fn it(&self) -> &TestDatabase {
        let Place::Mongo(it) = &*self.stage.place else { panic!() };
        it
    }

    /// A document that is due and one that is not.
    async fn insert(&self, collection: &str) {
        let (due, lives) = (doc! { "t": DateTime::from_millis(0) }, doc! { "t": DateTime::MAX });
        self.stage.place.insert(collection, vec![due, lives]).await;
    }

    async fn due(&self, collection: &str) -> u64 {
        let due = doc! { "t": DateTime::from_millis(0) };
        self.it().db.collection::<Document>(collection).count_documents(due).await.unwrap()
    }

    /// Waits until nothing is due there; what lives must be there.
    async fn swept(&self, collection: &str) {
        self.stage.until("what is due to go", async || self.due(collection).await == 0).await;
        assert!(self.stage.place.count(collection).await > 0, "{collection}");
    }

    async fn info(&self, collection: &str) -> IndexInfo {
        self.ttl.list_indexes().collection(collection).await.unwrap().pop().expect(collection)
    }

    /// Waits until the index needs repair for this reason.
    async fn needs_repair(&self, collection: &str, why: &str) {
        self.stage
            .until("the index to need repair", async || self.info(collection).await.state == IndexState::NeedsRepair)
            .await;
        let problem = self.info(collection).await.problem.unwrap();
        assert!(problem.contains(why), "{problem}");
    }

    /// Everything due elsewhere goes while this stays, visit after visit.
    async fn is_left_alone(&self, collection: &str, sound: &str) {
        let before = self.stage.place.count(collection).await;
        for _ in 0..3 {
            self.insert(sound).await;
            self.swept(sound).await;
        }
        assert_eq!(self.stage.place.count(collection).await, before);
        assert_eq!(self.info(collection).await.state, IndexState::NeedsRepair);
    }

    async fn end(self) {
        self.sweeper.shutdown().await.unwrap();
        self.stage.registry().await.status().await.unwrap();
    }
}

async fn rename(it: &TestDatabase, from: &str, to: &str) {
    let name = it.db.name();
    let command = doc! { "renameCollection": format!("{name}.{from}"), "to": format!("{name}.{to}") };
    it.client.database("admin").run_command(command).await.unwrap();
}

#[tokio::test]
async fn an_index_whose_supporting_index_is_dropped_needs_repair() {
    let scene = Scene::with(&["c", "sound"]).await;
    scene.it().db.run_command(doc! { "dropIndexes": "c", "index": "t_1" }).await.unwrap();
    scene.insert("c").await;
    scene.needs_repair("c", "the supporting index t_1 of c is gone or hidden").await;
    scene.is_left_alone("c", "sound").await;
    let repaired = scene.ttl.repair("c").await.unwrap();
    assert_eq!((repaired.state, repaired.problem), (IndexState::Active, None));
    scene.swept("c").await;
    scene.end().await;
}

#[tokio::test]
async fn a_collection_that_is_made_again_is_not_swept_until_it_is_taken_over() {
    for supporting in [true, false] {
        let scene = Scene::with(&["sound"]).await;
        scene.it().db.create_collection("c").await.unwrap();
        scene.ttl.create_index("c", index().supporting_index(supporting)).await.unwrap();
        scene.insert("c").await;
        scene.swept("c").await;
        scene.stage.place.drop_collection("c").await;
        scene.insert("c").await;
        scene.needs_repair("c", "c was dropped and made again").await;
        scene.is_left_alone("c", "sound").await;
        assert_eq!(scene.ttl.repair("c").await.unwrap().state, IndexState::Active);
        scene.swept("c").await;
        scene.end().await;
    }
}

/// Nor one that appears for the first time, later than its index.
#[tokio::test]
async fn a_collection_that_is_dropped_is_no_fault() {
    let scene = Scene::with(&["c", "sound"]).await;
    scene.stage.place.drop_collection("c").await;
    scene.ttl.create_index("new", index().supporting_index(false)).await.unwrap();
    for _ in 0..3 {
        scene.insert("sound").await;
        scene.swept("sound").await;
    }
    for collection in ["c", "new"] {
        let info = scene.info(collection).await;
        assert_eq!((info.state, info.problem), (IndexState::Active, None), "{collection}");
    }
    let visited = |it: &ttl_index::IndexStatus| it.visits.clone().unwrap();
    scene
        .stage
        .until("a visit without trouble", async || {
            scene.sweeper.status().indexes.iter().map(visited).all(|it| it.ended == "drained" && it.failures == 0)
        })
        .await;
    scene.insert("new").await;
    scene.swept("new").await;
    scene.end().await;
}

#[tokio::test]
async fn an_index_follows_its_collection_to_another_name() {
    let scene = Scene::with(&["c"]).await;
    rename(scene.it(), "c", "d").await;
    scene.insert("d").await;
    scene.swept("d").await;
    let listed = scene.ttl.list_indexes().await.unwrap();
    let found: Vec<_> = listed.iter().map(|it| (it.collection.as_str(), it.name.as_str(), it.state)).collect();
    assert_eq!(found, [("d", "t_1", IndexState::Active)]);
    // Its own index went along, and goes with it.
    scene.ttl.drop_index("d", "t_1").await.unwrap();
    let indexes = scene.it().db.collection::<Document>("d").list_index_names().await.unwrap();
    assert_eq!(indexes, ["_id_"]);
    scene.end().await;
}

#[tokio::test]
async fn a_collection_renamed_to_one_with_an_index_needs_repair() {
    let scene = Scene::with(&["c", "d", "sound"]).await;
    scene.stage.place.drop_collection("d").await;
    rename(scene.it(), "c", "d").await;
    scene.insert("d").await;
    scene.needs_repair("c", "c was renamed to d, which has a TTL index of its own").await;
    scene.needs_repair("d", "d was dropped and made again, or another collection was renamed to it").await;
    scene.is_left_alone("d", "sound").await;
    // As the problem says: one is dropped, and the other, repaired, holds for the collection.
    let refused = scene.ttl.repair("c").await.unwrap_err();
    assert_eq!(refused.code(), Some(85), "{refused}");
    scene.ttl.drop_index("d", "t_1").await.unwrap();
    assert_eq!(scene.ttl.repair("c").await.unwrap().collection, "d");
    scene.swept("d").await;
    assert!(!scene.it().db.list_collection_names().await.unwrap().contains(&"c".to_owned()));
    scene.end().await;
}

#[tokio::test]
async fn the_databases_own_ttl_index_besides_is_a_warning_while_it_is_there() {
    let scene = Scene::with(&["c"]).await;
    let native = doc! { "key": { "other": 1 }, "name": "native", "expireAfterSeconds": 3600 };
    scene.it().db.run_command(doc! { "createIndexes": "c", "indexes": [native] }).await.unwrap();
    scene.stage.until("a warning", async || scene.info("c").await.problem.is_some()).await;
    let revision = async || {
        let registry = scene.it().db.collection::<Document>("ttl_index.registry");
        registry.find_one(doc! {}).await.unwrap().unwrap().get_i64("revision").unwrap()
    };
    let noted = revision().await;
    for _ in 0..5 {
        scene.insert("c").await;
        scene.swept("c").await;
    }
    let info = scene.info("c").await;
    assert_eq!(info.state, IndexState::Active);
    assert!(info.problem.as_ref().unwrap().contains("own TTL index native"), "{info:?}");
    assert_eq!(revision().await, noted, "the warning comes and goes");
    scene.it().db.run_command(doc! { "dropIndexes": "c", "index": "native" }).await.unwrap();
    scene.stage.until("the warning to go", async || scene.info("c").await.problem.is_none()).await;
    scene.end().await;
}

#[tokio::test]
async fn many_that_drift_at_once_are_all_noticed() {
    let names: Vec<String> = (0..20).map(|n| format!("c{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let scene = Scene::with(&names).await;
    for name in &names {
        scene.stage.place.drop_collection(name).await;
        scene.insert(name).await;
    }
    for name in &names {
        scene.needs_repair(name, "was dropped and made again").await;
        assert_eq!(scene.due(name).await, 1);
    }
    scene.end().await;
}

#[tokio::test]
async fn own_records_that_are_dropped_are_made_again() {
    let scene = Scene::with(&["c"]).await;
    for (round, records) in ["ttl_index.lease", "ttl_index.operations", "ttl_index.lease"].iter().enumerate() {
        scene.stage.place.drop_collection(records).await;
        // Changes are made and guaranteed meanwhile.
        scene.ttl.modify_index("c", Duration::from_secs(round as u64)).await.unwrap();
        scene.ttl.create_index("d", index()).await.unwrap();
        scene.insert("d").await;
        scene.swept("d").await;
        scene.ttl.drop_index("d", "t_1").await.unwrap();
        scene.insert("c").await;
        scene.swept("c").await;
    }
    assert!(!scene.ttl.operations().await.unwrap().is_empty());
    scene.stage.until("somebody to sweep", async || scene.ttl.status().await.unwrap().holder.is_some()).await;
    scene.end().await;
}

#[tokio::test]
async fn a_database_that_is_dropped_stays_gone_until_there_are_indexes_again() {
    let scene = Scene::with(&["c"]).await;
    scene.it().db.drop().await.unwrap();
    scene.stage.until("it to hold the lease again", async || scene.ttl.status().await.unwrap().holder.is_some()).await;
    // By no rule nothing is deleted.
    scene.insert("c").await;
    scene.stage.until("it to see that", async || scene.sweeper.status().indexes.is_empty()).await;
    let mut names = scene.it().db.list_collection_names().await.unwrap();
    names.sort_unstable();
    assert_eq!(names, ["c", "ttl_index.lease"]);
    assert_eq!(scene.stage.place.count("c").await, 2);
    scene.ttl.create_index("c", index()).await.unwrap();
    scene.swept("c").await;
    scene.end().await;
}

#[tokio::test]
async fn an_entry_that_cannot_be_read_does_not_stop_the_others() {
    let scene = Scene::with(&["broken", "sound"]).await;
    let registry = scene.it().db.collection::<Document>("ttl_index.registry");
    let damage = doc! { "$set": { "indexes.0.expireAfterSeconds": f64::NAN }, "$inc": { "revision": 1_i64 } };
    registry.update_one(doc! {}, damage).await.unwrap();
    scene
        .stage
        .until("it to be seen", async || {
            scene.sweeper.status().indexes.iter().any(|it| it.state == IndexState::NeedsRepair)
        })
        .await;
    scene.insert("broken").await;
    scene.is_left_alone("broken", "sound").await;
    scene.end().await;
}

#[tokio::test]
async fn a_registry_that_cannot_be_read_as_a_whole_is_waited_for() {
    let scene = Scene::with(&["c"]).await;
    let registry = scene.it().db.collection::<Document>("ttl_index.registry");
    let sound = registry.find_one(doc! {}).await.unwrap().unwrap();
    registry.update_one(doc! {}, doc! { "$set": { "indexes": 5, "revision": 1_i64 } }).await.unwrap();
    scene.insert("c").await;
    scene.stage.until("it to be told", async || scene.sweeper.status().activity == Activity::Away).await;
    assert_eq!(scene.due("c").await, 1);
    registry.replace_one(doc! {}, sound).await.unwrap();
    scene.swept("c").await;
    scene.end().await;
}

#[tokio::test]
async fn under_a_lease_that_cannot_be_read_nobody_sweeps() {
    let scene = Scene::with(&["c"]).await;
    let lease = scene.it().db.collection::<Document>("ttl_index.lease");
    lease.update_one(doc! { "_id": "lease" }, doc! { "$set": { "term": "first" } }).await.unwrap();
    scene.stage.until("it to be told", async || scene.sweeper.status().activity == Activity::Away).await;
    scene.insert("c").await;
    let unreadable = "the lease in ttl_index.lease has no readable term";
    for refused in [scene.ttl.status().await.unwrap_err(), scene.ttl.sweep("c").await.unwrap_err()] {
        assert!(matches!(refused, ttl_index::Error::Unreadable(_)), "{refused:?}");
        assert!(refused.to_string().contains(unreadable), "{refused}");
    }
    // Nor does one that is started now.
    let another = scene.stage.start("b").await;
    scene.stage.until("the other to be told as well", async || another.status().activity == Activity::Away).await;
    another.shutdown().await.unwrap();
    assert_eq!(scene.due("c").await, 1);
    // As the error says.
    lease.delete_one(doc! { "_id": "lease" }).await.unwrap();
    scene.swept("c").await;
    scene.end().await;
}

/// With the default interval: whatever else it does, the collections are listed once in the first minute.
#[tokio::test]
async fn an_idle_sweeper_lists_the_collections_once_a_minute_at_most() {
    let stage = Stage::mongod().await;
    let Place::Mongo(it) = &*stage.place else { panic!() };
    let ttl = stage.registry().await;
    for collection in ["a", "b", "c"] {
        ttl.create_index(collection, index()).await.unwrap();
    }
    let (client, wire) = watched().await;
    let store = MongoStore::new(client.client.database(it.db.name()));
    let registry = TtlRegistry::open(store).await.unwrap();
    // What is found out of the backend before the first deletion is not what is counted.
    registry.sweep("a").await.unwrap();
    let before = [wire.commands("listCollections").len(), wire.commands("listIndexes").len()];
    let sweeper = Sweeper::new(registry).start().unwrap();
    let visits = async |count: usize| {
        stage
            .until("visits", async || {
                sweeper.status().indexes.iter().filter(|index| index.visits.is_some()).count() == count
            })
            .await;
    };
    visits(3).await;
    // Each change is gone by, and each new index visited.
    for (count, collection) in (4..).zip(["d", "e", "f", "g"]) {
        ttl.create_index(collection, index()).await.unwrap();
        visits(count).await;
    }
    let listed = [wire.commands("listCollections").len() - before[0], wire.commands("listIndexes").len() - before[1]];
    assert_eq!(listed[0], 1);
    // Once each, after it was made and as it is in force.
    assert!((7..=11).contains(&listed[1]), "{listed:?}");
    sweeper.shutdown().await.unwrap();
    client.drop().await;
}
