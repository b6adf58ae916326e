use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

fn index() -> ObjectId {
    ObjectId::from_bytes([7; 12])
}

/// A database whose batches of 100 documents take so long, once in half a second.
struct Database {
    health: Health,
    now: Instant,
}

impl Database {
    fn new() -> Self {
        let now = Instant::now();
        Self { health: Health::new(now), now }
    }

    fn batches(&mut self, seconds: u32, took: Duration) -> Verdict {
        self.sized(seconds, 100, took)
    }

    fn sized(&mut self, seconds: u32, documents: u32, took: Duration) -> Verdict {
        for _ in 0..seconds * 2 {
            self.now += SECOND / 2;
            self.health.batch(index(), documents, took, self.now);
            self.health.verdict(self.now);
        }
        self.health.verdict(self.now)
    }

    fn pass(&mut self, seconds: u32) -> Verdict {
        for _ in 0..seconds {
            self.now += SECOND;
            self.health.verdict(self.now);
        }
        self.health.verdict(self.now)
    }
}

fn name(verdict: &Verdict) -> Option<&'static str> {
    verdict.trouble.as_ref().map(|trouble| trouble.name)
}

#[test]
fn slow_batches_lower_the_factor_within_seconds_and_it_rises_slowly() {
    let mut database = Database::new();
    assert_eq!(database.batches(120, 30 * MILLI), Verdict::HEALTHY);
    let began = database.now;
    let slow = database.batches(4, 400 * MILLI);
    assert!(slow.factor < 0.2, "{slow:?}");
    let trouble = slow.trouble.unwrap();
    assert_eq!(trouble.name, "latency");
    assert_eq!(trouble.why, "batches take 4.0 ms a document instead of 0.3 ms");
    assert!(trouble.since > began && trouble.since < began + 4 * SECOND);
    let after = database.batches(4, 30 * MILLI);
    assert!(after.factor > slow.factor && after.factor < 0.5, "{after:?}");
    assert_eq!(after.trouble.map(|it| it.since), Some(trouble.since));
    assert_eq!(database.batches(20, 30 * MILLI), Verdict::HEALTHY);
}

#[test]
fn one_slow_batch_says_nothing_nor_do_batches_a_little_slower() {
    let mut database = Database::new();
    database.batches(120, 30 * MILLI);
    for _ in 0..20 {
        database.health.batch(index(), 100, 5 * SECOND, database.now);
        assert_eq!(database.batches(3, 30 * MILLI), Verdict::HEALTHY);
    }
    assert_eq!(database.batches(20, 55 * MILLI), Verdict::HEALTHY);
}

#[test]
fn nothing_is_known_of_a_database_seen_for_less_than_a_minute() {
    let mut database = Database::new();
    database.batches(30, MILLI);
    assert_eq!(database.batches(5, SECOND), Verdict::HEALTHY);
}

#[test]
fn a_change_that_lasts_is_what_is_usual_after_a_while() {
    let mut database = Database::new();
    database.batches(600, 30 * MILLI);
    assert!(database.batches(300, 150 * MILLI).factor < 0.5);
    assert_eq!(database.batches(400, 150 * MILLI), Verdict::HEALTHY);
    // And what is quick again is soon what is usual.
    database.batches(120, 30 * MILLI);
    assert!(database.batches(5, 150 * MILLI).factor < 0.5);
}

#[test]
fn smaller_batches_in_trouble_are_not_taken_for_what_is_usual() {
    let mut database = Database::new();
    database.sized(300, 100, 30 * MILLI);
    database.sized(5, 100, 600 * MILLI);
    // Two minutes of batches of a size that was never seen in health.
    let verdict = database.sized(120, 20, 120 * MILLI);
    assert!(verdict.factor < 0.5, "{verdict:?}");
    // In health a round trip takes most of the time of a small one.
    let mut database = Database::new();
    database.sized(300, 100, 10 * MILLI);
    assert_eq!(database.sized(10, 25, 5 * MILLI), Verdict::HEALTHY);
    assert_eq!(database.sized(10, 400, 40 * MILLI), Verdict::HEALTHY);
}

#[test]
fn each_answer_of_overload_halves_the_factor_and_time_adds_to_it() {
    let mut database = Database::new();
    database.health.overloaded("the request rate is large (16500)", None, database.now);
    database.health.overloaded("the request rate is large (16500)", None, database.now);
    let verdict = database.health.verdict(database.now);
    assert!((verdict.factor - 0.25).abs() < 1e-9, "{verdict:?}");
    assert_eq!(name(&verdict), Some("overload"));
    let why = verdict.trouble.unwrap().why;
    assert_eq!(why, "the database answered 2 times in a minute: the request rate is large (16500)");
    assert!((database.pass(5).factor - 0.5).abs() < 1e-9);
    assert_eq!(database.pass(30), Verdict::HEALTHY);
    for _ in 0..10_000 {
        database.health.overloaded("again", None, database.now);
    }
    assert!(database.health.verdict(database.now).factor > 0.0);
}

