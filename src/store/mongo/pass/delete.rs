//! The conditional delete, and what its reply says.

use std::{future::IntoFuture, time::Duration};

use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::{
    super::{
        UNBOUNDED,
        answer::{ANSWER, answered, answered_by},
        catalog,
        probe::{before, is_version},
        registry,
    },
    MongoPass,
};
use crate::{
    entry::Entry,
    error::{Code, Error, Refusal, Result, server_code},
    store::{BATCH_BYTES, Deletion, Found, Reading, Statement},
};

/// Codes that say that the server gave up on a statement in the middle, for want of time or because of a conflict.
const GAVE_UP: [i32; 3] = [
    50,  // MaxTimeMSExpired
    112, // WriteConflict
    262, // ExceededTimeLimit
];

/// How long the server may work on a whole batch, and on a piece of one that it gave up on: many times what it takes, and
/// little enough to be lost on a document that cannot be had. To each is added something for every document.
const FIRST_TRY: Duration = Duration::from_secs(1);
const LATER_TRY: Duration = Duration::from_millis(200);
const A_DOCUMENT: Duration = Duration::from_millis(2);

/// How many bytes a statement has that deletes a document exactly, besides that document, and how many there may be in a command:
/// far from what a server takes in bytes and statements.
const AROUND_A_DOCUMENT: usize = 512;
const MOST_STATEMENTS: usize = 1_000;

/// How long a reply is waited for once the statement has no effect any more: reading the documents again tells as much.
const ON_ITS_WAY_BACK: Duration = Duration::from_secs(5);

/// How long a batch may be tried in smaller and smaller pieces. What is not deleted then stays behind.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a collection that was seen to be the one that is meant is taken for that.
const IDENTIFIED_FOR: Duration = Duration::from_secs(1);

/// What a reply says.
#[derive(Debug)]
enum Reply {
    /// So many were deleted.
    Deleted(u64),
    /// So many were deleted for certain, and perhaps more, when the server gave up.
    GaveUp(u64, Error),
    /// Nothing was deleted.
    Refused(Refusal),
    /// Some may have been deleted, or the deletions may not last.
    Unclear(Error),
}

impl MongoPass {
    /// Deletes the batch with one statement if that goes well.
    ///
    /// A document that somebody's open transaction has changed holds up the statement until its time is over. The batch is
    /// then halved again and again, so that the others go and only that one stays behind.
    pub(super) async fn delete_still_due(&mut self, doomed: &[Found], until: DateTime) -> Result<Deletion> {
        if let Some(refusal) = self.check_identity().await? {
            return Ok(Deletion::Refused(refusal));
        }
        let began = Instant::now();
        let mut pieces = if self.exact() { pieces_by_size(doomed) } else { vec![doomed] };
        let (mut deleted, mut gave_up) = (0, None);
        while let Some(piece) = pieces.pop() {
            if gave_up.is_some() {
                match self.in_force().await {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => return Ok(Deletion::Uncertain(error)),
                }
            }
            let patience = if gave_up.is_none() { FIRST_TRY } else { LATER_TRY };
            let documents = u32::try_from(piece.len()).unwrap_or(u32::MAX);
            let Some(fence) = self.target.fence.statement(patience + A_DOCUMENT.saturating_mul(documents)) else {
                return Ok(Deletion::Fenced(deleted));
            };
            let settled = self.settled(&fence);
            let before = self.target.fence.sending(settled);
            let mut reply = self.delete_piece(piece, until, &fence, settled, self.exact()).await;
            if let Reply::GaveUp(0, error) = &reply
                && (piece.len() == 1 && self.exact() && self.date_suffices() && error.is_lasting())
            {
                reply = self.delete_piece(piece, until, &fence, settled, false).await;
            }
            if !matches!(reply, Reply::Unclear(_)) {
                self.target.fence.settled(before);
            }
            match reply {
                Reply::Deleted(count) => deleted += count,
                Reply::GaveUp(count, error) => {
                    debug!(collection = %self.target.collection, documents = piece.len(), %error, "delete given up");
                    deleted += count;
                    gave_up = Some(error);
                    if piece.len() > 1 {
                        let (first, second) = piece.split_at(piece.len() / 2);
                        pieces.extend([second, first]);
                    }
                }
                Reply::Refused(refusal) if deleted == 0 && gave_up.is_none() => return Ok(Deletion::Refused(refusal)),
                Reply::Refused(refusal) => return Ok(Deletion::Uncertain(refusal.into())),
                Reply::Unclear(error) => return Ok(Deletion::Uncertain(error)),
            }
            if gave_up.is_some() && began.elapsed() >= PATIENCE {
                break;
            }
        }
        Ok(match gave_up {
            None => Deletion::Done(deleted),
            Some(error) => Deletion::InPart(deleted, error),
        })
    }

