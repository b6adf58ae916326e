//! What an operator sets of the pace, on both stores.

use std::time::Duration;

use futures_util::future::join_all;
use mongodb::bson::{Bson, DateTime, Document, doc};
use ttl_index::{ClosedWindow, IndexState, Reference, Sweeper, TtlIndex, TtlRegistry, Tuning};

use crate::support::place::Place;
use crate::support::{TestDatabase, database};

const HOUR: Duration = Duration::from_secs(3600);

fn on_t() -> TtlIndex {
    TtlIndex::on("t").expire_after(Duration::from_secs(60))
}

fn windows(texts: &[&str]) -> Vec<ClosedWindow> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// A server's database with a TTL index on `c`, in which a document is due.
async fn ready() -> (Place, TtlRegistry) {
    let place = Place::Mongo(database().await);
    let ttl = place.registry().await;
    ttl.create_index("c", on_t()).await.unwrap();
    place.insert("c", vec![doc! { "_id": 1, "t": DateTime::from_millis(0) }]).await;
    (place, ttl)
}

fn server(place: &Place) -> &TestDatabase {
    let Place::Mongo(it) = place else { panic!() };
    it
}

async fn stored(place: &Place) -> Document {
    let registry = server(place).db.collection("ttl_index.registry");
    registry.find_one(doc! { "_id": "registry" }).await.unwrap().unwrap()
}

/// Sets fields of the registry document behind the library's back.
async fn tamper(place: &Place, fields: Document) {
    let registry = server(place).db.collection::<Document>("ttl_index.registry");
    let update = doc! { "$set": fields, "$inc": { "revision": 1_i64 } };
    assert_eq!(registry.update_one(doc! { "_id": "registry" }, update).await.unwrap().modified_count, 1);
}

#[tokio::test]
async fn what_is_set_holds_for_every_process_until_it_is_reset() {
    for place in Place::all().await {
        let (ttl, other) = (place.registry().await, place.registry().await);
        ttl.create_index("c", on_t()).await.unwrap();
        assert_eq!(ttl.tune().await.unwrap(), Tuning::default());

        let before = ttl.now().await.unwrap();
        let closed = windows(&["Mon-Fri 09:00-17:00 Europe/Berlin", "22:00-06:00"]);
        let set = ttl.tune().target_lag(HOUR).max_rate(200.5).closed(closed.clone()).finish_now(true).await.unwrap();
        assert_eq!((set.target_lag, set.max_rate, set.min_rate), (Some(HOUR), Some(200.5), None));
        assert_eq!((&set.closed, &set.problem), (&Some(closed), &None));
        assert!((before..=ttl.now().await.unwrap()).contains(&set.finish_now.unwrap()));
        assert_eq!(other.tune().await.unwrap(), set);

        // Each setting by itself.
        let more = other.tune().min_rate(0.0).finish_now(false).closed(Vec::new()).await.unwrap();
        assert_eq!((more.target_lag, more.max_rate, more.min_rate), (Some(HOUR), Some(200.5), Some(0.0)));
        assert_eq!((&more.closed, more.finish_now), (&Some(Vec::new()), None));
        assert_eq!(ttl.tune().await.unwrap(), more);

        // What is set along with a reset holds.
        let only = ttl.tune().max_rate(5.0).reset().await.unwrap();
        assert_eq!((only.target_lag, only.max_rate, only.min_rate, only.closed), (None, Some(5.0), None, None));
        assert_eq!(ttl.tune().reset().await.unwrap(), Tuning::default());
        assert_eq!(other.tune().await.unwrap(), Tuning::default());
        assert_eq!(ttl.list_indexes().await.unwrap().len(), 1);
    }
}

