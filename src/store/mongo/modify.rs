//! `findAndModify`, with what the driver keeps to itself: that a change may not last.

use mongodb::{
    Database,
    bson::{Bson, Document, doc},
    error::Error,
};

/// Why a change is not known to be made for good.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It was made, and no majority has it: it can be rolled back.
    MayNotLast(Error),
    /// It failed, or the reply was lost.
    Failed(Error),
}

impl Trouble {
    pub(super) fn into_error(self) -> Error {
        match self {
            Trouble::MayNotLast(error) | Trouble::Failed(error) => error,
        }
    }
}

/// Changes one document that matches, if there is one, and returns these fields of it, or all, as they are from then on.
pub(super) async fn find_and_modify(
    database: &Database,
    collection: &str,
    query: Document,
    update: Document,
    fields: Option<Document>,
) -> Result<Option<Document>, Trouble> {
    let mut command = doc! {
        "findAndModify": collection,
        "query": query,
        "update": update,
        "new": true,
        "writeConcern": { "w": "majority" },
    };
    command.extend(fields.map(|fields| ("fields".to_owned(), fields.into())));
    let mut reply = database.run_command(command).await.map_err(Trouble::Failed)?;
    if let Some(error) = reply.get("writeConcernError") {
        let error = Error::custom(format!("the change was not acknowledged by a majority: {error}"));
        return Err(Trouble::MayNotLast(error));
    }
    Ok(match reply.remove("value") {
        Some(Bson::Document(value)) => Some(value),
        _ => None,
    })
}
