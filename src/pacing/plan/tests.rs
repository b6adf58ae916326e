//! The plan against brute force, and followed through time.

use proptest::prelude::*;

use super::*;

const D: i64 = 86_400;
const HORIZON: i64 = 3 * D;
/// A two-hundredth and a ninety-sixth of the target lag.
const FLOORS: (Duration, Duration) = (Duration::from_secs(432), Duration::from_secs(900));

fn at(seconds: i64) -> DateTime {
    DateTime::from_millis(seconds * 1000)
}

fn cohort(release: i64, deadline: i64, documents: u32) -> Cohort {
    Cohort { release: at(release), deadline: at(deadline), documents: documents.into() }
}

/// Expirations within days: when, and how many.
fn trace(days: i64) -> impl Strategy<Value = Vec<(i64, u32)>> {
    let burst = (0..days * 24, 1..2_000_000_u32).prop_map(|(hour, count)| (hour * 3600, count));
    proptest::collection::vec(burst, 1..30).prop_map(|mut trace| {
        trace.sort_unstable();
        trace
    })
}

/// The most work for its time of all that is released and ends within a stretch: no schedule has a lower peak.
fn densest(jobs: &[Cohort], open: &Open, now: DateTime) -> f64 {
    let mut peak = 0.0_f64;
    for from in jobs {
        let mut work: Vec<&Cohort> = jobs.iter().filter(|job| job.release >= from.release).collect();
        work.sort_by_key(|job| job.deadline);
        let mut sum = 0.0;
        for job in work {
            sum += job.documents;
            peak = peak.max(sum / (open.seconds(now, job.deadline) - open.seconds(now, from.release)));
        }
    }
    peak
}

