//! One pass on MongoDB: finding what is due; [`delete`] deletes it.

mod delete;

use futures_util::{FutureExt, TryStreamExt, future::BoxFuture};
use mongodb::{
    Collection, Cursor, Database,
    bson::{Bson, DateTime, Document, RawBsonRef, RawDocument, RawDocumentBuf, doc},
    options::Hint,
};
use tokio::time::Instant;

use super::{
    STATEMENT_LIMIT,
    answer::{LONG_READ, STATEMENT, answered},
    probe::Extensions,
};
use crate::{
    error::{Code, Error, Result, server_code},
    expiry::Bounds,
    store::{BATCH_BYTES, Deletion, Found, Pass, Position, Target, id_bytes},
};

/// The server forgot the cursor, after ten minutes without a call for instance.
const CURSOR_NOT_FOUND: i32 = 43;

pub(super) struct MongoPass {
    database: Database,
    documents: Collection<RawDocumentBuf>,
    target: Target,
    extensions: Extensions,
    /// Without an index to walk there is one cursor for the whole pass: every `find` anew would read the collection
    /// from its start. So there is where documents are kept, which it would find again.
    cursor: Option<Cursor<RawDocumentBuf>>,
    /// The first document that was found and cannot be named in a query, so that it is passed over.
    unnamable: Option<Error>,
    /// When the collection was last seen to be the one that is meant, where the server does not see to that.
    identified: Option<Instant>,
}

impl MongoPass {
    pub(super) fn new(database: Database, target: Target, extensions: Extensions) -> Self {
        let documents = database.collection(target.collection.as_str());
        Self { database, documents, target, extensions, cursor: None, unnamable: None, identified: None }
    }

    fn bounds(&self, from: Option<DateTime>, until: DateTime) -> Bounds {
        Bounds { from, until, demand_type: self.extensions.demand_type }
    }

    async fn find_next(&mut self, position: &Position, limit: u32) -> Result<Vec<Found>> {
        if position.from().is_some_and(|from| from > self.target.cutoff) {
            return Ok(Vec::new());
        }
        if self.by_cursor() {
            return self.next_of_cursor(position, limit).await;
        }
        // One by one: what comes along with the dates may be large.
        let mut cursor = self.query(position, limit).await?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES
            && let Some(document) = cursor.try_next().await.map_err(self.finding())?
        {
            if let Some(document) = self.found(document) {
                bytes += size(&document);
                found.push(document);
            }
        }
        self.checked(found)
    }

    fn by_cursor(&self) -> bool {
        self.target.index.is_none() || self.target.screened
    }

    /// None if the document cannot be named by its `_id`, and so neither be deleted nor left out of the next find.
    fn found(&mut self, document: RawDocumentBuf) -> Option<Found> {
        match named_by(&document) {
            Ok(id) => {
                let dates = self.target.rule.expiring_dates(&document);
                Some(Found { id, dates, whole: self.target.reading.reads_whole().then_some(document) })
            }
            Err(why) => {
                let collection = &self.target.collection;
                let error = Error::Unreadable(format!(
                    "a document of {collection} that may be due is passed over, as no query can name it: {why}"
                ));
                self.unnamable.get_or_insert(error);
                None
            }
        }
    }

    /// What was passed over is told once nothing else is found: it shall not hold up the others.
    fn checked(&mut self, found: Vec<Found>) -> Result<Vec<Found>> {
        match self.unnamable.take_if(|_| found.is_empty()) {
            Some(error) => Err(error),
            None => Ok(found),
        }
    }

    fn finding(&self) -> impl FnOnce(mongodb::error::Error) -> Error + use<> {
        Error::backend(format!("finding what is due in {}", self.target.collection))
    }

    async fn query(&mut self, position: &Position, limit: u32) -> Result<Cursor<RawDocumentBuf>> {
        let walk_range = self.walks_range();
        // A range of keys makes the lower bound needless.
        let from = position.from().filter(|_| !walk_range);
        let filter = self.target.rule.find_filter(self.bounds(from, self.target.cutoff), &position.except());
        let mut find = self.documents.find(filter).batch_size(limit);
        if !self.target.reading.reads_whole() {
            find = find.projection(self.target.rule.projection());
        }
        // No sort: the index yields its order anyway, and once one document makes the index multikey a sort would read
        // the whole backlog for every batch.
        if let Some(index) = &self.target.index {
            if !self.by_cursor() {
                find = find.limit(limit.into());
            }
            if self.extensions.hint {
                find = find.hint(Hint::Name(index.name.clone()));
            }
            if walk_range {
                let (first, last) = self.key_range(position.from());
                find = find.min(first).max(last);
            }
            if self.extensions.max_time && !self.by_cursor() {
                find = find.max_time(STATEMENT_LIMIT);
            }
        }
        // Reading a whole collection may take as long as it takes: cut off, no pass would ever get further.
        find.await.map_err(self.finding())
    }

