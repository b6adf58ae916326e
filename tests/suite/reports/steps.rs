//! The steps of the reports, one function each.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, join_all};
use mongodb::bson::{Bson, Document, doc};
use serde_json::Value;
use tokio::time::Instant;
use ttl_index::{Ended, Error, IndexState, TtlIndex};

use super::catalogue::instant;
use super::play::{Play, Stage};
use crate::support::json;
use crate::support::place::Place;
use crate::support::wait;

/// Plays one step.
///
/// # Panics
///
/// If the step does not come out as the report says, or needs a test written by hand.
pub(super) fn play<'a>(on: &'a Play, step: &'a Value) -> LocalBoxFuture<'a, ()> {
    let stage = &*on.stage;
    async move {
        match text(step, "op") {
            // Neither store is asked for a TTL index of its own.
            "backend" if step["supports_ttl"] == false => {}
            "create_index" => create_index(on, step).await,
            "create_collection" => create_collection(on, step).await,
            "backend_has_plain_index" => create_plain_index(on, collection(step), &step["index"]).await,
            "drop_index" => {
                judge(step, on.ttl.drop_index(collection(step), text(step, "name")).await);
            }
            "coll_mod" => coll_mod(on, step).await,
            "list_indexes" => list_indexes(on, step).await,
            "insert" => insert(on, step).await,
            "insert_many_generated" => insert_generated(on, step).await,
            "update" | "replace" | "delete" => write(&on.place, stage, step).await,
            "on_hook" => {
                assert_eq!(step["hook"], "after_candidates_selected_before_delete");
                stage.hook.lock().unwrap().clone_from(step["steps"].as_array().unwrap());
            }
            "concurrently" => {
                join_all(step["steps"].as_array().unwrap().iter().map(|step| play(on, step))).await;
            }
            "set_clock" => {
                // Where they differ it is the database's clock that counts; ours is not looked at.
                let now = step.get("server_now").unwrap_or(&step["now"]);
                clock(on).set(instant(now.as_str().unwrap()));
            }
            "advance_clock" => advance_clock(on, &step["seconds"]).await,
            "sweep_interval_s" => on.background().set_interval(&step["value"]),
            "sweeper" | "start_sweeper" => on.background().start(&on.ttl, step).await,
            "shutdown_gracefully" => on.background().shutdown().await,
            "pause_sweeper" => drop(on.ttl.pause().await.unwrap()),
            "maintenance_mode" if step["enabled"] == true => drop(on.ttl.pause().await.unwrap()),
            "resume_sweeper" | "maintenance_mode" => assert!(on.ttl.resume().await.unwrap()),
            "sweep_until_idle" => sweep_until_idle(on, step).await,
            "expect_ids" => expect_ids(on, step).await,
            "count" => assert_eq!(Some(on.place.count(collection(step)).await), step["expect"].as_u64(), "{step}"),
            op => panic!("a step that needs a test by hand: {op}"),
        }
    }
    .boxed_local()
}

fn text<'a>(step: &'a Value, field: &str) -> &'a str {
    step[field].as_str().unwrap_or_else(|| panic!("{field} is missing: {step}"))
}

/// The collection of a namespace: everything behind the first dot.
pub(super) fn collection(step: &Value) -> &str {
    text(step, "ns").split_once('.').unwrap().1
}

fn clock(on: &Play) -> &ttl_index::ManualClock {
    assert!(matches!(*on.place, Place::Embedded(_)), "the clock of a real server cannot be set");
    &on.stage.clock
}

async fn advance_clock(on: &Play, seconds: &Value) {
    match &on.background {
        Some(background) => tokio::time::sleep(background.lasting(seconds)).await,
        None => clock(on).advance(Duration::from_secs(seconds.as_u64().unwrap())),
    }
}

