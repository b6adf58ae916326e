//! Moving dates on, so that documents expire later.

use futures_util::{TryFutureExt, TryStreamExt};
use mongodb::{
    Collection, Database,
    bson::{Bson, DateTime, Document, RawBsonRef, RawDocument, RawDocumentBuf, doc},
    options::{CollectionOptions, WriteConcern},
};

use super::answer::{STATEMENT, answered};
use crate::{
    error::{Error, Result},
    expiry::{PartialFilter, Raised, Rule},
    namespace::CollectionName,
    store::Touched,
};

/// How many documents one statement names.
const CHUNK: usize = 1000;

pub(super) async fn touch(
    database: &Database,
    collection: &CollectionName,
    rule: &Rule,
    ids: Vec<Bson>,
    until: DateTime,
) -> Result<Touched> {
    // A touch that is rolled back would be a lost document later.
    let options = CollectionOptions::builder().write_concern(WriteConcern::majority()).build();
    let touching = Touching { documents: database.collection_with_options(collection.as_str(), options), rule, until };
    let mut touched = Touched::default();
    for chunk in ids.chunks(CHUNK) {
        let touching = touching.touch(chunk).map_err(|error| match error {
            Failed::Driver(source) => Error::backend(format!("moving the dates of documents of {collection}"))(source),
            Failed::Other(error) => error,
        });
        let of_chunk = answered(STATEMENT, touching).await?;
        touched.moved += of_chunk.moved;
        touched.later += of_chunk.later;
        touched.never += of_chunk.never;
        touched.missing += of_chunk.missing;
    }
    Ok(touched)
}

struct Touching<'a> {
    documents: Collection<RawDocumentBuf>,
    rule: &'a Rule,
    until: DateTime,
}

enum Failed {
    Driver(mongodb::error::Error),
    Other(Error),
}

impl From<mongodb::error::Error> for Failed {
    fn from(error: mongodb::error::Error) -> Self {
        Failed::Driver(error)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed::Other(error)
    }
}

impl Touching<'_> {
    async fn touch(&self, ids: &[Bson]) -> Result<Touched, Failed> {
        let (all, moved) = (ids.len() as u64, self.move_plain(ids).await?);
        let mut touched = Touched { moved, ..Touched::default() };
        if moved >= all {
            return Ok(touched);
        }
        let documents = self.find(ids).await?;
        touched.missing = all.saturating_sub(documents.len() as u64);
        let mut later = 0;
        for document in documents {
            match self.move_one(document).await? {
                Fate::Moved => touched.moved += 1,
                Fate::Later => later += 1,
                Fate::Never => touched.never += 1,
                Fate::Missing => touched.missing += 1,
            }
        }
        // Those that were moved at first are late enough by now.
        touched.later = u64::saturating_sub(later, moved);
        Ok(touched)
    }

    /// Moves those whose field is a date, in one statement. An array, there or on the way, is left alone.
    async fn move_plain(&self, ids: &[Bson]) -> Result<u64, Failed> {
        let Some(date) = self.rule.cutoff(self.until) else { return Ok(0) };
        let field = self.rule.field();
        let mut filter = doc! { "_id": { "$in": ids } };
        filter.insert(field.as_str(), doc! { "$lt": date, "$type": "date" });
        let prefix = |length| field.parts()[..length].join(".");
        let arrays = (1..=field.parts().len()).map(|length| [(prefix(length), doc! { "$type": "array" }.into())]);
        let arrays: Vec<Document> = arrays.map(|array| array.into_iter().collect()).collect();
        filter.insert("$nor", arrays);
        let mut conditions = Vec::new();
        self.add_partial(&mut conditions);
        if !conditions.is_empty() {
            filter.insert("$and", conditions);
        }
        let mut set = Document::new();
        set.insert(field.as_str(), date);
        Ok(self.documents.update_many(filter, doc! { "$set": set }).await?.modified_count)
    }

    /// Moves the dates of one, each at its own place, if they stand there as they were read; then again.
    ///
    /// The field is not written as a whole: beside its dates it may hold what somebody else is just writing.
    async fn move_one(&self, mut document: RawDocumentBuf) -> Result<Fate, Failed> {
        loop {
            let raised = match self.rule.raised(&document, self.until)? {
                Raised::Never => return Ok(Fate::Never),
                Raised::Already => return Ok(Fate::Later),
                Raised::To(raised) => raised,
            };
            let id = document.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok()).ok_or_else(unnamable)?;
            let mut update = Update::default();
            update.add("", &document, &raised).ok_or_else(unnamable)?;
            let mut filter = doc! { "_id": &id, "$nor": update.no_arrays };
            self.add_partial(&mut update.conditions);
            filter.insert("$and", update.conditions);
            if self.documents.update_one(filter, doc! { "$set": update.dates }).await?.matched_count > 0 {
                return Ok(Fate::Moved);
            }
            match self.find(&[id]).await?.pop() {
                None => return Ok(Fate::Missing),
                // Nobody has changed it: the update does not say what was read.
                Some(now) if now.as_bytes() == document.as_bytes() => return Err(unnamable().into()),
                Some(now) => document = now,
            }
        }
    }

    async fn find(&self, ids: &[Bson]) -> Result<Vec<RawDocumentBuf>, Failed> {
        let find = self.documents.find(doc! { "_id": { "$in": ids } }).projection(self.rule.projection());
        Ok(find.await?.try_collect().await?)
    }

    /// A document that the filter lets stay for ever is not moved: the filter may speak of its date.
    fn add_partial(&self, conditions: &mut Vec<Document>) {
        let partial = self.rule.partial().map(PartialFilter::source);
        conditions.extend(partial.filter(|source| !source.is_empty()).cloned());
    }
}