    /// Refuses another collection than the one that is meant, where the backend gives identities and deletes without looking
    /// at them. Collections are listed for that, so not for every batch.
    async fn check_identity(&mut self) -> Result<Option<Refusal>> {
        let Some(meant) = self.target.uuid.as_ref().filter(|_| !self.extensions.collection_uuid) else {
            return Ok(None);
        };
        if self.identified.is_some_and(|at| at.elapsed() < IDENTIFIED_FOR) {
            return Ok(None);
        }
        let at = Instant::now();
        let collection = self.target.collection.as_str();
        let found = answered(ANSWER, catalog::find_collection(&self.database, collection)).await?;
        // One that is gone has nothing to lose.
        if let Some(found) = found.as_ref().and_then(catalog::identity)
            && found != *meant
        {
            return Ok(Some(another_collection(collection)));
        }
        self.identified = Some(at);
        Ok(None)
    }

    /// Whether the rule still holds. As much time can pass between two pieces as between two batches.
    async fn in_force(&mut self) -> Result<bool> {
        let registry = answered(ANSWER, registry::load(&self.database)).await?.unwrap_or_default();
        let entries = registry.get_array("indexes").map(Vec::as_slice).unwrap_or_default();
        let mut understood = entries.iter().filter_map(|entry| Entry::parse(entry.as_document()?).ok());
        Ok(understood.any(|entry| entry.id == self.target.entry && entry.rule.same_as(&self.target.rule)))
    }

    fn exact(&self) -> bool {
        self.target.reading.compares() && self.extensions.exact
    }

    /// Whether a document that cannot be compared is deleted by its date alone.
    fn date_suffices(&self) -> bool {
        self.target.reading != Reading::Exact
    }

    /// Has the server read by `_id` what was asked for, and nothing else, whatever the dates.
    fn hinted(&self, mut statement: Document) -> Document {
        if self.extensions.delete_hint {
            statement.insert("hint", doc! { "_id": 1 });
        }
        statement
    }

    /// Deletes a document that is still as it was read.
    fn exact_statement(&self, found: &Found, until: DateTime, fenced: Option<&Document>) -> Result<Document> {
        let mut query = self.target.rule.delete_filter(self.bounds(None, until), vec![found.id.clone()]);
        // Nor may a document that is only looked for by its version cost a walk through the collection.
        let walks = self.target.collated && self.target.index.is_none() && holds_strings(&found.id);
        let version = match repeated(found) {
            Ok(whole) if !(walks && self.date_suffices()) => Some(is_version(whole)),
            Err(why) if !self.date_suffices() => {
                return Err(Error::Unreadable(format!("document {}: {why}", found.id)));
            }
            _ => None,
        };
        let Some(version) = version else {
            query.extend(fenced.map(|fenced| ("$expr".to_owned(), fenced.clone().into())));
            return Ok(self.hinted(doc! { "q": query, "limit": 1 }));
        };
        let mut conditions = vec![version];
        conditions.extend(fenced.cloned());
        query.insert("$expr", doc! { "$and": conditions });
        let mut statement = doc! { "limit": 1, "collation": { "locale": "simple" } };
        match (&self.target.index, found.dates) {
            // Where strings are compared by a collation the index on _id is of no use to a statement that does not.
            (Some(index), Some(dates)) if self.target.collated && holds_strings(&found.id) => {
                query.insert(self.target.rule.field().as_str(), doc! { "$eq": dates.earliest });
                statement.insert("q", query);
                if self.extensions.delete_hint {
                    statement.insert("hint", index.name.clone());
                }
                Ok(statement)
            }
            _ => {
                statement.insert("q", query);
                Ok(self.hinted(statement))
            }
        }
    }

    /// From when on a statement has no effect any more, if no reply says what it has done.
    fn settled(&self, fence: &Statement) -> Instant {
        if self.extensions.ends_in_time() { fence.settled } else { Instant::now() + UNBOUNDED }
    }

