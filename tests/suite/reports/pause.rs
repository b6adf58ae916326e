//! Reports about pausing.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};
use ttl_index::{Activity, Ended};

use super::background::{in_no_time, in_real_time};
use super::play::Play;
use super::steps;

/// The report's limit, and the batch that goes with it: half a second's worth.
const IN_A_SECOND: u64 = 100 + 50;

/// On the real server fewer documents do, and no hour is waited.
#[test]
fn ttl_099_load_spike_or_huge_backlog() {
    in_no_time(async {
        let mut play = Play::ticking("TTL-099").await;
        let resume = play.until("resume_sweeper").await;
        assert_eq!(play.place.count("c").await, 50_000, "something was deleted while it was paused");
        bounded_after(play, resume, Duration::from_secs(20)).await;
    });
    in_real_time(async {
        let mut play = Play::at_pace("TTL-099", Duration::from_secs(1)).await;
        let insert = play.until("insert_many_generated").await;
        let mut fewer = insert.clone();
        fewer["count"] = json!(2_000);
        play.play(&fewer).await;
        play.until("advance_clock").await;
        sleep(Duration::from_secs(2)).await;
        assert_eq!(play.place.count("c").await, 2_000, "something was deleted while it was paused");
        let resume = play.until("resume_sweeper").await;
        bounded_after(play, resume, Duration::from_secs(4)).await;
    });
}

/// Resumes, and looks for so long at how many go in any second.
async fn bounded_after(mut play: Play, resume: &serde_json::Value, time: Duration) {
    // Before and after the look, so that no look is taken for shorter than it was.
    let mut looks: Vec<(Instant, u64, Instant)> = Vec::new();
    let ttl = play.ttl.clone();
    let deleted = || ttl.counters().total.deleted;
    let began = Instant::now();
    play.play(resume).await;
    while began.elapsed() < time || deleted() == 0 {
        looks.push((Instant::now(), deleted(), Instant::now()));
        sleep(Duration::from_millis(50)).await;
    }
    let within_a_second = looks.iter().flat_map(|(from, at_first, _)| {
        let until = *from + Duration::from_secs(1);
        looks.iter().filter(move |look| look.0 >= *from && look.2 <= until).map(move |look| look.1 - at_first)
    });
    let most = within_a_second.max().unwrap();
    assert!((1..=IN_A_SECOND).contains(&most), "{most} in a second");
    play.until_prose(
        "first second after resume deletes at most 100 (+ one batch): tokens do not pile up during the pause",
    )
    .await;
    play.finish().await;
}

/// The pause outlives a restart, and everybody can see it.
#[tokio::test]
async fn ttl_135_registry_lost_on_restart() {
    for mut play in Play::both("TTL-135").await {
        let sweep = play.until("sweep_until_idle").await;
        play.play(sweep).await;
        assert_eq!(play.last_sweep().ended, Ended::Paused);
        play.until_prose("100 documents remain").await;
        assert_eq!(play.place.count("c").await, 100);

        play.restart().await;
        let status = play.ttl.status().await.unwrap();
        assert_eq!(status.activity, Activity::Paused);
        let pause = status.paused.unwrap();
        assert!(pause.until.is_none() && !pause.by.is_empty(), "{pause:?}");
        steps::sweep_until_idle(&play, sweep).await;
        assert_eq!((play.last_sweep().ended, play.place.count("c").await), (Ended::Paused, 100));

        let play = play.finish().await;
        assert_eq!(play.ttl.status().await.unwrap().paused, None);
    }
}
