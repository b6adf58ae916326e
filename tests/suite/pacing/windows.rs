//! Closed windows, and what is tuned while it sweeps.

use std::time::Duration;

use ttl_index::{Activity, ClosedWindow};

use super::{Scene, assert_near, pace, seconds};

const MINUTE: f64 = 60.0;

fn window(text: &str) -> ClosedWindow {
    text.parse().unwrap()
}

/// From 00:20 to 00:40; `within` has its deadline in it, and `behind` at 01:00.
#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_in_a_closed_window_and_deadlines_in_it_are_met_before() {
    let scene = Scene::with(&["within", "behind"]).await;
    scene.ttl.tune().collection("within").target_lag(seconds(1_800)).await.unwrap();
    scene.overdue("within", 3_000).await;
    scene.overdue("behind", 6_000).await;
    let sweeper = scene.sweeper(seconds(3_600)).closed(window("00:20-00:40")).start().unwrap();
    scene.until(19.0 * MINUTE).await;
    assert_eq!(sweeper.status().activity, Activity::Sweeping);
    assert_eq!(pace(&sweeper).shortfall, None);
    scene.until(20.0 * MINUTE).await;
    assert_eq!(scene.deleted("within"), 3_000);
    let before = scene.deleted("behind");
    assert!(before < 6_000);
    for minute in 20..40 {
        scene.until(f64::from(minute) * MINUTE + 1.0).await;
        assert_eq!(sweeper.status().activity, Activity::Closed, "minute {minute}");
        assert_eq!(scene.deleted("behind"), before, "minute {minute}");
        assert!(pace(&sweeper).rate <= 0.0);
        assert!(pace(&sweeper).closed_until.is_some());
        scene.until(f64::from(minute + 1) * MINUTE - 0.001).await;
        assert_eq!(scene.deleted("behind"), before, "minute {minute}");
    }
    let gone = scene.course("behind", 6_000, 3_700.0).await.gone(6_000);
    assert!((3_500.0..=3_600.0).contains(&gone), "{gone}");
    sweeper.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn somebody_who_wants_it_finished_now_has_it_finished_in_a_closed_window() {
    let scene = Scene::with(&["c"]).await;
    scene.overdue("c", 5_000).await;
    let sweeper = scene.sweeper(seconds(3_600)).max_rate(500.0).closed(window("00:00-00:30")).start().unwrap();
    scene.until(5.0 * MINUTE).await;
    assert_eq!(scene.deleted("c"), 0);
    assert_eq!(sweeper.status().activity, Activity::Closed);
    scene.ttl.tune().finish_now(true).await.unwrap();
    let course = scene.course("c", 5_000, 400.0).await;
    let gone = course.gone(5_000);
    // At the highest rate.
    assert!((305.0..=330.0).contains(&gone), "{gone}: {course:?}");
    // What comes afterwards waits for the window's end again.
    scene.until(gone + 30.0).await;
    scene.overdue("c", 50).await;
    scene.until(29.0 * MINUTE).await;
    assert_eq!((scene.deleted("c"), sweeper.status().activity), (5_000, Activity::Closed));
    assert!(!pace(&sweeper).finishing);
    assert!(scene.course("c", 5_050, 33.0 * MINUTE).await.gone(5_050) > 30.0 * MINUTE);
    sweeper.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_tuned_holds_within_seconds_and_without_a_restart() {
    let scene = Scene::with(&["c"]).await;
    scene.overdue("c", 36_000).await;
    let sweeper = scene.sweeper(seconds(3_600)).start().unwrap();
    let after = async |seconds: f64| scene.until(scene.time() + seconds).await;
    let rate = async || {
        let (began, before) = (scene.time(), scene.deleted("c"));
        after(20.0).await;
        #[allow(clippy::cast_precision_loss)]
        let documents = (scene.deleted("c") - before) as f64;
        documents / (scene.time() - began)
    };
    scene.until(30.0).await;
    assert_near("planned", rate().await, 10.0, 0.1);

    scene.ttl.tune().max_rate(4.0).await.unwrap();
    after(10.0).await;
    assert_near("the highest rate", rate().await, 4.0, 0.15);
    assert!(pace(&sweeper).shortfall.is_some());

    scene.ttl.tune().reset().target_lag(seconds(1_200)).await.unwrap();
    after(10.0).await;
    assert_near("a shorter lag", rate().await, 36_000.0 / 1_200.0, 0.1);

    scene.ttl.tune().closed(vec![window("00:00-01:00")]).await.unwrap();
    after(10.0).await;
    assert!(rate().await < 0.1, "closed");
    assert_eq!(sweeper.status().activity, Activity::Closed);

    scene.ttl.tune().closed(Vec::new()).await.unwrap();
    after(10.0).await;
    assert!(rate().await > 25.0, "open again");

    // Twice as long for this one.
    scene.ttl.tune().collection("c").target_lag(seconds(2_400)).await.unwrap();
    after(15.0).await;
    #[allow(clippy::cast_precision_loss)]
    let left = (36_000 - scene.deleted("c")) as f64;
    let expected = left / (2_400.0 - scene.time());
    assert_near("a lag of its own", rate().await, expected, 0.1);

    scene.ttl.tune().min_rate(100.0).await.unwrap();
    after(10.0).await;
    assert_near("the floor", rate().await, 100.0, 0.1);
    sweeper.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn after_a_pause_the_rest_is_planned_anew() {
    let scene = Scene::with(&["c"]).await;
    scene.overdue("c", 12_000).await;
    let sweeper = scene.sweeper(seconds(600)).start().unwrap();
    scene.until(100.0).await;
    sweeper.pause().await.unwrap();
    scene.until(110.0).await;
    assert_eq!(sweeper.status().activity, Activity::Paused);
    let paused = scene.deleted("c");
    scene.until(300.0).await;
    assert_eq!(scene.deleted("c"), paused);
    sweeper.resume().await.unwrap();
    let course = scene.course("c", 12_000, 700.0).await;
    #[allow(clippy::cast_precision_loss)]
    let rate = (12_000 - paused) as f64 / 300.0;
    assert!(course.gone(12_000) <= 600.0, "{course:?}");
    course.assert_even((310.0, 590.0), 28.0, rate, 0.05);
    assert_eq!(pace(&sweeper).shortfall, None);
    assert!(Duration::from_secs_f64(course.gone(12_000)) > seconds(590), "{course:?}");
    sweeper.shutdown().await.unwrap();
}
