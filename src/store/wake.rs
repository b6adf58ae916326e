//! How a store of our own wakes a sweeper.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use mongodb::bson::DateTime;
use tokio::sync::watch;

/// Tells a sweeper that there is something to do.
#[derive(Clone, Debug)]
pub(crate) struct Wake {
    bell: watch::Sender<()>,
    /// Milliseconds of the instant before which an expiry is worth waking for.
    before: Arc<AtomicI64>,
}

#[cfg_attr(not(feature = "embedded"), allow(dead_code))] // only a store of our own can ring
impl Wake {
    pub(crate) fn new() -> Self {
        Self { bell: watch::Sender::new(()), before: Arc::new(AtomicI64::new(i64::MIN)) }
    }

    pub(crate) fn ring(&self) {
        self.bell.send_replace(());
    }

    /// Rings if a document expires earlier than anybody expects.
    pub(crate) fn expires(&self, at: DateTime) {
        if at.timestamp_millis() < self.before.load(Ordering::SeqCst) {
            self.ring();
        }
    }

    /// Whoever listens looks by itself at this instant; what expires before it is news.
    pub(crate) fn look_at(&self, at: DateTime) {
        self.before.store(at.timestamp_millis(), Ordering::SeqCst);
    }

    pub(crate) fn listen(&self) -> watch::Receiver<()> {
        self.bell.subscribe()
    }
}
