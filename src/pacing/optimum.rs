//! The lowest peak that is possible with everything known in advance, to measure a plan against. Pure.

/// Documents that can be deleted from one instant on and shall be gone by another, in seconds that count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Work {
    pub(crate) release: f64,
    pub(crate) deadline: f64,
    pub(crate) documents: f64,
}

/// The lowest rate that, never exceeded, gets all of it done in time; infinite if no rate does.
///
/// What is released first must be what has to be done first. Then it is the peak of the taut string between what can and what
/// must be done, which is the most work in any stretch of time, for the length of the stretch: of what is released from its
/// beginning on and has to be done by its end.
///
/// Found by raising the rate to what the stretch needs that falls shortest, until none falls short: every round is one walk
/// over the work, and a handful of rounds does.
pub(crate) fn lowest_peak(work: &[Work]) -> f64 {
    let mut rate = 0.0;
    loop {
        let needed = rate_of_the_shortest(work, rate);
        if needed <= rate {
            return rate;
        }
        rate = needed;
    }
}

/// The rate that the stretch needs in which the most is left undone at this rate.
fn rate_of_the_shortest(work: &[Work], rate: f64) -> f64 {
    let (mut done, mut begins, mut before) = (0.0, f64::NEG_INFINITY, (0.0, 0.0));
    let (mut undone, mut needed) = (0.0, rate);
    for piece in work.iter().filter(|piece| piece.documents > 0.0) {
        // Of all beginnings so far the one that leaves the most undone.
        let lead = rate * piece.release - done;
        if lead > begins {
            (begins, before) = (lead, (piece.release, done));
        }
        done += piece.documents;
        let (from, done_before) = before;
        let left = (done - done_before) - rate * (piece.deadline - from);
        if left > undone {
            undone = left;
            needed = (done - done_before) / (piece.deadline - from).max(0.0);
        }
    }
    needed
}

#[cfg(test)]
#[allow(clippy::float_cmp)] // no digit is lost
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// The definition, word for word.
    fn densest_stretch(work: &[Work]) -> f64 {
        let within = |from: f64, until: f64| {
            let inside = work.iter().filter(|piece| piece.release >= from && piece.deadline <= until);
            inside.map(|piece| piece.documents).sum::<f64>() / (until - from)
        };
        let stretches = work.iter().flat_map(|a| work.iter().map(move |b| (a.release, b.deadline)));
        stretches.filter(|(from, until)| from < until).map(|(from, until)| within(from, until)).fold(0.0, f64::max)
    }

    /// Whether all is done in time at this rate, first come, first served.
    fn done_in_time(work: &[Work], rate: f64) -> bool {
        let mut at = 0.0_f64;
        work.iter().all(|piece| {
            at = at.max(piece.release) + piece.documents / rate;
            at <= piece.deadline * (1.0 + 1e-9)
        })
    }

    fn work(cohorts: &[(u32, u32)], lag: u32) -> Vec<Work> {
        let mut release = 0;
        let piece = |&(gap, documents): &(u32, u32)| {
            release += gap;
            Work { release: release.into(), deadline: (release + lag).into(), documents: documents.into() }
        };
        cohorts.iter().map(piece).collect()
    }

    #[test]
    fn a_burst_is_spread_over_its_time_and_a_stream_goes_as_it_comes() {
        assert_eq!(lowest_peak(&work(&[(5, 1000)], 100)), 10.0);
        assert_eq!(lowest_peak(&work(&[(0, 1000), (50, 1000)], 100)), 2000.0 / 150.0);
        // Too far apart to help each other.
        assert_eq!(lowest_peak(&work(&[(0, 1000), (100, 2000)], 100)), 20.0);
        let stream = work(&vec![(1, 7); 10_000], 100);
        let peak = lowest_peak(&stream);
        assert!((6.9..7.0).contains(&peak), "{peak}");
    }

    #[test]
    fn nothing_needs_no_rate_and_no_time_an_endless_one() {
        assert_eq!(lowest_peak(&[]), 0.0);
        assert_eq!(lowest_peak(&[Work { release: 1.0, deadline: 2.0, documents: 0.0 }]), 0.0);
        assert_eq!(lowest_peak(&[Work { release: 1.0, deadline: 1.0, documents: 3.0 }]), f64::INFINITY);
        assert!(lowest_peak(&[Work { release: 0.0, deadline: 1.0, documents: 1e300 }]).is_finite());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn it_is_the_densest_stretch(cohorts in vec((0_u32..50, 0_u32..1000), 0..25), lag in 1_u32..120) {
            let work = work(&cohorts, lag);
            let (peak, expected) = (lowest_peak(&work), densest_stretch(&work));
            prop_assert!((peak - expected).abs() <= 1e-9 * expected, "{peak} for {expected}");
        }

        #[test]
        fn it_is_enough_and_less_is_not(cohorts in vec((0_u32..50, 1_u32..1000), 1..25), lag in 1_u32..120) {
            let work = work(&cohorts, lag);
            let peak = lowest_peak(&work);
            prop_assert!(done_in_time(&work, peak));
            prop_assert!(!done_in_time(&work, peak * 0.999));
        }
    }
}
