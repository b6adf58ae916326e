//! What a sweeper tells of itself, in its own process and, along with its lease, to any other.

mod pace;

use std::collections::HashMap;

use mongodb::bson::{Bson, DateTime, Document, doc, oid::ObjectId};

use crate::{
    entry::IndexState,
    error::Result,
    lease::Record,
    pacing::Shortfall,
    registry::{Pause, Slot, Snapshot, TtlRegistry},
    store::Records,
};

pub use self::pace::{HeldBack, PaceStatus};

/// The record with what is told of each index, beside that of the lease.
pub(super) const RECORD: &str = "status";

impl TtlRegistry {
    /// Who sweeps this database, and how it goes, whichever process that is.
    ///
    /// # Guarantees
    ///
    /// Reads three documents. What is told of the indexes is as old as [`SweeperStatus::told_at`], at most about ten
    /// seconds while somebody sweeps.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ttl_index::Error> {
    /// # use ttl_index::{Activity, EmbeddedStore, TtlRegistry};
    /// let ttl = TtlRegistry::open(EmbeddedStore::in_memory()?).await?;
    /// assert_eq!(ttl.status().await?.activity, Activity::Nobody);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn status(&self) -> Result<SweeperStatus> {
        let snapshot = Snapshot::load(&*self.store).await?;
        let record = Record::read(&*self.store).await?;
        let told = self.store.record(Records::Lease, RECORD).await?.unwrap_or_default();
        let now = self.store.now().await?;
        let work = record.as_ref().map(|record| record.work.clone()).unwrap_or_default();
        let paused = snapshot.paused.clone().filter(|pause| pause.holds_at(now));
        let holder = record.as_ref().and_then(|record| record.holder.clone());
        let same_term =
            record.as_ref().is_some_and(|record| told.get_i64("term").is_ok_and(|term| term == record.term));
        let silent_since = record.as_ref().and_then(|record| record.silent_since(now)).filter(|_| holder.is_some());
        let activity = match (&holder, &paused) {
            (_, Some(_)) => Activity::Paused,
            (Some(_), None) if silent_since.is_none() => Activity::parse(work.get_str("activity").unwrap_or_default()),
            _ => Activity::Nobody,
        };
        Ok(SweeperStatus {
            activity,
            term: holder.as_ref().and(record.as_ref()).map(|record| record.term),
            since: holder.as_ref().and(record.as_ref()).and_then(|record| record.since),
            holder,
            silent_since,
            paused,
            // The lease tells it from its first renewal on.
            max_rate: work.get_f64("maxRate").ok().or_else(|| told.get_f64("maxRate").ok().filter(|_| same_term)),
            pace: told.get_document("pace").ok().and_then(PaceStatus::parse).filter(|_| same_term),
            told_at: told.get_datetime("at").ok().copied(),
            indexes: rows(&snapshot, &told_rows(&told)),
        })
    }
}

/// How sweeping stands in a database; see [`TtlRegistry::status`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SweeperStatus {
    /// What the holder is doing, or why nobody is.
    pub activity: Activity,
    /// Who sweeps, or has the right to; it may have died within the last seconds.
    pub holder: Option<String>,
    /// When the holder was last heard of, if it has been silent for so long that it is gone, most likely: nobody sweeps then.
    pub silent_since: Option<DateTime>,
    /// Rises whenever the right to sweep changes hands.
    pub term: Option<i64>,
    /// Since when the holder has it, by the database's clock.
    pub since: Option<DateTime>,
    /// The pause in force.
    pub paused: Option<Pause>,
    /// The most documents a second that the holder deletes.
    pub max_rate: Option<f64>,
    /// How fast the holder sweeps, and why; none before its first visits.
    pub pace: Option<PaceStatus>,
    /// When the holder told this of the indexes, by the database's clock.
    pub told_at: Option<DateTime>,
    /// Every TTL index, in the order of their making.
    pub indexes: Vec<IndexStatus>,
}

impl SweeperStatus {
    /// Of a sweeper that has seen nothing yet.
    pub(super) fn unknown() -> Self {
        Self {
            activity: Activity::Standby,
            holder: None,
            silent_since: None,
            term: None,
            since: None,
            paused: None,
            max_rate: None,
            pace: None,
            told_at: None,
            indexes: Vec::new(),
        }
    }
}

/// What is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activity {
    /// Nobody sweeps this database.
    Nobody,
    /// Somebody else sweeps; this process takes over when that one is gone.
    Standby,
    /// Visiting the TTL indexes in turn.
    Sweeping,
    /// Sweeping is paused.
    Paused,
    /// A closed window keeps it from sweeping.
    Closed,
    /// The database cannot be reached.
    Away,
}