/// Which dates a document gets, and what must stand where for that: on the way to them documents and arrays as they were
/// read, or a path would lead elsewhere.
#[derive(Default)]
struct Update {
    conditions: Vec<Document>,
    no_arrays: Vec<Document>,
    dates: Document,
}

impl Update {
    /// Adds what differs between a document and itself with later dates; none if it cannot be read.
    #[allow(clippy::useless_asref)] // in BSON 3 a name has a type of its own
    fn add(&mut self, at: &str, before: &RawDocument, after: &RawDocument) -> Option<()> {
        for (before, after) in before.iter().zip(after.iter()) {
            let ((name, before), (_, after)) = (before.ok()?, after.ok()?);
            self.add_value(&join(at, name.as_ref()), before, after)?;
        }
        Some(())
    }

    fn add_value(&mut self, at: &str, before: RawBsonRef<'_>, after: RawBsonRef<'_>) -> Option<()> {
        let known = self.dates.len();
        match (before, after) {
            (RawBsonRef::DateTime(before), RawBsonRef::DateTime(after)) if before != after => {
                self.conditions.push(condition(at, doc! { "$lt": after, "$type": "date" }));
                self.no_arrays.push(condition(at, doc! { "$type": "array" }));
                self.dates.insert(at, after);
            }
            (RawBsonRef::Document(before), RawBsonRef::Document(after)) => {
                self.add(at, before, after)?;
                if self.dates.len() > known {
                    self.no_arrays.push(condition(at, doc! { "$type": "array" }));
                }
            }
            (RawBsonRef::Array(before), RawBsonRef::Array(after)) => {
                for (position, (before, after)) in before.into_iter().zip(after).enumerate() {
                    self.add_value(&join(at, &position.to_string()), before.ok()?, after.ok()?)?;
                }
                if self.dates.len() > known {
                    self.conditions.push(condition(at, doc! { "$type": "array" }));
                }
            }
            _ => {}
        }
        Some(())
    }
}

fn join(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}

fn condition(at: &str, is: Document) -> Document {
    [(at.to_owned(), is.into())].into_iter().collect()
}

fn unnamable() -> Error {
    Error::Unreadable("a document's dates cannot be moved, as no update can name what it holds".to_owned())
}

enum Fate {
    Moved,
    Later,
    Never,
    Missing,
}
