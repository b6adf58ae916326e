//! Waiting until whoever sweeps goes by a change of the registry.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout_at};
use tracing::debug;

use super::{
    Record,
    observer::{Observer, View},
};
use crate::{
    error::{Error, Result},
    store::{DynStore, Store},
};

/// How long to wait unless told otherwise: several times what a dead holder's lease takes to lapse.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);

/// Longer than this nobody waits; the clock ends somewhere.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Returns once nothing is deleted any more by the rules before this revision, in any process.
///
/// # Errors
///
/// [`Error::NotYetGuaranteed`] if that cannot be said within `max_wait`.
pub(crate) async fn wait_until_acknowledged(store: &DynStore, revision: i64, max_wait: Duration) -> Result<()> {
    let holder = Arc::new(Mutex::new(None));
    let end = Instant::now() + max_wait.min(FOR_EVER);
    // A task of its own: a driver call must not be dropped halfway, and may take for ever.
    let waiting = tokio::spawn(wait(store.clone(), revision, end, holder.clone()));
    match timeout_at(end, waiting).await {
        Ok(Ok(Ok(true))) => return Ok(()),
        Ok(Ok(Err(Error::Backend { action, source }))) => {
            let action = format!("the change is made, but not known to be in force everywhere: {action}");
            return Err(Error::Backend { action, source });
        }
        _ => {}
    }
    let holder = holder.lock().unwrap_or_else(PoisonError::into_inner).take();
    Err(Error::NotYetGuaranteed { holder: holder.unwrap_or_else(|| "whoever sweeps".to_owned()), waited: max_wait })
}

/// Whether it is guaranteed by `end`. Leaves in `holder` who is waited for.
async fn wait(store: DynStore, revision: i64, end: Instant, holder: Arc<Mutex<Option<String>>>) -> Result<bool> {
    let mut observer = Observer::default();
    let mut pause = FIRST_PAUSE;
    // From when on what a holder that is gone had under way has no effect any more.
    let mut over: Option<(i64, Instant)> = None;
    loop {
        match Record::read(&*store).await {
            Ok(Some(record)) if !acknowledged(&*store, &record, revision).await => {
                holder.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&record.holder);
                match observer.look(Some(&record), "", Instant::now()) {
                    // Who takes it next reads the registry after that.
                    View::Free => return Ok(true),
                    View::Over => {
                        let (term, settled) = *over.get_or_insert((record.term, Instant::now() + record.settle));
                        if term == record.term && Instant::now() >= settled {
                            return Ok(true);
                        }
                    }
                    View::Held { .. } => over = None,
                }
            }
            Ok(_) => return Ok(true),
            // Waiting does not help who may not look.
            Err(error) if error.missing_privilege().is_some() => return Err(error),
            Err(error) => debug!(%error, "the lease could not be read; trying again"),
        }
        if Instant::now() >= end {
            return Ok(false);
        }
        sleep(pause.min(end - Instant::now())).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether the holder goes by this revision.
async fn acknowledged(store: &dyn Store, record: &Record, revision: i64) -> bool {
    let Some(theirs) = record.revision else { return false };
    let Ok(now) = store.revision().await else { return false };
    // A registry that was dropped and made again counts from another number: theirs may be one of the old.
    (theirs >= revision && now >= Some(theirs)) || now == Some(theirs)
}
