//! Operations as they are stored, and how many of them.

use mongodb::bson::{Bson, Document, doc, oid::ObjectId};
use tracing::warn;

use super::{ChangeType, Operation, OperationError, OperationState, ProgressDocuments};
use crate::{
    error::Result,
    store::{Guard, Records, Store},
};

/// The most that are kept; those that run are kept beyond that.
const KEPT: usize = 100;

/// All operations, newest first. What cannot be understood is left out, and left alone.
pub(crate) async fn all(store: &dyn Store) -> Result<Vec<Operation>> {
    let records = store.records(Records::Operations).await?;
    let understood = records.iter().filter_map(|record| {
        let operation = Operation::parse(record);
        if operation.is_none() {
            warn!(%record, "an operation cannot be understood");
        }
        operation
    });
    let mut operations: Vec<Operation> = understood.collect();
    operations.sort_by(|a, b| (b.start_time, &b.id).cmp(&(a.start_time, &a.id)));
    Ok(operations)
}

/// Writes an operation down that is not there yet; none if it is there.
pub(super) async fn insert(store: &dyn Store, operation: &Operation) -> Result<bool> {
    let mut fields = operation.fields();
    fields.insert("entry", &operation.entry);
    Ok(store.set_record(Records::Operations, &operation.id, Guard::Missing, fields).await?.is_some())
}

/// Writes down how far an operation has got, if it is as the guard says.
pub(super) async fn update(store: &dyn Store, operation: &Operation, guard: Document) -> Result<bool> {
    let (guard, fields) = (Guard::Has(guard), operation.fields());
    Ok(store.set_record(Records::Operations, &operation.id, guard, fields).await?.is_some())
}

pub(super) async fn get(store: &dyn Store, id: &str) -> Result<Option<Operation>> {
    Ok(store.record(Records::Operations, id).await?.as_ref().and_then(Operation::parse))
}

pub(super) async fn remove(store: &dyn Store, operation: &Operation) -> Result<()> {
    store.remove_record(Records::Operations, &operation.id).await
}

/// Removes the oldest of those that have ended, beyond what is kept.
pub(super) async fn trim(store: &dyn Store, newest_first: &[Operation]) -> Result<()> {
    let surplus = newest_first.len().saturating_sub(KEPT);
    for operation in newest_first.iter().rev().filter(|operation| operation.done()).take(surplus) {
        remove(store, operation).await?;
    }
    Ok(())
}

impl Operation {
    /// The entry that it is about.
    pub(crate) fn entry_id(&self) -> Option<ObjectId> {
        self.entry.get_object_id("id").ok()
    }

    /// What changes while it runs, with nothing left of what it was before.
    fn fields(&self) -> Document {
        doc! {
            "done": self.done(),
            "metadata": self.metadata(),
            "response": self.response(),
            "error": self.error_document(),
        }
    }

    fn parse(record: &Document) -> Option<Self> {
        let metadata = record.get_document("metadata").ok()?;
        let text = |field| metadata.get_str(field).ok().map(str::to_owned);
        let change_type = metadata.get_document("ttlConfigDelta").ok()?.get_str("changeType").ok()?;
        let state = metadata.get_str("state").ok()?;
        let progress = metadata.get_document("progressDocuments").ok();
        Some(Self {
            id: record.get_str("_id").ok()?.to_owned(),
            change_type: ChangeType::ALL.into_iter().find(|it| it.as_str() == change_type)?,
            state: OperationState::ALL.into_iter().find(|it| it.as_str() == state)?,
            collection: text("collection")?,
            index: text("index")?,
            field: text("field")?,
            start_time: *metadata.get_datetime("startTime").ok()?,
            end_time: metadata.get_datetime("endTime").ok().copied(),
            progress_documents: progress.and_then(|progress| {
                let (estimated, completed) = (count(progress, "estimatedWork"), count(progress, "completedWork"));
                Some(ProgressDocuments { estimated_work: estimated?, completed_work: completed? })
            }),
            error: record.get_document("error").ok().map(|error| OperationError {
                code: error.get_i32("code").ok(),
                message: error.get_str("message").unwrap_or_default().to_owned(),
            }),
            entry: record.get_document("entry").cloned().unwrap_or_default(),
        })
    }
}

fn count(progress: &Document, field: &str) -> Option<u64> {
    match progress.get(field) {
        Some(Bson::Int64(count)) => u64::try_from(*count).ok(),
        Some(Bson::Int32(count)) => u64::try_from(*count).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::DateTime;

    use super::*;

    #[test]
    fn an_operation_comes_back_as_it_was_stored() {
        for (state, error) in [
            (OperationState::Processing, None),
            (OperationState::Failed, Some(OperationError { code: Some(85), message: "m".to_owned() })),
            (OperationState::Successful, None),
        ] {
            let operation = Operation {
                id: "id".to_owned(),
                change_type: ChangeType::Add,
                state,
                collection: "c".to_owned(),
                index: "t_1".to_owned(),
                field: "t".to_owned(),
                start_time: DateTime::from_millis(5),
                end_time: state.is_done().then(|| DateTime::from_millis(6)),
                progress_documents: Some(ProgressDocuments { estimated_work: 7, completed_work: 0 }),
                error,
                entry: doc! { "id": ObjectId::new() },
            };
            let mut record = doc! { "_id": "id", "entry": &operation.entry };
            record.extend(operation.fields());
            assert_eq!(Operation::parse(&record).unwrap(), operation);
            assert_eq!(operation.to_document().contains_key("response"), state == OperationState::Successful);
        }
    }
}
