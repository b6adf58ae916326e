//! What a backend can do, found out on a scratch collection before the first deletion.
//!
//! Two of three look-alike servers tried match strings, numbers or null with `{$lte: date}`; a sweep that trusted them
//! would delete live documents. So the comparison itself is put to the test: a backend that fails it gets the stricter
//! query, and if that fails too it is not swept at all.

use futures_util::TryStreamExt;
use mongodb::{
    Collection, Database,
    bson::{Bson, DateTime, Document, Timestamp, doc, oid::ObjectId},
    options::Hint,
};
use tracing::{debug, info};

use super::catalog;
use crate::error::{Error, Result, server_code};

/// What the backend can do beyond the portable subset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // one answer each, all independent
pub(super) struct Extensions {
    /// `find` takes a hint.
    pub(super) hint: bool,
    /// `find` walks just a range of the keys of the index in the hint.
    pub(super) key_range: bool,
    /// `delete` takes a hint on `_id`.
    pub(super) delete_hint: bool,
    /// `delete` takes the identity of the collection, and refuses another.
    pub(super) collection_uuid: bool,
    /// `maxTimeMS` is taken.
    pub(super) max_time: bool,
    /// A condition may compare with the server's own clock.
    pub(super) now: bool,
    /// Dates must be asked for by type as well, or other types match too.
    pub(super) demand_type: bool,
    /// Several shards answer, in no order.
    pub(super) sharded: bool,
}

impl Extensions {
    /// Whether a delete can be given an end that the server itself keeps to.
    pub(super) fn ends_in_time(&self) -> bool {
        self.now && self.max_time
    }
}

/// The date the probe's queries ask for.
const CUTOFF: DateTime = DateTime::from_millis(1_000_000_000_000);

/// The scratch documents that `{$lte: CUTOFF}` must find.
const DUE: [i32; 3] = [1, 2, 3];

/// Codes that tell of the server's state, not of the question.
///
/// Source: the retryable errors of MongoDB's driver specifications, and `MaxTimeMSExpired`.
const PASSING: [i32; 13] = [6, 7, 50, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436];

pub(super) async fn run(database: &Database, portable_only: bool) -> Result<Extensions> {
    // A name of its own: probes of several processes must not meet.
    let scratch = database.collection(&format!("ttl_index.probe.{}", ObjectId::new().to_hex()));
    let result = probe(database, &scratch, portable_only).await;
    // Whatever came of it. Not every backend can drop a collection; empty is nearly as good.
    if scratch.drop().await.is_err()
        && let Err(error) = scratch.delete_many(doc! {}).await
    {
        debug!(%error, collection = scratch.name(), "the scratch collection of the probe stays behind");
    }
    let extensions = result?;
    info!(database = database.name(), ?extensions, "probed the backend");
    Ok(extensions)
}

async fn probe(database: &Database, scratch: &Collection<Document>, portable_only: bool) -> Result<Extensions> {
    scratch
        .insert_many(scratch_documents())
        .await
        .map_err(Error::backend("writing the scratch documents of the probe"))?;
    let demand_type = check_comparison(scratch).await?;
    check_conditional_delete(scratch, demand_type).await?;
    if portable_only {
        return Ok(Extensions { demand_type, ..Extensions::default() });
    }
    let hello = database.run_command(doc! { "hello": 1 }).await.map_err(Error::backend("saying hello"))?;
    Ok(Extensions {
        demand_type,
        sharded: hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid"),
        hint: answer(scratch.find(doc! { "_id": 1 }).hint(Hint::Name("_id_".to_owned())).await)?.is_some(),
        key_range: walks_key_range(scratch).await?,
        max_time: takes(database, scratch, doc! {}, doc! { "maxTimeMS": 10_000 }).await?,
        delete_hint: takes(database, scratch, doc! { "hint": { "_id": 1 } }, doc! {}).await?,
        collection_uuid: knows_identity(database, scratch).await?,
        now: compares_with_now(database, scratch).await?,
    })
}

/// Documents of which the first three are due.
fn scratch_documents() -> Vec<Document> {
    let at = |millis: i64| DateTime::from_millis(CUTOFF.timestamp_millis() + millis);
    vec![
        doc! { "_id": 1, "at": at(0) },
        doc! { "_id": 2, "at": at(-1) },
        doc! { "_id": 3, "at": [at(1), at(-1)] },
        doc! { "_id": 4, "at": at(1) },
        doc! { "_id": 5, "at": [at(1)] },
        doc! { "_id": 6, "at": "2000-01-01T00:00:00Z" },
        doc! { "_id": 7, "at": 0 },
        doc! { "_id": 8, "at": 1_i64 },
        doc! { "_id": 9, "at": 0.5 },
        doc! { "_id": 10, "at": Bson::Null },
        doc! { "_id": 11, "at": Timestamp { time: 1, increment: 1 } },
        doc! { "_id": 12, "at": ObjectId::from_bytes([0; 12]) },
        doc! { "_id": 13, "at": false },
        doc! { "_id": 14, "at": { "b": at(-1) } },
        doc! { "_id": 15, "at": [] },
        doc! { "_id": 16 },
        // Demanding the type does not help where another type than the date's matches the comparison.
        doc! { "_id": 17, "at": [at(1), "2000-01-01T00:00:00Z", 0, Bson::Null] },
    ]
}

