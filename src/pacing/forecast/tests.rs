#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small numbers
#![allow(clippy::float_cmp)] // zero is exact

mod cost;
mod properties;

use super::*;
use crate::store::{Census, CensusRange};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const NOW: i64 = 1000 * DAY;

fn at(millis: i64) -> DateTime {
    DateTime::from_millis(millis)
}

/// A day's lag, a rule as old as time, and documents that expire at their dates.
fn forecast() -> Forecast {
    Forecast::new(at(i64::MIN), 0, Duration::from_secs(86_400))
}

/// What a store would count of these dates.
fn census(dates: &[i64], range: &CensusRange) -> Census {
    let width = i64::try_from(range.slice.as_millis()).unwrap();
    let within = |date: &&i64| range.from.is_none_or(|from| at(**date) > from) && at(**date) <= range.until;
    let mut dates: Vec<i64> = dates.iter().filter(within).copied().collect();
    dates.sort_unstable();
    let more = dates.len() as u64 >= range.limit;
    dates.truncate(usize::try_from(range.limit).unwrap());
    let mut slices: Vec<(DateTime, u64)> = Vec::new();
    for date in dates {
        let start = at(date.div_euclid(width).saturating_mul(width));
        match slices.last_mut().filter(|(last, _)| *last == start) {
            Some((_, n)) => *n += 1,
            None => slices.push((start, 1)),
        }
    }
    let reached = more.then(|| slices.last().map(|(start, _)| *start)).flatten();
    Census { slices, reached, several: 0 }
}

/// Answers what it wants until it wants nothing.
fn count_all(forecast: &mut Forecast, dates: &[i64], now: i64) -> usize {
    let mut statements = 0;
    while let Some(want) = forecast.wants(at(now)) {
        forecast.counted(&want, Some(&census(dates, &want.range)), at(now));
        statements += 1;
        assert!(statements < 1000, "{forecast:?}");
    }
    statements
}

fn cohorts(forecast: &mut Forecast, now: i64) -> Vec<Cohort> {
    let mut cohorts = Vec::new();
    forecast.cohorts(at(now), &mut cohorts);
    cohorts
}

fn total(cohorts: &[Cohort]) -> f64 {
    cohorts.iter().map(|cohort| cohort.documents).sum()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6 * b.abs().max(1.0)
}

#[test]
fn one_statement_tells_what_is_due_and_what_comes() {
    let dates: Vec<i64> = (-100..100).map(|n| NOW + n * 10 * MINUTE).collect();
    let mut forecast = forecast();
    assert!(!forecast.known());
    assert_eq!(count_all(&mut forecast, &dates, NOW), 1);
    assert!(forecast.known());
    assert!((100.0..=101.0).contains(&forecast.backlog(at(NOW))), "{}", forecast.backlog(at(NOW)));
    assert!(near(total(&cohorts(&mut forecast, NOW)), 200.0));
    let since = forecast.oldest_due_since(at(NOW)).unwrap();
    assert!(since <= at(dates[0]) && since > at(dates[0] - 6 * MINUTE));
}

/// A pass looks at what was due when it began, which is the first part of a slice.
#[test]
fn of_a_slice_that_was_drained_in_part_the_rest_stays() {
    let burst: Vec<i64> = (0..7_200).map(|n| NOW + n * 50).collect();
    let mut forecast = forecast();
    count_all(&mut forecast, &burst, NOW - HOUR);
    let begun = NOW + MINUTE;
    cohorts(&mut forecast, begun);
    forecast.deleted(1_200, Some(at(begun)));
    forecast.drained(at(begun), 0, at(begun));
    let left = total(&cohorts(&mut forecast, begun));
    assert!((left - 6_000.0).abs() < 50.0, "{left}");
}

#[test]
fn what_is_deleted_is_taken_off_and_what_is_drained_is_gone() {
    let dates: Vec<i64> = (0..1000).map(|n| NOW - n * MINUTE - HOUR).collect();
    let mut forecast = forecast();
    count_all(&mut forecast, &dates, NOW);
    forecast.deleted(300, None);
    assert!(near(forecast.backlog(at(NOW)), 700.0));
    // Others deleted as well: everything before that date is gone.
    forecast.deleted(0, Some(at(NOW - HOUR - 100 * MINUTE)));
    assert!((101.0..108.0).contains(&forecast.backlog(at(NOW))), "{}", forecast.backlog(at(NOW)));
    forecast.deleted(u64::MAX, None);
    assert_eq!(forecast.backlog(at(NOW)), 0.0);
    count_all(&mut forecast, &dates, NOW);
    forecast.drained(at(NOW), 0, at(NOW));
    assert_eq!((forecast.backlog(at(NOW)), cohorts(&mut forecast, NOW)), (0.0, vec![]));
    assert_eq!(forecast.oldest_due_since(at(NOW)), None);
}

