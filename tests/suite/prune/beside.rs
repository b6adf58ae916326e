//! Beside somebody else who sweeps.

use std::time::Duration;

use ttl_index::{Pruned, Retention, RetentionOutcome};

use super::{HOUR, drained, expired, is_not_due, swept};
use crate::sweeper::{Stage, index, on_both};

on_both! {
    beside_a_sweeper_nothing_is_swept_and_the_interval_is_not_used_up,
    a_retention_is_applied_beside_a_sweeper_too,
}

async fn beside_a_sweeper_nothing_is_swept_and_the_interval_is_not_used_up(stage: Stage) {
    let ttl = stage.registry().await;
    ttl.create_index("c", index()).await.unwrap();
    let sweeper = stage.start("night shift").await;
    stage.until("it to sweep", async || ttl.status().await.unwrap().holder.is_some()).await;
    for registry in [&ttl, &ttl, &stage.registry().await] {
        let pruned = registry.sweep_if_due(HOUR).await.unwrap();
        let Pruned::HeldBy { holder, .. } = pruned else { panic!("{pruned:?}") };
        assert!(holder.starts_with("night shift/"), "{holder}");
    }
    sweeper.shutdown().await.unwrap();
    stage.place.insert("c", expired(0..3)).await;
    assert_eq!(swept(stage.registry().await.sweep_if_due(HOUR).await.unwrap()), [drained("c", 3)]);
}

/// A claim that is given back a moment later, and that another process has seen.
#[tokio::test(start_paused = true)]
async fn who_has_seen_a_claim_asks_again_after_a_minute() {
    let stage = Stage::embedded();
    let sweeping = stage.registry().await.claim_sweep().await.unwrap();
    let one = tokio::spawn(stage.registry().await.sweep_if_due(HOUR).into_future());
    tokio::time::sleep(Duration::from_millis(1)).await;
    let other = stage.registry().await;
    assert!(is_not_due(&other.sweep_if_due(HOUR).await.unwrap()));
    let held = one.await.unwrap().unwrap();
    assert!(matches!(held, Pruned::HeldBy { .. }), "{held:?}");
    sweeping.release().await;
    assert!(is_not_due(&other.sweep_if_due(HOUR).await.unwrap()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(swept(other.sweep_if_due(HOUR).await.unwrap()), []);
}

async fn a_retention_is_applied_beside_a_sweeper_too(stage: Stage) {
    let ttl = stage.registry().await;
    ttl.create_index("c", index()).await.unwrap();
    let sweeper = stage.start("night shift").await;
    stage.until("it to sweep", async || ttl.status().await.unwrap().holder.is_some()).await;
    let pruned = ttl.sweep_if_due(HOUR).retention("c", Retention::from_days(Some("30"))).await.unwrap();
    let Pruned::HeldBy { retentions, .. } = &pruned else { panic!("{pruned:?}") };
    assert!(matches!(retentions[0].outcome, RetentionOutcome::Modified { .. }), "{pruned:?}");
    assert_eq!(ttl.list_indexes().await.unwrap()[0].expire_after.unwrap().as_secs(), 30 * 86_400);
    sweeper.shutdown().await.unwrap();
}
