//! The pace of a few indexes, through virtual time.

use super::*;
use crate::store::Census;

const BEGIN: i64 = 1_767_225_600_000;
const HOUR: Duration = Duration::from_secs(3600);

fn at(seconds: i64) -> DateTime {
    DateTime::from_millis(BEGIN + seconds * 1000)
}

fn member(target_lag: Option<Duration>, counted: bool) -> Member {
    Member {
        id: ObjectId::new(),
        rule_since: at(0),
        expire_after: 0,
        interval: Duration::from_secs(60),
        target_lag,
        max_rate: None,
        counted,
    }
}

fn pacer(terms: &Terms, members: &[Member]) -> (Pacer, Instant) {
    let (mut pacer, now) = (Pacer::new(terms.clone()), Instant::now());
    pacer.keep(terms, None, members.iter().copied(), now);
    (pacer, now)
}

/// Has everything counted: so many documents have each of these dates.
fn count(pacer: &mut Pacer, dates: &[(i64, u64)], now: DateTime) {
    while let Some((id, want)) = pacer.wants(now).pop() {
        let width = i64::try_from(want.range.slice.as_millis()).unwrap();
        let start = |millis: i64| DateTime::from_millis(millis.div_euclid(width) * width);
        let within = |date: DateTime| want.range.from.is_none_or(|from| date > from) && date <= want.range.until;
        let some = dates.iter().filter(|(date, _)| within(at(*date)));
        let slices = some.map(|(date, n)| (start(at(*date).timestamp_millis()), *n)).collect();
        let census = Census { slices, ..Census::default() };
        pacer.forecast(id).unwrap().counted(&want, Some(&census), now);
    }
    pacer.plan_anew();
}

#[tokio::test(start_paused = true)]
async fn old_documents_are_spread_over_the_target_lag_from_the_moment_of_the_rule() {
    let (mut pacer, start) = pacer(&Terms::default(), &[member(None, true)]);
    count(&mut pacer, &[(-1_000_000, 8_640_000)], at(10));
    pacer.plan(at(10), start);
    let rate = pacer.rate(at(10));
    assert!((100.0..101.0).contains(&rate), "{rate}");
    let outlook = pacer.outlook(at(10));
    assert!(outlook.known && outlook.shortfall.is_none() && outlook.finish <= Some(at(86_400)), "{outlook:?}");
}

#[tokio::test(start_paused = true)]
async fn the_rate_is_never_below_the_floor_nor_above_the_limit() {
    let terms = Terms { max_rate: 80.0, ..Terms::default() };
    let (mut pacer, start) = pacer(&terms, &[member(None, true)]);
    pacer.plan(at(0), start);
    assert!((pacer.rate(at(0)) - 50.0).abs() < 1e-9);
    count(&mut pacer, &[(-1_000, 8_640_000)], at(0));
    pacer.plan(at(0), start);
    assert!((pacer.rate(at(0)) - 80.0).abs() < 1e-9);
    let short = pacer.outlook(at(0)).shortfall.unwrap();
    assert!((100.0..101.0).contains(&short.needed) && short.late > 5 * HOUR, "{short:?}");
}

#[tokio::test(start_paused = true)]
async fn where_nothing_can_be_counted_the_rate_rises_the_longer_a_pass_takes() {
    let (mut pacer, mut instant) = pacer(&Terms::default(), &[member(None, false)]);
    let (id, mut left, mut now) = (pacer.next(instant).unwrap().id, 12_000_000.0_f64, 0);
    while left > 0.0 {
        pacer.plan(at(now), instant);
        let done = (pacer.rate(at(now)) * 60.0).min(left);
        left -= done;
        (now, instant) = (now + 60, instant + Duration::from_secs(60));
        let cutoff = (left <= 0.0).then(|| (at(0), 0));
        let outcome = if left > 0.0 { Outcome::More } else { Outcome::Drained(None) };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        pacer.visited(id, (outcome, done as u64), (cutoff, None), (at(now), instant));
        assert!(now < 86_400, "{left} are late");
    }
    assert_eq!(pacer.backlog(id, at(now)), (0, None));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_allowed_in_closed_hours_unless_it_shall_finish_now() {
    let mut terms = Terms::default();
    terms.closed.close("08:00-18:00".parse().unwrap());
    let members = [member(None, true)];
    let (mut pacer, start) = pacer(&terms, &members);
    count(&mut pacer, &[(-1_000, 1_000_000)], at(0));
    pacer.plan(at(0), start);
    let noon = at(12 * 3600);
    assert!(pacer.rate(at(0)) > 1_000_000.0 / (14.0 * 3600.0));
    assert!(pacer.rate(noon) <= 0.0 && pacer.closed_until(noon) == Some(at(18 * 3600)));
    pacer.keep(&terms, Some(noon), members, start);
    assert!((pacer.rate(noon) - 1000.0).abs() < 1e-9 && pacer.closed_until(noon).is_none());
    // What came due since then is not meant.
    pacer.visited(members[0].id, (Outcome::Drained(None), 1_000_000), (Some((noon, 0)), None), (noon, start));
    assert!(pacer.rate(noon) <= 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_pause_has_its_price() {
    let (mut pacer, start) = pacer(&Terms::default(), &[member(None, true)]);
    count(&mut pacer, &[(-1_000, 8_640_000)], at(0));
    pacer.plan(at(0), start);
    let (price, shortfall) = pacer.price(at(0), at(12 * 3600));
    assert!((200.0..203.0).contains(&price) && shortfall.is_none(), "{price}");
    assert!(pacer.price(at(0), at(36 * 3600)).1.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_plan_presses_the_more_the_more_was_put_off() {
    let (mut pacer, mut instant) = pacer(&Terms::default(), &[member(None, true)]);
    count(&mut pacer, &[(-1_000, 8_640_000)], at(0));
    pacer.plan(at(0), instant);
    assert!(pacer.urgency(true) <= 0.0);
    let mut before = 0.0;
    for hour in 1..12 {
        instant += HOUR;
        pacer.plan(at(hour * 3600), instant);
        let urgency = pacer.urgency(false);
        assert!(urgency >= before, "{urgency}");
        before = urgency;
    }
    assert!(before >= 1.0);
    assert!(pacer.urgency(true) >= 1.0 && pacer.urgency(false) <= 0.0, "the reference moves on in health");
}