#[test]
fn what_is_kept_is_in_no_cohort() {
    let kept: Vec<i64> = (0..100).map(|n| NOW - n * MINUTE).collect();
    let mut forecast = forecast();
    forecast.drained(at(NOW), 100, at(NOW));
    assert!(forecast.known());
    count_all(&mut forecast, &kept, NOW);
    assert_eq!(cohorts(&mut forecast, NOW), []);
    // Something is due although nothing is known of it: what was kept is counted with it, and taken off again.
    forecast.more(at(NOW + MINUTE), (0.0, at(NOW + MINUTE)));
    assert!(near(forecast.backlog(at(NOW + MINUTE)), BATCH));
    let all: Vec<i64> = kept.iter().copied().chain((0..2000).map(|n| NOW - DAY - n)).collect();
    count_all(&mut forecast, &all, NOW + MINUTE);
    assert!(near(forecast.backlog(at(NOW + MINUTE)), 2000.0), "{}", forecast.backlog(at(NOW + MINUTE)));
    // Due since it was seen, whatever its dates.
    assert_eq!(forecast.oldest_due_since(at(NOW + MINUTE)), Some(at(NOW + MINUTE)));
}

#[test]
fn documents_deleted_by_others_are_no_longer_known_once_counted_again() {
    let mut forecast = forecast();
    let dates: Vec<i64> = (0..10).map(|n| NOW - HOUR - n).collect();
    count_all(&mut forecast, &dates, NOW);
    forecast.deleted(10, None);
    forecast.more(at(NOW), (0.0, at(NOW)));
    count_all(&mut forecast, &dates[..3], NOW);
    assert!(near(forecast.backlog(at(NOW)), 3.0));
}

#[test]
fn a_rule_that_came_later_gives_its_whole_lag() {
    let mut forecast = Forecast::new(at(NOW - HOUR), 0, Duration::from_secs(86_400));
    count_all(&mut forecast, &[NOW - 300 * DAY, NOW - DAY, NOW - 2 * HOUR], NOW);
    let all = cohorts(&mut forecast, NOW);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!((all[0].deadline, all[0].documents), (at(NOW - HOUR + DAY), 3.0));
    assert_eq!(forecast.oldest_due_since(at(NOW)), Some(at(NOW - HOUR)));
}

#[test]
fn a_changed_rule_begins_anew_and_old_answers_say_nothing() {
    let mut forecast = forecast();
    let want = forecast.wants(at(NOW)).unwrap();
    forecast.rule(at(i64::MIN), 0, Duration::from_secs(86_400));
    assert_eq!(forecast.wants(at(NOW)), Some(want));
    forecast.rule(at(NOW), 1000, Duration::from_secs(86_400));
    forecast.counted(&want, Some(&census(&[NOW - DAY], &want.range)), at(NOW));
    assert!(!forecast.known());
    assert_eq!(forecast.backlog(at(NOW)), 0.0);
}

#[test]
fn what_came_due_is_counted_and_teaches_how_many_survive() {
    let lag = Duration::from_secs(86_400);
    let mut forecast = Forecast::new(at(i64::MIN), 0, lag);
    // Each minute a hundred documents, of which half are renewed shortly before.
    let future: Vec<i64> = (0..30 * 60).flat_map(|n| std::iter::repeat_n(NOW + n * MINUTE, 10)).collect();
    let survive: Vec<i64> = future.iter().copied().step_by(2).collect();
    count_all(&mut forecast, &future, NOW);
    let mut now = NOW;
    for _ in 0..100 {
        now += 6 * MINUTE;
        let due = survive.iter().filter(|date| **date <= now);
        let dates: Vec<i64> = due.chain(future.iter().filter(|date| **date > now)).copied().collect();
        count_all(&mut forecast, &dates, now);
    }
    assert!((forecast.survival.share() - 0.5).abs() < 0.05, "{}", forecast.survival.share());
}

