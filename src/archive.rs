//! Where documents go before they are deleted.
//!
//! - [`file`]: a file of its own, with a [`manifest`] beside it, in one of several [`form`]s;
//! - [`collection`]: another collection;
//! - [`reading`]: what a file holds, once it was seen to be what was written;
//! - [`text`], [`csv`]: documents as text.

#[cfg(feature = "archive")]
mod cell;
mod collection;
#[cfg(feature = "archive")]
mod columns;
#[cfg(feature = "archive")]
mod csv;
#[cfg(feature = "archive")]
mod elements;
#[cfg(feature = "archive")]
mod file;
#[cfg(feature = "archive")]
mod form;
#[cfg(feature = "archive")]
mod manifest;
#[cfg(feature = "archive")]
mod reading;
#[cfg(feature = "archive")]
mod text;

#[cfg(feature = "archive")]
pub(crate) use self::reading::ArchiveReader;
#[cfg(feature = "archive")]
pub use self::{columns::CsvColumns, csv::CsvFields, text::JsonLine};

use std::sync::{Arc, OnceLock};
#[cfg(feature = "archive")]
use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use mongodb::bson::{Binary, Bson, DateTime, RawDocumentBuf};

#[cfg(feature = "archive")]
use self::{elements::fields, file::ArchiveFile, form::Form, manifest::Header};
use crate::{
    error::{Code, Refusal, Result},
    namespace::CollectionName,
    store::{Collection, Kind, Reading, Store},
};

/// Where documents are kept that are deleted: each is written there, and lasts, before it is deleted.
///
/// # Guarantees
///
/// A document is deleted only as it was archived, to the last byte: one that was changed in between, if only by a field more,
/// stays, and is archived again when it is deleted. On MongoDB a change of nothing but a number's type, as of 1 to 1.0 or of 0.0
/// to -0.0, is the exception: it is not noticed. If archiving fails nothing of the batch is deleted, and the pass fails.
///
/// A crash leaves at worst a document in the archive that was not deleted, and is there once more when it is.
///
/// A document that the archive cannot hold as it is stays, is counted as [`left`](crate::SweepReport::left), and the log says
/// why; the others go.
///
/// # Assumptions
///
/// Only this pass goes by it: whoever sweeps without it deletes without it.
///
/// The document is deleted with one statement each, that repeats it; the backend must be able to compare whole documents,
/// which is tried out. Where it cannot, archiving is refused unless [`match_date_only`](Self::match_date_only) is set.
///
/// `docs/archive.md` tells of the files.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ttl_index::Error> {
/// # use std::time::Duration;
/// # use ttl_index::{Archive, EmbeddedStore, TtlIndex, TtlRegistry, bson::{DateTime, doc}};
/// # let store = EmbeddedStore::in_memory()?;
/// # let ttl = TtlRegistry::open(store.clone()).await?;
/// # ttl.create_index("sessions", TtlIndex::on("at").expire_after(Duration::ZERO)).await?;
/// # store.collection("sessions").insert_one(doc! { "at": DateTime::now() }).await?;
/// // The archive keeps them for another year.
/// let year = Duration::from_secs(365 * 86_400);
/// ttl.create_index("sessions_archive", TtlIndex::on("archivedAt").expire_after(year)).await?;
/// let report = ttl.sweep("sessions").archive(Archive::collection("sessions_archive")).await?;
/// assert_eq!((report.deleted, store.collection("sessions_archive").count().await?), (1, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Archive {
    place: Place,
    reading: Reading,
}

#[derive(Clone, Debug)]
enum Place {
    Collection(String),
    #[cfg(feature = "archive")]
    File(PathBuf, Form),
}

impl Archive {
    fn at(place: Place) -> Self {
        Self { place, reading: Reading::Exact }
    }

    /// A file of JSON Lines, in canonical Extended JSON: all there is of each document. It is made if it is missing, and
    /// gone on with if it is there; its manifest stands beside it, with `.manifest` at the end of its name.
    ///
    /// [`restore`](crate::TtlRegistry::restore) puts the documents back.
    #[cfg(feature = "archive")]
    pub fn json_lines(path: impl Into<PathBuf>) -> Self {
        Self::at(Place::File(path.into(), Form::json_lines()))
    }

    /// A file of CSV with these fields of each document, and nothing else of it; see [`CsvFields`]. What is not in a field is
    /// gone with the document.
    #[cfg(feature = "archive")]
    pub fn csv(path: impl Into<PathBuf>, fields: CsvFields) -> Self {
        Self::at(Place::File(path.into(), Form::csv(fields)))
    }

