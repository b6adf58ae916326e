//! `plan` of a database: what is counted, what is promised of it, and what a pause costs.

// Counts are whole numbers, and exact.
#![allow(clippy::float_cmp)]

use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use ttl_index::{ClosedWindow, Code, EmbeddedStore, ManualClock, Sweeper, TtlIndex, TtlRegistry};

use crate::support::place::Place;
use crate::support::wait;

const HOUR: Duration = Duration::from_secs(3600);

fn after(now: DateTime, seconds: i64) -> DateTime {
    DateTime::from_millis(now.timestamp_millis() + seconds * 1000)
}

fn dated(date: DateTime, count: usize) -> Vec<Document> {
    (0..count).map(|_| doc! { "t": date }).collect()
}

async fn create(ttl: &TtlRegistry, collection: &str) {
    ttl.create_index(collection, TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
}

/// With 720 documents due in `c` since it has an index, and 360 in half an hour.
async fn filled(place: &Place) -> (TtlRegistry, DateTime) {
    let ttl = place.registry().await;
    create(&ttl, "c").await;
    let now = ttl.now().await.unwrap();
    place.insert("c", dated(DateTime::from_millis(0), 720)).await;
    place.insert("c", dated(after(now, 1800), 360)).await;
    (ttl, now)
}

/// Those of the server, with the library's own.
async fn collections(place: &Place) -> Vec<String> {
    let Place::Mongo(it) = place else { return Vec::new() };
    let mut names = it.db.list_collection_names().await.unwrap();
    names.sort();
    names
}

#[track_caller]
fn about(value: f64, expected: f64) {
    assert!((value / expected - 1.0).abs() < 0.03, "{value} is not about {expected}");
}

#[tokio::test]
async fn what_is_due_and_what_comes_due_is_counted_and_nothing_is_changed() {
    for place in Place::all().await {
        let (ttl, now) = filled(&place).await;
        let before = collections(&place).await;
        let plan = ttl.plan().target_lag(HOUR).await.unwrap();
        assert_eq!(collections(&place).await, before);
        assert_eq!((plan.backlog, plan.coming, plan.complete), (720, 360, true), "{plan:?}");
        // All that is due within the hour, and then the rest.
        about(plan.peak, 720.0 / 3600.0);
        assert_eq!((plan.rate, plan.shortfall, plan.price), (50.0, None, None), "{plan:?}");
        // No slower than 50 a second.
        let finish = plan.finish.unwrap();
        assert!(finish > after(now, 14) && finish < after(plan.now, 16), "{plan:?}");
        assert!(!plan.curve.is_empty() && plan.curve[0].from == plan.now, "{plan:?}");
        let [index] = &plan.indexes[..] else { panic!("{plan:?}") };
        assert_eq!((index.collection.as_str(), index.index.as_str(), &index.uncounted), ("c", "t_1", &None));
        assert_eq!((index.due, index.coming), (720, 360));
        // Not before there was a rule.
        assert!(index.oldest_due.unwrap() > after(now, -600), "{plan:?}");
        assert_eq!(place.count("c").await, 1080);
    }
}

#[tokio::test]
async fn a_rate_that_is_too_low_is_told_with_what_it_takes() {
    for place in Place::all().await {
        let (ttl, _) = filled(&place).await;
        let plan = ttl.plan().target_lag(HOUR).max_rate(0.1).await.unwrap();
        let short = plan.shortfall.unwrap();
        assert_eq!(short.allowed, 0.1);
        about(short.needed, 0.2);
        // 1080 documents take three hours; the last of them have an hour and a half.
        about(short.late.as_secs_f64(), 5400.0);
        let enough = ttl.plan().target_lag(HOUR).max_rate(short.needed * 1.01).await.unwrap();
        assert_eq!(enough.shortfall, None);
    }
}

#[tokio::test]
async fn a_pause_has_a_price() {
    for place in Place::all().await {
        let (ttl, now) = filled(&place).await;
        let planned = |resumed| ttl.plan().target_lag(HOUR).max_rate(0.5).resuming_at(after(now, resumed));
        let half = planned(1800).await.unwrap();
        assert_eq!(half.shortfall, None);
        let price = half.price.unwrap();
        about(price.peak, 720.0 / 1800.0);
        assert_eq!((price.resumed, price.shortfall), (after(now, 1800), None));
        // Nothing can be made up for once it is late.
        let price = planned(7200).await.unwrap().price.unwrap();
        assert!(price.shortfall.unwrap().late >= Duration::from_secs(3600), "{price:?}");

        let paused = ttl.pause().for_duration(HOUR / 2).await.unwrap();
        let plan = ttl.plan().target_lag(HOUR).await.unwrap();
        assert_eq!((&plan.paused, plan.price.unwrap().resumed), (&Some(paused.clone()), paused.until.unwrap()));
    }
}

#[tokio::test]
async fn what_is_not_counted_is_named_with_the_reason() {
    for place in Place::all().await {
        let (ttl, now) = filled(&place).await;
        let unsupported = TtlIndex::on("t").expire_after(Duration::ZERO).supporting_index(false);
        ttl.create_index("unsupported", unsupported).await.unwrap();
        place.insert("unsupported", dated(DateTime::from_millis(0), 3)).await;
        let why = |plan: &ttl_index::PlanReport, n: usize| plan.indexes[n].uncounted.clone().unwrap_or_default();

        let plan = ttl.plan().target_lag(HOUR).await.unwrap();
        assert_eq!((plan.backlog, plan.complete), (720, false), "{plan:?}");
        assert_eq!((why(&plan, 0).as_str(), plan.indexes[1].collection.as_str()), ("", "unsupported"));
        assert!(why(&plan, 1).contains("no supporting index"), "{plan:?}");
        let only = ttl.plan().collection("c").target_lag(HOUR).await.unwrap();
        assert_eq!((only.indexes.len(), only.complete), (1, true));

        let hasty = ttl.plan().collection("c").max_time(Duration::ZERO).await.unwrap();
        assert!(hasty.backlog == 0 && why(&hasty, 0).contains("ended after 0 statements"), "{hasty:?}");

        if let Place::Mongo(it) = &place {
            let several = doc! { "t": [after(now, -100_000), after(now, 1800)] };
            it.db.collection("c").insert_one(several).await.unwrap();
            let plan = ttl.plan().target_lag(HOUR).collection("c").await.unwrap();
            assert_eq!(plan.backlog, 721, "{plan:?}");
            assert!(why(&plan, 0).contains("several dates"), "{plan:?}");

            place.drop_collection("c").await;
            place.insert("c", dated(now, 1)).await;
            let plan = ttl.plan().collection("c").await.unwrap();
            assert!(plan.backlog == 0 && why(&plan, 0).contains("made again"), "{plan:?}");
        }
    }
}

#[tokio::test]
async fn it_goes_by_what_is_in_force() {
    for place in Place::all().await {
        let (ttl, _) = filled(&place).await;
        let closed: Vec<ClosedWindow> = vec!["Sat,Sun 22:00-24:00 Europe/Berlin".parse().unwrap()];
        let plan = ttl.plan().await.unwrap();
        assert_eq!((plan.target_lag, plan.max_rate, plan.min_rate), (HOUR * 24, 1000.0, 50.0));
        // What the sweeper is told, while it sweeps and afterwards.
        let sweeper = Sweeper::new(ttl.clone()).target_lag(HOUR * 2).max_rate(700.0).closed(closed[0].clone());
        let sweeper = sweeper.start().unwrap();
        let told = async || ttl.status().await.unwrap().pace.is_some();
        wait::until("the pace to be told", wait::LONG, told).await;
        let pace = ttl.status().await.unwrap().pace.unwrap();
        assert_eq!((pace.target_lag, pace.max_rate, &pace.closed), (HOUR * 2, 700.0, &closed));
        sweeper.shutdown().await.unwrap();
        let plan = ttl.plan().await.unwrap();
        assert_eq!((plan.target_lag, plan.max_rate, &plan.closed), (HOUR * 2, 700.0, &closed));
        // What is set for all wins, and what is asked for wins over that.
        ttl.tune().max_rate(300.0).min_rate(0.0).await.unwrap();
        let plan = ttl.plan().min_rate(5.0).closed(vec![]).await.unwrap();
        assert_eq!((plan.target_lag, plan.max_rate, plan.min_rate), (HOUR * 2, 300.0, 5.0));
        assert!(plan.closed.is_empty());
    }
}

#[tokio::test]
async fn nothing_is_planned_in_closed_windows() {
    // A Monday.
    let clock = ManualClock::at(DateTime::from_millis(1_767_571_200_000));
    let store = EmbeddedStore::in_memory().unwrap().with_clock(clock.clone());
    let ttl = TtlRegistry::open(store.clone()).await.unwrap();
    create(&ttl, "c").await;
    store.collection("c").insert_many(dated(DateTime::from_millis(0), 720)).await.unwrap();
    let closed = vec!["00:00-01:00".parse().unwrap(), "02:00-03:00".parse().unwrap()];
    let plan = ttl.plan().target_lag(HOUR * 4).closed(closed).await.unwrap();
    about(plan.peak, 720.0 / 7200.0);
    let now = clock.now();
    assert_eq!((plan.rate, plan.curve.len(), plan.curve[0].from), (0.0, 2, after(now, 3600)), "{plan:?}");
    assert_eq!((plan.curve[0].until, plan.curve[1].from), (after(now, 7200), after(now, 10_800)), "{plan:?}");
    assert!(plan.finish.unwrap() > after(now, 3600), "{plan:?}");
}

#[tokio::test]
async fn an_index_has_its_own_lag_and_rate() {
    for place in Place::all().await {
        let (ttl, _) = filled(&place).await;
        ttl.tune().collection("c").target_lag(HOUR).max_rate(0.1).await.unwrap();
        let plan = ttl.plan().await.unwrap();
        let short = plan.indexes[0].shortfall.unwrap();
        about(plan.indexes[0].peak, 0.2);
        assert_eq!((short.allowed, plan.shortfall), (0.1, Some(short)), "{plan:?}");
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let place = Place::embedded();
    let ttl = place.registry().await;
    let empty = ttl.plan().await.unwrap();
    assert_eq!((empty.backlog, empty.coming, empty.finish, empty.complete), (0, 0, None, true));
    create(&ttl, "c").await;
    for (plan, code) in [
        (ttl.plan().max_rate(f64::NAN), Code::BadValue),
        (ttl.plan().min_rate(-1.0), Code::BadValue),
        (ttl.plan().target_lag(Duration::MAX), Code::BadValue),
        (ttl.plan().closed(vec!["00:00-24:00".parse().unwrap()]), Code::BadValue),
        (ttl.plan().collection("elsewhere"), Code::IndexNotFound),
    ] {
        assert_eq!(plan.await.unwrap_err().refusal().unwrap().code(), code);
    }
    for resumed in [DateTime::MIN, DateTime::MAX] {
        let price = ttl.plan().resuming_at(resumed).await.unwrap().price.unwrap();
        assert_eq!((price.resumed, price.peak), (resumed, 0.0));
    }
}
