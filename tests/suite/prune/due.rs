//! When it is due, and what is swept then.

use std::time::Duration;

use mongodb::bson::doc;
use ttl_index::{Code, EmbeddedStore, Ended, Error, ManualClock, Pruned, TtlRegistry, bson::DateTime};

use super::{HOUR, HOUR_MS, Timed, drained, expired, index, is_not_due, swept};
use crate::support::{database, place::Place, wait};

#[tokio::test]
async fn it_is_due_once_in_an_interval_by_the_databases_clock() {
    for timed in Timed::all().await {
        timed.registry().await.create_index("c", index()).await.unwrap();
        let ask = async || timed.registry().await.sweep_if_due(HOUR).await.unwrap();
        timed.place.insert("c", expired(0..3)).await;
        let asked = timed.registry().await.now().await.unwrap();
        assert_eq!(swept(ask().await), [drained("c", 3)]);
        timed.place.insert("c", expired(0..3)).await;
        let Pruned::NotDue { next, .. } = ask().await else { panic!("due again") };
        let wait = next.timestamp_millis() - asked.timestamp_millis();
        assert!((HOUR_MS..HOUR_MS + 600_000).contains(&wait), "{wait} ms");

        // Ten minutes before, whatever of it the test took; and at the time.
        timed.pass(HOUR_MS - 600_000).await;
        assert!(is_not_due(&ask().await));
        assert_eq!(timed.place.count("c").await, 3);
        timed.pass(600_000).await;
        assert_eq!(swept(ask().await), [drained("c", 3)]);
        assert!(is_not_due(&ask().await));
        // A shorter interval has passed, and a longer one has not.
        timed.pass(HOUR_MS).await;
        assert!(is_not_due(&timed.registry().await.sweep_if_due(2 * HOUR).await.unwrap()));
        assert_eq!(swept(timed.registry().await.sweep_if_due(HOUR / 2).await.unwrap()), [drained("c", 0)]);
    }
}

#[tokio::test]
async fn a_clock_that_was_set_back_delays_the_next_prune_by_an_interval_at_most() {
    for timed in Timed::all().await {
        timed.registry().await.create_index("c", index()).await.unwrap();
        let ask = async || timed.registry().await.sweep_if_due(HOUR).await.unwrap();
        assert_eq!(swept(ask().await), [drained("c", 0)]);
        timed.pass(-HOUR_MS / 2).await;
        assert!(is_not_due(&ask().await));
        timed.pass(-HOUR_MS).await;
        assert_eq!(swept(ask().await), [drained("c", 0)]);
        assert!(is_not_due(&ask().await));
    }
}

#[tokio::test]
async fn what_a_handle_remembers_goes_by_the_databases_clock_too() {
    let clock = ManualClock::at(DateTime::from_millis(1_767_225_600_000));
    let store = EmbeddedStore::in_memory().unwrap().with_clock(clock.clone());
    let ttl = TtlRegistry::open(store).await.unwrap();
    assert!(matches!(ttl.sweep_if_due(HOUR).await.unwrap(), Pruned::Swept { .. }));
    assert!(is_not_due(&ttl.sweep_if_due(HOUR).await.unwrap()));
    clock.advance(HOUR);
    assert!(matches!(ttl.clone().sweep_if_due(HOUR).await.unwrap(), Pruned::Swept { .. }));
}

#[tokio::test]
async fn a_collection_that_fails_is_told_of_and_does_not_stop_the_others() {
    for timed in Timed::all().await {
        let ttl = timed.registry().await;
        for collection in ["a", "b", "c"] {
            ttl.create_index(collection, index()).await.unwrap();
            timed.place.insert(collection, expired(0..5)).await;
        }
        let three = ttl.sweep_if_due(HOUR).collections(["c", "missing", "a", "c"]).await.unwrap();
        let missing = ("missing".to_owned(), Err(Code::IndexNotFound.number()));
        assert_eq!(swept(three), [drained("a", 5), drained("c", 5), missing]);
        assert_eq!(timed.place.count("b").await, 5);
        // The same ones in another order have been swept; other ones are claimed on their own.
        let again = ttl.sweep_if_due(HOUR).collections(["missing", "c", "a"]);
        assert!(is_not_due(&again.await.unwrap()));
        let all = ttl.sweep_if_due(HOUR).await.unwrap();
        assert_eq!(swept(all), [drained("a", 0), drained("b", 5), drained("c", 0)]);
    }
}

#[tokio::test]
async fn it_is_bounded_in_each_collection() {
    for timed in Timed::all().await {
        let ttl = timed.registry().await;
        for collection in ["a", "b"] {
            ttl.create_index(collection, index()).await.unwrap();
            timed.place.insert(collection, expired(0..50)).await;
        }
        let limited = ttl.sweep_if_due(HOUR).batch_size(7).max_batches(2).await.unwrap();
        let limit = |collection: &str| (collection.to_owned(), Ok((14, Ended::LimitReached)));
        assert_eq!(swept(limited), [limit("a"), limit("b")]);
    }
}

