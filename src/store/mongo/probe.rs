//! What a backend can do, found out on a scratch collection before the first deletion.
//!
//! Two of three look-alike servers tried match strings, numbers or null with `{$lte: date}`; a sweep that trusted them
//! would delete live documents. So the comparison itself is put to the test: a backend that fails it gets the stricter
//! query, and if that fails too it is not swept at all.

use futures_util::TryStreamExt;
use mongodb::{
    Collection, Database,
    bson::{Bson, DateTime, Document, Timestamp, Uuid, doc, oid::ObjectId},
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
    /// A delete may demand that the document is the same, field by field, as one that is handed over.
    pub(super) exact: bool,
    /// Several shards answer, in no order.
    pub(super) sharded: bool,
}

/// One collection for all probes, which stays: so a role can name it, and need not allow to make or drop any other.
const COLLECTION: &str = "ttl_index.probe";

/// The documents of one probe, among those of others.
struct Scratch {
    collection: Collection<Document>,
    /// In the field `probe` of its documents, and where the numbers begin that are their `_id`s.
    probe: i64,
}

impl Scratch {
    fn new(database: &Database) -> Self {
        // Random, as probes of several processes must not meet; below what a double holds, as some backends keep one.
        let probe = Uuid::new().bytes()[..5].iter().fold(0, |number: i64, byte| number << 8 | i64::from(*byte)) << 8;
        Self { collection: database.collection(COLLECTION), probe }
    }

    fn id(&self, number: i32) -> i64 {
        self.probe + i64::from(number)
    }

    fn number(&self, document: &Document) -> Option<i32> {
        i32::try_from(document.get_i64("_id").ok()? - self.probe).ok()
    }