fn condition(demand_type: bool) -> Document {
    let mut date = doc! { "$lte": CUTOFF };
    if demand_type {
        date.insert("$type", "date");
    }
    date
}

async fn ids(scratch: &Collection<Document>, filter: Document) -> Result<Vec<i32>> {
    let read = || Error::backend("reading the scratch documents of the probe");
    let found: Vec<Document> = scratch.find(filter).await.map_err(read())?.try_collect().await.map_err(read())?;
    let mut ids: Vec<i32> = found.iter().filter_map(|document| document.get_i32("_id").ok()).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Whether the type must be demanded for `$lte` to find just what is due.
async fn check_comparison(scratch: &Collection<Document>) -> Result<bool> {
    let plain = ids(scratch, doc! { "at": condition(false) }).await?;
    if plain == DUE {
        return Ok(false);
    }
    let strict = ids(scratch, doc! { "at": condition(true) }).await?;
    if strict == DUE {
        return Ok(true);
    }
    Err(Error::Unfit(format!(
        "asked for dates up to an instant it found the scratch documents {plain:?}, and with the type demanded \
         {strict:?}, where MongoDB finds {DUE:?}"
    )))
}

/// Whether a delete by `_id` honours the condition beside it.
async fn check_conditional_delete(scratch: &Collection<Document>, demand_type: bool) -> Result<()> {
    let all: Vec<i32> = (1..=17).collect();
    scratch
        .delete_many(doc! { "_id": { "$in": &all }, "at": condition(demand_type) })
        .await
        .map_err(Error::backend("deleting scratch documents of the probe"))?;
    let left = ids(scratch, doc! {}).await?;
    let expected: Vec<i32> = all.into_iter().filter(|id| !DUE.contains(id)).collect();
    if left == expected {
        return Ok(());
    }
    Err(Error::Unfit(format!(
        "a delete by _id with a condition on the date left the scratch documents {left:?}, where MongoDB leaves \
         {expected:?}"
    )))
}

/// Whether a find between two keys finds just what is there.
async fn walks_key_range(scratch: &Collection<Document>) -> Result<bool> {
    let find = scratch.find(doc! {}).hint(Hint::Name("_id_".to_owned())).min(doc! { "_id": 4 }).max(doc! { "_id": 6 });
    let Some(cursor) = answer(find.await)? else { return Ok(false) };
    let found: Vec<Document> = answer(cursor.try_collect().await)?.unwrap_or_default();
    Ok(found.iter().filter_map(|document| document.get_i32("_id").ok()).eq([4, 5]))
}

/// Whether a delete with these additions is carried out.
async fn takes(
    database: &Database,
    scratch: &Collection<Document>,
    statement: Document,
    command: Document,
) -> Result<bool> {
    deletes(database, scratch, doc! {}, statement, command).await
}

/// Whether a delete with this condition is carried out.
async fn takes_if(database: &Database, scratch: &Collection<Document>, condition: Document) -> Result<bool> {
    deletes(database, scratch, condition, doc! {}, doc! {}).await
}

async fn deletes(
    database: &Database,
    scratch: &Collection<Document>,
    condition: Document,
    statement: Document,
    command: Document,
) -> Result<bool> {
    let id = ObjectId::new();
    scratch.insert_one(doc! { "_id": id }).await.map_err(Error::backend("writing a scratch document of the probe"))?;
    let mut query = doc! { "_id": id };
    query.extend(condition);
    let mut delete = doc! { "q": query, "limit": 0 };
    delete.extend(statement);
    let mut whole = doc! { "delete": scratch.name(), "deletes": [delete] };
    whole.extend(command);
    Ok(answer(database.run_command(whole).await)?.is_some_and(|reply| {
        !reply.contains_key("writeErrors") && matches!(reply.get("n"), Some(Bson::Int32(1) | Bson::Int64(1)))
    }))
}

/// The condition that the server's clock shows less than this.
pub(super) fn before(date: DateTime) -> Document {
    doc! { "$lt": ["$$NOW", date] }
}

/// Whether a delete is carried out before an instant of the server's clock, and not after it.
async fn compares_with_now(database: &Database, scratch: &Collection<Document>) -> Result<bool> {
    let with = |date| doc! { "$expr": before(date) };
    Ok(takes_if(database, scratch, with(DateTime::MAX)).await? && !takes_if(database, scratch, with(CUTOFF)).await?)
}

/// Whether a delete that names the identity of another collection is refused, and one that names the right one is not.
async fn knows_identity(database: &Database, scratch: &Collection<Document>) -> Result<bool> {
    let other = mongodb::bson::Uuid::new();
    if takes(database, scratch, doc! {}, doc! { "collectionUUID": other }).await? {
        return Ok(false);
    }
    match catalog::find_collection(database, scratch.name()).await?.as_ref().and_then(catalog::identity) {
        Some(uuid) => takes(database, scratch, doc! {}, doc! { "collectionUUID": uuid }).await,
        None => Ok(false),
    }
}

/// The answer to a question that may be answered with an error; none if it was.
///
/// A lost connection or a server that steps down answers nothing: taken for a no, it would switch the safeguard off for
/// as long as the store lives.
fn answer<T>(outcome: mongodb::error::Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(reply) => Ok(Some(reply)),
        Err(error) if server_code(&error).is_some_and(|code| !PASSING.contains(&code)) => Ok(None),
        Err(error) => Err(Error::backend("trying out what the backend can do")(error)),
    }
}
