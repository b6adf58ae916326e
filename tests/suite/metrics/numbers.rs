//! The numbers, where what happens is known to the document.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use ttl_index::{Counters, Ended, Fault, HookedStore, METRICS, MongoStore, Sweeper, TtlIndex, TtlRegistry};

use crate::support::page::{self, Page};
use crate::support::{TestDatabase, database, wait};

/// What happens between finding and deleting in the next batch.
#[derive(Clone, Default)]
struct Next(Arc<Mutex<(Fault, Option<&'static str>)>>);

impl Next {
    fn is(&self, fault: Fault, removed: Option<&'static str>) {
        *self.0.lock().unwrap() = (fault, removed);
    }
}

/// A registry whose batches go wrong as told, and that cannot delete the document `held-secret`.
async fn registry(place: &TestDatabase, next: &Next) -> TtlRegistry {
    let (documents, next) = (place.db.collection::<Document>("c"), next.clone());
    let hook = move |_ids: Vec<Bson>| {
        let (documents, (fault, removed)) = (documents.clone(), std::mem::take(&mut *next.0.lock().unwrap()));
        async move {
            if let Some(id) = removed {
                documents.delete_one(doc! { "_id": id }).await.unwrap();
            }
            fault
        }
    };
    let store = HookedStore::new(MongoStore::new(place.db.clone()), hook).sparing(["held-secret".into()]);
    TtlRegistry::open(store).await.unwrap()
}

async fn insert_expired(place: &TestDatabase, now: DateTime, id: &str, seconds: u64) {
    let date = DateTime::from_millis(now.timestamp_millis() - 1000 * i64::try_from(seconds).unwrap());
    place.db.collection("c").insert_one(doc! { "_id": id, "t": date }).await.unwrap();
}

/// Passes with everything in them that can be counted.
async fn scenario(place: &TestDatabase) -> TtlRegistry {
    let next = Next::default();
    let ttl = registry(place, &next).await;
    ttl.create_index("c", TtlIndex::on("t").expire_after(Duration::ZERO)).await.unwrap();
    let now = ttl.now().await.unwrap();

    // Far from the bounds of the buckets, however slow the machine.
    for (id, age) in [("a-secret", 3700), ("b-secret", 3800), ("c-secret", 90_000), ("held-secret", 1_000_000)] {
        insert_expired(place, now, id, age).await;
    }
    let report = ttl.sweep("c").await.unwrap();
    assert_eq!((report.deleted, report.left, report.ended), (3, 1, Ended::Drained), "{report:?}");

    insert_expired(place, now, "d-secret", 3700).await;
    next.is(Fault::None, Some("d-secret"));
    let report = ttl.sweep("c").await.unwrap();
    assert_eq!((report.deleted, report.left, report.changed), (0, 1, 1), "{report:?}");

    insert_expired(place, now, "e-secret", 3700).await;
    next.is(Fault::ReplyLost, None);
    let report = ttl.sweep("c").await.unwrap();
    assert_eq!((report.deleted, report.left, report.uncertain, report.ended), (0, 1, 1, Ended::Failed), "{report:?}");
    ttl
}

#[tokio::test]
async fn every_document_is_counted_as_what_became_of_it() {
    page::counting();
    let place = database().await;
    let ttl = scenario(&place).await;

    let Counters { total, indexes, .. } = ttl.counters();
    assert_eq!(indexes.len(), 1);
    assert_eq!(indexes[0].counts, total);
    assert_eq!((total.deleted, total.changed, total.uncertain, total.left), (3, 1, 1, 3));
    assert_eq!((total.disputed, total.batches), (0, 3));
    assert_eq!(total.passes, [("drained", 2), ("failed", 1)].into());
    assert_eq!(total.errors, [(("unreadable", None), 1)].into());
    // Those that were deleted for certain, and no others.
    assert_eq!(total.delays.count, 3);
    let within: Vec<u64> = [3600.0, 7200.0, 86_400.0, 172_800.0, f64::INFINITY]
        .map(|wanted| total.delays.cumulative().find(|(bound, _)| bound.total_cmp(&wanted).is_eq()).unwrap().1)
        .into();
    assert_eq!(within, [0, 2, 2, 3, 3]);
    assert!(total.delays.sum >= Duration::from_secs(3700 + 3800 + 90_000), "{:?}", total.delays.sum);
    assert!(!total.batch_time.is_zero());
    place.drop().await;
}

#[tokio::test]
async fn the_page_says_what_the_snapshot_says() {
    page::counting();
    let place = database().await;
    let ttl = scenario(&place).await;

    let page = Page::now().await;
    let Counters { total, indexes, .. } = ttl.counters();
    let labels = [("database", place.db.name()), ("collection", "c"), ("index", "t_1")];
    let same = |name: &str, more: &[(&str, &str)], expected: f64| {
        let found = page.samples(name, &[&labels, more].concat());
        let value = found.first().unwrap_or_else(|| panic!("{name} {more:?} is missing")).value;
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert!((value - expected).abs() < 1e-6 * expected.max(1.0), "{name} {more:?}: {value}, not {expected}");
    };
    for (name, count) in [
        ("ttl_index_deleted_documents_total", total.deleted),
        ("ttl_index_changed_documents_total", total.changed),
        ("ttl_index_uncertain_documents_total", total.uncertain),
        ("ttl_index_left_documents_total", total.left),
        ("ttl_index_kept_documents_total", total.kept),
        ("ttl_index_disputed_documents_total", total.disputed),
        ("ttl_index_batches_total", total.batches),
        ("ttl_index_expiration_to_deletion_delay_seconds_count", total.delays.count),
        ("ttl_index_batch_duration_seconds_count", total.batches),
    ] {
        same(name, &[], number(count));
    }
    same("ttl_index_expiration_to_deletion_delay_seconds_sum", &[], total.delays.sum.as_secs_f64());
    same("ttl_index_batch_duration_seconds_sum", &[], total.batch_time.as_secs_f64());
    same("ttl_index_oldest_due_age_seconds", &[], indexes[0].oldest_due.unwrap_or_default().as_secs_f64());
    for (bound, count) in total.delays.cumulative() {
        let le = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
        same("ttl_index_expiration_to_deletion_delay_seconds_bucket", &[("le", &le)], number(count));
    }
    for (ended, count) in &total.passes {
        same("ttl_index_passes_total", &[("ended", ended)], number(*count));
    }
    for ((kind, code), count) in &total.errors {
        let code = code.map(|code| code.to_string()).unwrap_or_default();
        same("ttl_index_errors_total", &[("kind", kind), ("code", &code)], number(*count));
    }

    // Under the names, kinds and words of the table.
    for family in page.families.iter().filter(|family| family.name.starts_with("ttl_index_")) {
        let named = |name: &str| name.strip_suffix("_total").unwrap_or(name) == family.name;
        let metric = METRICS.iter().find(|metric| named(metric.name)).unwrap_or_else(|| panic!("{family:?}"));
        assert_eq!((family.r#type.as_str(), family.help.as_str()), (metric.kind.as_str(), metric.description));
        for sample in &family.samples {
            let labels = sample.labels.keys().filter(|label| *label != "le").count();
            assert_eq!(labels, metric.labels.len(), "{sample:?}");
            assert!(metric.labels.iter().all(|label| sample.labels.contains_key(*label)), "{sample:?}");
        }
    }
    // No document, and no way to the database.
    for secret in ["-secret", "127.0.0.1", "mongodb://"] {
        assert!(!page.text.contains(secret), "{secret} is on the page:\n{}", page.text);
    }
    place.drop().await;
}

/// Dropped, it is due nothing; what it had deleted stays counted.
#[tokio::test]
async fn a_dropped_index_raises_no_alarm() {
    page::counting();
    let place = database().await;
    let ttl = scenario(&place).await;
    let name = "ttl_index_oldest_due_age_seconds";
    let labels = [("database", place.db.name())];
    // The document that is held.
    let sweep = ttl.sweep("c").await.unwrap();
    assert!(sweep.oldest_due.is_some(), "{sweep:?}");
    assert!(ttl.counters().indexes[0].oldest_due.is_some());
    assert!(Page::now().await.sum(name, &labels) > 0.0);
    let before = ttl.counters().total;

    ttl.drop_index("c", "t_1").await.unwrap();
    let after = ttl.counters();
    assert_eq!((after.indexes, after.total), (vec![], before));
    assert_eq!(Page::now().await.sum(name, &labels), 0.0);
    place.drop().await;
}

#[allow(clippy::cast_precision_loss)]
fn number(count: u64) -> f64 {
    count as f64
}

/// Who does not sweep knows nothing of what is due: another takes over, and an old figure would stay for ever.
#[tokio::test]
async fn who_has_given_the_lease_back_raises_no_alarm() {
    page::counting();
    let place = database().await;
    let ttl = scenario(&place).await;
    let labels = [("database", place.db.name())];
    let sweeper = Sweeper::new(ttl.clone()).start().unwrap();
    wait::until("the sweeper to see what is due", wait::LONG, async || {
        let counters = ttl.counters();
        counters.lease_held && counters.last_success.is_some() && counters.pace.planned > 0.0
    })
    .await;
    let page = Page::now().await;
    assert_eq!(page.sum("ttl_index_planned_rate", &labels), 50.0);
    assert_eq!(page.sum("ttl_index_predicted_lateness_seconds", &labels), 0.0);
    assert_eq!(page.sum("ttl_index_lease_held", &labels), 1.0);
    assert!(page.sum("ttl_index_oldest_due_age_seconds", &labels) > 0.0);

    sweeper.shutdown().await.unwrap();
    let page = Page::now().await;
    assert_eq!(page.sum("ttl_index_lease_held", &labels), 0.0);
    assert_eq!(page.sum("ttl_index_planned_rate", &labels), 0.0);
    assert_eq!(page.sum("ttl_index_health_factor", &labels), 1.0);
    assert_eq!(page.sum("ttl_index_oldest_due_age_seconds", &labels), 0.0);
    let counters = ttl.counters();
    assert!(!counters.lease_held && counters.lease_term > 0, "{counters:?}");
    assert_eq!(counters.indexes[0].oldest_due, None);
    place.drop().await;
}

/// The sweeper hears of it with the registry.
#[tokio::test]
async fn an_index_that_another_process_dropped_raises_no_alarm() {
    page::counting();
    let place = database().await;
    let ttl = scenario(&place).await;
    let sweeper = Sweeper::new(ttl.clone()).start().unwrap();
    wait::until("the sweeper to sweep", wait::LONG, async || ttl.counters().last_success.is_some()).await;
    let counted = ttl.counters().total.deleted;

    let other = TtlRegistry::open(MongoStore::new(place.db.clone())).await.unwrap();
    other.drop_index("c", "t_1").await.unwrap();
    wait::until("the index to be forgotten", wait::LONG, async || ttl.counters().indexes.is_empty()).await;
    let labels = [("database", place.db.name())];
    assert_eq!(Page::now().await.sum("ttl_index_oldest_due_age_seconds", &labels), 0.0);
    assert_eq!(ttl.counters().total.deleted, counted);
    sweeper.shutdown().await.unwrap();
    place.drop().await;
}
