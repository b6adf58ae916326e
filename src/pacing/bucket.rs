//! A rate, kept by waiting.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Lets through so many documents a second.
///
/// What is larger than the rate allows at once is let through as a whole and paid for afterwards, so that a batch is never
/// split. Time that passes unused is not saved up. Goes by tokio's clock, which tests can pause.
#[derive(Debug)]
pub(crate) struct Bucket {
    per_item: Duration,
    /// When what was let through so far is paid for.
    paid_at: Instant,
}

impl Bucket {
    pub(crate) fn per_second(rate: f64) -> Self {
        // A rate too small for a duration means waiting for ever, which is what it says.
        let per_item = Duration::try_from_secs_f64(rate.recip()).unwrap_or(Duration::MAX);
        Self { per_item, paid_at: Instant::now() }
    }

    /// Waits until what came before is paid for.
    pub(crate) async fn ready(&self) {
        sleep_until(self.paid_at).await;
    }

    /// Takes note of what was let through.
    pub(crate) fn spend(&mut self, items: u32) {
        let start = self.paid_at.max(Instant::now());
        let cost = self.per_item.saturating_mul(items);
        // Further away than the clock reaches: as far as it does.
        self.paid_at = start.checked_add(cost).unwrap_or_else(|| start + Duration::from_secs(u64::from(u32::MAX)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn batches_go_at_the_rate_and_pay_afterwards() {
        let start = Instant::now();
        let mut bucket = Bucket::per_second(1000.0);
        for _ in 0..10 {
            bucket.ready().await;
            bucket.spend(1000);
        }
        assert_eq!(start.elapsed().as_secs(), 9);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_time_is_not_saved_up() {
        let mut bucket = Bucket::per_second(10.0);
        tokio::time::sleep(Duration::from_secs(100)).await;
        let start = Instant::now();
        for _ in 0..3 {
            bucket.ready().await;
            bucket.spend(10);
        }
        assert_eq!(start.elapsed().as_secs(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn no_rate_overflows_the_clock() {
        for rate in [f64::MIN_POSITIVE, f64::MAX, 1e-300] {
            let mut bucket = Bucket::per_second(rate);
            bucket.spend(u32::MAX);
            bucket.spend(u32::MAX);
        }
    }
}
