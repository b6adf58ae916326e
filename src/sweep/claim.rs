//! The right to sweep a database, for one pass or for several.

use std::{fmt, future::IntoFuture, sync::Arc};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use super::in_a_task;
use crate::{
    error::{Error, Result},
    lease::{self, Claimant, Lease, Patience},
    registry::TtlRegistry,
};

impl TtlRegistry {
    /// Claims the right to sweep this database for several passes, so that nobody else sweeps in between.
    ///
    /// # Guarantees
    ///
    /// One holder at a time, in any process. The right lapses by itself within 15 seconds if this process dies.
    ///
    /// # Errors
    ///
    /// Refused with [`Code::ConflictingOperationInProgress`](crate::Code::ConflictingOperationInProgress), naming the
    /// holder, if somebody else has it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ttl_index::Error> {
    /// # use std::time::Duration;
    /// # use ttl_index::{EmbeddedStore, TtlIndex, TtlRegistry};
    /// let ttl = TtlRegistry::open(EmbeddedStore::in_memory()?).await?;
    /// # for name in ["drafts", "sessions"] {
    /// #     ttl.create_index(name, TtlIndex::on("at").expire_after(Duration::ZERO)).await?;
    /// # }
    /// let claim = ttl.claim_sweep().await?;
    /// for collection in ["drafts", "sessions"] {
    ///     ttl.sweep(collection).under(&claim).await?;
    /// }
    /// claim.release().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn claim_sweep(&self) -> ClaimSweep<'_> {
        ClaimSweep { registry: self, patience: Patience::Refuse, stop: None }
    }
}

/// Claims the right to sweep; see [`TtlRegistry::claim_sweep`].
#[must_use = "nothing happens until it is awaited"]
pub struct ClaimSweep<'a> {
    registry: &'a TtlRegistry,
    patience: Patience,
    stop: Option<BoxFuture<'static, ()>>,
}

impl ClaimSweep<'_> {
    /// Whether to ask the holder to hand over at the end of a batch, and to wait for that; off by default.
    pub fn wait(mut self, value: bool) -> Self {
        self.patience = if value { Patience::Ask } else { Patience::Refuse };
        self
    }

    /// Gives up once this future is ready, with [`Error::Interrupted`]; never by default.
    ///
    /// What was asked of the holder is taken back before that. A process that ends while it waits without this may be handed
    /// the right after its end: then nobody sweeps until it has lapsed.
    pub fn stop_when(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.stop = Some(signal.boxed());
        self
    }
}

impl fmt::Debug for ClaimSweep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimSweep").field("patience", &self.patience).finish_non_exhaustive()
    }
}

impl<'a> IntoFuture for ClaimSweep<'a> {
    type Output = Result<Claim>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let (registry, patience) = (self.registry.clone(), self.patience);
            let taken = in_a_task(self.stop, |stop| async move { Claim::take(&registry, patience, &stop).await });
            taken.await?.ok_or(Error::Interrupted)
        }
        .boxed()
    }
}

/// The right to sweep a database; see [`TtlRegistry::claim_sweep`].
///
/// Dropped without [`release`](Self::release) it lapses within 15 seconds.
#[derive(Debug)]
#[must_use = "nobody else can sweep until it is released"]
pub struct Claim {
    lease: Arc<Lease>,
    _turn: OwnedMutexGuard<()>,
}

impl Claim {
    /// None if it was told to stop before it had it.
    async fn take(registry: &TtlRegistry, patience: Patience, stop: &CancellationToken) -> Result<Option<Self>> {
        // Passes of the same process take turns instead of refusing each other.
        let turn = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(None),
            turn = registry.turn.clone().lock_owned() => turn,
        };
        let claimant = Claimant::new(&lease::default_name(), lease::LEASE_TIME);
        let lease = lease::take(&registry.store, &claimant, patience, stop).await?;
        Ok(lease.map(|lease| Self { lease: Arc::new(lease), _turn: turn }))
    }

    pub(super) fn lease(&self) -> Arc<Lease> {
        self.lease.clone()
    }

    /// Gives the right back.
    pub async fn release(self) {
        self.lease.give_back(None).await;
    }
}

/// Under which right a pass is made.
#[derive(Debug)]
pub(super) enum Tenure {
    /// One taken for it.
    Take(Patience),
    /// One that is held already.
    Held(Arc<Lease>),
    /// None, in tests of what happens then.
    #[cfg(feature = "test-util")]
    None,
}

/// The right of a pass that is under way.
pub(super) enum Begun {
    Own(Claim),
    Held(Arc<Lease>),
    #[cfg(feature = "test-util")]
    None,
}

impl Tenure {
    pub(super) async fn begin(self, registry: &TtlRegistry, stop: &CancellationToken) -> Result<Option<Begun>> {
        Ok(match self {
            Tenure::Take(patience) => Claim::take(registry, patience, stop).await?.map(Begun::Own),
            Tenure::Held(lease) => Some(Begun::Held(lease)),
            #[cfg(feature = "test-util")]
            Tenure::None => Some(Begun::None),
        })
    }
}

impl Begun {
    pub(super) fn lease(&self) -> Option<Arc<Lease>> {
        match self {
            Begun::Own(claim) => Some(claim.lease()),
            Begun::Held(lease) => Some(lease.clone()),
            #[cfg(feature = "test-util")]
            Begun::None => None,
        }
    }

    pub(super) async fn end(self) {
        if let Begun::Own(claim) = self {
            claim.release().await;
        }
    }
}