/// Holds a result against the step's `expect`: absent, `ok…` or `success…`, or an error with one of the codes it names.
fn judge<T: std::fmt::Debug>(step: &Value, result: Result<T, Error>) {
    let expected = step["expect"].as_str().unwrap_or("ok");
    if expected.starts_with("ok") || expected.starts_with("success") {
        result.unwrap_or_else(|error| panic!("{error} in {step}"));
        return;
    }
    let error = result.expect_err(expected);
    let codes: Vec<i32> = expected.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
    let code = error.code().unwrap_or_else(|| panic!("an error without a code: {error} in {step}"));
    assert!(codes.is_empty() || codes.contains(&code), "{error} in {step}");
}

/// The specification that a step asks for.
pub(super) fn specification(step: &Value) -> Document {
    let mut spec = doc! { "key": json::document(&step["key"]) };
    spec.extend(json::document(&step["options"]));
    spec
}

async fn create_index(on: &Play, step: &Value) {
    let spec = specification(step);
    if !spec.contains_key("expireAfterSeconds") {
        return create_plain_index(on, collection(step), step).await;
    }
    let before = on.ttl.list_indexes().await.unwrap();
    let result = on.ttl.create_index(collection(step), TtlIndex::from(spec)).await;
    if result.is_err() {
        assert_eq!(on.ttl.list_indexes().await.unwrap(), before, "a refused request changed something: {step}");
    }
    judge(step, result);
}

/// An ordinary index of the user's own.
async fn create_plain_index(on: &Play, collection: &str, index: &Value) {
    let key = json::document(&index["key"]);
    let name = match index["name"].as_str() {
        Some(name) => name.to_owned(),
        None => key.iter().map(|(field, direction)| format!("{field}_{direction}")).collect::<Vec<_>>().join("_"),
    };
    let command = doc! { "createIndexes": collection, "indexes": [{ "key": key, "name": name }] };
    on.database().db.run_command(command).await.unwrap();
}

async fn create_collection(on: &Play, step: &Value) {
    let mut command = doc! { "create": collection(step) };
    command.extend(json::document(step).into_iter().filter(|(field, _)| field != "op" && field != "ns"));
    on.database().db.run_command(command).await.unwrap();
}

async fn coll_mod(on: &Play, step: &Value) {
    let index = &step["index"];
    let period = Duration::from_secs(index["expireAfterSeconds"].as_u64().unwrap());
    let modified = on.ttl.modify_index(collection(step), period).await.unwrap();
    assert_eq!((index["name"].as_str(), modified.expire_after), (Some(modified.name.as_str()), Some(period)));
}

/// Lists a collection's TTL indexes. The report's `_id_` is none.
async fn list_indexes(on: &Play, step: &Value) {
    let listed = on.ttl.list_indexes().collection(collection(step)).await.unwrap();
    let Some(expected) = step.get("expect") else { return };
    let expected: Vec<_> = expected
        .as_array()
        .unwrap_or_else(|| panic!("a listing that needs a test by hand: {step}"))
        .iter()
        .filter(|index| index["name"] != "_id_")
        .map(|index| (index["name"].as_str().unwrap(), index["expireAfterSeconds"].as_u64()))
        .collect();
    let found: Vec<_> =
        listed.iter().map(|index| (index.name.as_str(), index.expire_after.map(|period| period.as_secs()))).collect();
    assert_eq!(found, expected, "{step}");
}

async fn insert(on: &Play, step: &Value) {
    let documents: Vec<Document> =
        step["docs"].as_array().unwrap().iter().map(|document| on.stage.document(document)).collect();
    let name = collection(step);
    let inserted = match &*on.place {
        Place::Mongo(it) => it
            .db
            .collection(name)
            .insert_many(documents)
            .await
            .map(drop)
            .map_err(|source| Error::Backend { action: "inserting".to_owned(), source }),
        Place::Embedded(store) => store.collection(name).insert_many(documents).await.map(drop),
    };
    judge(step, inserted);
}

