//! Reports about what a backend has, refuses or fails to do.

use futures_util::future::join_all;
use mongodb::bson::{Bson, Document, doc};
use ttl_index::{Ended, Fault, HookedStore, IndexState, MongoStore, TtlIndex, TtlRegistry};

use super::play::Play;
use super::steps::specification;
use super::wire::{profile, profiled, watched};
use crate::support::mongod::Mongod;
use crate::support::place::Place;
use crate::support::{TestDatabase, json};

/// The names of a collection's ordinary indexes.
async fn ordinary_indexes(play: &Play, collection: &str) -> Vec<String> {
    play.database().db.collection::<Document>(collection).list_index_names().await.unwrap()
}

/// The plain index is reused, and is the user's before, meanwhile and afterwards.
#[tokio::test]
async fn ttl_051_index_conflict() {
    for mut play in Play::mongod("TTL-051").await {
        for _ in 0..2 {
            let create = play.until("create_index").await;
            play.play(create).await;
            let listed = play.ttl.list_indexes().await.unwrap();
            let supporting = listed[0].supporting_index.as_ref().unwrap();
            assert_eq!((supporting.name.as_str(), supporting.created), ("verifyUntil_1", false));
            assert_eq!(ordinary_indexes(&play, "publickey").await, ["_id_", "verifyUntil_1"]);
        }
        let play = play.finish().await;
        play.ttl.drop_index("publickey", "verifyUntil_1").await.unwrap();
        assert!(play.ttl.list_indexes().await.unwrap().is_empty());
        assert_eq!(ordinary_indexes(&play, "publickey").await, ["_id_", "verifyUntil_1"]);
    }
}

#[tokio::test]
async fn ttl_057_ttl_option_dropped_or_unsupported() {
    let (database, wire) = watched().await;
    let mut play = Play::on("TTL-057", database).await;
    play.until_prose("the option never reaches a back end that refuses it; the layer keeps it in its registry").await;
    let built = wire.commands("createIndexes");
    assert_eq!(built.len(), 1, "{built:?}");
    assert!(!built[0].to_string().contains("expireAfterSeconds"), "{built:?}");
    let registry = play.database().db.collection::<Document>("ttl_index.registry");
    let stored = registry.find_one(doc! { "indexes.expireAfterSeconds": 0 }).await.unwrap();
    assert!(stored.is_some());
    play.finish().await;
}

#[tokio::test]
async fn ttl_063_compound_or_special_index() {
    for mut play in Play::mongod("TTL-063").await {
        let sweep = play.until("sweep_until_idle").await;
        assert_eq!(ordinary_indexes(&play, "c").await, ["_id_", "time_1", "time_-1", "time_1_x_1"]);
        profile(play.database()).await;
        play.play(sweep).await;
        // Before the report's own look at what is left.
        let queries = profiled(play.database(), "query", "c").await;
        play.until_prose("explain shows an index scan; a hint may be used").await;
        assert!(!queries.is_empty());
        for query in queries {
            assert_eq!(query.get_str("planSummary").unwrap(), "IXSCAN { time: 1 }", "{query}");
        }
        play.finish().await;
    }
}

#[tokio::test]
async fn ttl_119_capped_timeseries_view() {
    for mut play in Play::mongod("TTL-119").await {
        play.until_prose("no error storm for app.cap").await;
        // Refused, and so not looked at again by any pass.
        let listed = play.ttl.list_indexes().await.unwrap();
        assert_eq!(listed.iter().map(|index| index.collection.as_str()).collect::<Vec<_>>(), ["ok"]);
        assert_eq!(play.place.count("cap").await, 1);
        play.finish().await;
    }
}

/// A delete whose reply is lost, and one that never arrived: the next pass puts right what can be.
#[tokio::test]
async fn ttl_139_connection_failure_or_retry() {
    for fault in [Fault::ReplyLost, Fault::Fails] {
        for mut play in Play::both("TTL-139").await {
            play.until("backend_hang").await;
            let hook = move |_ids: Vec<Bson>| async move { fault };
            let failing = match &*play.place {
                Place::Mongo(database) => HookedStore::new(MongoStore::new(database.db.clone()), hook),
                Place::Embedded(store) => HookedStore::new(store.clone(), hook),
            };
            let failing = TtlRegistry::open(failing).await.unwrap();
            let insert = play.until("insert").await;
            play.play(insert).await;
            let report = failing.sweep("c").await.unwrap();
            let gone = u64::from(fault == Fault::ReplyLost);
            assert_eq!((report.uncertain, report.left, report.ended), (gone, 1 - gone, Ended::Failed), "{report:?}");
            let report = play.ttl.sweep("c").await.unwrap();
            assert_eq!((report.deleted, report.ended), (1 - gone, Ended::Drained), "{report:?}");
            assert_eq!(play.place.count("c").await, 0);
        }
    }
    // operation time-out: the server is told to give up.
    let (database, wire) = watched().await;
    let mut play = Play::on("TTL-139", database).await;
    play.until("backend_hang").await;
    let insert = play.until("insert").await;
    play.play(insert).await;
    play.ttl.sweep("c").await.unwrap();
    for name in ["find", "delete"] {
        let of_c: Vec<Document> =
            wire.commands(name).into_iter().filter(|command| command.get_str(name).is_ok_and(|it| it == "c")).collect();
        assert!(!of_c.is_empty() && of_c.iter().all(|command| command.contains_key("maxTimeMS")), "{of_c:?}");
    }
}

