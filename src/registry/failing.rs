//! What is said of requests that fail, besides the error that whoever asked gets.

use tracing::warn;

use super::TtlRegistry;
use crate::{error::Result, meter::Labels};

impl TtlRegistry {
    /// Counts and logs the request if it failed, with all that an alert has to say: which collection, which index, why.
    pub(super) fn told<T>(&self, verb: &'static str, collection: &str, index: &str, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome {
            let (kind, code) = (error.kind(), error.code());
            self.meter.error(&Labels { collection, index }, kind, code);
            warn!(collection, index, verb, kind, code, %error, "request failed");
        }
        outcome
    }
}
