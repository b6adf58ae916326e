//! Every verdict observed on a real server's own TTL monitor holds here: for the rule alone, and after a sweep of
//! either store.

use std::collections::{BTreeMap, BTreeSet};

use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use ttl_index::{EmbeddedStore, Ended, ManualClock, MongoStore, Rule, TtlIndex, TtlRegistry};

use crate::support::{
    database,
    json::{self, Case, cases},
    place::Place,
};

/// Cases that cannot be expressed here: the name, the code of the refusal, and why it is refused.
///
/// `docs/semantics.md` shows this table to users.
const EXCEPTIONS: [(&str, i32, &str); 8] = [
    (
        "expireAfterSeconds given as numberDouble 7200.9: 6 h before the limit",
        67,
        "a fraction of a second is refused; MongoDB stores it and then ignores it",
    ),
    (
        "expireAfterSeconds given as numberDouble NaN: 6 h before the limit",
        67,
        "NaN is refused; MongoDB takes it for 2147483647 on creation and for 0 in collMod",
    ),
    (
        "partial with collation: strength 2 ignores case",
        67,
        "strings in a partial filter are compared by their bytes; with a collation the filter is refused",
    ),
    (
        "special index 2dsphere never expires anything: future",
        67,
        "a special index is refused; MongoDB accepts it and then never deletes",
    ),
    (
        "special index 2d never expires anything: future",
        67,
        "a special index is refused; MongoDB accepts it and then never deletes",
    ),
    ("clustered collection: _id recent date", 197, CLUSTERED),
    ("clustered collection: _id epoch", 197, CLUSTERED),
    ("clustered collection: _id minKey", 197, CLUSTERED),
];

const CLUSTERED: &str = "`_id` cannot be a TTL field; a clustered collection has an option of its own for it";

/// The refusal of `unique`, which a TTL index does not guard here: an index of the application's own does.
const UNIQUE_REFUSED: i32 = 67;

fn exception(case: &Case) -> Option<i32> {
    EXCEPTIONS.iter().find(|(name, ..)| *name == case.name).map(|(_, code, _)| *code)
}

/// The specification as the case gives it.
fn spec(case: &Case) -> Document {
    let mut key = Document::new();
    key.insert(&case.field, case.direction.as_ref().map_or(Bson::Int32(1), json::bson));
    let period = case.expire_after_seconds_raw.as_ref().map_or(Bson::Int64(case.expire_after_seconds), json::bson);
    let mut spec = doc! { "key": key, "expireAfterSeconds": period };
    spec.extend(case.partial_filter.as_ref().map(|f| ("partialFilterExpression".to_owned(), json::bson(f))));
    spec.extend(case.index_options.as_ref().map(json::document).unwrap_or_default());
    spec
}

fn is_unique(spec: &Document) -> bool {
    spec.get_bool("unique").unwrap_or(false)
}

/// Documents that share a definition, and so a collection.
struct Group {
    collection: String,
    spec: Document,
    /// What became of each document on the server, by `_id`.
    documents: Vec<(Document, Case)>,
}

/// All cases but the exceptions, with dates relative to `now`.
fn groups(now: DateTime) -> Vec<Group> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for (number, case) in cases().into_iter().enumerate().filter(|(_, case)| exception(case).is_none()) {
        let spec = spec(&case);
        // A unique index takes one document without a value.
        let key = if is_unique(&spec) { case.name.clone() } else { spec.to_string() };
        let collection = format!("c{}", groups.len());
        let group = groups.entry(key).or_insert_with(|| Group { collection, spec, documents: Vec::new() });
        group.documents.push((document(&case, number, now), case));
    }
    groups.into_values().collect()
}

fn document(case: &Case, number: usize, now: DateTime) -> Document {
    let mut document = doc! { "_id": i64::try_from(number).unwrap() };
    // An `_id` of the case's own takes the place of the number.
    document.extend(json::document_at(&case.document, now));
    document
}

fn ids(documents: &[Document]) -> BTreeSet<String> {
    documents.iter().map(|document| document["_id"].to_string()).collect()
}

#[test]
fn every_exception_is_a_case() {
    let names: BTreeSet<String> = cases().into_iter().map(|case| case.name).collect();
    for (name, ..) in EXCEPTIONS {
        assert!(names.contains(name), "there is no case {name:?}");
    }
}