/// A user who must not make indexes, on an index that is there and without one.
#[tokio::test]
async fn ttl_143_permissions() {
    let server = server_with_users().await;
    let uri = user_without(&server, "createIndex").await;
    let mut play = Play::on("TTL-143", TestDatabase::open(&uri, |_| {}).await).await;
    play.until("backend_user").await;
    let index = doc! { "key": { "expirationDate": 1 }, "name": "expirationDate_1" };
    let forbidden =
        play.database().db.run_command(doc! { "createIndexes": "c", "indexes": [index] }).await.unwrap_err();
    assert!(forbidden.to_string().contains("Unauthorized"), "{forbidden}");
    let step = play.until("register_existing_index").await;
    let mut spec = doc! { "key": json::document(&step["key"]) };
    spec.insert("expireAfterSeconds", json::bson(&step["expireAfterSeconds"]));
    play.ttl.create_index("c", TtlIndex::from(spec).supporting_index(false)).await.unwrap();
    play.finish().await;
}

/// A server that asks its users who they are.
async fn server_with_users() -> Mongod {
    let key = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(key.path(), "dGhlIHNlcnZlciBhbG9uZQ==").unwrap();
    Mongod::private(&["--keyFile", key.path().to_str().unwrap()]).await
}

/// The URI of a user who may do what the documentation of `MongoStore` asks for, except this.
async fn user_without(server: &Mongod, forbidden: &str) -> String {
    let uri = |user: &str| server.uri().replace("://", &format!("://{user}:secret@"));
    let make = |user: &str, role: &str| doc! { "createUser": user, "pwd": "secret", "roles": [role] };
    // The first user is made without being one.
    let nobody = mongodb::Client::with_uri_str(server.uri()).await.unwrap().database("admin");
    nobody.run_command(make("root", "root")).await.unwrap();
    let root = mongodb::Client::with_uri_str(uri("root")).await.unwrap().database("admin");
    let actions: Vec<&str> =
        ["find", "insert", "update", "remove", "createIndex", "dropIndex", "listCollections", "listIndexes"]
            .into_iter()
            .filter(|action| *action != forbidden)
            .collect();
    let everywhere = doc! { "db": "", "collection": "" };
    let role =
        doc! { "createRole": "most", "privileges": [{ "resource": everywhere, "actions": actions }], "roles": [] };
    root.run_command(role).await.unwrap();
    root.run_command(make("application", "most")).await.unwrap();
    uri("application")
}

/// A delete that every version of a router takes: by `_id` and the conditions, of as many documents as match.
#[tokio::test]
async fn ttl_157_sharded() {
    let (database, wire) = watched().await;
    let mut play = Play::on("TTL-157", database).await;
    play.until("backend").await;
    play.finish().await;
    let deletes: Vec<Document> =
        wire.commands("delete").into_iter().filter(|it| it.get_str("delete").is_ok_and(|it| it == "c")).collect();
    assert_eq!(deletes.len(), 1, "{deletes:?}");
    let statement = deletes[0].get_array("deletes").unwrap()[0].as_document().unwrap();
    // One document at a time would have to be found by the shard key.
    assert_eq!(statement.get_i32("limit").unwrap(), 0, "{statement}");
    let filter = statement.get_document("q").unwrap();
    let ids = filter.get_document("_id").and_then(|ids| ids.get_array("$in")).unwrap();
    assert_eq!(ids, &[Bson::Int32(1), Bson::Double(1.5)]);
    assert!(filter.to_string().contains("\"t\""), "{filter}");
}

/// Two different fields are for two collections here. The real server does not mind several builds at once, and is told to
/// refuse the first ones as the report's backend does.
#[tokio::test]
async fn ttl_129_startup_or_worker_missing() {
    let server = Mongod::private(&["--setParameter", "enableTestCommands=1"]).await;
    let refusing = Play::on("TTL-129", server.database().await).await;
    for (mut play, refuses) in
        Play::embedded("TTL-129").await.into_iter().map(|play| (play, false)).chain([(refusing, true)])
    {
        let backend = play.until("backend").await;
        if refuses {
            let code = json::bson(&backend["create_index_concurrent_error"]);
            let fault = doc! { "failCommands": ["createIndexes"], "errorCode": code };
            let fail = doc! { "configureFailPoint": "failCommand", "mode": { "times": 2 }, "data": fault };
            play.database().client.database("admin").run_command(fail).await.unwrap();
        }
        let step = play.until("concurrently").await;
        let requests = step["steps"].as_array().unwrap().iter().map(|step| {
            let spec = specification(step);
            let collection = spec.get_document("key").unwrap().keys().next().unwrap().clone();
            let ttl = play.ttl.clone();
            async move { ttl.create_index(collection, TtlIndex::from(spec)).await }
        });
        for created in join_all(requests).await {
            created.unwrap();
        }
        let mut listed = play.ttl.list_indexes().await.unwrap();
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        let listed: Vec<_> = listed.iter().map(|index| (index.name.as_str(), index.state)).collect();
        assert_eq!(listed, [("a_1", IndexState::Active), ("b_1", IndexState::Active)]);
    }
}