/// The sweeper that is running reads the registry when its revision rises.
#[tokio::test]
async fn each_change_raises_the_revision_and_a_look_does_not() {
    let (place, ttl) = ready().await;
    let revision = async || stored(&place).await.get_i64("revision").unwrap();
    let first = revision().await;
    ttl.tune().await.unwrap();
    ttl.tune().collection("c").await.unwrap();
    assert_eq!(revision().await, first);
    ttl.tune().max_rate(5.0).await.unwrap();
    ttl.tune().collection("c").max_rate(5.0).await.unwrap();
    ttl.tune().reset().await.unwrap();
    assert_eq!(revision().await, first + 3);
    assert_eq!(stored(&place).await.get("tuning"), None);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_and_changes_nothing() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        ttl.create_index("c", on_t()).await.unwrap();
        let before = ttl.tune().max_rate(7.0).await.unwrap();
        let (second, year) = (Duration::from_secs(1), Duration::from_secs(366 * 86_400));
        let tune = || ttl.tune().min_rate(3.0);
        for (refused, code, words) in [
            (tune().max_rate(f64::NAN), 2, "must be a number above 0, but got NaN"),
            (tune().max_rate(f64::INFINITY), 2, "above 0"),
            (tune().max_rate(0.0), 2, "above 0"),
            (tune().max_rate(-1.0), 2, "above 0"),
            (ttl.tune().max_rate(1.0).min_rate(f64::NAN), 2, "the lowest rate must be 0 or a number above"),
            (ttl.tune().max_rate(1.0).min_rate(-0.1), 2, "the lowest rate"),
            (tune().target_lag(Duration::ZERO), 2, "1 s to 366 days"),
            (tune().target_lag(Duration::from_nanos(999_999_999)), 2, "1 s to 366 days"),
            (tune().target_lag(year + Duration::from_nanos(1)), 2, "1 s to 366 days"),
            (tune().target_lag(Duration::MAX), 2, "1 s to 366 days"),
            (tune().closed(windows(&["00:00-12:00", "12:00-24:00"])), 2, "only 0.0 hours of a week open"),
            (ttl.tune().collection("c").max_rate(0.0), 2, "above 0"),
            (ttl.tune().collection("c").max_rate(1.0).min_rate(1.0), 72, "the lowest rate can be set for the whole"),
            (
                ttl.tune().max_rate(1.0).closed(Vec::new()).collection("c"),
                72,
                "closed windows can be set for the whole",
            ),
            (ttl.tune().collection("c").finish_now(false), 72, "finishing now can be set for the whole"),
            (ttl.tune().collection("d").max_rate(1.0), 27, "d has no TTL index"),
            (ttl.tune().collection("d"), 27, "d has no TTL index"),
            (ttl.tune().collection("ttl_index.lease").reset(), 73, ""),
        ] {
            let error = refused.await.unwrap_err();
            assert!(error.code() == Some(code) && error.to_string().contains(words), "{error}");
            assert_eq!(ttl.tune().await.unwrap(), before, "{words}");
        }
        let index = ttl.list_indexes().await.unwrap().remove(0);
        assert_eq!((index.target_lag, index.max_rate), (None, None));
        // The ends of the range.
        ttl.tune().target_lag(second).min_rate(f64::MAX).max_rate(f64::MIN_POSITIVE).await.unwrap();
        let set = ttl.tune().target_lag(year).await.unwrap();
        assert_eq!((set.target_lag, set.min_rate), (Some(year), Some(f64::MAX)));
    }
}

#[tokio::test]
async fn a_database_without_a_registry_has_nothing_to_set() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        for refused in [ttl.tune().max_rate(5.0), ttl.tune().reset(), ttl.tune().finish_now(true)] {
            let refused = refused.await.unwrap_err();
            assert!(refused.to_string().contains("the database has no TTL index; make one first"), "{refused}");
        }
        assert_eq!(ttl.tune().await.unwrap(), Tuning::default());
    }
    let (place, ttl) = ready().await;
    ttl.tune().max_rate(5.0).await.unwrap();
    place.drop_collection("ttl_index.registry").await;
    assert_eq!(ttl.tune().min_rate(5.0).await.unwrap_err().code(), Some(26));
    assert_eq!(ttl.tune().await.unwrap(), Tuning::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_settings_and_creations_all_hold() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        ttl.create_index("c", on_t()).await.unwrap();
        let creators = (0..24).map(|i| {
            let ttl = ttl.clone();
            tokio::spawn(async move { ttl.create_index(format!("c{i}"), on_t()).await.map(drop) })
        });
        let tuners = (0..8).map(|i| {
            let ttl = ttl.clone();
            tokio::spawn(async move {
                let tune = match i % 4 {
                    0 => ttl.tune().target_lag(HOUR),
                    1 => ttl.tune().max_rate(11.0),
                    2 => ttl.tune().min_rate(3.0),
                    _ => ttl.tune().collection("c").max_rate(2.0),
                };
                tune.await.map(drop)
            })
        });
        for done in join_all(tuners.chain(creators).collect::<Vec<_>>()).await {
            done.unwrap().unwrap();
        }
        let set = ttl.tune().await.unwrap();
        assert_eq!((set.target_lag, set.max_rate, set.min_rate), (Some(HOUR), Some(11.0), Some(3.0)));
        assert_eq!(ttl.list_indexes().await.unwrap().len(), 25);
        assert_eq!(ttl.tune().collection("c").await.unwrap().max_rate, Some(2.0));
    }
}

#[tokio::test]
async fn what_is_set_of_an_index_survives_whatever_is_changed_of_it_and_goes_with_it() {
    for place in Place::all().await {
        let ttl = place.registry().await;
        place.insert("c", vec![doc! { "_id": 1 }]).await;
        ttl.create_index("c", on_t()).await.unwrap();
        let set = ttl.tune().collection("c").target_lag(HOUR).max_rate(2.5).await.unwrap();
        assert_eq!((set.target_lag, set.max_rate), (Some(HOUR), Some(2.5)));
        assert_eq!(ttl.tune().await.unwrap(), Tuning::default());

        ttl.modify_index("c", Duration::ZERO).await.unwrap();
        ttl.create_index("c", on_t()).or_modify(true).await.unwrap();
        place.insert("reads", vec![doc! { "_id": 1 }]).await;
        ttl.set_guards("c", [Reference::by("reads", "a").without_index()]).await.unwrap();
        let name = if let Place::Mongo(it) = &place {
            let name = it.db.name();
            let rename = doc! { "renameCollection": format!("{name}.c"), "to": format!("{name}.d") };
            it.client.database("admin").run_command(rename).await.unwrap();
            ttl.repair("c").await.unwrap();
            "d"
        } else {
            ttl.repair("c").await.unwrap();
            "c"
        };
        let index = ttl.list_indexes().collection(name).await.unwrap().remove(0);
        assert_eq!((index.target_lag, index.max_rate), (Some(HOUR), Some(2.5)));

        let left = ttl.tune().collection(name).max_rate(9.0).reset().await.unwrap();
        assert_eq!((left.target_lag, left.max_rate), (None, Some(9.0)));
        ttl.drop_index(name, "t_1").await.unwrap();
        let anew = ttl.create_index(name, on_t()).await.unwrap();
        assert_eq!((anew.target_lag, anew.max_rate), (None, None));
    }
}