    /// Another collection of the same database. A document is there as the field `document`, beside `archivedAt`, when that
    /// was, and `from`, the collection it was in.
    ///
    /// A TTL index on `archivedAt` makes the archive expire in its turn.
    pub fn collection(name: impl Into<String>) -> Self {
        Self::at(Place::Collection(name.into()))
    }

    /// Compresses the file, each batch by itself; a collection is as it is. Not by default.
    #[cfg(feature = "archive")]
    pub fn gzip(mut self) -> Self {
        if let Place::File(_, form) = &mut self.place {
            *form = form.clone().gzip();
        }
        self
    }

    /// Deletes a document if it is still due, even if it is another one than was archived: what was written to it in between,
    /// beside its date, is lost. For backends that cannot compare whole documents; not by default.
    pub fn match_date_only(mut self) -> Self {
        self.reading = Reading::Whole;
        self
    }

    /// Makes ready for documents of this collection.
    pub(crate) async fn open(self, store: &dyn Store, from: &CollectionName) -> Result<OpenArchive> {
        let place = match self.place {
            Place::Collection(name) => {
                let into = CollectionName::parse(&name)?;
                let there = store.inspect(&into).await?;
                check(from, &into, &there)?;
                OpenPlace::Collection(into, Arc::new(there.uuid.map_or_else(OnceLock::new, OnceLock::from)))
            }
            #[cfg(feature = "archive")]
            Place::File(path, form) => {
                let header = Header { database: store.name(), collection: from.to_string(), form };
                let file = blocking(move || ArchiveFile::open(&path, header)).await?;
                OpenPlace::File(Arc::new(Mutex::new(file)))
            }
        };
        Ok(OpenArchive { from: from.clone(), place, reading: self.reading })
    }
}

fn check(from: &CollectionName, into: &CollectionName, there: &Collection) -> Result<(), Refusal> {
    if from == into {
        return Err(Refusal::new(Code::InvalidOptions, format!("{from} cannot be its own archive")));
    }
    match there.kind {
        Kind::Missing | Kind::Ordinary => Ok(()),
        Kind::Capped | Kind::View | Kind::TimeSeries => {
            let why = format!("{into} is no ordinary collection, and cannot be an archive");
            Err(Refusal::new(Code::InvalidOptions, why))
        }
    }
}

/// An archive that is ready for the documents of a collection.
#[derive(Clone, Debug)]
pub(crate) struct OpenArchive {
    from: CollectionName,
    place: OpenPlace,
    reading: Reading,
}

#[derive(Clone, Debug)]
enum OpenPlace {
    /// With its identity, where the backend gives one; one that is missing has it once it is made.
    Collection(CollectionName, Arc<OnceLock<Binary>>),
    #[cfg(feature = "archive")]
    File(Arc<Mutex<ArchiveFile>>),
}

impl OpenArchive {
    pub(crate) fn reading(&self) -> Reading {
        self.reading
    }

    /// Writes the documents so that they last, and says which were not written, and why.
    pub(crate) async fn put(
        &self,
        store: &dyn Store,
        documents: Vec<RawDocumentBuf>,
        at: DateTime,
    ) -> Result<Vec<(usize, String)>> {
        match &self.place {
            OpenPlace::Collection(into, meant) => {
                collection::put(store, &self.from, (into, meant), &documents, at).await
            }
            #[cfg(feature = "archive")]
            OpenPlace::File(file) => {
                let file = file.clone();
                blocking(move || file.lock().unwrap_or_else(PoisonError::into_inner).append(&documents, at)).await
            }
        }
    }

    /// Notes which of the documents put there last were not deleted.
    pub(crate) async fn not_deleted(&self, ids: Vec<Bson>) -> Result<()> {
        match &self.place {
            // Nobody looks there for what was deleted.
            OpenPlace::Collection(..) => {
                drop(ids);
                Ok(())
            }
            #[cfg(feature = "archive")]
            OpenPlace::File(file) => {
                let file = file.clone();
                blocking(move || file.lock().unwrap_or_else(PoisonError::into_inner).not_deleted(&ids)).await
            }
        }
    }
}

/// Runs `work` where it may block.
#[cfg(feature = "archive")]
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(crate::error::Error::Interrupted),
        },
    }
}
