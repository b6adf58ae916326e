//! What counting costs, in time that a test makes up.

use super::*;

/// The statements and the keys of each minute, for indexes with these dates, at a tick in a second.
fn minutes(forecasts: &mut [Forecast], dates: &[Vec<i64>], minutes: i64) -> Vec<(usize, u64)> {
    let mut budget = Budget::new(at(NOW));
    let mut spent = Vec::new();
    for minute in 0..minutes {
        let (mut statements, mut keys) = (0, 0);
        for second in 0..60 {
            let now = at(NOW + minute * MINUTE + second * 1000);
            let mut wants: Vec<(usize, Want)> =
                forecasts.iter_mut().enumerate().filter_map(|(at, it)| Some((at, it.wants(now)?))).collect();
            let mut asked = Vec::new();
            while let Some((index, want)) = budget.pick(&mut wants, now) {
                asked.push((index, want));
            }
            for (index, want) in asked {
                let census = census(&dates[index], &want.range);
                budget.settle(&want, census.documents());
                forecasts[index].counted(&want, Some(&census), now);
                statements += 1;
                keys += census.documents();
            }
        }
        spent.push((statements, keys));
    }
    spent
}

#[test]
fn idle_indexes_cost_little_at_first_and_then_a_statement_an_hour() {
    let mut forecasts = vec![forecast(); 500];
    let spent = minutes(&mut forecasts, &vec![Vec::new(); 500], 180);
    let statements = |range: std::ops::Range<usize>| spent[range].iter().map(|(n, _)| n).sum::<usize>();
    assert!(spent.iter().all(|(n, _)| *n <= 121), "{spent:?}");
    assert_eq!((statements(0..10), statements(10..60)), (500, 0), "{spent:?}");
    assert_eq!((statements(60..120), statements(120..180)), (500, 500), "{spent:?}");
    assert!(forecasts.iter().all(Forecast::known));
}

/// Half an hour of what is hardest: every index has more than can be counted.
#[test]
fn no_more_is_counted_than_the_budget_allows() {
    let mut forecasts = vec![forecast(); 20];
    let dates: Vec<Vec<i64>> = (0..20).map(|k| (0..2000).map(|n| NOW - DAY + n * 3 * MINUTE + k).collect()).collect();
    let mut small = Budget::new(at(NOW));
    // As if there were a thousand documents to each that there is.
    let (mut statements, mut keys) = (0, 0);
    for second in 0..1800 {
        let now = at(NOW + second * 1000);
        let mut wants: Vec<(usize, Want)> =
            forecasts.iter_mut().enumerate().filter_map(|(at, it)| Some((at, it.wants(now)?))).collect();
        while let Some((index, want)) = small.pick(&mut wants, now) {
            let few = CensusRange { limit: want.range.limit / 1000, ..want.range };
            let mut census = census(&dates[index], &few);
            census.slices.iter_mut().for_each(|(_, n)| *n *= 1000);
            small.settle(&want, census.documents());
            keys += census.documents();
            forecasts[index].counted(&want, Some(&census), now);
            statements += 1;
        }
        assert!(statements <= 60 + second + 1 && keys as f64 <= 20e6 + 1e6 / 60.0 * (second + 1) as f64);
    }
    assert!(keys > 25_000_000, "{keys}");
    assert!(forecasts.iter().all(Forecast::known));
}

/// A few documents at a time, and one is inserted now and then: in the end all that lies ahead is known.
#[test]
fn with_small_counts_all_of_the_horizon_is_known_after_a_while() {
    let mut forecasts = vec![forecast(); 3];
    let mut dates: Vec<Vec<i64>> =
        (0..3).map(|k| (0..4000).map(|n| NOW - DAY + n * MINUTE * (k + 1)).collect()).collect();
    let mut budget = Budget::new(at(NOW));
    let mut now = NOW;
    for minute in 0..150 {
        now = NOW + minute * MINUTE;
        let mut wants: Vec<(usize, Want)> =
            forecasts.iter_mut().enumerate().filter_map(|(k, it)| Some((k, it.wants(at(now))?))).collect();
        while let Some((index, mut want)) = budget.pick(&mut wants, at(now)) {
            let census = census(&dates[index], &CensusRange { limit: 200, ..want.range });
            budget.settle(&want, census.documents());
            want.range.limit = 200;
            forecasts[index].counted(&want, Some(&census), at(now));
        }
        for dates in dates.iter_mut().filter(|_| minute % 3 == 0) {
            dates.push(now + HOUR + minute * MINUTE);
        }
    }
    for (forecast, dates) in forecasts.iter_mut().zip(&dates) {
        let within = dates.iter().filter(|date| **date <= now + 3 * DAY).count() as f64;
        let known = total(&cohorts(forecast, now));
        assert!(forecast.known());
        assert!((known - within).abs() <= 0.03 * within, "{known} of {within}");
    }
}