#[tokio::test]
async fn settings_that_cannot_be_understood_are_told_and_the_others_hold() {
    let (place, ttl) = ready().await;
    ttl.tune().max_rate(7.0).await.unwrap();
    for (field, value, words) in [
        ("targetLagSeconds", Bson::from("a day"), "targetLagSeconds must be a number"),
        ("targetLagSeconds", f64::NAN.into(), "targetLagSeconds must be 1 to 31622400, but is NaN"),
        ("targetLagSeconds", i64::MAX.into(), "targetLagSeconds must be 1 to 31622400"),
        ("minRate", (-1).into(), "minRate must be 0 or a number above, but is -1"),
        ("closed", "09:00-17:00".into(), "closed must be a list of windows"),
        ("closed", vec![5].into(), "closed must hold windows as text"),
        ("closed", vec!["09:00-17:00", "Noon"].into(), "\"Noon\" is no closed window"),
        ("closed", vec!["00:00-24:00"].into(), "only 0.0 hours of a week open"),
        ("finishNow", true.into(), "finishNow must be a date"),
    ] {
        tamper(&place, doc! { format!("tuning.{field}"): value }).await;
        let told = ttl.tune().await.unwrap();
        assert!(told.problem.as_ref().is_some_and(|problem| problem.contains(words)), "{told:?}");
        assert_eq!((told.max_rate, told.target_lag, told.min_rate, &told.closed), (Some(7.0), None, None, &None));
        // Beside it others can be set.
        assert_eq!(ttl.tune().max_rate(7.0).await.unwrap(), told);
        tamper(&place, doc! { "tuning": { "maxRate": 7 } }).await;
    }
    tamper(&place, doc! { "tuning": [1] }).await;
    let told = ttl.tune().await.unwrap();
    assert!(told.problem.as_ref().is_some_and(|problem| problem.contains("no document")), "{told:?}");
    // It keeps nothing from being swept, and is mended by being set.
    assert_eq!(ttl.sweep("c").await.unwrap().deleted, 1);
    assert_eq!(ttl.tune().min_rate(1.0).await.unwrap().problem, None);
}

#[tokio::test]
async fn an_index_whose_settings_cannot_be_understood_deletes_nothing_until_they_are_reset() {
    for (field, value) in [("targetLagSeconds", Bson::from(0)), ("maxRate", f64::NAN.into()), ("maxRate", "5".into())] {
        let (place, ttl) = ready().await;
        tamper(&place, doc! { format!("indexes.0.{field}"): value }).await;
        let index = ttl.list_indexes().await.unwrap().remove(0);
        assert_eq!(index.state, IndexState::NeedsRepair);
        assert!(index.problem.as_ref().is_some_and(|problem| problem.contains(field)), "{index:?}");
        assert!(ttl.tune().collection("c").await.is_err());
        let refused = ttl.sweep("c").await.unwrap_err();
        assert!(refused.to_string().contains("by tune"), "{refused}");
        assert_eq!(place.count("c").await, 1);
        ttl.tune().collection("c").reset().await.unwrap();
        assert_eq!(ttl.sweep("c").await.unwrap().deleted, 1);
    }
}

#[tokio::test]
async fn a_sweeper_with_options_out_of_range_does_not_start() {
    let ttl = Place::embedded().registry().await;
    let sweeper = || Sweeper::new(ttl.clone());
    let all_week = windows(&["Mon-Fri 00:00-24:00", "Sat,Sun 00:00-24:00"]);
    for (sweeper, words) in [
        (sweeper().target_lag(Duration::ZERO), "the target lag must be 1 s to 366 days, but got 0ns"),
        (sweeper().max_rate(f64::INFINITY), "the rate must be a number above 0, but got inf"),
        (sweeper().min_rate(f64::NAN), "the lowest rate must be 0 or a number above, but got NaN"),
        (all_week.into_iter().fold(sweeper(), Sweeper::closed), "only 0.0 hours of a week open"),
    ] {
        let refused = sweeper.start().map(drop).unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
    }
    // A floor above the ceiling: the ceiling holds.
    let odd = sweeper().min_rate(5000.0).target_lag(Duration::from_secs(1)).start().unwrap();
    odd.shutdown().await.unwrap();
}
