//! What is made of a planned rate when the database is not well.

use tokio::time::Instant;

use super::health::Verdict;

/// By how much of the rate, or of the floor if that is more, it rises in a second after trouble.
const RISE: f64 = 0.05;

/// Below this share of what is wished for the rise no longer depends on where it began: from 0 it would never end.
const SEED: f64 = 0.01;

/// A fall within so many seconds of the last one is the same fall, told in several steps.
const SAME_FALL: f64 = 10.0;

/// After so many seconds without a fall one is forgotten.
const FORGET: f64 = 300.0;

/// From this share on of the rate at which the last fall began it rises with care.
const CARE: f64 = 0.7;

/// How often the rise is halved at most.
const MOST_HALVED: i32 = 6;

/// What would be done if the database were well: in documents a second, but for the urgency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wish {
    /// By the plan.
    pub(crate) planned: f64,
    /// What nobody notices, below which smoothing is pointless; 0 if nothing is due.
    pub(crate) floor: f64,
    /// The most that is allowed.
    pub(crate) max: f64,
    /// How far politeness is to be withdrawn, from 0 to 1.
    pub(crate) urgency: f64,
}

impl Wish {
    /// The rate in health.
    fn rate(&self) -> f64 {
        or_zero(self.planned).max(or_zero(self.floor)).min(or_zero(self.max)).min(f64::MAX)
    }
}

/// The rate that is used: less than is wished for while the database is not well, and for a while afterwards.
///
/// Down at once, and slowly up. Each time that the rise brings the trouble back, the next one is slower where it began: what the
/// database says comes late, and the swing would go on for ever.
#[derive(Debug, Default)]
pub(crate) struct Politeness {
    /// The rate that was used last, and when; none in health.
    rising: Option<(f64, Instant)>,
    /// How often the trouble came back, not long ago, and when last.
    falls: i32,
    fell: Option<Instant>,
    /// The rate at which the last fall began.
    fell_from: f64,
}

impl Politeness {
    /// The rate to use from now on.
    pub(crate) fn rate(&mut self, wish: &Wish, health: &Verdict, at: Instant) -> f64 {
        let wished = wish.rate();
        let politeness = match health.factor {
            _ if health.stopped => 0.0,
            factor => factor + (1.0 - factor) * or_zero(wish.urgency).min(1.0),
        };
        let target = wished * politeness;
        self.forget(at);
        let Some((last, told)) = self.rising else {
            if politeness < 1.0 {
                self.falls_from(wished, at);
                self.rising = Some((target, at));
            }
            return target;
        };
        let seconds = at.saturating_duration_since(told).as_secs_f64();
        let base = last.max(or_zero(wish.floor)).max(wished * SEED);
        let careful = self.falls > 0 && last >= self.fell_from * CARE;
        let rise = if careful { RISE * 0.5_f64.powi(self.falls) } else { RISE };
        let risen = last + base * rise * seconds;
        if politeness < 1.0 && target < last * 0.99 {
            self.falls_from(last, at);
        }
        let rate = target.min(risen);
        self.rising = (politeness < 1.0 || rate < wished).then_some((rate, at));
        rate
    }

    /// When it is lower than the wish although the database is well again.
    pub(crate) fn is_recovering(&self) -> bool {
        self.rising.is_some()
    }

    fn falls_from(&mut self, rate: f64, at: Instant) {
        if self.fell.is_none_or(|fell| at.saturating_duration_since(fell).as_secs_f64() > SAME_FALL) {
            self.falls = (self.falls + 1).min(MOST_HALVED);
            self.fell_from = rate;
        }
        self.fell = Some(at);
    }

    fn forget(&mut self, at: Instant) {
        if self.fell.is_some_and(|fell| at.saturating_duration_since(fell).as_secs_f64() > FORGET) {
            self.falls = (self.falls - 1).max(0);
            self.fell = (self.falls > 0).then_some(at);
        }
    }
}