    /// Whether the server can be told to walk just the keys between two dates.
    ///
    /// Left to choose, it reads the whole index where the partial filter has alternatives for the date itself, or walks
    /// it once for each of them, which is not in order; and of the two bounds of a batch it takes one, by trial, once a
    /// document with an array makes the index multikey.
    fn walks_range(&self) -> bool {
        let ascending = self.target.index.as_ref().is_some_and(|index| {
            index.key.iter().next().is_some_and(|(_, direction)| {
                matches!(direction, Bson::Int32(1) | Bson::Int64(1)) || *direction == Bson::Double(1.0)
            })
        });
        ascending && self.extensions.key_range && self.target.cutoff < DateTime::MAX
    }

    /// The first key to walk, and the one to stop before.
    fn key_range(&self, from: Option<DateTime>) -> (Document, Document) {
        let field = self.target.rule.field().as_str();
        let key = |date: DateTime| [(field.to_owned(), Bson::DateTime(date))].into_iter().collect();
        let end = DateTime::from_millis(self.target.cutoff.timestamp_millis().saturating_add(1));
        (key(from.unwrap_or(DateTime::MIN)), key(end))
    }

    async fn next_of_cursor(&mut self, position: &Position, limit: u32) -> Result<Vec<Found>> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        let mut reopened = false;
        while found.len() < limit as usize && bytes < BATCH_BYTES {
            if self.cursor.is_none() {
                self.cursor = Some(self.query(position, limit).await?);
            }
            let Some(cursor) = &mut self.cursor else { break };
            match cursor.try_next().await {
                Ok(Some(document)) => {
                    if let Some(document) = self.found(document) {
                        bytes += size(&document);
                        found.push(document);
                    }
                }
                Ok(None) => break,
                Err(error) if server_code(&error) == Some(CURSOR_NOT_FOUND) && !reopened => {
                    reopened = true;
                    (found, bytes) = (Vec::new(), 0);
                    self.cursor = None;
                }
                Err(error) => return Err(self.finding()(error)),
            }
        }
        self.checked(found)
    }
}

/// How much of a statement that names it, and of memory, a document takes.
fn size(found: &Found) -> usize {
    found.whole.as_ref().map_or_else(|| id_bytes(&found.id).len(), |document| document.as_bytes().len())
}

/// The `_id`, if it can be written exactly as it was read.
fn named_by(document: &RawDocument) -> Result<Bson, String> {
    let raw = document.get("_id").map_err(|error| error.to_string())?.ok_or("it has no _id")?;
    let id = Bson::try_from(raw).map_err(|error| format!("its _id cannot be read: {error}"))?;
    let differs = |written: &Document, read: &RawDocument| {
        let mut bytes = Vec::new();
        written.to_writer(&mut bytes).is_err() || bytes != read.as_bytes()
    };
    let lost = match (&id, raw) {
        (Bson::Document(id), RawBsonRef::Document(raw)) => differs(id, raw),
        (Bson::JavaScriptCodeWithScope(id), RawBsonRef::JavaScriptCodeWithScope(raw)) => differs(&id.scope, raw.scope),
        _ => false,
    };
    if lost { Err(format!("its _id, read as {id}, has a field name twice or irregular bytes")) } else { Ok(id) }
}

impl Pass for MongoPass {
    fn find<'a>(&'a mut self, position: &'a Position, limit: u32) -> BoxFuture<'a, Result<Vec<Found>>> {
        // Elsewhere it may read the whole collection.
        let limited = !self.by_cursor() && self.extensions.max_time;
        answered(if limited { STATEMENT } else { LONG_READ }, self.find_next(position, limit))
    }

    fn ordered(&self) -> bool {
        // Several shards answer in any order.
        self.walks_range() && !self.extensions.sharded && !self.by_cursor()
    }

    fn reads_ahead(&self) -> bool {
        // What the server sent with the last reply is not asked for again.
        self.by_cursor()
    }

    fn without_index(&mut self, after: &Error) -> bool {
        // The hint was refused: the index is gone, or hidden, or not built yet.
        after.code() == Some(Code::BadValue.number()) && self.target.index.take().is_some()
    }

    fn delete<'a>(&'a mut self, doomed: &'a [Found], until: DateTime) -> BoxFuture<'a, Result<Deletion>> {
        self.delete_still_due(doomed, until).boxed()
    }

    fn unrepeatable(&self, found: &Found) -> Option<String> {
        delete::repeated(found).err()
    }

    fn read_again(&mut self, ids: Vec<Bson>) -> BoxFuture<'_, Result<Vec<RawDocumentBuf>>> {
        answered(STATEMENT, async move {
            let read = || Error::backend(format!("reading documents of {} again", self.target.collection));
            let mut find = self.documents.find(doc! { "_id": { "$in": ids } });
            if !self.target.reading.reads_whole() {
                find = find.projection(self.target.rule.projection());
            }
            find.await.map_err(read())?.try_collect().await.map_err(read())
        })
    }
}
