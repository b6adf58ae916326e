//! The background sweeper of a report, and time that goes by while it sweeps.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use ttl_index::{Sweeper, SweeperHandle, TtlRegistry};

/// A report's sweeper, once it is started.
pub(super) struct Background {
    /// How long a second of the report takes.
    second: Duration,
    interval: Mutex<Duration>,
    running: Mutex<Option<SweeperHandle>>,
}

impl Background {
    pub(super) fn new(second: Duration) -> Background {
        Background { second, interval: Mutex::new(60 * second), running: Mutex::default() }
    }

    pub(super) fn lasting(&self, seconds: &Value) -> Duration {
        self.second.mul_f64(seconds.as_f64().unwrap())
    }

    pub(super) fn set_interval(&self, seconds: &Value) {
        *self.interval.lock().unwrap() = self.lasting(seconds);
    }

    /// Starts it, in the place of one that runs, with this rate if there is one.
    pub(super) async fn start(&self, ttl: &TtlRegistry, limits: &Value) {
        self.shutdown().await;
        let mut sweeper = Sweeper::new(ttl.clone()).interval(*self.interval.lock().unwrap());
        if let Some(rate) = limits["max_deletes_per_second"].as_f64() {
            // A limit that is made use of, as theirs are.
            let rate = rate / self.second.as_secs_f64();
            sweeper = sweeper.max_rate(rate).min_rate(rate);
        }
        *self.running.lock().unwrap() = Some(sweeper.start().unwrap());
    }

    /// Stops it, if it runs, which it does in time and without an error.
    pub(super) async fn shutdown(&self) {
        let running = self.running.lock().unwrap().take();
        if let Some(running) = running {
            tokio::time::timeout(Duration::from_secs(15), running.shutdown()).await.unwrap().unwrap();
        }
    }
}

/// With tokio's clock paused, which moves on when everybody waits.
pub(super) fn in_no_time<T>(play: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(play)
}

/// With a clock that goes on by itself, as the real server's does.
pub(super) fn in_real_time<T>(play: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(play)
}
