//! One pass on the embedded store: the condition of the delete is the rule itself, in the transaction that deletes.

use std::{collections::HashSet, sync::Arc};

use futures_util::{FutureExt, future::BoxFuture};
use mongodb::bson::{Bson, DateTime, RawDocumentBuf};

use super::{blocking, census, documents, keys::id_key, rules::CompiledEntry, tables::Tables};
use crate::{
    error::{Error, Result},
    store::{Deletion, Found, Pass, Position, Target},
};

pub(super) struct EmbeddedPass {
    tables: Arc<Tables>,
    target: Target,
    /// Where the scan has got to when documents are not listed by date.
    scanned: Option<Vec<u8>>,
    /// The last document that was walked to in a screened pass.
    walked: Option<(DateTime, Vec<u8>)>,
}

impl EmbeddedPass {
    pub(super) fn new(tables: Arc<Tables>, target: Target) -> Self {
        Self { tables, target, scanned: None, walked: None }
    }

    /// Without a listing by date: reads on from the last document read.
    async fn scan(&mut self, limit: usize) -> Result<Vec<Found>> {
        let (target, after) = (self.target.clone(), self.scanned.clone());
        let found = blocking(&self.tables, move |tables| {
            tables.scan(target.collection.as_str(), after.as_deref(), limit, |_, document| {
                target.rule.expiring_dates(document).is_some_and(|dates| dates.earliest <= target.cutoff)
            })
        })
        .await?;
        self.scanned = found.last().map(|(key, _)| key.clone()).or(self.scanned.take());
        found.into_iter().map(|(_, document)| self.found(document)).collect()
    }

    async fn walk(&mut self, position: &Position, limit: usize) -> Result<Vec<Found>> {
        let mut except = position.except().iter().map(id_key).collect::<Result<HashSet<_>, _>>()?;
        let from = position.from().unwrap_or(DateTime::MIN);
        let (date, key) = self.walked.clone().filter(|(date, _)| *date >= from).unwrap_or((from, Vec::new()));
        except.insert(key.clone());
        let target = self.target.clone();
        let found = blocking(&self.tables, move |tables| {
            let (collection, from) = (target.collection.as_str(), (date, key.as_slice()));
            tables.scan_due(collection, target.entry, from, target.cutoff, limit, |key| !except.contains(key))
        })
        .await?;
        let found = found.into_iter().map(|document| self.found(document)).collect::<Result<Vec<_>>>()?;
        if self.target.screened
            && let Some((last, dates)) = found.last().and_then(|last| Some((last, last.dates?)))
        {
            self.walked = Some((dates.earliest, id_key(&last.id)?));
        }
        Ok(found)
    }

    fn found(&self, document: RawDocumentBuf) -> Result<Found> {
        let id = document.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok());
        let id = id.ok_or_else(|| Error::Unreadable("a document of the embedded store has no _id".to_owned()))?;
        let dates = self.target.rule.expiring_dates(&document);
        Ok(Found { id, dates, whole: self.target.reading.reads_whole().then_some(document) })
    }
}

impl Pass for EmbeddedPass {
    fn find<'a>(&'a mut self, position: &'a Position, limit: u32) -> BoxFuture<'a, Result<Vec<Found>>> {
        if self.target.index.is_some() {
            self.walk(position, limit as usize).boxed()
        } else {
            self.scan(limit as usize).boxed()
        }
    }

    fn ordered(&self) -> bool {
        self.target.index.is_some() && !self.target.screened
    }

    fn delete<'a>(&'a mut self, doomed: &'a [Found], until: DateTime) -> BoxFuture<'a, Result<Deletion>> {
        let target = self.target.clone();
        let exact = target.reading.compares();
        let keyed = |found: &Found| Ok((id_key(&found.id)?, found.whole.clone().filter(|_| exact)));
        let doomed = doomed.iter().map(keyed).collect::<Result<Vec<_>, Error>>();
        async move {
            let doomed = doomed?;
            if !target.fence.is_open() {
                return Ok(Deletion::Fenced(0));
            }
            let deleted = blocking(&self.tables, move |tables| {
                tables.write(|writing| {
                    // The rule and the guards in force when the transaction runs, not those that the pass began with.
                    let same =
                        |now: &CompiledEntry| now.rule.same_as(&target.rule) && now.guards.same_as(&target.guards);
                    let in_force = writing.rules().get(&target.entry).is_some_and(same) && target.fence.is_open();
                    let mut deleted = 0;
                    for (key, version) in doomed.iter().filter(|_| in_force) {
                        let document = writing.get(target.collection.as_str(), key)?;
                        let same = |found: &RawDocumentBuf| {
                            version.as_ref().is_none_or(|version| version.as_bytes() == found.as_bytes())
                        };
                        let dates = document.filter(same).and_then(|document| target.rule.expiring_dates(&document));
                        if dates.is_some_and(|dates| dates.earliest <= until) {
                            writing.put(target.collection.as_str(), key, None)?;
                            deleted += 1;
                        }
                    }
                    Ok(deleted)
                })
            })
            .await?;
            Ok(Deletion::Done(deleted))
        }
        .boxed()
    }

    fn next_date(&mut self) -> BoxFuture<'_, Result<Option<DateTime>>> {
        let Target { entry, cutoff, .. } = self.target;
        if self.target.index.is_none() {
            return std::future::ready(Ok(None)).boxed();
        }
        blocking(&self.tables, move |tables| census::date_after(tables, entry, cutoff))
    }

    fn read_again(&mut self, ids: Vec<Bson>) -> BoxFuture<'_, Result<Vec<RawDocumentBuf>>> {
        let name = self.target.collection.as_str().to_owned();
        blocking(&self.tables, move |tables| documents::fetch(tables, &name, &ids))
    }
}