/// Inserts the documents of a template whose `_id` is `$i` or `$i+N`.
pub(super) async fn insert_generated(on: &Play, step: &Value) {
    let template = on.stage.document(&step["template"]);
    let first: i32 = match template.get_str("_id").unwrap() {
        "$i" => 0,
        offset => offset.strip_prefix("$i+").and_then(|offset| offset.parse().ok()).unwrap(),
    };
    let count = i32::try_from(step["count"].as_i64().unwrap()).unwrap();
    let ids: Vec<i32> = (first..first + count).collect();
    for ids in ids.chunks(20_000) {
        let documents = ids.iter().map(|id| {
            let mut document = template.clone();
            document.insert("_id", *id);
            document
        });
        on.place.insert(collection(step), documents.collect()).await;
    }
}

/// An application's update, replacement or deletion, of the documents that the filter on `_id` means.
pub(super) async fn write(place: &Place, stage: &Stage, step: &Value) {
    let collection = collection(step);
    for id in matching_ids(place, collection, &step["filter"]["_id"]).await {
        match text(step, "op") {
            "update" => place.update(collection, id, stage.document(&step["update"])).await,
            "replace" => place.replace(collection, id, stage.document(&step["doc"])).await,
            "delete" => place.delete(collection, id).await,
            op => panic!("no step of an application: {op}"),
        }
    }
}

pub(super) async fn matching_ids(place: &Place, collection: &str, filter: &Value) -> Vec<Bson> {
    let bound = |operator| filter.get(operator).and_then(Value::as_i64);
    let (from, below) = match (bound("$gte"), bound("$lt")) {
        (None, None) => return vec![json::bson(filter)],
        (from, below) => (from.unwrap_or(i64::MIN), below.unwrap_or(i64::MAX)),
    };
    let documents = place.documents(collection).await;
    let ids = documents.iter().map(|document| document.get_i32("_id").unwrap());
    ids.filter(|id| (from..below).contains(&i64::from(*id))).map(Bson::from).collect()
}

/// Sweeps every TTL index until nothing is due any more.
pub(super) async fn sweep_until_idle(on: &Play, step: &Value) {
    for index in on.ttl.list_indexes().await.unwrap() {
        loop {
            let stage = on.stage.clone();
            let mut before = 0;
            let mut sweep = on.ttl.sweep(&index.collection).on_batch(move |progress| {
                stage.batches.lock().unwrap().push((Instant::now(), progress.deleted - before));
                before = progress.deleted;
            });
            if let Some(size) = step["batch"].as_u64() {
                sweep = sweep.batch_size(u32::try_from(size).unwrap());
            }
            if let Some(rate) = step["max_deletes_per_second"].as_f64() {
                sweep = sweep.rate(rate);
            }
            let swept = sweep.await;
            if index.state == IndexState::NeedsRepair {
                assert!(swept.unwrap_err().refusal().is_some(), "{} cannot be understood", index.name);
                break;
            }
            let report = swept.unwrap();
            let ended = report.ended;
            assert!(matches!(ended, Ended::Drained | Ended::Cancelled | Ended::Paused), "{report:?}");
            on.stage.sweeps.lock().unwrap().push(report);
            // Cancelled: the index was modified meanwhile, and the new period is to be swept by.
            if ended != Ended::Cancelled {
                break;
            }
        }
    }
}

/// Where time goes by in the background, a real machine is given the time that it takes.
async fn expect_ids(on: &Play, step: &Value) {
    let mut expected: Vec<String> =
        step["ids"].as_array().unwrap().iter().map(|id| json::bson(id).to_string()).collect();
    expected.sort_unstable();
    let found = async || ids(&on.place, collection(step)).await;
    if on.background.is_some() && matches!(*on.place, Place::Mongo(_)) {
        wait::until(&step.to_string(), wait::LONG, async || found().await == expected).await;
    }
    assert_eq!(found().await, expected, "{step}");
}

/// The `_id`s in a collection, as text, in order.
pub(super) async fn ids(place: &Place, collection: &str) -> Vec<String> {
    let documents = place.documents(collection).await;
    let mut ids: Vec<String> = documents.iter().map(|document| document.get("_id").unwrap().to_string()).collect();
    ids.sort_unstable();
    ids
}
