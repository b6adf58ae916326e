//! Whatever is counted and deleted in whatever order.

use proptest::{collection::vec, prelude::*};

use super::*;

/// What happens to a collection and to its forecast.
#[derive(Clone, Debug)]
enum Event {
    Passes(i64),
    /// Documents that expire so long from now, or did long ago.
    Inserted(Vec<i64>),
    Deleted(usize),
    DeletedByOthers(usize),
    Drained(usize),
    Counted(u64),
    CountFailed,
    More,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1..3 * HOUR).prop_map(Event::Passes),
        2 => vec(-2 * DAY..4 * DAY, 0..50).prop_map(Event::Inserted),
        2 => (0_usize..40).prop_map(Event::Deleted),
        1 => (0_usize..10).prop_map(Event::DeletedByOthers),
        1 => (0_usize..3).prop_map(Event::Drained),
        4 => (1_u64..60).prop_map(Event::Counted),
        1 => Just(Event::CountFailed),
        1 => Just(Event::More),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_known_is_negative_or_no_number(events in vec(event(), 1..80), expire_after in 0..DAY) {
        let mut forecast = Forecast::new(at(NOW - HOUR), expire_after, Duration::from_secs(86_400));
        let (mut now, mut dates): (i64, Vec<i64>) = (NOW, Vec::new());
        for event in events {
            match event {
                Event::Passes(millis) => now += millis,
                Event::Inserted(more) => {
                    dates.extend(more.iter().map(|after| now - expire_after + after));
                    dates.sort_unstable();
                }
                Event::Deleted(n) => {
                    let due = dates.partition_point(|date| *date <= now - expire_after);
                    let deleted = n.min(due);
                    dates.drain(..deleted);
                    let up_to = dates.first().filter(|_| n % 2 == 0).map(|date| at((*date).min(now - expire_after)));
                    forecast.deleted(deleted as u64, up_to);
                }
                Event::DeletedByOthers(n) => drop(dates.drain(..n.min(dates.len()))),
                Event::Drained(left) => {
                    let due = dates.partition_point(|date| *date <= now - expire_after);
                    let left = left.min(due);
                    dates.drain(left..due);
                    forecast.drained(at(now - expire_after), left as u64, at(now));
                    prop_assert_eq!(forecast.oldest_due_since(at(now)), None);
                }
                Event::Counted(limit) => if let Some(mut want) = forecast.wants(at(now)) {
                    want.range.limit = want.range.limit.min(limit);
                    forecast.counted(&want, Some(&census(&dates, &want.range)), at(now));
                },
                Event::CountFailed => if let Some(want) = forecast.wants(at(now)) {
                    forecast.counted(&want, None, at(now));
                },
                Event::More => forecast.more(at(now), (0.0, at(now))),
            }
            let backlog = forecast.backlog(at(now));
            prop_assert!(backlog >= 0.0 && backlog.is_finite(), "{}", backlog);
            let cohorts = cohorts(&mut forecast, now);
            prop_assert!(cohorts.len() < 1000);
            prop_assert!(cohorts.iter().all(|cohort| cohort.documents > 0.0 && cohort.documents.is_finite()));
            prop_assert!(cohorts.is_sorted_by_key(|cohort| cohort.deadline), "{:?}", cohorts);
        }
        // Left alone, it gets to know everything.
        now += DAY;
        let due = dates.partition_point(|date| *date <= now - expire_after);
        let kept = dates.drain(..due).len();
        forecast.drained(at(now - expire_after), kept as u64, at(now));
        // A round that was under way, and a whole one.
        for _ in 0..2 {
            now += 2 * HOUR;
            count_all(&mut forecast, &dates, now);
        }
        let horizon = now - expire_after + 3 * DAY;
        let within = dates.iter().filter(|date| **date <= horizon).count() as f64;
        let more = dates.iter().filter(|date| **date <= horizon + 12 * MINUTE).count() as f64;
        // Of what came due meanwhile, nothing is a guess any more.
        let (known, share) = (total(&cohorts(&mut forecast, now)), forecast.survival.share());
        prop_assert!(known >= within * share.min(1.0) - 1e-6 && known <= more * share.max(1.0) + 1e-6, "{known}, {within}, {share}");
    }

    /// The documents of a cohort are the next ones by date, so each can be held against its cohort.
    #[test]
    fn every_document_is_in_one_cohort_that_fits_it(
        offsets in vec(-40 * DAY..3 * DAY - 6 * MINUTE, 1..300),
        since in -20 * DAY..0,
        expire_after in 0..DAY,
        limit in 1_u64..100,
    ) {
        let rule_since = NOW + since;
        let mut forecast = Forecast::new(at(rule_since), expire_after, Duration::from_secs(86_400));
        let mut dates: Vec<i64> = offsets.iter().map(|offset| NOW + offset - expire_after).collect();
        dates.sort_unstable();
        let mut statements = 0;
        while let Some(mut want) = forecast.wants(at(NOW)) {
            want.range.limit = want.range.limit.min(limit + statements / 10 * 50);
            forecast.counted(&want, Some(&census(&dates, &want.range)), at(NOW));
            statements += 1;
            prop_assert!(statements < 10_000);
        }
        let slice = DAY / 240;
        let mut left = dates.iter();
        for cohort in cohorts(&mut forecast, NOW) {
            prop_assert!(near(cohort.documents, cohort.documents.round()));
            for _ in 0..cohort.documents.round() as u64 {
                let expires = left.next().unwrap() + expire_after;
                let true_deadline = expires.max(rule_since) + DAY;
                let deadline = cohort.deadline.timestamp_millis();
                prop_assert!(deadline <= true_deadline, "{}", deadline - true_deadline);
                let late = true_deadline <= NOW;
                prop_assert!(late || deadline >= true_deadline - slice, "{}", deadline - true_deadline);
                prop_assert!(cohort.release >= at(expires));
                prop_assert!(cohort.release < at(expires + slice) || cohort.release <= at(NOW));
            }
        }
        prop_assert_eq!(left.next(), None);
    }
}
