//! Operations: what is told of creations and drops while they run and after they have ended, in Firestore's words.
//!
//! An operation tells a story and decides nothing: the registry alone says which TTL indexes there are. So a record that
//! cannot be written is a warning in the log, and never the failure of what it would have told of.

mod record;
mod running;

pub(crate) use record::all;
pub(crate) use running::{Running, begin};

use mongodb::bson::{DateTime, Document, doc};

/// The state of an operation, with Firestore's names and meanings.
///
/// Firestore's `CANCELLING` and `FINALIZING` do not occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OperationState {
    /// Written down; nothing else is done yet.
    Initializing,
    /// The supporting index is being built.
    Processing,
    /// Done.
    Successful,
    /// Given up; [`Operation::error`] says why.
    Failed,
    /// Overtaken: the TTL index was dropped while it was being made, or the drop never began.
    Cancelled,
}

impl OperationState {
    const ALL: [Self; 5] = [Self::Initializing, Self::Processing, Self::Successful, Self::Failed, Self::Cancelled];

    /// Firestore's name, as in `SUCCESSFUL`.
    pub const fn as_str(self) -> &'static str {
        match self {
            OperationState::Initializing => "INITIALIZING",
            OperationState::Processing => "PROCESSING",
            OperationState::Successful => "SUCCESSFUL",
            OperationState::Failed => "FAILED",
            OperationState::Cancelled => "CANCELLED",
        }
    }

    /// Whether nothing more happens.
    pub const fn is_done(self) -> bool {
        !matches!(self, OperationState::Initializing | OperationState::Processing)
    }
}

/// What an operation does to the TTL index of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChangeType {
    /// Makes it, or repairs it.
    Add,
    /// Drops it.
    Remove,
}

impl ChangeType {
    const ALL: [Self; 2] = [Self::Add, Self::Remove];

    /// Firestore's name: `ADD` or `REMOVE`.
    pub const fn as_str(self) -> &'static str {
        match self {
            ChangeType::Add => "ADD",
            ChangeType::Remove => "REMOVE",
        }
    }
}

/// How many documents an operation concerns, and how many of them are done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgressDocuments {
    /// More or less the documents of the collection.
    pub estimated_work: u64,
    /// 0, or all: databases do not tell how far they have got with an index.
    pub completed_work: u64,
}

/// Why an operation failed, or was cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationError {
    /// MongoDB's error code, if there is one.
    pub code: Option<i32>,
    /// What went wrong.
    pub message: String,
}

/// A creation, a repair or a drop of a TTL index: under way, or ended.
///
/// It is a record in the database, which outlives the process that began it. The last 100 are kept.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Operation {
    /// Names the operation.
    pub id: String,
    /// What it does.
    pub change_type: ChangeType,
    /// How far it has got.
    pub state: OperationState,
    /// The collection.
    pub collection: String,
    /// The name of the TTL index.
    pub index: String,
    /// The field of the TTL index.
    pub field: String,
    /// When it began, by the database's clock. One that another process continues began when the first one began it.
    pub start_time: DateTime,
    /// When it ended; none while it runs.
    pub end_time: Option<DateTime>,
    /// None before the documents are counted, where they cannot be counted, and of a drop.
    pub progress_documents: Option<ProgressDocuments>,
    /// Why it did not succeed.
    pub error: Option<OperationError>,
    /// The entry of the registry that it is about, as it was, so that another process can finish what this one began.
    pub(crate) entry: Document,
}

impl Operation {
    /// Whether it has ended, well or not.
    pub fn done(&self) -> bool {
        self.state.is_done()
    }

    /// The operation as Firestore prints one.
    ///
    /// `_id`, `done`, `metadata` with `startTime`, `endTime`, `state`, `collection`, `index`, `field`, `progressDocuments`
    /// and `ttlConfigDelta.changeType`, then `response` or `error`; what there is not is left out.
    pub fn to_document(&self) -> Document {
        let mut document = doc! { "_id": &self.id, "done": self.done(), "metadata": self.metadata() };
        document.extend(self.response().map(|response| ("response".to_owned(), response.into())));
        document.extend(self.error_document().map(|error| ("error".to_owned(), error.into())));
        document
    }

    fn metadata(&self) -> Document {
        let mut metadata = doc! { "startTime": self.start_time };
        metadata.extend(self.end_time.map(|end| ("endTime".to_owned(), end.into())));
        metadata.extend(doc! {
            "state": self.state.as_str(),
            "collection": &self.collection,
            "index": &self.index,
            "field": &self.field,
        });
        if let Some(progress) = self.progress_documents {
            let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            let (estimated, completed) = (number(progress.estimated_work), number(progress.completed_work));
            metadata.insert("progressDocuments", doc! { "estimatedWork": estimated, "completedWork": completed });
        }
        metadata.insert("ttlConfigDelta", doc! { "changeType": self.change_type.as_str() });
        metadata
    }

    fn response(&self) -> Option<Document> {
        match (self.state, self.change_type) {
            (OperationState::Successful, ChangeType::Add) => Some(doc! { "ttlConfig": { "state": "ACTIVE" } }),
            (OperationState::Successful, ChangeType::Remove) => Some(Document::new()),
            _ => None,
        }
    }

    fn error_document(&self) -> Option<Document> {
        self.error.as_ref().map(|error| {
            let mut document = Document::new();
            document.extend(error.code.map(|code| ("code".to_owned(), code.into())));
            document.insert("message", &error.message);
            document
        })
    }
}