#[test]
fn with_several_dates_what_is_due_is_counted_and_what_comes_is_observed() {
    let mut forecast = forecast();
    let several = |n: u64| Census { slices: vec![(at(NOW - DAY), 5)], reached: None, several: n };
    let want = forecast.wants(at(NOW)).unwrap();
    forecast.counted(&want, Some(&several(10)), at(NOW));
    assert!(!forecast.known());
    let want = forecast.wants(at(NOW)).unwrap();
    assert!(want.range.from.is_none() && want.range.until <= at(NOW), "{want:?}");
    forecast.counted(&want, Some(&several(10)), at(NOW));
    assert!(forecast.known() && near(forecast.backlog(at(NOW)), 15.0));
    assert_eq!(forecast.wants(at(NOW)), None);
    let mut now = NOW;
    for _ in 0..60 * 24 {
        forecast.deleted(60, None);
        forecast.drained(at(now), 0, at(now));
        now += MINUTE;
    }
    // One in a second, over three days.
    let coming = total(&cohorts(&mut forecast, now));
    assert!((coming - 3.0 * 86_400.0).abs() < 10_000.0, "{coming}");
}

#[test]
fn a_burst_that_no_limit_holds_does_not_hold_up_the_rest() {
    let mut forecast = forecast();
    let burst = NOW - DAY;
    let mut statements = 0;
    while let Some(want) = forecast.wants(at(NOW)) {
        statements += 1;
        assert!(statements < 50);
        let within = want.range.from.is_none_or(|from| from < at(burst)) && want.range.until >= at(burst);
        let census = if within {
            // Fifty million at one instant.
            let start = at(burst.div_euclid(6 * MINUTE) * 6 * MINUTE);
            Census { slices: vec![(start, want.range.limit)], reached: Some(start), several: 0 }
        } else {
            census(&[NOW - HOUR, NOW + HOUR], &want.range)
        };
        forecast.counted(&want, Some(&census), at(NOW));
    }
    assert!(near(forecast.backlog(at(NOW)), 10_000_001.0), "{}", forecast.backlog(at(NOW)));
    assert!(near(total(&cohorts(&mut forecast, NOW)), 10_000_002.0));
}

#[test]
fn what_cannot_be_counted_is_asked_for_less_and_less() {
    let mut forecast = forecast();
    let mut now = NOW;
    let mut asked = Vec::new();
    while now < NOW + DAY {
        now += MINUTE;
        if let Some(want) = forecast.wants(at(now)) {
            asked.push(want.range.limit);
            forecast.counted(&want, None, at(now));
        }
    }
    assert!((24..35).contains(&asked.len()), "{asked:?}");
    assert_eq!(asked.last(), Some(&1000));
    assert!(!forecast.known());
    forecast.more(at(now), (0.0, at(now)));
    assert!(near(forecast.backlog(at(now)), BATCH));
}

#[test]
fn time_at_its_ends_gives_finite_numbers() {
    let dates = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
    for lag in [Duration::ZERO, Duration::from_millis(1), Duration::from_secs(60), Duration::MAX] {
        for since in [i64::MIN, 0, i64::MAX] {
            for expire_after in [i64::MIN, 0, 1000, i64::MAX] {
                let mut forecast = Forecast::new(at(since), expire_after, lag);
                for now in dates {
                    for _ in 0..5 {
                        let Some(want) = forecast.wants(at(now)) else { break };
                        let reached = Some(at(now));
                        let slices = vec![(at(i64::MIN), u64::MAX), (at(now), 1), (at(i64::MAX), 1)];
                        forecast.counted(&want, Some(&Census { slices, reached, several: 0 }), at(now));
                        forecast.deleted(u64::MAX, Some(at(now)));
                        forecast.more(at(now), (0.0, at(now)));
                        forecast.counted(&want, Some(&census(&dates, &want.range)), at(now));
                    }
                    forecast.drained(at(now), u64::MAX, at(now));
                    forecast.more(at(now), (0.0, at(now)));
                    assert!(forecast.backlog(at(now)).is_finite());
                    assert!(total(&cohorts(&mut forecast, now)).is_finite());
                    forecast.oldest_due_since(at(now));
                }
            }
        }
    }
}
