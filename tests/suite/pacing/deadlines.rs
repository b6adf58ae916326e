//! Everything is gone by its deadline, and no faster than that takes.

use std::time::Duration;

use ttl_index::Sweeper;

use super::{Scene, assert_near, pace, seconds};

#[tokio::test(start_paused = true)]
async fn a_backlog_is_spread_evenly_over_the_time_to_its_deadline() {
    let scene = Scene::with(&["c"]).await;
    scene.overdue("c", 20_000).await;
    let sweeper = scene.sweeper(seconds(600)).start().unwrap();
    scene.until(30.0).await;
    let told = pace(&sweeper);
    assert!(told.counted && told.shortfall.is_none() && told.held_back.is_none(), "{told:?}");
    assert_near("planned", told.planned, 20_000.0 / 600.0, 0.02);
    assert_near("peak", told.peak, 20_000.0 / 600.0, 0.02);
    let course = scene.course("c", 20_000, 700.0).await;
    let gone = course.gone(20_000);
    assert!((590.0..=600.0).contains(&gone), "{gone}: {course:?}");
    course.assert_even((30.0, 590.0), 28.0, 20_000.0 / 600.0, 0.03);
    sweeper.shutdown().await.unwrap();
}

/// Room is made for it before it comes.
#[tokio::test(start_paused = true)]
async fn a_burst_that_lies_ahead_is_planned_for_in_advance() {
    let scene = Scene::with(&["c"]).await;
    scene.overdue("c", 12_000).await;
    scene.spread("c", 12_000, (300.0, 303.0)).await;
    let sweeper = scene.sweeper(seconds(600)).start().unwrap();
    // Half of the whole at 20 a second, and then 30: that is what it would be without a look ahead.
    let lowest = 24_000.0 / 900.0;
    scene.until(60.0).await;
    assert_near("planned", pace(&sweeper).planned, lowest, 0.02);
    let course = scene.course("c", 24_000, 1_000.0).await;
    let gone = course.gone(24_000);
    assert!((885.0..=903.0).contains(&gone), "{gone}: {course:?}");
    course.assert_even((60.0, 880.0), 41.0, lowest, 0.04);
    sweeper.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_inserted_with_dates_ahead_while_it_sweeps_is_planned_for_as_well() {
    let scene = Scene::with(&["c"]).await;
    scene.overdue("c", 12_000).await;
    // Where nothing at all lies ahead it is not looked for often.
    scene.spread("c", 60, (0.0, 1_800.0)).await;
    let sweeper = scene.sweeper(seconds(600)).start().unwrap();
    scene.until(100.0).await;
    assert_near("at first", pace(&sweeper).planned, 20.0, 0.03);
    scene.spread("c", 12_000, (300.0, 303.0)).await;
    // The forecast is made again every 24th part of the target lag.
    scene.until(160.0).await;
    let course = scene.course("c", 24_000, 1_000.0).await;
    #[allow(clippy::cast_precision_loss)]
    let lowest = (24_000 - course.at(161.0)) as f64 / (900.0 - 160.0);
    assert_near("from then on", course.rate(165.0, 600.0), lowest, 0.03);
    let gone = course.gone(24_000);
    assert!((880.0..=903.0).contains(&gone), "{gone}: {course:?}");
    course.assert_even((165.0, 880.0), 55.0, lowest, 0.05);
    sweeper.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_index_has_a_target_lag_of_its_own() {
    let scene = Scene::with(&["soon", "late"]).await;
    scene.ttl.tune().collection("soon").target_lag(seconds(300)).await.unwrap();
    scene.overdue("soon", 6_000).await;
    scene.overdue("late", 12_000).await;
    let sweeper = scene.sweeper(seconds(1_200)).start().unwrap();
    let soon = scene.course("soon", 6_000, 400.0).await;
    assert!((280.0..=300.0).contains(&soon.gone(6_000)), "{soon:?}");
    let late = scene.course("late", 12_000, 1_300.0).await;
    let gone = late.gone(12_000);
    assert!((1_150.0..=1_200.0).contains(&gone), "{gone}: {late:?}");
    late.assert_even((310.0, 1_140.0), 83.0, 12_000.0 / 900.0, 0.1);
    sweeper.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rate_of_an_index_of_its_own_is_kept() {
    let scene = Scene::with(&["slow", "other"]).await;
    scene.ttl.tune().collection("slow").max_rate(5.0).await.unwrap();
    scene.overdue("slow", 2_000).await;
    scene.overdue("other", 6_000).await;
    let sweeper = scene.sweeper(seconds(600)).start().unwrap();
    let slow = scene.course("slow", 2_000, 700.0).await;
    for second in 0..600 {
        let from = f64::from(second);
        // A batch is two seconds' worth, and three seconds without a turn are made up for.
        assert!(slow.rate(from, from + 60.0) <= 5.0 * 65.0 / 60.0, "second {second}: {slow:?}");
    }
    let gone = slow.gone(2_000);
    assert!((390.0..=420.0).contains(&gone), "{gone}: {slow:?}");
    assert!(scene.course("other", 6_000, 700.0).await.gone(6_000) <= 601.0);
    sweeper.shutdown().await.unwrap();
}

/// Nobody gains anything from seeing a handful gone after hours.
#[tokio::test(start_paused = true)]
async fn a_handful_is_gone_within_a_minute() {
    let scene = Scene::with(&["c"]).await;
    scene.overdue("c", 100).await;
    let sweeper = Sweeper::new(scene.ttl.clone()).start().unwrap();
    assert!(scene.course("c", 100, 100.0).await.gone(100) <= 10.0);
    // What comes due later as well, without having been counted.
    scene.until(1_000.0).await;
    scene.spread("c", 100, (1_005.0, 1_006.0)).await;
    let gone = scene.course("c", 200, 1_200.0).await.gone(200);
    assert!(gone <= 1_006.0 + 65.0, "{gone}");
    assert_eq!(pace(&sweeper).target_lag, Duration::from_secs(86_400));
    sweeper.shutdown().await.unwrap();
}