/// Follows the plan, made anew each `step`, looking ahead by the horizon; what was served, earliest deadline first, and the
/// highest rate.
fn follow(jobs: &[Cohort], open: &Open, step: i64) -> (Vec<f64>, f64, bool) {
    let mut left: Vec<Cohort> = jobs.to_vec();
    left.sort_by_key(|job| job.deadline);
    let mut lateness = vec![f64::NEG_INFINITY; left.len()];
    let (mut now, mut peak, mut kept, mut promised) = (0, 0.0_f64, 0.0_f64, true);
    while left.iter().any(|job| job.documents > 0.5) {
        let seen = left.iter().copied().filter(|job| job.release <= at(now + HORIZON));
        let demand = Demand::new(at(now), seen, open, FLOORS);
        let plan = demand.plan();
        promised &= demand.shortfall(plan.peak * 1.000_001).is_none();
        kept = if plan.at_hand { plan.rate.max(kept) } else { plan.rate };
        let opened = open.seconds(at(now), at(now + step));
        let mut work = kept * opened;
        for (job, late) in left.iter_mut().zip(&mut lateness).filter(|(job, _)| job.release <= at(now)) {
            let done = job.documents.min(work);
            job.documents -= done;
            work -= done;
            if done > 0.0 {
                *late = seconds_between(job.deadline, at(now + step));
            }
        }
        if opened > 0.0 {
            peak = peak.max(kept - work.max(0.0) / opened);
        }
        now += step;
        assert!(now < 100 * D, "{left:?} are never done");
    }
    (lateness, peak, promised)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The lowest peak that any schedule can have, found in another way.
    #[test]
    fn the_peak_is_the_lowest_there_is(trace in trace(6), lag in 1..48_i64) {
        let jobs: Vec<_> = trace.iter().map(|(at, count)| cohort(*at, at + lag * 3600, *count)).collect();
        let peak = Demand::new(at(0), jobs.clone(), &Open::always(), FLOORS).plan().peak;
        let lowest = densest(&jobs, &Open::always(), at(0));
        prop_assert!((peak / lowest - 1.0).abs() < 1e-6, "{peak} instead of {lowest}");
    }

    #[test]
    fn a_plan_made_anew_again_and_again_keeps_to_the_lowest_peak_and_every_deadline(trace in trace(3)) {
        let jobs: Vec<_> = trace.iter().map(|(at, count)| cohort(*at, at + D, *count)).collect();
        let (lateness, peak, promised) = follow(&jobs, &Open::always(), 60);
        prop_assert!(promised);
        prop_assert!(lateness.iter().all(|late| *late <= FLOORS.0.as_secs_f64()), "{lateness:?}");
        let lowest = densest(&jobs, &Open::always(), at(0));
        prop_assert!(peak <= lowest * 1.01, "{peak} instead of {lowest}");
    }

    #[test]
    fn deadlines_of_several_lags_are_kept(trace in trace(3), lags in proptest::collection::vec(2..72_i64, 30)) {
        let jobs: Vec<_> =
            trace.iter().zip(lags).map(|((at, count), lag)| cohort(*at, at + lag * 3600, *count)).collect();
        let (lateness, peak, _) = follow(&jobs, &Open::always(), 60);
        prop_assert!(lateness.iter().all(|late| *late <= FLOORS.0.as_secs_f64()), "{lateness:?}");
        let planned = Demand::new(at(0), jobs.clone(), &Open::always(), FLOORS).plan().peak;
        let lowest = densest(&jobs, &Open::always(), at(0));
        prop_assert!(planned >= lowest * 0.999_999, "{planned} cannot be kept, it takes {lowest}");
        prop_assert!(peak <= lowest * 1.05, "{peak} instead of {lowest}");
    }

    #[test]
    fn nothing_is_planned_for_closed_hours_and_nothing_is_late_for_them(trace in trace(3), closes in 0..24_i64, hours in 1..12_i64) {
        let mut open = Vec::new();
        for day in -1..12 {
            open.push((at(day * D + (closes + hours) * 3600), at((day + 1) * D + closes * 3600)));
        }
        let open = Open::new(open);
        let jobs: Vec<_> = trace.iter().map(|(at, count)| cohort(*at, at + D, *count)).collect();
        let (lateness, peak, _) = follow(&jobs, &open, 60);
        prop_assert!(lateness.iter().all(|late| *late <= FLOORS.0.as_secs_f64()), "{lateness:?}");
        let lowest = densest(&jobs, &open, at(0));
        // The grace is 1 % of the twelve hours that are open.
        prop_assert!(peak <= lowest * 1.02, "{peak} instead of {lowest}");
    }

    #[test]
    fn more_to_do_never_lowers_the_rate_and_more_time_never_raises_it(
        trace in trace(3), which in any::<prop::sample::Index>(), more in 1..1_000_000_u32, later in 1..D,
    ) {
        let rate = |jobs: &[Cohort]| Demand::new(at(0), jobs.to_vec(), &Open::always(), FLOORS).plan().rate;
        let mut jobs: Vec<_> = trace.iter().map(|(at, count)| cohort(*at - D / 2, at + D / 2, *count)).collect();
        let before = rate(&jobs);
        let which = which.index(jobs.len());
        let job = jobs[which];
        if job.release <= at(0) {
            jobs[which].documents += f64::from(more);
            prop_assert!(rate(&jobs) >= before * (1.0 - 1e-9));
        }
        jobs[which] = Cohort { deadline: seconds_after(job.deadline, 0.0), ..job };
        // A later deadline for it, and for whatever is not more pressing.
        for other in jobs.iter_mut().filter(|other| other.deadline >= job.deadline) {
            *other = Cohort { deadline: DateTime::from_millis(other.deadline.timestamp_millis() + later * 1000), ..*other };
        }
        prop_assert!(rate(&jobs) <= before * (1.0 + 1e-9));
    }

    #[test]
    fn planned_together_they_need_no_more_than_apart(one in trace(3), other in trace(3), lag in 1..48_i64) {
        let jobs = |trace: &[(i64, u32)], lag: i64| -> Vec<Cohort> {
            trace.iter().map(|(at, count)| cohort(*at, at + lag * 3600, *count)).collect()
        };
        let (one, other) = (jobs(&one, lag), jobs(&other, 24));
        let peak = |jobs: Vec<Cohort>| Demand::new(at(0), jobs, &Open::always(), FLOORS).plan().peak;
        let apart = peak(one.clone()) + peak(other.clone());
        prop_assert!(peak([one, other].concat()) <= apart * (1.0 + 1e-9));
    }

    /// The numbers of a verdict come true: at the rate that is needed nothing is late, and at one that is not enough the
    /// latest is as late as was said.
    #[test]
    fn a_verdict_comes_true(trace in trace(3), share in 0.2..0.95_f64) {
        let jobs: Vec<_> = trace.iter().map(|(at, count)| cohort(*at, at + D, *count)).collect();
        let open = Open::always();
        let demand = Demand::new(at(0), jobs.clone(), &open, FLOORS);
        let needed = demand.plan().peak;
        prop_assert!(demand.shortfall(needed * 1.000_001).is_none());
        let Some(shortfall) = demand.shortfall(needed * share) else { return Ok(()) };
        prop_assert!((shortfall.needed / needed - 1.0).abs() < 1e-9);
        let (mut now, mut latest) = (0.0_f64, 0.0_f64);
        for job in &jobs {
            now = now.max(seconds_between(at(0), job.release)) + job.documents / (needed * share);
            latest = latest.max(now - seconds_between(at(0), job.deadline));
        }
        let grace = FLOORS.0.as_secs_f64();
        prop_assert!((shortfall.late.as_secs_f64() - (latest - grace)).abs() < 1.0, "{shortfall:?}, {latest}");
    }

    #[test]
    fn whatever_it_is_asked_the_rate_is_a_number(
        jobs in proptest::collection::vec((any::<i64>(), any::<i64>(), any::<f64>()), 0..20), now in any::<i64>(),
    ) {
        let cohort = |(release, deadline, documents): (i64, i64, f64)| Cohort {
            release: DateTime::from_millis(release), deadline: DateTime::from_millis(deadline), documents,
        };
        let open = Open::always();
        let demand = Demand::new(DateTime::from_millis(now), jobs.into_iter().map(cohort), &open, FLOORS);
        let plan = demand.plan();
        prop_assert!(plan.rate >= 0.0 && !plan.rate.is_nan() && !plan.peak.is_nan());
        demand.shortfall(1.0);
        demand.finish(1.0, 2.0);
        demand.within(1e-300);
    }
}

