//! Pausing every sweeper of a database.

use std::{future::IntoFuture, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use mongodb::bson::{Bson, DateTime, Document, doc};
use tracing::info;

use super::{Snapshot, TtlRegistry};
use crate::{
    error::{Code, Refusal, Result},
    lease::{MAX_WAIT, default_name, wait_until_acknowledged},
    store::Change,
};

impl TtlRegistry {
    /// Pauses sweeping in this database: in every process, now and after restarts, until it is resumed.
    ///
    /// # Guarantees
    ///
    /// After it returns nothing is deleted until sweeping is resumed, or the time is over. Documents go on expiring. A pause
    /// that is in force and ends later is kept, and returned: who asked for it counts on it. Resume first to shorten it.
    ///
    /// # Errors
    ///
    /// [`Error::NotYetGuaranteed`](crate::Error::NotYetGuaranteed) if whoever sweeps has not confirmed in time; the pause
    /// is kept all the same.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ttl_index::Error> {
    /// # use std::time::Duration;
    /// # use ttl_index::{EmbeddedStore, Ended, TtlIndex, TtlRegistry};
    /// # let ttl = TtlRegistry::open(EmbeddedStore::in_memory()?).await?;
    /// # ttl.create_index("sessions", TtlIndex::on("at").expire_after(Duration::ZERO)).await?;
    /// ttl.pause().for_duration(Duration::from_secs(3600)).await?;
    /// assert_eq!(ttl.sweep("sessions").await?.ended, Ended::Paused);
    /// ttl.resume().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn pause(&self) -> PauseSweeping<'_> {
        PauseSweeping { registry: self, duration: None, max_wait: MAX_WAIT }
    }

    /// Has sweeping go on, and says whether it was paused.
    pub async fn resume(&self) -> Result<bool> {
        let resumed = self.store.change_registry(Change::Pause(None)).await?.is_some();
        if resumed {
            info!("sweeping goes on");
        }
        Ok(resumed)
    }
}

/// Pauses sweeping; see [`TtlRegistry::pause`].
#[derive(Debug)]
#[must_use = "nothing happens until it is awaited"]
pub struct PauseSweeping<'a> {
    registry: &'a TtlRegistry,
    duration: Option<Duration>,
    max_wait: Duration,
}

impl PauseSweeping<'_> {
    /// How long, by the database's clock; until it is resumed by default.
    pub fn for_duration(mut self, duration: Duration) -> Self {
        self.duration = Some(duration);
        self
    }

    /// How long to wait for whoever sweeps to confirm; 60 s by default.
    pub fn max_wait(mut self, time: Duration) -> Self {
        self.max_wait = time;
        self
    }
}

impl<'a> IntoFuture for PauseSweeping<'a> {
    type Output = Result<Pause>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let store = &self.registry.store;
            let now = store.now().await?;
            let until = self.duration.map(|duration| {
                let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
                DateTime::from_millis(now.timestamp_millis().saturating_add(millis))
            });
            let snapshot = Snapshot::load(&**store).await?;
            if let (Some(before), Some(revision)) = (snapshot.paused.filter(|it| it.holds_at(now)), snapshot.revision)
                && (before.until.is_none() || (until.is_some() && until <= before.until))
            {
                wait_until_acknowledged(store, revision, self.max_wait).await?;
                return Ok(before);
            }
            let pause = Pause { since: now, until, by: default_name() };
            let Some(revision) = store.change_registry(Change::Pause(Some(pause.to_document()))).await? else {
                return Err(
                    Refusal::new(Code::BadValue, "the registry was dropped while sweeping was being paused").into()
                );
            };
            info!(until = ?pause.until, "sweeping is paused");
            wait_until_acknowledged(store, revision, self.max_wait).await?;
            Ok(pause)
        }
        .boxed()
    }
}

/// A pause of all sweeping in a database.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pause {
    /// When it began, by the database's clock.
    pub since: DateTime,
    /// When it ends by itself.
    pub until: Option<DateTime>,
    /// Which process asked for it.
    pub by: String,
}

impl Pause {
    pub(crate) fn holds_at(&self, now: DateTime) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    fn to_document(&self) -> Document {
        doc! { "since": self.since, "until": self.until, "by": &self.by }
    }

    /// A pause that cannot be understood is one until it is resumed.
    pub(super) fn parse(stored: &Bson) -> Option<Self> {
        let field = |name: &str| stored.as_document().and_then(|pause| pause.get(name));
        let until = match field("until") {
            Some(Bson::DateTime(until)) => Some(*until),
            _ => None,
        };
        let since = match field("since") {
            Some(Bson::DateTime(since)) => *since,
            _ => DateTime::MIN,
        };
        let by = field("by").and_then(Bson::as_str).unwrap_or("unknown").to_owned();
        (*stored != Bson::Null).then_some(Self { since, until, by })
    }
}