    /// Only its own.
    fn filter(&self, filter: Document) -> Document {
        let mut own = doc! { "probe": self.probe };
        own.extend(filter);
        own
    }
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

/// Codes that tell of the server's state or of the user's rights, not of the question.
///
/// Source: the retryable errors of MongoDB's driver specifications, `MaxTimeMSExpired` and `Unauthorized`.
const PASSING: [i32; 14] = [6, 7, 13, 50, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436];

pub(super) async fn run(database: &Database, portable_only: bool) -> Result<Extensions> {
    let scratch = Scratch::new(database);
    let result = probe(database, &scratch, portable_only).await;
    let cleaning = async move {
        if let Err(error) = scratch.collection.delete_many(scratch.filter(doc! {})).await {
            debug!(%error, collection = COLLECTION, "the scratch documents of the probe stay behind");
        }
    };
    // Whatever came of it; but nobody waits for that where the server is in trouble.
    if matches!(result, Err(Error::Backend { .. })) {
        tokio::spawn(cleaning);
    } else {
        cleaning.await;
    }
    let extensions = result?;
    info!(database = database.name(), ?extensions, "probed the backend");
    Ok(extensions)
}

/// What a count needs to know, without writing anything. What is counted decides about no document.
pub(super) async fn assume(database: &Database, portable_only: bool) -> Result<Extensions> {
    if portable_only {
        return Ok(Extensions { demand_type: true, ..Extensions::default() });
    }
    Ok(Extensions { hint: true, max_time: true, sharded: is_sharded(database).await?, ..Extensions::default() })
}

async fn is_sharded(database: &Database) -> Result<bool> {
    let hello = database.run_command(doc! { "hello": 1 }).await.map_err(Error::backend("saying hello"))?;
    Ok(hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid"))
}

async fn probe(database: &Database, scratch: &Scratch, portable_only: bool) -> Result<Extensions> {
    scratch
        .collection
        .insert_many(scratch_documents().into_iter().zip(1..).map(|(mut document, number)| {
            document.extend(doc! { "_id": scratch.id(number), "probe": scratch.probe });
            document
        }))
        .await
        .map_err(Error::backend("writing the scratch documents of the probe"))?;
    let demand_type = check_comparison(scratch).await?;
    check_conditional_delete(scratch, demand_type).await?;
    if portable_only {
        return Ok(Extensions { demand_type, ..Extensions::default() });
    }
    Ok(Extensions {
        demand_type,
        sharded: is_sharded(database).await?,
        hint: answer(scratch.collection.find(doc! { "_id": scratch.id(1) }).hint(Hint::Name("_id_".to_owned())).await)?
            .is_some(),
        key_range: walks_key_range(scratch).await?,
        max_time: takes(database, scratch, doc! {}, doc! { "maxTimeMS": 10_000 }).await?,
        delete_hint: takes(database, scratch, doc! { "hint": { "_id": 1 } }, doc! {}).await?,
        collection_uuid: knows_identity(database, scratch).await?,
        now: compares_with_now(database, scratch).await?,
        exact: tells_versions_apart(database, scratch).await?,
    })
}

/// Documents of which the first three are due; numbered from 1 on.
fn scratch_documents() -> Vec<Document> {
    let at = |millis: i64| DateTime::from_millis(CUTOFF.timestamp_millis() + millis);
    vec![
        doc! { "at": at(0) },
        doc! { "at": at(-1) },
        doc! { "at": [at(1), at(-1)] },
        doc! { "at": at(1) },
        doc! { "at": [at(1)] },
        doc! { "at": "2000-01-01T00:00:00Z" },
        doc! { "at": 0 },
        doc! { "at": 1_i64 },
        doc! { "at": 0.5 },
        doc! { "at": Bson::Null },
        doc! { "at": Timestamp { time: 1, increment: 1 } },
        doc! { "at": ObjectId::from_bytes([0; 12]) },
        doc! { "at": false },
        doc! { "at": { "b": at(-1) } },
        doc! { "at": [] },
        doc! {},
        // Demanding the type does not help where another type than the date's matches the comparison.
        doc! { "at": [at(1), "2000-01-01T00:00:00Z", 0, Bson::Null] },
    ]
}

fn condition(demand_type: bool) -> Document {
    let mut date = doc! { "$lte": CUTOFF };
    if demand_type {
        date.insert("$type", "date");
    }
    date
}

async fn ids(scratch: &Scratch, filter: Document) -> Result<Vec<i32>> {
    let read = || Error::backend("reading the scratch documents of the probe");
    let found: Vec<Document> = {
        let found = scratch.collection.find(scratch.filter(filter)).await.map_err(read())?;
        found.try_collect().await.map_err(read())?
    };
    let mut ids: Vec<i32> = found.iter().filter_map(|document| scratch.number(document)).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Whether the type must be demanded for `$lte` to find just what is due.
async fn check_comparison(scratch: &Scratch) -> Result<bool> {
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
async fn check_conditional_delete(scratch: &Scratch, demand_type: bool) -> Result<()> {
    let all: Vec<i32> = (1..=17).collect();
    let ids_of_all: Vec<i64> = all.iter().map(|number| scratch.id(*number)).collect();
    scratch
        .collection
        .delete_many(doc! { "_id": { "$in": ids_of_all }, "at": condition(demand_type) })
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
async fn walks_key_range(scratch: &Scratch) -> Result<bool> {
    let key = |number| doc! { "_id": scratch.id(number) };
    let find = scratch.collection.find(doc! {}).hint(Hint::Name("_id_".to_owned())).min(key(4)).max(key(6));
    let Some(cursor) = answer(find.await)? else { return Ok(false) };
    let found: Vec<Document> = answer(cursor.try_collect().await)?.unwrap_or_default();
    Ok(found.iter().filter_map(|document| scratch.number(document)).eq([4, 5]))
}

/// Whether a delete with these additions is carried out.
async fn takes(database: &Database, scratch: &Scratch, statement: Document, command: Document) -> Result<bool> {
    deletes(database, scratch, doc! {}, statement, command).await
}

/// Whether a delete with this condition is carried out.
async fn takes_if(database: &Database, scratch: &Scratch, condition: Document) -> Result<bool> {
    deletes(database, scratch, condition, doc! {}, doc! {}).await
}

async fn deletes(
    database: &Database,
    scratch: &Scratch,
    condition: Document,
    statement: Document,
    command: Document,
) -> Result<bool> {
    let id = ObjectId::new();
    let document = doc! { "_id": id, "probe": scratch.probe };
    scratch.collection.insert_one(document).await.map_err(Error::backend("writing a scratch document of the probe"))?;
    let mut query = doc! { "_id": id };
    query.extend(condition);
    let mut delete = doc! { "q": query, "limit": 0 };
    delete.extend(statement);
    let mut whole = doc! { "delete": COLLECTION, "deletes": [delete] };
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
async fn compares_with_now(database: &Database, scratch: &Scratch) -> Result<bool> {
    let with = |date| doc! { "$expr": before(date) };
    Ok(takes_if(database, scratch, with(DateTime::MAX)).await? && !takes_if(database, scratch, with(CUTOFF)).await?)
}

/// The condition that a document is the same as this one, but for the types of its numbers.
pub(super) fn is_version(document: Document) -> Document {
    doc! { "$eq": ["$$ROOT", { "$literal": document }] }
}

/// Whether a delete takes a document that is as it says, and none with a field that differs, is missing, or stands elsewhere.
async fn tells_versions_apart(database: &Database, scratch: &Scratch) -> Result<bool> {
    let id = ObjectId::new();
    let version = doc! { "_id": id, "probe": scratch.probe, "word": "a", "list": [1, { "x": Bson::Null }] };
    let stored = scratch.collection.insert_one(&version).await;
    stored.map_err(Error::backend("writing a scratch document of the probe"))?;
    let mut others = vec![version.clone(); 5];
    others[0].insert("word", "A");
    others[1].insert("more", 1);
    others[2].remove("word");
    others[3].insert("list", vec![Bson::Int32(1), doc! {}.into()]);
    let word = others[4].remove("word");
    others[4].extend(word.map(|word| ("word".to_owned(), word)));
    for (document, deleted) in others.into_iter().map(|other| (other, 0)).chain([(version, 1)]) {
        let query = doc! { "_id": id, "$expr": { "$and": [is_version(document)] } };
        let statement = doc! { "q": query, "limit": 1, "collation": { "locale": "simple" } };
        let command = doc! { "delete": COLLECTION, "deletes": [statement] };
        let Some(reply) = answer(database.run_command(command).await)? else { return Ok(false) };
        let counts = [Bson::Int32(deleted), Bson::Int64(deleted.into())];
        if reply.contains_key("writeErrors") || !reply.get("n").is_some_and(|n| counts.contains(n)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a delete that names the identity of another collection is refused, and one that names the right one is not.
async fn knows_identity(database: &Database, scratch: &Scratch) -> Result<bool> {
    let other = Uuid::new();
    if takes(database, scratch, doc! {}, doc! { "collectionUUID": other }).await? {
        return Ok(false);
    }
    match catalog::find_collection(database, COLLECTION).await?.as_ref().and_then(catalog::identity) {
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
