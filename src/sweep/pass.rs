//! The loop over batches: permit, find, judge, delete, account.

mod closing;

use std::{collections::HashMap, time::Duration};

use mongodb::bson::{Bson, DateTime, doc};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{Ended, Options, Progress, SweepReport};
use crate::{
    entry::Entry,
    error::{Code, Error, Refusal, Result},
    expiry::{Dates, instant},
    namespace::CollectionName,
    pacing::Bucket,
    registry::{Slot, Snapshot, TtlRegistry, walkable},
    store::{Change, Deletion, Fence, Found, Kind, Pass, Position, Store, Target, id_bytes},
};

const READS_ALL: &str = "the supporting index cannot be walked: the pass reads the whole collection";

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

/// What became of a batch that was not deleted as a whole.
struct Again {
    /// Those that are there with the dates they were found with, still due.
    still_due: Vec<Found>,
    /// How many are there at all.
    there: u64,
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
    /// Documents that are still due, but with another date than they were found with.
    moved: Vec<Found>,
    oldest_left: Option<DateTime>,
    /// The database gave up on the last batch, and nothing of it was deleted.
    stalled: bool,
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
            moved: Vec::new(),
            oldest_left: None,
            stalled: false,
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
            // The wait comes before the look: nothing waits between being found and being deleted.
            if let Some(bucket) = &bucket {
                let time_is_up = sleep(self.time_left().unwrap_or(Duration::MAX));
                tokio::select! {
                    biased;
                    () = self.stop.cancelled() => {}
                    () = time_is_up => {}
                    () = bucket.ready() => {}
                }
            }
            if self.stop.is_cancelled() {
                return Ok(Ended::Cancelled);
            }
            if self.limit_reached() {
                return Ok(Ended::LimitReached);
            }
            let current = self.store.revision().await?;
            if current != revision {
                if let Err(error) = self.check_in_force().await {
                    return self.cancelled_by(error);
                }
                revision = current;
            }
            let (found, in_order) = match self.find(pass).await {
                Ok(found) => found,
                Err(error) => {
                    // An index that was dropped with its rule cannot be walked: that is no failure.
                    if let Err(gone) = self.check_in_force().await {
                        return self.cancelled_by(gone);
                    }
                    if pass.without_index(&error) {
                        warn!(collection = %self.entry.definition.collection, %error, "{READS_ALL}");
                        continue;
                    }
                    return Err(error);
                }
            };
            if found.is_empty() {
                return Ok(Ended::Drained);
            }
            let (reached, left) = self.delete(pass, &found, cutoff).await?;
            if let Some(bucket) = &mut bucket {
                bucket.spend(u32::try_from(found.len()).unwrap_or(u32::MAX));
            }
            self.progress.batches += 1;
            if let Some(observer) = &mut self.options.on_batch {
                observer(&self.progress);
            }
            self.position.advance(reached.filter(|_| in_order), left).map_err(|_stuck| {
                Error::Unfit("more documents stay behind than a pass can step over; see its report".to_owned())
            })?;
        }
    }

    /// The next batch, and whether the pass may go on behind the dates in it.
    async fn find(&mut self, pass: &mut dyn Pass) -> Result<(Vec<Found>, bool)> {
        if !self.moved.is_empty() {
            return Ok((std::mem::take(&mut self.moved), false));
        }
        Ok((pass.find(&self.position, self.options.documents_in_batch()).await?, pass.ordered()))
    }

    fn limit_reached(&self) -> bool {
        self.options.max_batches.is_some_and(|most| self.progress.batches >= most)
            || self.time_left().is_some_and(|left| left.is_zero())
    }

    /// How long new batches may still begin, if there is a limit.
    fn time_left(&self) -> Option<Duration> {
        self.options.max_time.map(|most| most.saturating_sub(self.started.elapsed()))
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
        self.entry.check_identity(collection.uuid.as_ref())?;
        if let (None, Some(uuid)) = (&self.entry.uuid, &collection.uuid) {
            // The collection appears for the first time: from now on it is the one that is meant.
            let fields = doc! { "collectionUUID": uuid.clone() };
            self.store.change_registry(Change::Set { entry: self.entry.id, fields, revision: None }).await?;
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
            fence: Fence::unlimited(),
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
                "{READS_ALL}"
            );
        }
        index
    }

    /// Deletes what the rule agrees is due, and returns the latest date of that, and what stays though it was found.
    async fn delete(
        &mut self,
        pass: &mut dyn Pass,
        found: &[Found],
        cutoff: DateTime,
    ) -> Result<(Option<DateTime>, Vec<Found>)> {
        let agreed = |found: &Found| found.dates.is_some_and(|dates| dates.earliest <= cutoff);
        let (doomed, mut stay): (Vec<Found>, Vec<Found>) = found.iter().cloned().partition(agreed);
        self.progress.disputed += stay.len() as u64;
        let Some(until) = doomed.iter().filter_map(|found| found.dates).map(|dates| dates.earliest).max() else {
            return Ok((None, stay));
        };
        let asked = doomed.len() as u64;
        self.progress.found += asked;
        let stalled_before = std::mem::take(&mut self.stalled);
        match pass.delete(&doomed, until).await? {
            Deletion::Done(count) if count == asked => self.progress.deleted += count,
            Deletion::Done(count) if count < asked => {
                self.progress.deleted += count;
                let Again { still_due, .. } = self.look_again(pass, &doomed, cutoff).await?;
                let left = (still_due.len() as u64).min(asked - count);
                self.progress.left += left;
                self.progress.changed += asked - count - left;
                stay.extend(still_due);
            }
            Deletion::Fenced(count) => {
                self.progress.deleted += count;
                self.progress.left += asked.saturating_sub(count);
            }
            Deletion::InPart(count, error) if count <= asked => {
                self.progress.deleted += count;
                let Again { still_due, there } = self.look_again(pass, &doomed, cutoff).await?;
                let gone = asked.saturating_sub(there).max(count);
                let left = (still_due.len() as u64).min(asked - gone);
                self.progress.uncertain += gone - count;
                self.progress.left += left;
                self.progress.changed += asked - gone - left;
                // One document that somebody holds is stepped over. A database that gets nothing done is left alone.
                self.stalled = left == asked;
                if self.stalled && stalled_before {
                    return Err(error);
                }
                stay.extend(still_due);
            }
            Deletion::Done(count) | Deletion::InPart(count, _) => {
                self.count_after_doubt(pass, &doomed).await;
                return Err(Error::Unfit(format!(
                    "it says that it deleted {count} documents of {asked}; no further batch is begun"
                )));
            }
            Deletion::Refused(refusal) => {
                self.progress.changed += asked;
                return Err(refusal.into());
            }
            Deletion::Uncertain(error) => {
                self.count_after_doubt(pass, &doomed).await;
                return Err(error);
            }
        }
        Ok((Some(until), stay))
    }

    /// Reads the documents of a batch again that was not deleted as a whole. Those that are due by other dates than they
    /// were found with are kept in mind.
    async fn look_again(&mut self, pass: &mut dyn Pass, doomed: &[Found], cutoff: DateTime) -> Result<Again> {
        let before: HashMap<Vec<u8>, Option<Dates>> =
            doomed.iter().map(|found| (id_bytes(&found.id), found.dates)).collect();
        let documents = pass.read_again(doomed.iter().map(|found| found.id.clone()).collect()).await?;
        let mut still_due = Vec::new();
        for document in &documents {
            let Some(id) = document.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok()) else { continue };
            let dates = self.entry.rule.expiring_dates(document);
            let Some(earliest) = dates.map(|dates| dates.earliest).filter(|date| *date <= cutoff) else { continue };
            if before.get(&id_bytes(&id)) == Some(&dates) {
                let expired = self.entry.rule.expires_at(earliest);
                self.oldest_left = Some(self.oldest_left.map_or(expired, |oldest| oldest.min(expired)));
                still_due.push(Found { id, dates });
            } else {
                self.moved.push(Found { id, dates });
            }
        }
        Ok(Again { still_due, there: documents.len() as u64 })
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
}
