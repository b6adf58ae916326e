//! Waiting for a condition in the place of sleeping.

use std::time::{Duration, Instant};

/// The pause between two looks at a condition.
const PAUSE: Duration = Duration::from_millis(20);

/// A limit for what takes moments: reached only if something is wrong.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Polls `condition` until it holds.
///
/// The limit is one of real time, also under a paused tokio clock: what is
/// waited for happens in another process. The condition is looked at at least
/// once.
///
/// # Panics
///
/// If the condition does not hold within `limit`; `what` is in the message.
pub(crate) async fn until<F>(what: &str, limit: Duration, mut condition: F)
where
    F: AsyncFnMut() -> bool,
{
    let began = Instant::now();
    while !condition().await {
        assert!(began.elapsed() < limit, "waited {limit:?} for {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

#[tokio::test]
async fn waiting_ends_when_the_condition_holds() {
    let mut looks = 0;
    until("the third look", Duration::from_secs(10), async || {
        looks += 1;
        looks == 3
    })
    .await;
    assert_eq!(looks, 3);
}

#[tokio::test]
#[should_panic(expected = "for the impossible")]
async fn waiting_in_vain_names_what_was_waited_for() {
    until("the impossible", Duration::from_millis(50), async || false).await;
}
