//! A rate, kept by waiting.

use std::{future::pending, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// Lets through so many documents a second; its clones are one throttle.
///
/// What is larger than the rate allows at once is let through as a whole and paid for afterwards, so that a batch is never
/// split. Time that passes unused is not saved up. What is owed is reckoned in documents: whoever waits while the rate is
/// changed waits anew, by the new rate. Goes by tokio's clock, which tests can pause.
#[derive(Clone, Debug)]
pub(crate) struct Throttle {
    account: watch::Sender<Account>,
}

#[derive(Clone, Copy, Debug)]
struct Account {
    /// Documents a second; none are let through at 0.
    rate: f64,
    /// Documents that were let through and are not paid for at this instant; below 0 while a batch is under way that has
    /// taken longer than what it owes.
    owed: f64,
    at: Instant,
}

impl Account {
    /// Pays for what the time since the last look allows.
    fn pay(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        // Without a limit nothing is owed, not even an unlimited credit.
        self.owed = if self.rate == f64::INFINITY { 0.0 } else { self.owed - self.rate * elapsed };
        self.at = now;
    }

    /// When everything is paid for; none if that is beyond any clock.
    fn paid_at(&self) -> Option<Instant> {
        if self.rate == 0.0 {
            return None;
        }
        self.at.checked_add(Duration::try_from_secs_f64(self.owed.max(0.0) / self.rate).ok()?)
    }
}

impl Throttle {
    /// One at this rate; any number is one, and what is none or below 0 lets nothing through.
    pub(crate) fn per_second(rate: f64) -> Self {
        let account = Account { rate: rate.max(0.0), owed: 0.0, at: Instant::now() };
        Self { account: watch::Sender::new(account) }
    }

    /// Documents a second.
    pub(crate) fn rate(&self) -> f64 {
        self.account.borrow().rate
    }

    /// Changes the rate, also for whoever waits.
    pub(crate) fn set_rate(&self, rate: f64) {
        let rate = rate.max(0.0);
        self.account.send_if_modified(|account| {
            account.pay(Instant::now());
            std::mem::replace(&mut account.rate, rate).total_cmp(&rate).is_ne()
        });
    }

    /// Waits until what came before is paid for; the time of a batch counts from then on.
    pub(crate) async fn ready(&self) {
        let mut changes = self.account.subscribe();
        self.account.send_modify(|account| {
            account.pay(Instant::now());
            account.owed = account.owed.max(0.0);
        });
        loop {
            let account = *changes.borrow_and_update();
            let paid = account.paid_at();
            if paid.is_some_and(|at| at <= Instant::now()) {
                break;
            }
            let paid = async {
                match paid {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = paid => {}
                // It cannot end while `self` is there.
                _ = changes.changed() => {}
            }
        }
        self.account.send_if_modified(|account| {
            (account.owed, account.at) = (0.0, Instant::now());
            false
        });
    }

    /// Takes note of what was let through.
    pub(crate) fn spend(&self, documents: u32) {
        self.account.send_modify(|account| {
            account.pay(Instant::now());
            account.owed += f64::from(documents);
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn batches_go_at_the_rate_and_pay_afterwards() {
        let start = Instant::now();
        let throttle = Throttle::per_second(1000.0);
        for _ in 0..10 {
            throttle.ready().await;
            throttle.spend(1000);
        }
        assert_eq!(start.elapsed().as_secs(), 9);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_that_a_batch_takes_pays_for_it() {
        let start = Instant::now();
        let throttle = Throttle::per_second(1000.0);
        for _ in 0..10 {
            throttle.ready().await;
            sleep(SECOND * 3 / 4).await;
            throttle.spend(1000);
        }
        assert_eq!(start.elapsed(), SECOND * 9 + SECOND * 3 / 4);
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_passes_unused_or_in_a_slow_batch_is_not_saved_up() {
        let throttle = Throttle::per_second(10.0);
        sleep(100 * SECOND).await;
        for slow in [false, true] {
            throttle.ready().await;
            if slow {
                sleep(100 * SECOND).await;
            }
            throttle.spend(10);
            let start = Instant::now();
            for _ in 0..2 {
                throttle.ready().await;
                throttle.spend(10);
            }
            throttle.ready().await;
            assert_eq!(start.elapsed().as_secs(), if slow { 2 } else { 3 });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_wakes_when_the_rate_rises_and_owes_documents_instead_of_time() {
        let throttle = Throttle::per_second(1.0);
        throttle.spend(500);
        let (waiter, start) = (throttle.clone(), Instant::now());
        let waiting = tokio::spawn(async move {
            waiter.ready().await;
            start.elapsed()
        });
        sleep(100 * SECOND).await;
        throttle.set_rate(1000.0);
        // 400 are left, at 1000 a second.
        assert_eq!(waiting.await.unwrap(), 100 * SECOND + SECOND * 2 / 5);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_waits_longer_when_the_rate_falls_and_for_ever_at_none() {
        let throttle = Throttle::per_second(100.0);
        throttle.spend(100);
        let (waiter, start) = (throttle.clone(), Instant::now());
        let waiting = tokio::spawn(async move {
            waiter.ready().await;
            start.elapsed()
        });
        sleep(SECOND / 2).await;
        throttle.set_rate(0.0);
        sleep(1_000_000 * SECOND).await;
        assert!(!waiting.is_finished());
        throttle.set_rate(10.0);
        assert_eq!(waiting.await.unwrap(), SECOND / 2 + 1_000_000 * SECOND + 5 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn no_change_of_the_rate_lets_more_through_than_the_rates_allow() {
        const BATCH: u32 = 50;
        let throttle = Throttle::per_second(0.0);
        let (through, spender) = (std::sync::Arc::new(std::sync::Mutex::new(0.0)), throttle.clone());
        let counting = through.clone();
        let spending = tokio::spawn(async move {
            loop {
                spender.ready().await;
                sleep(SECOND / 100).await;
                spender.spend(BATCH);
                *counting.lock().unwrap() += f64::from(BATCH);
            }
        });
        let mut allowed = f64::from(BATCH);
        for (at, rate) in [100.0, 1000.0, 3.0, 0.0, 700.0, 0.5, 2000.0, 0.0].iter().cycle().take(80).enumerate() {
            throttle.set_rate(*rate);
            let lasts = Duration::from_millis(37 * (1 + at as u64 % 7));
            sleep(lasts).await;
            allowed += rate * lasts.as_secs_f64();
            let through = *through.lock().unwrap();
            assert!(through <= allowed + 1e-6, "{through} of {allowed}");
        }
        let through = *through.lock().unwrap();
        assert!(through >= allowed * 0.9, "{through} of {allowed}");
        spending.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn no_rate_overflows_the_clock() {
        for rate in [f64::MIN_POSITIVE, f64::MAX, 1e-300, f64::NAN, -1.0, f64::NEG_INFINITY, 0.0] {
            let throttle = Throttle::per_second(rate);
            throttle.spend(u32::MAX);
            advance(SECOND).await;
            throttle.spend(u32::MAX);
            throttle.set_rate(f64::NAN);
            assert_eq!(throttle.rate().total_cmp(&0.0), std::cmp::Ordering::Equal);
            throttle.set_rate(f64::INFINITY);
            throttle.ready().await;
        }
    }
}
