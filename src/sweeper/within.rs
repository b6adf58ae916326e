//! Work that is waited for as long as the lease lasts, and as a stop may take.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{changed, tenure::Tenure};
use crate::lease::Standing;

/// How long a database call is waited for once the lease is lost. Then it is left behind: it can have no effect any more.
const LAST_WAIT: Duration = Duration::from_secs(3);

impl Tenure<'_> {
    /// What the work comes to, or nothing if it does not end while the lease lasts or a stop may take.
    pub(super) async fn within<T: Send + 'static>(
        &mut self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.within_slice(work, &CancellationToken::new()).await
    }

    /// The same; `slice` is cancelled when the lease is asked for or lost.
    pub(super) async fn within_slice<T: Send + 'static>(
        &mut self,
        work: impl Future<Output = T> + Send + 'static,
        slice: &CancellationToken,
    ) -> Option<T> {
        // A task of its own: a driver call must not be dropped halfway.
        let mut task = tokio::spawn(work);
        let mut standing = self.lease.standing();
        let last_wait = LAST_WAIT.min(self.options.lease_time);
        let too_long = async {
            loop {
                let now = standing.borrow_and_update().clone();
                match now {
                    Standing::Held => {}
                    Standing::Asked(_) => slice.cancel(),
                    Standing::Lost => {
                        slice.cancel();
                        return sleep(last_wait).await;
                    }
                }
                tokio::select! {
                    () = changed(&mut standing) => {}
                    () = self.stop.late.cancelled() => return,
                }
            }
        };
        let ended = tokio::select! {
            ended = &mut task => ended,
            () = too_long => {
                warn!("a database call has not returned in time and is left behind");
                return None;
            }
        };
        match ended {
            Ok(value) => Some(value),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => None,
            },
        }
    }
}
