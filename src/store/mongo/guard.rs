//! Which documents are referenced: the children asked for, round by round.

use futures_util::TryStreamExt;
use mongodb::{
    Database,
    bson::{Bson, DateTime, RawDocumentBuf},
};

use super::{
    answer::{ANSWER, LONG_READ, STATEMENT, answered},
    catalog,
};
use crate::{
    error::{Code, Error, Refusal, Result},
    guard::{Ids, ReferenceGuard},
};

/// Children in a round, about what a server sends at once. A parent may have millions of them: each round takes the parents
/// off the list that it has found children of.
const ROUND: usize = 100;

pub(super) async fn referenced(
    database: &Database,
    guard: &ReferenceGuard,
    mut ids: Ids,
    now: DateTime,
) -> Result<Ids> {
    let ask = Ask { database, guard, now };
    loop {
        let asked = ids.unreferenced();
        if asked.is_empty() {
            return Ok(ids);
        }
        let children = ask.children(asked.clone(), ROUND).await?;
        // Even less than a round says nothing of those it has marked none of: the server may compare in another way.
        if children.is_empty() {
            break;
        }
        for child in &children {
            ids.mark_those_of(guard, child)?;
        }
        if ids.unreferenced().len() == asked.len() {
            // By a collation, say: whatever it returns for one alone is of that one.
            for id in asked {
                if !ask.children(vec![id.clone()], 1).await?.is_empty() {
                    ids.mark(&id);
                }
            }
            break;
        }
    }
    // Afterwards, as it may have gone meanwhile.
    let there = catalog::find_collection(database, guard.collection.as_str());
    if answered(ANSWER, there).await?.is_none() {
        let why = format!(
            "the collection {} is not there, by which a guard keeps documents; nothing is deleted until it is there again, or \
             the guards are set anew",
            guard.collection
        );
        return Err(Refusal::new(Code::NamespaceNotFound, why).into());
    }
    Ok(ids)
}

struct Ask<'a> {
    database: &'a Database,
    guard: &'a ReferenceGuard,
    now: DateTime,
}

impl Ask<'_> {
    /// Some of the children that keep these, none only if there are none.
    async fn children(&self, ids: Vec<Bson>, limit: usize) -> Result<Vec<RawDocumentBuf>> {
        // Without an index it reads the whole collection.
        let patience = if self.guard.without_index { LONG_READ } else { STATEMENT };
        let collection = &self.guard.collection;
        let asking = || Error::backend(format!("asking {collection} what documents it references"));
        let children = self.database.collection::<RawDocumentBuf>(collection.as_str());
        let find = children
            .find(self.guard.filter(ids, self.now))
            .projection(self.guard.projection())
            .limit(i64::try_from(limit).unwrap_or(i64::MAX));
        answered(patience, async { find.await.map_err(asking())?.try_collect().await.map_err(asking()) }).await
    }
}