#[test]
fn what_the_database_asks_for_is_waited_and_otherwise_longer_each_time() {
    let mut database = Database::new();
    let now = database.now;
    assert_eq!(database.health.asked_to_wait_until(), None);
    database.health.overloaded("x", Some(3 * SECOND), now);
    assert_eq!(database.health.asked_to_wait_until(), Some(now + 3 * SECOND));
    let mut last = Duration::ZERO;
    for round in 1..20_u32 {
        let now = now + 10 * SECOND * round;
        database.health.overloaded("x", None, now);
        let wait = database.health.asked_to_wait_until().unwrap() - now;
        assert!(wait > last || wait == 10 * SECOND, "{wait:?} after {last:?}");
        last = wait;
    }
    database.health.overloaded("x", Some(Duration::MAX), now);
    assert!(database.health.asked_to_wait_until().unwrap() <= now + 300 * SECOND);
}

#[test]
fn the_lowest_factor_counts_and_a_stop_before_all() {
    let mut database = Database::new();
    database.health.expect_signals(database.now);
    database.health.signal(Ok(Signal::factor(0.7, "a secondary is behind")), database.now);
    let verdict = database.health.verdict(database.now);
    assert_eq!((verdict.factor, verdict.stopped), (0.7, false));
    assert_eq!(verdict.trouble.unwrap().why, "a secondary is behind");
    database.health.overloaded("x", None, database.now);
    assert_eq!(name(&database.health.verdict(database.now)), Some("overload"));
    database.health.signal(Ok(Signal::stop("the disk is full")), database.now);
    let verdict = database.health.verdict(database.now);
    assert_eq!((verdict.factor, verdict.stopped, name(&verdict)), (0.0, true, Some("signal")));
    database.health.signal(Ok(Signal::healthy()), database.now);
    assert!(!database.pass(1).stopped);
    assert_eq!(database.pass(28), Verdict::HEALTHY);
    for wrong in [-1.0, f64::NEG_INFINITY] {
        database.health.signal(Ok(Signal::factor(wrong, "")), database.now);
        assert!((database.health.verdict(database.now).factor).abs() < 1e-9);
    }
    database.health.signal(Ok(Signal::factor(f64::INFINITY, "")), database.now);
    assert_eq!(database.pass(29), Verdict::HEALTHY);
}

#[test]
fn a_hook_without_an_answer_is_doubted_for_a_while_and_then_told_of() {
    for answer in [None, Some(Err("no route".to_owned())), Some(Ok(Signal::factor(f64::NAN, "")))] {
        let mut database = Database::new();
        database.health.expect_signals(database.now);
        database.health.signal(Ok(Signal::healthy()), database.now);
        database.pass(1);
        if let Some(answer) = answer.clone() {
            database.health.signal(answer, database.now);
        }
        assert_eq!(database.pass(28), Verdict::HEALTHY);
        let doubted = database.pass(2);
        assert!((doubted.factor - 0.5).abs() < 1e-9, "{doubted:?}");
        let why = doubted.trouble.unwrap().why;
        assert!(why.starts_with("the health hook has told nothing for 31 s: "), "{why}");
        if let Some(Err(error)) = answer {
            assert!(why.ends_with(&error), "{why}");
        }
        assert!((database.pass(590).factor - 0.5).abs() < 1e-9);
        let ignored = database.pass(60);
        assert!(ignored.factor >= 1.0 && ignored.trouble.is_none(), "{ignored:?}");
        assert!(ignored.warning.unwrap().contains("ignored"));
        database.health.signal(Ok(Signal::healthy()), database.now);
        assert_eq!(database.pass(1), Verdict::HEALTHY);
    }
}

#[test]
fn a_stop_is_in_force_while_its_hook_is_doubted() {
    let mut database = Database::new();
    database.health.signal(Ok(Signal::stop("x")), database.now);
    assert!(database.pass(100).stopped);
    assert!(!database.pass(600).stopped);
}

#[test]
fn odd_batches_give_a_factor_all_the_same() {
    let mut database = Database::new();
    for documents in [0, 1, u32::MAX] {
        for took in [Duration::ZERO, Duration::MAX, MILLI] {
            let verdict = database.sized(700, documents, took);
            assert!((0.0..=1.0).contains(&verdict.factor), "{verdict:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_is_asked_again_and_again_whatever_it_does() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let hook = HealthHook::new(move || {
        let time = count.fetch_add(1, Ordering::SeqCst);
        async move {
            match time {
                0 => Err("not yet".into()),
                1 => panic!("as asked for"),
                2 => std::future::pending().await,
                _ => Ok(Signal::factor(0.3, "as told")),
            }
        }
    });
    let health = SharedHealth::new();
    let polling = poll(hook, health.clone());
    while health.verdict().factor > 0.5 {
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(health.verdict().trouble.unwrap().why, "as told");
    drop(polling);
    tokio::time::sleep(SECOND).await;
    let so_far = asked.load(Ordering::SeqCst);
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(asked.load(Ordering::SeqCst), so_far);
}