/// On a paused clock, which the embedded store's threads do not move.
#[tokio::test(start_paused = true)]
async fn when_the_time_is_over_the_next_prune_begins_where_this_one_ended() {
    let place = Place::embedded();
    let ttl = place.registry().await;
    for collection in ["a", "b", "c"] {
        ttl.create_index(collection, index()).await.unwrap();
        place.insert(collection, expired(0..100)).await;
    }
    let mut visited = Vec::new();
    for _ in 0..4 {
        let prune = ttl.sweep_if_due(Duration::from_nanos(1)).rate(10.0).max_time(Duration::from_secs(1));
        let pruned = prune.await.unwrap();
        let Pruned::Swept { passes, unvisited, .. } = pruned else { panic!("{pruned:?}") };
        assert_eq!(passes.len() + unvisited.len(), 3, "{passes:?} {unvisited:?}");
        visited.push((passes[0].collection.clone(), unvisited.len()));
    }
    let expected = ["a", "b", "c", "a"].map(|collection| (collection.to_owned(), 2));
    assert_eq!(visited, expected);
}

#[tokio::test]
async fn what_is_out_of_range_is_refused_and_claims_nothing() {
    for timed in Timed::all().await {
        let ttl = timed.registry().await;
        let due = || ttl.sweep_if_due(HOUR);
        let fallback = || ttl_index::Retention::from_days(None);
        for (prune, words) in [
            (ttl.sweep_if_due(Duration::ZERO), "the interval"),
            (due().batch_size(0), "the batch size"),
            (due().max_batches(0), "the number of batches"),
            (due().rate(f64::NAN), "the rate"),
            (due().collections([""; 0]), "name one collection at least"),
            (due().collections((0..200).map(|n| format!("collection{n}"))), "1000 bytes"),
            (due().collections(["a"]).retention("b", fallback()), "a retention is given for b"),
        ] {
            let error = prune.await.unwrap_err();
            assert_eq!(error.code(), Some(Code::BadValue.number()), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
        let error = due().collections(["a$b"]).await.unwrap_err();
        assert_eq!(error.code(), Some(Code::InvalidNamespace.number()));
        assert_eq!(swept(due().await.unwrap()), []);
    }
}

#[tokio::test]
async fn a_failure_before_the_first_pass_gives_the_interval_back() {
    let it = database().await;
    let place = Place::Mongo(it);
    place.registry().await.create_index("c", index()).await.unwrap();
    place.insert("ttl_index.lease", vec![doc! { "_id": "lease", "term": "?" }]).await;
    for _ in 0..2 {
        let error = place.registry().await.sweep_if_due(HOUR).await.unwrap_err();
        assert!(matches!(error, Error::Unreadable(_)), "{error}");
    }
    place.delete("ttl_index.lease", "lease").await;
    assert_eq!(swept(place.registry().await.sweep_if_due(HOUR).await.unwrap()), [drained("c", 0)]);
}

#[tokio::test]
async fn a_record_that_cannot_be_understood_is_an_error_that_says_what_to_do() {
    let place = Place::Mongo(database().await);
    place.insert("ttl_index.prunes", vec![doc! { "_id": "all", "claimedAt": "yesterday" }]).await;
    let error = place.registry().await.sweep_if_due(HOUR).await.unwrap_err();
    assert!(matches!(error, Error::Unreadable(_)) && error.to_string().contains("ttl_index.prunes"), "{error}");
}

#[tokio::test]
async fn in_the_background_it_prunes_and_the_caller_goes_on() {
    for timed in Timed::all().await {
        let ttl = timed.registry().await;
        ttl.create_index("c", index()).await.unwrap();
        timed.place.insert("c", expired(0..3)).await;
        for _ in 0..100 {
            ttl.sweep_if_due(HOUR).in_background();
        }
        wait::until("the background", wait::LONG, async || timed.place.count("c").await == 0).await;
        assert!(is_not_due(&ttl.sweep_if_due(HOUR).await.unwrap()));
        assert_eq!(ttl.counters().indexes[0].counts.passes["drained"], 1);
    }
}

#[test]
fn without_a_runtime_nothing_happens_in_the_background() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let place = Place::embedded();
    let ttl = runtime().block_on(place.registry());
    ttl.sweep_if_due(HOUR).in_background();
    let asked: Result<Pruned, Error> = runtime().block_on(async { ttl.sweep_if_due(HOUR).await });
    assert_eq!(swept(asked.unwrap()), []);
}
