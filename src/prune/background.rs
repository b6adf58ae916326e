//! Pruning without anybody waiting for it.

use std::future::IntoFuture;

use tokio::runtime::Handle;
use tracing::{debug, warn};

use super::{Pruned, SweepIfDue};
use crate::interval::OneTry;

impl SweepIfDue {
    /// Prunes in a task of its own on the runtime of the caller, and returns at once.
    ///
    /// # Guarantees
    ///
    /// Nothing of it reaches the caller: failures are logged as warnings. One try at a time in a registry handle and its
    /// clones, and after a failure none for a minute, or for the interval if that is shorter. While it is known not to be
    /// due no task is made, so that it may be called in every request.
    ///
    /// # Assumptions
    ///
    /// The runtime goes on. If it ends meanwhile the pass ends with it, and its right to sweep lapses within 15 seconds.
    pub fn in_background(self) {
        self.begin_in_background();
    }

    pub(super) fn begin_in_background(&self) {
        let id = self.id();
        if self.known(&id).is_some() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            warn!("nothing is pruned: there is no runtime here");
            return;
        };
        if let Some(one) = self.registry.prunes.try_one(&id) {
            runtime.spawn(self.clone().try_once(one));
        }
    }

    async fn try_once(self, one: OneTry) {
        let quiet = self.quiet();
        match self.into_future().await {
            Ok(pruned) => {
                tell(&pruned);
                if pruned.began_nothing() {
                    one.rest(quiet);
                }
            }
            Err(error) => {
                warn!(error = error.in_full(), retry_in = ?quiet, "pruning failed");
                one.rest(quiet);
            }
        }
    }
}

/// Passes and retentions have been logged when they failed.
fn tell(pruned: &Pruned) {
    match pruned {
        Pruned::NotDue { .. } => {}
        Pruned::HeldBy { holder, .. } => debug!(holder, "not pruned: somebody else is sweeping"),
        Pruned::Swept { passes, unvisited, .. } => {
            for it in passes {
                if let Err(error) = &it.pass {
                    warn!(collection = it.collection, error = error.in_full(), "not pruned");
                }
            }
            if !unvisited.is_empty() {
                debug!(?unvisited, "no time was left to prune these");
            }
        }
    }
}