impl Activity {
    const ALL: [Activity; 6] =
        [Activity::Nobody, Activity::Standby, Activity::Sweeping, Activity::Paused, Activity::Closed, Activity::Away];

    /// As printed: `nobody`, `standby`, `sweeping`, `paused`, `closed` or `away`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Activity::Nobody => "nobody",
            Activity::Standby => "standby",
            Activity::Sweeping => "sweeping",
            Activity::Paused => "paused",
            Activity::Closed => "closed",
            Activity::Away => "away",
        }
    }

    /// A one-off pass tells nothing more than that it holds the lease.
    fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|activity| activity.as_str() == text).unwrap_or(Activity::Sweeping)
    }
}

/// How sweeping goes for one TTL index.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct IndexStatus {
    /// The collection.
    pub collection: String,
    /// The name of the TTL index.
    pub index: String,
    /// Its state.
    pub state: IndexState,
    /// Why it is not swept, or what is odd about it.
    pub problem: Option<String>,
    /// What the holder's visits came to, if there were any.
    pub visits: Option<Visits>,
}

/// What the visits of a sweeper to one TTL index came to, since it took over.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Visits {
    /// When the last one ended, by the database's clock.
    pub last: Option<DateTime>,
    /// How it ended, as in [`Ended::as_str`](crate::Ended::as_str).
    pub ended: String,
    /// Documents deleted.
    pub deleted: u64,
    /// Documents that are due and that a guard or a veto keeps, as of when they were last looked at: at least once an hour.
    pub kept: u64,
    /// When the oldest document expired of those that are still due, the kept ones left out.
    pub oldest_due: Option<DateTime>,
    /// Documents that are due, as far as they were counted, the kept ones left out.
    pub backlog: u64,
    /// By when the first of them must be gone.
    pub deadline: Option<DateTime>,
    /// How late its documents will be by a rate of its own that does not suffice.
    pub shortfall: Option<Shortfall>,
    /// How many of the last visits failed in a row.
    pub failures: u32,
    /// What went wrong in the last of them.
    pub error: Option<String>,
}

impl Visits {
    pub(super) fn to_document(&self, id: ObjectId) -> Document {
        doc! {
            "id": id,
            "last": self.last,
            "ended": &self.ended,
            "deleted": i64::try_from(self.deleted).unwrap_or(i64::MAX),
            "kept": i64::try_from(self.kept).unwrap_or(i64::MAX),
            "oldestDue": self.oldest_due,
            "backlog": i64::try_from(self.backlog).unwrap_or(i64::MAX),
            "deadline": self.deadline,
            "shortfall": self.shortfall.map(pace::shortfall_document),
            "failures": i64::from(self.failures),
            "error": self.error.clone(),
        }
    }

    fn parse(row: &Document) -> Option<(ObjectId, Self)> {
        let number = |field: &str| row.get_i64(field).unwrap_or(0);
        let visits = Self {
            last: row.get_datetime("last").ok().copied(),
            ended: row.get_str("ended").unwrap_or_default().to_owned(),
            deleted: u64::try_from(number("deleted")).unwrap_or(0),
            kept: u64::try_from(number("kept")).unwrap_or(0),
            oldest_due: row.get_datetime("oldestDue").ok().copied(),
            backlog: u64::try_from(number("backlog")).unwrap_or(0),
            deadline: row.get_datetime("deadline").ok().copied(),
            shortfall: row.get_document("shortfall").ok().and_then(pace::parse_shortfall),
            failures: u32::try_from(number("failures")).unwrap_or(0),
            error: row.get_str("error").ok().map(str::to_owned),
        };
        Some((row.get_object_id("id").ok()?, visits))
    }
}

fn told_rows(told: &Document) -> HashMap<ObjectId, Visits> {
    let rows = told.get_array("indexes").map(Vec::as_slice).unwrap_or_default();
    rows.iter().filter_map(Bson::as_document).filter_map(Visits::parse).collect()
}

/// The registry's indexes, with what is known of the visits to each.
pub(super) fn rows(snapshot: &Snapshot, visits: &HashMap<ObjectId, Visits>) -> Vec<IndexStatus> {
    let row = |slot: &Slot| match slot {
        Slot::Good(entry) => IndexStatus {
            collection: entry.definition.collection.to_string(),
            index: entry.definition.name.clone(),
            state: entry.state,
            problem: entry.problem.clone(),
            visits: visits.get(&entry.id).cloned(),
        },
        Slot::Broken(broken) => IndexStatus {
            collection: broken.collection.clone(),
            index: broken.name.clone(),
            state: IndexState::NeedsRepair,
            problem: Some(broken.why.clone()),
            visits: None,
        },
    };
    snapshot.slots.iter().map(row).collect()
}
