//! The loop over batches: permit, find, judge, delete, account.

use std::collections::HashMap;

use mongodb::bson::{Bson, DateTime, doc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Ended, Options, Progress, SweepReport};
use crate::{
    entry::Entry,
    error::{Code, Error, Refusal, Result},
    expiry::{Dates, instant},
    namespace::CollectionName,
    pacing::Bucket,
    registry::{Slot, Snapshot, TtlRegistry, walkable},
    store::{Change, Deletion, Found, Kind, Pass, Position, Store, Target},
};

/// Looks for the oldest document still due among so many, past those that stay behind.
const PEEK: u32 = 100;

pub(super) async fn run(
    registry: TtlRegistry,
    collection: CollectionName,
    options: Options,
    stop: CancellationToken,
) -> Result<SweepReport> {
    let store = &*registry.store;
    let snapshot = Snapshot::load(store).await?;
    let entry = snapshot.entry(&collection)?;
    let now = store.now().await?;
    let due = entry.rule.cutoff(now);
    if let (Some(asked), Some(due)) = (options.cutoff, due)
        && asked > due
    {
        let why = format!(
            "the cutoff {} is too late: what is due in {collection} has a date up to {}",
            instant(asked),
            instant(due)
        );
        return Err(Refusal::new(Code::BadValue, why).into());
    }
    let cutoff = options.cutoff.or(due);
    let mut sweeping = Sweeping::new(store, entry, options, cutoff, stop);
    let ended = match sweeping.until_done(snapshot.revision).await {
        Ok(ended) => ended,
        Err(error) => {
            sweeping.error = Some(error);
            Ended::Failed
        }
    };
    Ok(sweeping.report(ended).await)
}

struct Sweeping<'a> {
    store: &'a dyn Store,
    entry: &'a Entry,
    options: Options,
    /// None if no date can be old enough.
    cutoff: Option<DateTime>,
    stop: CancellationToken,
    started: Instant,
    progress: Progress,
    position: Position,
    pass: Option<Box<dyn Pass>>,
    oldest_left: Option<DateTime>,
    error: Option<Error>,
}