#[test]
fn a_burst_is_spread_evenly_over_the_target_lag() {
    let open = Open::always();
    let demand = Demand::new(at(0), [cohort(-5, D - 5, 8_640_000)], &open, FLOORS);
    let plan = demand.plan();
    assert!((plan.rate - 8_640_000.0 / 86_395.0).abs() < 1e-6);
    assert_eq!(plan.curve.len(), 1);
    assert_eq!(demand.finish(50.0, 1000.0), Some(at(D - 5)));
    // Sooner if it goes no slower than that, later if it goes no faster.
    assert_eq!(demand.finish(864.0, 1000.0), Some(at(10_000)));
    assert_eq!(demand.finish(50.0, 86.4), Some(at(100_000)));
}

#[test]
fn nothing_to_do_is_no_rate_and_no_end() {
    let open = Open::always();
    let demand = Demand::new(at(0), [], &open, FLOORS);
    let plan = demand.plan();
    assert_eq!((plan.rate, plan.peak, demand.finish(50.0, 1000.0), plan.curve.len()), (0.0, 0.0, None, 0));
}

#[test]
fn it_is_slow_before_a_burst_that_is_foreseen_only_if_there_is_nothing_to_be_done() {
    // 12 hours apart: what is there goes faster, so that both take 36 hours.
    let jobs = [cohort(0, D, 1_000_000), cohort(D / 2, D + D / 2, 1_000_000)];
    let plan = Demand::new(at(0), jobs, &Open::always(), FLOORS).plan();
    assert!((plan.rate - 2_000_000.0 / 129_600.0).abs() < 1e-6);
    assert_eq!(plan.curve.len(), 1);
}

#[test]
fn what_is_late_already_is_told_and_not_rushed() {
    let open = Open::always();
    let demand = Demand::new(at(D), [cohort(0, D / 2, 9_000)], &open, FLOORS);
    assert!((demand.plan().rate - 10.0).abs() < 1e-9);
    let shortfall = demand.shortfall(1_000.0).unwrap();
    assert!(shortfall.needed < shortfall.allowed && shortfall.late > Duration::from_secs(11 * 3600));
}