/// What is no number, or below 0, is 0.
fn or_zero(value: f64) -> f64 {
    value.max(0.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const WISH: Wish = Wish { planned: 1000.0, floor: 50.0, max: 5000.0, urgency: 0.0 };

    fn at_factor(factor: f64) -> Verdict {
        Verdict { factor, ..Verdict::HEALTHY }
    }

    fn stopped() -> Verdict {
        Verdict { factor: 0.0, stopped: true, ..Verdict::HEALTHY }
    }

    #[track_caller]
    fn assert_near(rate: f64, expected: f64) {
        assert!((rate - expected).abs() < 1e-6 * expected.max(1.0), "{rate} instead of {expected}");
    }

    #[test]
    fn in_health_the_plan_is_followed_at_once_within_its_limits() {
        let (mut politeness, now) = (Politeness::default(), Instant::now());
        let healthy = at_factor(1.0);
        for (planned, expected) in [(1000.0, 1000.0), (3.0, 50.0), (9000.0, 5000.0), (100.0, 100.0), (0.0, 50.0)] {
            let wish = Wish { planned, ..WISH };
            assert_near(politeness.rate(&wish, &healthy, now), expected);
            assert!(!politeness.is_recovering());
        }
    }

    #[test]
    fn down_at_once_and_slowly_up() {
        let (mut politeness, mut now) = (Politeness::default(), Instant::now());
        politeness.rate(&WISH, &at_factor(1.0), now);
        assert_near(politeness.rate(&WISH, &at_factor(0.2), now), 200.0);
        let mut last = 200.0;
        let mut seconds = 0;
        while politeness.is_recovering() {
            (now, seconds) = (now + SECOND, seconds + 1);
            let rate = politeness.rate(&WISH, &at_factor(1.0), now);
            assert!(rate > last && rate <= last * 1.05 + 1e-9, "{rate} after {last}");
            last = rate;
        }
        assert_near(last, 1000.0);
        // To 700 at 5 % a second, and with care from there on.
        assert!((35..50).contains(&seconds), "{seconds}");
    }

    #[test]
    fn a_stop_is_a_stop_however_urgent_and_after_it_the_rate_rises_from_nothing() {
        for floor in [50.0, 0.0] {
            let (mut politeness, mut now) = (Politeness::default(), Instant::now());
            let wish = Wish { urgency: 1.0, floor, ..WISH };
            assert_near(politeness.rate(&wish, &stopped(), now), 0.0);
            for _ in 0..300 {
                now += SECOND;
                politeness.rate(&wish, &at_factor(1.0), now);
            }
            assert_near(politeness.rate(&wish, &at_factor(1.0), now), 1000.0);
        }
    }

    #[test]
    fn urgency_withdraws_politeness() {
        let (mut politeness, now) = (Politeness::default(), Instant::now());
        let rate =
            |urgency, politeness: &mut Politeness| politeness.rate(&Wish { urgency, ..WISH }, &at_factor(0.2), now);
        assert_near(rate(1.0, &mut politeness), 1000.0);
        assert_near(rate(0.5, &mut politeness), 600.0);
        assert_near(rate(7.0, &mut Politeness::default()), 1000.0);
        assert_near(rate(f64::NAN, &mut Politeness::default()), 200.0);
    }

    #[test]
    fn a_plan_that_falls_while_the_rate_recovers_is_no_trouble() {
        let (mut politeness, mut now) = (Politeness::default(), Instant::now());
        politeness.rate(&WISH, &at_factor(0.5), now);
        now += SECOND;
        assert_near(politeness.rate(&Wish { planned: 100.0, ..WISH }, &at_factor(1.0), now), 100.0);
        assert!(!politeness.is_recovering());
        assert_near(politeness.rate(&WISH, &at_factor(1.0), now), 1000.0);
    }

    /// The rates of a database that is slowed down by what it was asked for five seconds ago.
    fn rates_of_a_late_database(seconds: usize) -> Vec<f64> {
        const LATE: usize = 5;
        const BEARS: f64 = 400.0;
        let (mut politeness, mut now) = (Politeness::default(), Instant::now());
        let mut rates: Vec<f64> = Vec::new();
        for second in 0..seconds {
            let load = second.checked_sub(LATE).map_or(0.0, |then| rates[then]);
            // Steep: a tenth more than it bears costs a quarter.
            let factor = (1.0 - 2.5 * (load / BEARS - 1.0).max(0.0)).max(0.1);
            rates.push(politeness.rate(&WISH, &at_factor(factor), now));
            now += SECOND;
        }
        rates
    }

    #[test]
    fn the_swing_of_a_late_answer_shrinks() {
        let rates = rates_of_a_late_database(1200);
        let swing = |rates: &[f64]| {
            let (low, high) =
                rates.iter().fold((f64::MAX, 0.0_f64), |(low, high), rate| (low.min(*rate), high.max(*rate)));
            high - low
        };
        let (early, late) = (swing(&rates[5..200]), swing(&rates[900..]));
        assert!(late < early / 4.0, "{early} and then {late}");
        // And it is not for want of trying.
        assert!(rates[900..].iter().all(|rate| *rate > 300.0), "{:?}", &rates[900..]);
    }

    #[test]
    fn no_number_is_no_rate() {
        let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, f64::MAX, f64::MIN_POSITIVE];
        let mut politeness = Politeness::default();
        let mut now = Instant::now();
        for planned in odd {
            for floor in odd {
                for max in odd {
                    for verdict in [at_factor(1.0), at_factor(0.3), stopped()] {
                        now += SECOND;
                        let rate = politeness.rate(&Wish { planned, floor, max, urgency: planned }, &verdict, now);
                        assert!(rate.is_finite() && rate >= 0.0, "{planned} {floor} {max}: {rate}");
                    }
                }
            }
        }
    }
}
