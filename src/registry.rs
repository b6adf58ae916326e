//! Which TTL indexes a database has, and the verbs that change them.

mod continuation;
mod create;
mod creation;
mod drop;
mod failing;
mod guards;
mod list;
mod modify;
mod operations;
mod pause;
mod repair;
mod snapshot;
mod supporting;
mod touch;
mod tune;

pub(crate) use continuation::continue_operations;
pub use create::CreateIndex;
pub(crate) use creation::continue_creation;
pub use drop::{DropIndex, IndexRef};
pub use guards::SetGuards;
pub(crate) use guards::{keepers, serves};
pub use list::{IndexInfo, ListIndexes};
pub use modify::ModifyIndex;
pub(crate) use modify::set_period;
pub use operations::ListOperations;
pub use pause::{Pause, PauseSweeping};
pub use repair::Repair;
pub(crate) use repair::mark;
pub(crate) use snapshot::{Slot, Snapshot};
pub(crate) use supporting::walkable;
pub use touch::Touch;
pub use tune::{Tune, Tuning};

use std::sync::Arc;

use mongodb::bson::DateTime;
use tokio::sync::Mutex;

use crate::{
    error::{Code, Refusal, Result},
    expiry::Rule,
    guard::Hook,
    interval::Memory,
    meter::{Counters, Meter},
    namespace::CollectionName,
    store::{DynStore, IntoStore},
};

/// The TTL indexes of a database: one on a collection at most, 500 in the database at most.
///
/// # Guarantees
///
/// Both limits hold under any number of concurrent creators in any number of processes: every change is one guarded
/// update of one document. A request that is refused changes nothing.
///
/// Cheap to clone; clones are the same registry. Nothing runs in the background.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ttl_index::Error> {
/// use std::time::Duration;
/// use ttl_index::{EmbeddedStore, TtlIndex, TtlRegistry};
///
/// let ttl = TtlRegistry::open(EmbeddedStore::in_memory()?).await?;
/// ttl.create_index("sessions", TtlIndex::on("expireAt").expire_after(Duration::ZERO)).await?;
/// ttl.modify_index("sessions", Duration::from_secs(3600)).await?;
/// assert_eq!(ttl.list_indexes().await?[0].name, "expireAt_1");
/// ttl.drop_index("sessions", "expireAt_1").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TtlRegistry {
    pub(crate) store: DynStore,
    pub(crate) meter: Arc<Meter>,
    /// Passes of this process take turns.
    pub(crate) turn: Arc<Mutex<()>>,
    /// What this process knows of what is pruned now and then.
    pub(crate) prunes: Arc<Memory>,
    /// What is asked about every batch.
    pub(crate) veto: Option<Hook>,
}

impl TtlRegistry {
    /// Opens the registry of a database. Reads it once, to see that it can be read, and writes nothing.
    ///
    /// # Errors
    ///
    /// If the database cannot be reached, or its registry cannot be understood.
    pub async fn open(store: impl IntoStore) -> Result<Self> {
        let store = store.into_store().0;
        Snapshot::load(&*store).await?;
        let meter = Arc::new(Meter::new(store.name()));
        Ok(Self { store, meter, turn: Arc::default(), prunes: Arc::default(), veto: None })
    }

    /// The database's clock, by which documents expire. Never runs ahead of it.
    pub async fn now(&self) -> Result<DateTime> {
        self.store.now().await
    }

    /// What this registry and its clones have counted since it was opened.
    ///
    /// Costs no more than copying the numbers. The same numbers go to the `metrics` facade with the feature `metrics`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ttl_index::Error> {
    /// # use std::time::Duration;
    /// # use ttl_index::{EmbeddedStore, TtlIndex, TtlRegistry};
    /// # let ttl = TtlRegistry::open(EmbeddedStore::in_memory()?).await?;
    /// ttl.create_index("a$b", TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap_err();
    /// let counters = ttl.counters();
    /// assert_eq!((counters.indexes[0].collection.as_str(), counters.indexes[0].index.as_str()), ("a$b", "t_1"));
    /// assert_eq!(counters.total.errors[&("refused", Some(73))], 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn counters(&self) -> Counters {
        self.meter.counters()
    }

    /// What the TTL index of a collection means, to judge documents by.
    ///
    /// # Errors
    ///
    /// Refused if the collection has no TTL index, or one that a sweep would not go by:
    /// [`Code::CollectionUuidMismatch`] if the collection is not the one that the index was made for.
    pub async fn rule(&self, collection: impl AsRef<str>) -> Result<Rule> {
        let collection = CollectionName::parse(collection.as_ref())?;
        let snapshot = Snapshot::load(&*self.store).await?;
        let entry = snapshot.entry(&collection)?;
        entry.check_identity(self.store.inspect(&collection).await?.uuid.as_ref())?;
        Ok(entry.rule.clone())
    }
}

pub(crate) fn no_index(collection: &CollectionName) -> Refusal {
    Refusal::new(Code::IndexNotFound, format!("{collection} has no TTL index"))
}