    async fn delete_piece(
        &mut self,
        piece: &[Found],
        until: DateTime,
        fence: &Statement,
        settled: Instant,
        exact: bool,
    ) -> Reply {
        let fenced = fence.before.filter(|_| self.extensions.now).map(before);
        let statements = if exact {
            piece.iter().map(|found| self.exact_statement(found, until, fenced.as_ref())).collect::<Result<Vec<_>>>()
        } else {
            let ids = piece.iter().map(|found| found.id.clone()).collect();
            let mut query = self.target.rule.delete_filter(self.bounds(None, until), ids);
            query.extend(fenced.map(|fenced| ("$expr".to_owned(), fenced.into())));
            Ok(vec![self.hinted(doc! { "q": query, "limit": 0 })])
        };
        let statements = match statements {
            Ok(statements) => statements,
            Err(error) => return Reply::GaveUp(0, error),
        };
        let mut command = doc! {
            "delete": self.target.collection.as_str(),
            "deletes": statements,
            "ordered": true,
            // A sweep can never outrun replication.
            "writeConcern": { "w": "majority" },
        };
        if self.extensions.max_time {
            command.insert("maxTimeMS", i64::try_from(fence.limit.as_millis()).unwrap_or(i64::MAX));
        }
        if self.extensions.collection_uuid
            && let Some(uuid) = &self.target.uuid
        {
            command.insert("collectionUUID", uuid.clone());
        }
        let failed = Error::backend(format!("deleting what is due in {}", self.target.collection));
        match answered_by(settled + ON_ITS_WAY_BACK, self.database.run_command(command).into_future()).await {
            Ok(reply) => judge(&reply, self.target.collection.as_str()),
            Err(error) => {
                let code = server_code(&error);
                let error = failed(error);
                // One document can be too large or too deep for a statement that repeats it: the others do not stay for it.
                let unspeakable = exact && error.is_lasting();
                if unspeakable || code.is_some_and(|code| GAVE_UP.contains(&code)) {
                    return Reply::GaveUp(0, error);
                }
                // Even an error the server answered with may follow on some deletions.
                if code.is_none() {
                    // Without an answer it may be at it until its time is over: what goes then must not be taken for left.
                    let bounded = self.extensions.ends_in_time();
                    sleep_until(if bounded { settled } else { Instant::now() + fence.limit }).await;
                }
                Reply::Unclear(error)
            }
        }
    }
}

/// Whether a collation may take another value for the same.
fn holds_strings(id: &Bson) -> bool {
    matches!(id, Bson::String(_) | Bson::Symbol(_) | Bson::Document(_))
}

/// The document as a statement repeats it.
///
/// # Errors
///
/// In words, if that would be another one.
pub(super) fn repeated(found: &Found) -> Result<Document, String> {
    let whole = found.whole.as_ref().ok_or("it was not read whole")?;
    let document = Document::try_from(&**whole).map_err(|error| format!("it cannot be read: {error}"))?;
    match RawDocumentBuf::try_from(&document) {
        Ok(again) if again.as_bytes() == whole.as_bytes() => Ok(document),
        _ => Err("no statement can repeat it: it has a field name twice, or irregular bytes".to_owned()),
    }
}

/// Cut where the documents in them, and what is said of each, become too much for one statement.
fn pieces_by_size(doomed: &[Found]) -> Vec<&[Found]> {
    let (mut pieces, mut begins, mut bytes) = (Vec::new(), 0, 0);
    for (at, found) in doomed.iter().enumerate() {
        let more = AROUND_A_DOCUMENT + found.whole.as_ref().map_or(0, |document| document.as_bytes().len());
        if at > begins && (bytes + more > BATCH_BYTES || at - begins == MOST_STATEMENTS) {
            pieces.push(&doomed[begins..at]);
            (begins, bytes) = (at, 0);
        }
        bytes += more;
    }
    pieces.push(&doomed[begins..]);
    // The last is taken first.
    pieces.reverse();
    pieces
}

fn another_collection(collection: &str) -> Refusal {
    let why = format!(
        "{collection} is not the collection that the pass began with: it was dropped, or another was made or renamed in \
         its place meanwhile; nothing more is deleted"
    );
    Refusal::new(Code::CollectionUuidMismatch, why)
}

