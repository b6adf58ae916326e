//! What cannot be met is said, with numbers that come true.

use super::{Scene, assert_near, pace, seconds};

#[tokio::test(start_paused = true)]
async fn how_late_it_will_be_is_told_within_a_minute_and_comes_true() {
    let scene = Scene::with(&["c"]).await;
    scene.overdue("c", 12_000).await;
    let sweeper = scene.sweeper(seconds(600)).max_rate(10.0).start().unwrap();
    scene.until(60.0).await;
    let short = pace(&sweeper).shortfall.expect("it cannot be met");
    assert!((short.allowed - 10.0).abs() < 1e-9, "{short:?}");
    #[allow(clippy::cast_precision_loss)]
    let left = (12_000 - scene.deleted("c")) as f64;
    assert_near("needed", short.needed, left / 540.0, 0.02);
    let late = short.late.as_secs_f64();
    // Others are told the same.
    let told = scene.ttl.status().await.unwrap().pace.unwrap().shortfall.unwrap();
    assert_near("late, as told", told.late.as_secs_f64(), late, 0.05);
    let gone = scene.course("c", 12_000, 2_000.0).await.gone(12_000);
    assert_near("late", gone - 600.0, late, 0.05);
    // And it is over when it is over.
    scene.until(gone + 30.0).await;
    assert_eq!(pace(&sweeper).shortfall, None);
    sweeper.shutdown().await.unwrap();
}

/// Of a burst that lies ahead it is told before it comes.
#[tokio::test(start_paused = true)]
async fn what_will_be_late_of_a_burst_is_told_before_it_comes() {
    let scene = Scene::with(&["c"]).await;
    scene.spread("c", 12_000, (900.0, 903.0)).await;
    let sweeper = scene.sweeper(seconds(600)).max_rate(12.0).start().unwrap();
    scene.until(60.0).await;
    let short = pace(&sweeper).shortfall.expect("it cannot be met");
    let gone = scene.course("c", 12_000, 3_000.0).await.gone(12_000);
    // 1,000 seconds instead of 600.
    assert_near("late", gone - 1_500.0, short.late.as_secs_f64(), 0.05);
    sweeper.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rate_of_an_index_that_is_too_low_is_told_of_that_index_alone() {
    let scene = Scene::with(&["slow", "other"]).await;
    scene.ttl.tune().collection("slow").max_rate(2.0).await.unwrap();
    scene.overdue("slow", 2_000).await;
    scene.overdue("other", 2_000).await;
    let sweeper = scene.sweeper(seconds(600)).start().unwrap();
    scene.until(60.0).await;
    let status = sweeper.status();
    let of = |name: &str| status.indexes.iter().find(|index| index.collection == name).unwrap().visits.clone().unwrap();
    let short = of("slow").shortfall.expect("it cannot be met");
    assert_eq!(of("other").shortfall, None);
    let gone = scene.course("slow", 2_000, 2_000.0).await.gone(2_000);
    assert_near("late", gone - 600.0, short.late.as_secs_f64(), 0.05);
    assert!(scene.deleted("other") == 2_000);
    sweeper.shutdown().await.unwrap();
}
