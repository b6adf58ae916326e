//! Retentions that are handed over: what becomes of the lifetime in force, and of the documents.

use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{DateTime, Document, doc};
use ttl_index::{
    AppliedRetention, ManualClock, MongoStore, Pruned, Retention, RetentionOutcome, TtlIndex, TtlRegistry,
};

use super::{HOUR, HOUR_MS, Timed, drained, swept};
use crate::support::database;
use crate::support::mongod::Mongod;
use crate::support::place::Place;
use crate::support::proxy::{Fate, Proxy, nth};

const DAY: Duration = Duration::from_secs(86_400);
const TEN_YEARS: u32 = 3650;

/// News of so many days ago, each with the number as its `_id`.
async fn news(timed: &Timed, ages: &[i32]) {
    let now = timed.registry().await.now().await.unwrap().timestamp_millis();
    let published = |age: i32| DateTime::from_millis(now - i64::from(age) * 86_400_000 - 60_000);
    let documents = ages.iter().map(|age| doc! { "_id": *age, "t": published(*age) });
    timed.place.insert("news", documents.collect()).await;
}

async fn kept_for(days: u32) -> [Timed; 2] {
    let all = Timed::all().await;
    for timed in &all {
        let ttl = timed.registry().await;
        ttl.create_index("news", TtlIndex::on("t").expire_after(days * DAY)).await.unwrap();
        news(timed, &[10, 100, 200, 3000, 4000]).await;
    }
    all
}

/// Prunes with this setting: the outcome, the lifetime in force afterwards in days, and the ages of the news that are left.
async fn prune(timed: &Timed, setting: Option<&str>) -> (Pruned, u64, Vec<i32>) {
    let ttl = timed.registry().await;
    let retention = Retention::from_days(setting);
    let pruned = ttl.sweep_if_due(HOUR).retention("news", retention.clone()).await.unwrap();
    let [AppliedRetention { collection, retention: told, .. }] = retentions(&pruned) else { panic!("{pruned:?}") };
    assert_eq!((collection.as_str(), told), ("news", &retention));
    let in_force = ttl.list_indexes().await.unwrap()[0].expire_after.unwrap().as_secs() / 86_400;
    let left = timed.place.documents("news").await;
    let mut left: Vec<i32> = left.iter().map(|document| document.get_i32("_id").unwrap()).collect();
    left.sort_unstable();
    (pruned, in_force, left)
}

#[track_caller]
fn retentions(pruned: &Pruned) -> &[AppliedRetention] {
    let Pruned::Swept { retentions, .. } = pruned else { panic!("not swept: {pruned:?}") };
    retentions
}

#[tokio::test]
async fn a_setting_that_shortens_is_applied_and_swept_by() {
    for timed in kept_for(TEN_YEARS).await {
        let (pruned, in_force, left) = prune(&timed, Some("90")).await;
        let RetentionOutcome::Modified { before, .. } = retentions(&pruned)[0].outcome else { panic!("{pruned:?}") };
        assert_eq!(before, Some(TEN_YEARS * DAY));
        assert_eq!((in_force, left), (90, vec![10]));
        assert_eq!(swept(pruned), [drained("news", 4)]);
    }
}

#[tokio::test]
async fn a_fallback_that_would_shorten_is_refused_and_ten_years_are_kept() {
    for setting in [Some("36S0"), Some("0"), Some("3651"), Some(""), None] {
        for timed in kept_for(TEN_YEARS).await {
            let (pruned, in_force, left) = prune(&timed, setting).await;
            let RetentionOutcome::Refused(refusal) = &retentions(&pruned)[0].outcome else { panic!("{pruned:?}") };
            let why = match setting {
                Some(typed) => format!("the setting {typed:?} is no whole number of days from 1 to 3650"),
                None => "there is no setting".to_owned(),
            };
            assert!(refusal.message().contains(&why), "{refusal}");
            assert!(refusal.message().starts_with("news keeps its documents for 315360000 s"), "{refusal}");
            // By the lifetime in force the collection is swept all the same.
            assert_eq!((in_force, left), (u64::from(TEN_YEARS), vec![10, 100, 200, 3000]));
            assert_eq!(swept(pruned), [drained("news", 1)]);
        }
    }
}