fn judge(reply: &Document, collection: &str) -> Reply {
    let codes: Vec<i32> = reply
        .get_array("writeErrors")
        .map(|errors| errors.iter().filter_map(|error| error.as_document()?.get_i32("code").ok()).collect())
        .unwrap_or_default();
    if codes.contains(&Code::CollectionUuidMismatch.number()) {
        return Reply::Refused(another_collection(collection));
    }
    let trouble = |meaning: &str, field: &str| Error::Backend {
        action: format!("deleting what is due in {collection}"),
        source: mongodb::error::Error::custom(format!("{meaning}: {}", reply.get(field).unwrap_or(&Bson::Null))),
    };
    if reply.contains_key("writeConcernError") {
        let meaning = "the deletions were not acknowledged by a majority";
        return Reply::Unclear(trouble(meaning, "writeConcernError"));
    }
    let count = match reply.get("n") {
        Some(Bson::Int32(n)) => u64::try_from(*n).ok(),
        Some(Bson::Int64(n)) => u64::try_from(*n).ok(),
        _ => None,
    };
    let failed = reply.contains_key("writeErrors").then(|| trouble("some deletions failed", "writeErrors"));
    match (count, failed) {
        (Some(count), None) => Reply::Deleted(count),
        (Some(count), Some(error)) if !codes.is_empty() && codes.iter().all(|code| GAVE_UP.contains(code)) => {
            Reply::GaveUp(count, error)
        }
        (_, Some(error)) => Reply::Unclear(error),
        (None, None) => Reply::Unclear(Error::Unreadable(format!(
            "the reply to a delete in {collection} has no readable count: {reply}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_deletes_are_cut_by_their_number_and_their_bytes() {
        let lengths = |count: i32, text: usize| {
            let whole = RawDocumentBuf::try_from(&doc! { "a": "x".repeat(text) }).unwrap();
            let found = |id: i32| Found { id: id.into(), dates: None, whole: Some(whole.clone()) };
            let doomed: Vec<Found> = (0..count).map(found).collect();
            let pieces = pieces_by_size(&doomed);
            let ids = pieces.iter().rev().flat_map(|piece| piece.iter().map(|found| found.id.as_i32().unwrap()));
            assert!(ids.eq(0..count));
            pieces.iter().rev().map(|piece| piece.len()).collect::<Vec<_>>()
        };
        assert_eq!(lengths(1, 0), [1]);
        assert_eq!(lengths(2_001, 0), [1_000, 1_000, 1]);
        assert_eq!(lengths(3, BATCH_BYTES), [1, 1, 1]);
        // Together the documents are no more than what a statement can name of them, and with what is around them they are.
        assert_eq!(lengths(4, BATCH_BYTES / 4 - 20), [3, 1]);
    }

    #[test]
    fn a_reply_is_a_count_only_if_nothing_speaks_against_it() {
        let judged = |reply: Document| judge(&reply, "c");
        assert!(matches!(judged(doc! { "n": 5, "ok": 1.0 }), Reply::Deleted(5)));
        assert!(matches!(judged(doc! { "n": 5_i64, "ok": 1.0 }), Reply::Deleted(5)));
        for unclear in [
            doc! { "ok": 1.0 },
            doc! { "n": -1, "ok": 1.0 },
            doc! { "n": 5.0, "ok": 1.0 },
            doc! { "n": 5, "writeConcernError": { "code": 64 }, "ok": 1.0 },
            doc! { "n": 5, "writeConcernError": { "code": 50 }, "ok": 1.0 },
            doc! { "n": 5, "writeErrors": [{ "code": 8 }], "ok": 1.0 },
            doc! { "n": 5, "writeErrors": [{ "code": 50 }, { "code": 8 }], "ok": 1.0 },
            doc! { "n": 5, "writeErrors": [], "ok": 1.0 },
            doc! { "n": 5, "writeErrors": "?", "ok": 1.0 },
        ] {
            let text = unclear.to_string();
            assert!(matches!(judged(unclear), Reply::Unclear(_)), "{text}");
        }
        assert!(matches!(judged(doc! { "n": 5, "writeErrors": [{ "code": 50 }] }), Reply::GaveUp(5, _)));
        assert!(matches!(judged(doc! { "n": 0, "writeErrors": [{ "code": 361 }] }), Reply::Refused(_)));
    }
}
