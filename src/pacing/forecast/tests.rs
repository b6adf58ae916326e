use super::*;
use crate::store::{Census, CensusRange};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

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

#[test]
fn one_statement_tells_what_is_due_and_what_comes() {
    let now = 1000 * DAY;
    let dates: Vec<i64> = (-100..100).map(|n| now + n * 10 * MINUTE).collect();
    let mut forecast = forecast();
    assert!(!forecast.known());
    assert_eq!(count_all(&mut forecast, &dates, now), 1);
    assert!(forecast.known());
    assert!((forecast.backlog(at(now)) - 101.0).abs() <= 1.0, "{}", forecast.backlog(at(now)));
    assert_eq!(total(&cohorts(&mut forecast, now)), 200.0);
    let since = forecast.oldest_due_since(at(now)).unwrap();
    assert!(since <= at(dates[0]) && since > at(dates[0] - 6 * MINUTE));
}