#[tokio::test]
async fn a_fallback_that_lengthens_is_applied_before_anything_is_deleted() {
    for timed in kept_for(7).await {
        let (pruned, in_force, left) = prune(&timed, Some("thirty")).await;
        assert!(matches!(retentions(&pruned)[0].outcome, RetentionOutcome::Modified { .. }), "{pruned:?}");
        assert_eq!((in_force, left), (180, vec![10, 100]));
    }
}

#[tokio::test]
async fn what_is_in_force_already_changes_nothing() {
    for timed in kept_for(180).await {
        let before = timed.registry().await.list_indexes().await.unwrap();
        for setting in [None, Some("180"), Some("x")] {
            let (pruned, _, left) = prune(&timed, setting).await;
            timed.pass(HOUR_MS).await;
            assert!(matches!(retentions(&pruned)[0].outcome, RetentionOutcome::InForce), "{pruned:?}");
            assert_eq!(left, [10, 100]);
        }
        assert_eq!(timed.registry().await.list_indexes().await.unwrap(), before);
    }
}

#[tokio::test]
async fn what_cannot_be_applied_is_told_of_and_the_collection_is_left_alone() {
    for timed in kept_for(7).await {
        let ttl = timed.registry().await;
        let month = Retention::from_days(Some("30"));
        let pruned = ttl.sweep_if_due(HOUR).retention("old", month.clone()).retention("news", month).await.unwrap();
        let [news, old] = retentions(&pruned) else { panic!("{pruned:?}") };
        assert!(matches!(news.outcome, RetentionOutcome::Modified { .. }), "{pruned:?}");
        let RetentionOutcome::Failed(error) = &old.outcome else { panic!("{pruned:?}") };
        assert!(error.to_string().contains("old has no TTL index"), "{error}");
        assert_eq!(swept(pruned), [drained("news", 4)]);
    }
}

/// By the lifetime in force something would go that the setting keeps.
#[tokio::test]
async fn while_a_setting_cannot_be_applied_nothing_is_deleted() {
    let server = Mongod::shared().await;
    let it = server.database().await;
    let proxy = Proxy::before(server.port());
    let away = MongoStore::new(Client::with_uri_str(proxy.uri(it.db.name())).await.unwrap().database(it.db.name()));
    let timed = Timed { place: Place::Mongo(it), clock: ManualClock::at(DateTime::from_millis(0)) };
    let ttl = timed.registry().await;
    for collection in ["news", "others"] {
        ttl.create_index(collection, TtlIndex::on("t").expire_after(7 * DAY)).await.unwrap();
    }
    news(&timed, &[10]).await;
    let retention = Retention::from_days(Some("30"));
    proxy.catch(nth(1, "findAndModify", "ttl_index.registry")).then(Fate::Lost);
    let pruned = TtlRegistry::open(away).await.unwrap().sweep_if_due(HOUR).retention("news", retention).await.unwrap();
    assert!(matches!(retentions(&pruned)[0].outcome, RetentionOutcome::Failed(_)), "{pruned:?}");
    assert_eq!(swept(pruned), [drained("others", 0)]);
    assert_eq!(timed.place.count("news").await, 1);
}

#[tokio::test]
async fn a_lifetime_that_cannot_be_understood_is_mended_by_a_setting_alone() {
    let place = Place::Mongo(database().await);
    let ttl = place.registry().await;
    ttl.create_index("news", TtlIndex::on("t").expire_after(7 * DAY)).await.unwrap();
    place.insert("news", vec![doc! { "t": DateTime::from_millis(0) }]).await;
    let Place::Mongo(it) = &place else { unreachable!() };
    let registry = it.db.collection::<Document>("ttl_index.registry");
    let damage = doc! { "$set": { "indexes.0.expireAfterSeconds": f64::NAN } };
    registry.update_one(doc! {}, damage).await.unwrap();
    let with = |setting: &str| ttl.sweep_if_due(HOUR).retention("news", Retention::from_days(Some(setting)));

    let pruned = with("x").await.unwrap();
    assert!(matches!(retentions(&pruned)[0].outcome, RetentionOutcome::Refused(_)), "{pruned:?}");
    assert_eq!(place.count("news").await, 1);
    // Nothing was begun, and the interval was not used up by it.
    let pruned = with("90").await.unwrap();
    assert!(matches!(retentions(&pruned)[0].outcome, RetentionOutcome::Modified { before: None, .. }), "{pruned:?}");
    assert_eq!(swept(pruned), [drained("news", 1)]);
}