#[test]
fn the_rule_alone_gives_every_verdict() {
    let now = DateTime::now();
    let mut wrong = Vec::new();
    for (number, case) in cases().into_iter().enumerate() {
        let mut spec = spec(&case);
        if let Some(code) = exception(&case) {
            let refused = Rule::new(&TtlIndex::from(spec)).expect_err(&case.name);
            assert_eq!(refused.code(), Some(code), "{}: {refused}", case.name);
            continue;
        }
        if is_unique(&spec) {
            let refused = Rule::new(&TtlIndex::from(spec.clone())).expect_err(&case.name);
            assert_eq!(refused.code(), Some(UNIQUE_REFUSED), "{}: {refused}", case.name);
            spec.remove("unique");
        }
        let rule = Rule::new(&TtlIndex::from(spec)).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let raw = RawDocumentBuf::try_from(&document(&case, number, now)).unwrap();
        let verdict = rule.judge(&raw, now);
        if verdict.due != case.expired {
            wrong.push(format!("{}: {verdict}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn a_sweep_of_the_embedded_store_gives_every_verdict() {
    for supporting in [true, false] {
        let now = DateTime::now();
        let store = EmbeddedStore::in_memory().unwrap().with_clock(ManualClock::at(now));
        assert_verdicts(&Place::Embedded(store.clone()), TtlRegistry::open(store).await.unwrap(), now, supporting)
            .await;
    }
}

#[tokio::test]
async fn a_sweep_of_mongodb_gives_every_verdict() {
    for supporting in [true, false] {
        let place = Place::Mongo(database().await);
        assert_verdicts(&place, place.registry().await, DateTime::now(), supporting).await;
    }
}

#[tokio::test]
async fn a_sweep_with_no_more_than_the_portable_subset_gives_every_verdict() {
    for supporting in [true, false] {
        let it = database().await;
        let store = MongoStore::new(it.db.clone()).portable_only();
        let ttl = TtlRegistry::open(store).await.unwrap();
        assert_verdicts(&Place::Mongo(it), ttl, DateTime::now(), supporting).await;
    }
}

/// Sweeps all cases and compares what is left with what the server left.
async fn assert_verdicts(place: &Place, ttl: TtlRegistry, now: DateTime, supporting: bool) {
    let mut wrong = Vec::new();
    for Group { collection, spec, documents } in groups(now) {
        create(place, &ttl, &collection, spec, supporting).await;
        place.insert(&collection, documents.iter().map(|(document, _)| document.clone()).collect()).await;

        let report = ttl.sweep(&collection).await.unwrap();
        let left = ids(&place.documents(&collection).await);
        let expired = documents.iter().filter(|(_, case)| case.expired).count() as u64;
        // The backend's query and the rule agree on every single document.
        let counts = (report.ended, report.deleted, report.disputed, report.changed, report.left);
        if counts != (Ended::Drained, expired, 0, 0, 0) {
            wrong.push(format!("{expired} have expired, but {report:?}"));
        }
        for (document, case) in documents {
            if left.contains(&document["_id"].to_string()) == case.expired {
                wrong.push(format!("{}: expired is {}: {document}", case.name, case.expired));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (number, case) in cases().into_iter().enumerate() {
        if let Some(code) = exception(&case) {
            assert_refused(place, &ttl, &case, code, document(&case, number, now)).await;
        }
    }
}

async fn create(place: &Place, ttl: &TtlRegistry, collection: &str, mut spec: Document, supporting: bool) {
    let unique = is_unique(&spec);
    if unique {
        let refused = ttl.create_index(collection, spec.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Some(UNIQUE_REFUSED), "{refused}");
        spec.remove("unique");
        if let Place::Mongo(it) = place {
            let mut own = doc! { "key": spec.get_document("key").unwrap(), "name": "own", "unique": true };
            own.extend(spec.get("sparse").map(|sparse| ("sparse".to_owned(), sparse.clone())));
            it.db.run_command(doc! { "createIndexes": collection, "indexes": [own] }).await.unwrap();
        }
    }
    let index = TtlIndex::from(spec.clone()).supporting_index(supporting);
    let made = ttl.create_index(collection, index).await.unwrap_or_else(|error| panic!("{spec}: {error}"));
    if unique && supporting && matches!(place, Place::Mongo(_)) {
        let reused = made.supporting_index.unwrap();
        assert_eq!((reused.name.as_str(), reused.created), ("own", false));
    }
}

/// The definition is refused, and nothing of the collection is ever deleted.
async fn assert_refused(place: &Place, ttl: &TtlRegistry, case: &Case, code: i32, document: Document) {
    let collection = format!("exception {}", document["_id"]);
    if let (Place::Mongo(it), Some(options)) = (place, &case.collection_options) {
        let mut command = doc! { "create": &collection };
        command.extend(json::document(options));
        // With it, the server itself would delete by `_id`.
        command.remove("expireAfterSeconds");
        it.db.run_command(command).await.unwrap();
    }
    place.insert(&collection, vec![document.clone()]).await;
    let refused = ttl.create_index(&collection, spec(case)).await.expect_err(&case.name);
    assert_eq!(refused.code(), Some(code), "{}: {refused}", case.name);
    assert!(refused.refusal().is_some(), "{}: refused before the server is asked", case.name);
    let no_index = ttl.sweep(&collection).await.expect_err(&case.name);
    assert_eq!(no_index.code(), Some(27), "{}: {no_index}", case.name);
    assert_eq!(ids(&place.documents(&collection).await), ids(&[document]), "{}", case.name);
}