impl<'a> Sweeping<'a> {
    fn new(
        store: &'a dyn Store,
        entry: &'a Entry,
        options: Options,
        cutoff: Option<DateTime>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            store,
            entry,
            options,
            cutoff,
            stop,
            started: Instant::now(),
            progress: Progress::default(),
            position: Position::default(),
            pass: None,
            oldest_left: None,
            error: None,
        }
    }

    async fn until_done(&mut self, revision: Option<i64>) -> Result<Ended> {
        let Some(cutoff) = self.cutoff else { return Ok(Ended::Drained) };
        let Some(target) = self.target(cutoff).await? else { return Ok(Ended::Drained) };
        let mut pass = self.store.open_pass(target).await?;
        let ended = self.batches(&mut *pass, cutoff, revision).await;
        self.pass = Some(pass);
        ended
    }

    async fn batches(&mut self, pass: &mut dyn Pass, cutoff: DateTime, mut revision: Option<i64>) -> Result<Ended> {
        let mut bucket = self.options.rate.map(Bucket::per_second);
        loop {
            if self.limit_reached() {
                return Ok(Ended::LimitReached);
            }
            // The wait comes before the look: nothing waits between being found and being deleted.
            if let Some(bucket) = &bucket {
                tokio::select! {
                    biased;
                    () = self.stop.cancelled() => {}
                    () = bucket.ready() => {}
                }
            }
            if self.stop.is_cancelled() {
                return Ok(Ended::Cancelled);
            }
            let current = self.store.revision().await?;
            if current != revision {
                if let Err(error) = self.check_in_force().await {
                    return self.cancelled_by(error);
                }
                revision = current;
            }
            let found = pass.find(&self.position, self.options.batch_size).await?;
            if found.is_empty() {
                return Ok(Ended::Drained);
            }
            let left = self.delete(pass, &found, cutoff).await?;
            if let Some(bucket) = &mut bucket {
                bucket.spend(u32::try_from(found.len()).unwrap_or(u32::MAX));
            }
            self.progress.batches += 1;
            if let Some(observer) = &mut self.options.on_batch {
                observer(&self.progress);
            }
            self.position.advance(&found, left, pass.ordered()).map_err(|_stuck| {
                Error::Unfit("more documents stay behind than a pass can step over; see its report".to_owned())
            })?;
        }
    }

    fn limit_reached(&self) -> bool {
        self.options.max_batches.is_some_and(|most| self.progress.batches >= most)
            || self.options.max_time.is_some_and(|most| self.started.elapsed() >= most)
    }

    /// A rule that is no longer in force is no failure; anything else is.
    fn cancelled_by(&mut self, error: Error) -> Result<Ended> {
        if error.refusal().is_none() {
            return Err(error);
        }
        self.error = Some(error);
        Ok(Ended::Cancelled)
    }

    async fn check_in_force(&mut self) -> Result<()> {
        let snapshot = Snapshot::load(self.store).await?;
        match snapshot.find(&self.entry.definition.collection) {
            Some(Slot::Good(now)) if now.id == self.entry.id && now.rule.same_as(&self.entry.rule) => Ok(()),
            _ => Err(Refusal::new(
                Code::IndexNotFound,
                format!("the TTL index of {} was changed or dropped during the pass", self.entry.definition.collection),
            )
            .into()),
        }
    }

    /// What to delete, if the collection is there and is the one the index was made for.
    async fn target(&mut self, cutoff: DateTime) -> Result<Option<Target>> {
        let definition = &self.entry.definition;
        let collection = self.store.inspect(&definition.collection).await?;
        if collection.kind == Kind::Missing {
            return Ok(None);
        }
        collection.kind.check(&definition.collection)?;
        if let (Some(expected), Some(found)) = (&self.entry.uuid, &collection.uuid)
            && expected != found
        {
            return Err(Refusal::new(
                Code::CollectionUuidMismatch,
                format!(
                    "{0} is not the collection that the TTL index {1} was made for: it was dropped and made again, or \
                     another was renamed to {0}. Nothing is deleted; make the TTL index again if it shall hold here",
                    definition.collection, definition.name
                ),
            )
            .into());
        }
        if let (None, Some(uuid)) = (&self.entry.uuid, &collection.uuid) {
            // The collection appears for the first time: from now on it is the one that is meant.
            let fields = doc! { "collectionUUID": uuid.clone() };
            self.store.change_registry(Change::Set { entry: self.entry.id, fields }).await?;
        }
        if self.entry.rule.compares_strings() && collection.default_collation {
            return Err(Refusal::new(
                Code::InvalidOptions,
                format!(
                    "{} compares strings by a collation, and the partial filter of the TTL index {} does not",
                    definition.collection, definition.name
                ),
            )
            .into());
        }
        Ok(Some(Target {
            entry: self.entry.id,
            collection: definition.collection.clone(),
            rule: self.entry.rule.clone(),
            cutoff,
            index: self.index_to_walk(&collection.indexes),
            uuid: collection.uuid,
        }))
    }

    fn index_to_walk(&self, indexes: &[crate::store::PhysicalIndex]) -> Option<crate::store::PhysicalIndex> {
        let definition = &self.entry.definition;
        let noted = self.entry.supporting.as_ref()?;
        let usable = |index: &&crate::store::PhysicalIndex| walkable(definition, index);
        let named = indexes.iter().find(|index| index.name == noted.name).filter(usable);
        let index = named.or_else(|| indexes.iter().find(usable)).cloned();
        if index.is_none() {
            warn!(
                collection = %definition.collection, index = definition.name, supporting = noted.name,
                "the supporting index is gone: the pass reads the whole collection"
            );
        }
        index
    }

    /// Deletes what the rule agrees is due, and returns what stays though it was found.
    async fn delete(&mut self, pass: &mut dyn Pass, found: &[Found], cutoff: DateTime) -> Result<Vec<Found>> {
        let agreed = |found: &&Found| found.dates.is_some_and(|dates| dates.earliest <= cutoff);
        let (doomed, mut stay): (Vec<&Found>, Vec<&Found>) = found.iter().partition(agreed);
        self.progress.disputed += stay.len() as u64;
        let doomed: Vec<Found> = doomed.into_iter().cloned().collect();
        let mut stay: Vec<Found> = stay.drain(..).cloned().collect();
        let Some(until) = doomed.iter().filter_map(|found| found.dates).map(|dates| dates.earliest).max() else {
            return Ok(stay);
        };
        let asked = doomed.len() as u64;
        self.progress.found += asked;
        match pass.delete(&doomed, until).await? {
            Deletion::Done(count) if count == asked => self.progress.deleted += count,
            Deletion::Done(count) if count < asked => {
                self.progress.deleted += count;
                let still = self.still_due(pass, &doomed, cutoff).await?;
                let left = (still.len() as u64).min(asked - count);
                self.progress.left += left;
                self.progress.changed += asked - count - left;
                stay.extend(still);
            }
            Deletion::Done(count) => {
                self.count_after_doubt(pass, &doomed).await;
                return Err(Error::Unfit(format!(
                    "it says that it deleted {count} documents of {asked}; no further batch is begun"
                )));
            }
            Deletion::Uncertain(error) => {
                self.count_after_doubt(pass, &doomed).await;
                return Err(error);
            }
        }
        Ok(stay)
    }

    /// Which of the documents are there with the dates they were found with, still due.
    async fn still_due(&mut self, pass: &mut dyn Pass, doomed: &[Found], cutoff: DateTime) -> Result<Vec<Found>> {
        let before: HashMap<String, Option<Dates>> =
            doomed.iter().map(|found| (found.id.to_string(), found.dates)).collect();
        let documents = pass.read_again(doomed.iter().map(|found| found.id.clone()).collect()).await?;
        let mut still = Vec::new();
        for document in &documents {
            let Some(id) = document.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok()) else { continue };
            let dates = self.entry.rule.expiring_dates(document);
            let unchanged = before.get(&id.to_string()) == Some(&dates);
            if let Some(found) = dates.filter(|dates| unchanged && dates.earliest <= cutoff) {
                let expired = self.entry.rule.expires_at(found.earliest);
                self.oldest_left = Some(self.oldest_left.map_or(expired, |oldest| oldest.min(expired)));
                still.push(Found { id, dates });
            }
        }
        Ok(still)
    }

    /// After a delete of unknown outcome: what is gone is counted as uncertain, what is there as left.
    async fn count_after_doubt(&mut self, pass: &mut dyn Pass, doomed: &[Found]) {
        let ids = doomed.iter().map(|found| found.id.clone()).collect();
        match pass.read_again(ids).await {
            Ok(there) => {
                let there = (there.len() as u64).min(doomed.len() as u64);
                self.progress.left += there;
                self.progress.uncertain += doomed.len() as u64 - there;
            }
            Err(error) => {
                debug!(%error, "the documents of an uncertain batch could not be read again");
                self.progress.uncertain += doomed.len() as u64;
            }
        }
    }

    /// When the oldest document still due expired, by a look at the start of the order.
    async fn oldest_due(&mut self) -> Result<Option<DateTime>> {
        let (Some(cutoff), Some(pass)) = (self.cutoff, &mut self.pass) else { return Ok(None) };
        let from_start = if pass.ordered() { Position::default() } else { self.position.clone() };
        let found = pass.find(&from_start, PEEK).await?;
        let dates = found.iter().filter_map(|found| found.dates).map(|dates| dates.earliest);
        let oldest = dates.filter(|date| *date <= cutoff).min();
        Ok(oldest.map(|date| self.entry.rule.expires_at(date)))
    }

    async fn report(mut self, mut ended: Ended) -> SweepReport {
        let mut oldest_due = self.oldest_left;
        if matches!(ended, Ended::LimitReached | Ended::Cancelled) {
            match self.oldest_due().await {
                Ok(seen) => {
                    oldest_due = [oldest_due, seen].into_iter().flatten().min();
                    // The limit was reached with the last document.
                    if ended == Ended::LimitReached && seen.is_none() {
                        ended = Ended::Drained;
                    }
                }
                Err(error) => {
                    self.error = Some(error);
                    ended = Ended::Failed;
                }
            }
        }
        let Progress { found, deleted, changed, uncertain, left, disputed, batches } = self.progress;
        let definition = &self.entry.definition;
        let (collection, index) = (definition.collection.to_string(), definition.name.clone());
        match &self.error {
            Some(error) if ended == Ended::Failed => {
                warn!(collection, index, found, deleted, changed, uncertain, left, %error, "pass failed");
            }
            _ => info!(collection, index, found, deleted, changed, left, disputed, batches, %ended, "pass ended"),
        }
        SweepReport {
            collection,
            index,
            cutoff: self.cutoff.unwrap_or(DateTime::MIN),
            found,
            deleted,
            changed,
            uncertain,
            left,
            disputed,
            batches,
            ended,
            oldest_due,
            error: self.error,
        }
    }
}
