//! Telling how an operation goes, while it goes.

use mongodb::bson::{DateTime, Document, doc, oid::ObjectId};
use tracing::warn;

use super::{ChangeType, Operation, OperationError, OperationState, ProgressDocuments, record};
use crate::{
    entry::IndexState,
    error::{Error, Result},
    store::Store,
};

/// An operation that this process carries out, as far as it could be written down.
#[derive(Debug)]
pub(crate) struct Running {
    operation: Option<Operation>,
    /// Whether this process has begun it.
    ours: bool,
}

/// Writes down that an operation on an entry of the registry begins, or takes over one that is under way.
///
/// The operation of a creation has the entry's identity and the time of its making, so that whoever continues the creation
/// finds it, or writes it if the first one did not get that far.
pub(crate) async fn begin(store: &dyn Store, change_type: ChangeType, entry: Document) -> Running {
    match try_begin(store, change_type, entry).await {
        Ok((operation, ours)) => Running { operation: Some(operation), ours },
        Err(error) => {
            untold(&error);
            Running { operation: None, ours: false }
        }
    }
}

async fn try_begin(store: &dyn Store, change_type: ChangeType, entry: Document) -> Result<(Operation, bool)> {
    let mut known = record::all(store).await?;
    let same = |other: &&Operation| other.change_type == change_type && other.entry.get("id") == entry.get("id");
    if let Some(under_way) = known.iter().filter(|other| !other.done()).find(same) {
        return Ok((under_way.clone(), false));
    }
    let operation = first_words(store, change_type, entry).await?;
    if !record::insert(store, &operation).await? {
        // Somebody else was quicker, or an earlier try has ended: it goes on.
        let known = record::get(store, &operation.id).await?;
        return Ok((known.unwrap_or(operation), false));
    }
    known.insert(0, operation.clone());
    record::trim(store, &known).await?;
    Ok((operation, true))
}

async fn first_words(store: &dyn Store, change_type: ChangeType, entry: Document) -> Result<Operation> {
    let text = |field: &str| entry.get_str(field).unwrap_or("?").to_owned();
    let field = entry.get_document("key").ok().and_then(|key| key.keys().next().cloned());
    let creating = matches!(entry.get_str("state"), Ok(state) if state == IndexState::Creating.as_str());
    let creation = match (entry.get_object_id("id"), entry.get_datetime("createdAt")) {
        (Ok(id), Ok(at)) if creating && change_type == ChangeType::Add => Some((id, *at)),
        _ => None,
    };
    let (id, start_time) = match creation {
        Some(creation) => creation,
        None => (ObjectId::new(), store.now().await?),
    };
    Ok(Operation {
        id: id.to_hex(),
        change_type,
        state: OperationState::Initializing,
        collection: text("collection"),
        index: text("name"),
        field: field.unwrap_or_else(|| "?".to_owned()),
        start_time,
        end_time: None,
        progress_documents: None,
        error: None,
        entry,
    })
}

impl Running {
    /// One that another process has begun.
    pub(crate) fn taken_over(operation: Operation) -> Self {
        Self { operation: Some(operation), ours: false }
    }

    /// The work itself begins, on about so many documents.
    pub(crate) async fn processing(&mut self, store: &dyn Store, documents: Option<u64>) {
        let Some(operation) = &mut self.operation else { return };
        operation.state = OperationState::Processing;
        operation.progress_documents =
            documents.map(|count| ProgressDocuments { estimated_work: count, completed_work: 0 });
        (operation.end_time, operation.error) = (None, None);
        // Whatever was told before: an earlier try may have failed.
        if let Err(error) = record::update(store, operation, Document::new()).await {
            untold(&error);
        }
    }

    /// Overrules whoever gave it up.
    pub(crate) async fn succeeded(self, store: &dyn Store) {
        self.end(store, OperationState::Successful, None, Document::new()).await;
    }

    /// Unless it has ended otherwise meanwhile.
    pub(crate) async fn failed(self, store: &dyn Store, why: &Error) {
        let error = OperationError { code: why.code(), message: why.in_full() };
        self.end(store, OperationState::Failed, Some(error), unfinished()).await;
    }

    /// Unless it has ended otherwise meanwhile.
    pub(crate) async fn cancelled(self, store: &dyn Store, why: &str) {
        let error = OperationError { code: None, message: why.to_owned() };
        self.end(store, OperationState::Cancelled, Some(error), unfinished()).await;
    }

    /// Nothing has happened that was worth telling, unless it is somebody else's.
    pub(crate) async fn withdraw(self, store: &dyn Store) {
        if let Some(operation) = self.operation.filter(|_| self.ours)
            && let Err(error) = record::remove(store, &operation).await
        {
            untold(&error);
        }
    }

    async fn end(self, store: &dyn Store, state: OperationState, error: Option<OperationError>, guard: Document) {
        let Some(mut operation) = self.operation else { return };
        let ended: Result<()> = async {
            let now: DateTime = store.now().await?;
            (operation.state, operation.end_time, operation.error) = (state, Some(now), error);
            if let Some(progress) =
                operation.progress_documents.as_mut().filter(|_| state == OperationState::Successful)
            {
                progress.completed_work = progress.estimated_work;
            }
            record::update(store, &operation, guard).await.map(drop)
        }
        .await;
        if let Err(error) = ended {
            untold(&error);
        }
    }
}

fn unfinished() -> Document {
    doc! { "done": false }
}

fn untold(error: &Error) {
    warn!(error = error.in_full(), "how an operation goes could not be written down; what it does is not affected");
}
