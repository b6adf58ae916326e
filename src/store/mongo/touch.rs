//! Moving dates on, so that documents expire later.

use futures_util::{TryFutureExt, TryStreamExt};
use mongodb::{
    Collection, Database,
    bson::{Bson, DateTime, Document, RawDocumentBuf, doc},
    options::{CollectionOptions, WriteConcern},
};

use super::answer::{STATEMENT, answered};
use crate::{
    error::{Error, Result},
    expiry::{Raised, Rule},
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
        self.add_partial(&mut filter);
        let mut set = Document::new();
        set.insert(field.as_str(), date);
        Ok(self.documents.update_many(filter, doc! { "$set": set }).await?.modified_count)
    }

    /// Moves the dates of one by what it holds, unless it holds something else by then; then again.
    async fn move_one(&self, mut document: RawDocumentBuf) -> Result<Fate, Failed> {
        let first = self.rule.field().parts().first().map_or("", String::as_str);
        loop {
            let raised = match self.rule.raised(&document, self.until)? {
                Raised::Never => return Ok(Fate::Never),
                Raised::Already => return Ok(Fate::Later),
                Raised::To(raised) => raised,
            };
            let (Some(id), Some(before), Some(after)) =
                (value(&document, "_id"), value(&document, first), value(&raised, first))
            else {
                return Err(unnamable().into());
            };
            let (mut filter, mut set) = (doc! { "_id": &id }, Document::new());
            filter.insert(first, doc! { "$eq": before });
            self.add_partial(&mut filter);
            set.insert(first, after);
            if self.documents.update_one(filter, doc! { "$set": set }).await?.matched_count > 0 {
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
    fn add_partial(&self, filter: &mut Document) {
        if let Some(partial) = self.rule.partial().filter(|partial| !partial.source().is_empty()) {
            filter.insert("$and", vec![partial.source().clone()]);
        }
    }
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

fn value(document: &RawDocumentBuf, field: &str) -> Option<Bson> {
    Bson::try_from(document.get(field).ok()??).ok()
}
