//! Claiming an interval: one of many processes prunes, once in an interval at most.
//!
//! The record of a prune is read, and the claim is one guarded step from the record as it was read: of any number who find
//! it due exactly one succeeds, and the others look again.

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc, oid::ObjectId};
use tokio::time::Instant;
use tracing::debug;

use crate::{
    error::{Error, Result},
    interval::{Memory, Seen, Sight, due_at},
    lease::default_name,
    store::{DynStore, Guard, Records},
};

/// Whether this process may prune.
#[derive(Debug)]
pub(super) enum Look {
    Claimed(Claim),
    NotDue(DateTime),
}

/// An interval that belongs to this process.
#[derive(Debug)]
pub(super) struct Claim {
    store: DynStore,
    id: String,
    /// Unlike any other's.
    token: ObjectId,
    /// When, by the database's clock and by this process's own.
    told: DateTime,
    at: Instant,
    /// What the record said before.
    before: Record,
}

#[derive(Clone, Debug, Default)]
struct Record {
    /// None if the last claim was given back, and before the first.
    claimed: Option<DateTime>,
    /// The collection to begin with, as there was no time left for it.
    begin: Option<String>,
}

impl Record {
    fn parse(id: &str, record: &Document) -> Result<Self> {
        let claimed = match record.get("claimedAt") {
            Some(Bson::DateTime(at)) => Some(*at),
            None | Some(Bson::Null) => None,
            Some(other) => {
                let own = Records::Prunes.collection();
                return Err(Error::Unreadable(format!(
                    "the record {id:?} in {own} has no readable claimedAt ({other}), so nothing is pruned; remove it"
                )));
            }
        };
        Ok(Self { claimed, begin: record.get_str("begin").ok().map(str::to_owned) })
    }
}

/// Claims the interval if it is due.
pub(super) async fn claim(store: &DynStore, memory: &Memory, id: &str, interval: Duration) -> Result<Look> {
    loop {
        let found = store.record(Records::Prunes, id).await?;
        let before = found.as_ref().map(|record| Record::parse(id, record)).transpose()?;
        let (now, at) = (store.now().await?, Instant::now());
        let see = |claimed| memory.see(id, Some(Seen { told: now, at, what: Sight::Claimed(claimed) }));
        let last = before.as_ref().and_then(|record| record.claimed);
        if let (Some(last), Some(next)) = (last, due_at(last, interval, now)) {
            see(last);
            return Ok(Look::NotDue(next));
        }
        let guard = match &before {
            None => Guard::Missing,
            Some(record) => Guard::Has(doc! { "claimedAt": record.claimed }),
        };
        let claim = Claim {
            store: store.clone(),
            id: id.to_owned(),
            token: ObjectId::new(),
            told: now,
            at,
            before: before.unwrap_or_default(),
        };
        let fields = doc! { "claimedAt": now, "claim": claim.token, "claimedBy": default_name(), "begin": Bson::Null };
        match store.set_record(Records::Prunes, id, guard, fields).await {
            Ok(Some(_)) => {
                see(now);
                return Ok(Look::Claimed(claim));
            }
            // Somebody was quicker.
            Ok(None) => {}
            // It may have been made.
            Err(error) => {
                claim.give_back(memory, None).await;
                return Err(error);
            }
        }
    }
}

impl Claim {
    /// Which collection there was no time left for the last time.
    pub(super) fn begin(&self) -> Option<&str> {
        self.before.begin.as_deref()
    }

    /// Has the next prune begin with this collection. Only for fairness: if it fails the next begins as ever.
    pub(super) async fn begin_next_with(&self, collection: &str) {
        self.set(doc! { "begin": collection }).await;
    }

    /// Leaves the interval to whoever comes next. If it fails, the interval is lost.
    pub(super) async fn give_back(&self, memory: &Memory, held_by: Option<&str>) {
        let sight = |holder: &str| Seen { told: self.told, at: self.at, what: Sight::HeldBy(holder.to_owned()) };
        memory.see(&self.id, held_by.map(sight));
        self.set(doc! { "claimedAt": self.before.claimed, "begin": &self.before.begin }).await;
    }

    /// Unless somebody else has claimed since.
    async fn set(&self, fields: Document) {
        let mine = Guard::Has(doc! { "claim": self.token });
        if let Err(error) = self.store.set_record(Records::Prunes, &self.id, mine, fields).await {
            debug!(prune = self.id, error = error.in_full(), "the record of a prune could not be written");
        }
    }
}
