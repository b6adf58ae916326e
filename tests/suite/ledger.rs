//! Concurrent updates against sweeps that never pause, with a ledger of what was acknowledged: no document is lost that
//! could not have been due.
//!
//! Every document has one owner, and nobody else writes it. So its owner knows for certain what it holds: once a write of
//! a value that is not due is acknowledged, the document must be there until that value is due or the owner changes it.

use std::{
    ops::AddAssign,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use mongodb::{
    Collection,
    bson::{Bson, DateTime, Document, doc},
};
use ttl_index::{Ended, MongoStore, TtlIndex, TtlRegistry};

use crate::support::dice::Dice;
use crate::support::{TestDatabase, mongod::Mongod, wait};

/// How long, in seconds, in the place of 30.
const SECONDS: &str = "TTL_INDEX_TEST_SECONDS";

/// What lives for a moment lives for less than so many milliseconds.
const SOON: i64 = 60;

const OWNERS: u64 = 4;
const DOCUMENTS: usize = 150;

/// What an owner knows of a document of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    /// It was never written, or is known to be gone.
    Gone,
    /// It is there, and must stay.
    Lives,
    /// It is there until this instant, and may go from then on.
    LivesUntil(DateTime),
    /// It may be gone.
    Due,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Tally {
    /// Documents that a sweep deleted.
    swept: u64,
    /// Documents that were due and were there to be rescued.
    rescued: u64,
    /// Writes to documents that had to be there, and were.
    kept: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.swept += other.swept;
        self.rescued += other.rescued;
        self.kept += other.kept;
    }
}

struct Owner {
    collection: Collection<Document>,
    number: u64,
    known: Vec<Known>,
    /// The document to write next: one that was just made due, to be rescued before a sweep gets at it, or not.
    next: Option<usize>,
    dice: Dice,
    tally: Tally,
}

impl Owner {
    fn id(&self, document: usize) -> String {
        format!("{}-{document}", self.number)
    }

    /// A value for the TTL field, with what it means.
    fn value(&mut self) -> (Option<Bson>, Known) {
        let now = DateTime::now().timestamp_millis();
        let ahead = |millis: u64| DateTime::from_millis(now + i64::try_from(millis).unwrap());
        let past = DateTime::from_millis(now - 1 - i64::try_from(self.dice.below(10_000)).unwrap());
        let future = ahead(3_600_000 + self.dice.below(1_000));
        match self.dice.below(12) {
            0 => (Some(Bson::Null), Known::Lives),
            1 => (None, Known::Lives),
            2 => (Some(Bson::String(past.to_string())), Known::Lives),
            3 => (Some(Bson::Array(vec![future.into(), Bson::Null])), Known::Lives),
            4 => (Some(Bson::Array(vec![future.into(), past.into()])), Known::Due),
            5 | 6 => (Some(future.into()), Known::Lives),
            7 | 8 => {
                let soon = ahead(self.dice.below(SOON.unsigned_abs()));
                (Some(soon.into()), Known::LivesUntil(soon))
            }
            _ => (Some(past.into()), Known::Due),
        }
    }

    /// Takes note of whether a document was there when it was written to, or deleted.
    fn note(&mut self, document: usize, there: bool) {
        let arrived = DateTime::now();
        let known = self.known[document];
        let must_be_there = match known {
            Known::Lives => true,
            // The server's clock is this machine's.
            Known::LivesUntil(date) => arrived < date,
            Known::Due | Known::Gone => false,
        };
        assert!(there || !must_be_there, "{} is gone: {known:?}, at {arrived}", self.id(document));
        assert!(!(there && known == Known::Gone), "{} is back from the dead", self.id(document));
        match (known, there) {
            (Known::Gone, _) => {}
            (_, false) => self.tally.swept += 1,
            (Known::Due, true) => self.tally.rescued += 1,
            (_, true) => self.tally.kept += 1,
        }
    }

    async fn step(&mut self) {
        let any = usize::try_from(self.dice.below(DOCUMENTS as u64)).unwrap();
        let document = self.next.take().unwrap_or(any);
        let id = self.id(document);
        let (value, means) = self.value();
        self.next = (means == Known::Due && self.dice.below(4) > 0).then_some(document);
        let whole = |value: Option<Bson>| {
            let mut whole = doc! { "_id": &id };
            whole.extend(value.map(|value| ("t".to_owned(), value)));
            whole
        };
        let filter = doc! { "_id": &id };
        if self.known[document] == Known::Gone {
            self.collection.insert_one(whole(value)).await.unwrap();
            self.known[document] = means;
            return;
        }
        let there = match (self.dice.below(4), value) {
            (0, value) => {
                let there = self.collection.delete_one(filter).await.unwrap().deleted_count == 1;
                self.note(document, there);
                self.collection.insert_one(whole(value)).await.unwrap();
                self.known[document] = means;
                return;
            }
            (1, value) => self.collection.replace_one(filter, whole(value)).await.unwrap().matched_count == 1,
            (_, Some(value)) => {
                let update = doc! { "$set": { "t": value } };
                self.collection.update_one(filter, update).await.unwrap().matched_count == 1
            }
            (_, None) => {
                let update = doc! { "$unset": { "t": "" } };
                self.collection.find_one_and_update(filter, update).await.unwrap().is_some()
            }
        };
        self.note(document, there);
        self.known[document] = if there { means } else { Known::Gone };
    }

    async fn run(mut self, until: Instant) -> Self {
        while Instant::now() < until {
            self.step().await;
        }
        self
    }

    /// When no sweep is under way any more, and all that was due has gone.
    async fn settle(mut self) -> Tally {
        for document in 0..DOCUMENTS {
            let there = self.collection.find_one(doc! { "_id": self.id(document) }).await.unwrap().is_some();
            self.note(document, there);
            assert!(!(there && self.known[document] == Known::Due), "{} is due and there", self.id(document));
        }
        self.tally
    }
}

fn seconds() -> u64 {
    std::env::var(SECONDS).ok().map_or(30, |text| text.parse().expect("TTL_INDEX_TEST_SECONDS is a number"))
}

/// Sweeps without a pause, and returns how much was deleted.
async fn sweep_on(store: MongoStore, batch: u32, stop: Arc<AtomicBool>) -> u64 {
    let ttl = TtlRegistry::open(store).await.unwrap();
    let mut deleted = 0;
    while !stop.load(Ordering::SeqCst) {
        let report = ttl.sweep("c").batch_size(batch).without_lease().await.unwrap();
        assert_eq!((report.ended, report.uncertain), (Ended::Drained, 0), "{report:?}");
        assert_eq!(report.found, report.deleted + report.changed + report.left, "{report:?}");
        deleted += report.deleted;
    }
    deleted
}

/// Two sweepers at once, of which one may use less of the server, are as harmless as one.
async fn no_document_is_lost(it: &TestDatabase, supporting: bool) {
    let store = MongoStore::new(it.db.clone());
    let ttl = TtlRegistry::open(store.clone()).await.unwrap();
    let index = TtlIndex::on("t").expire_after(Duration::ZERO).supporting_index(supporting);
    ttl.create_index("c", index).await.unwrap();

    let stop = Arc::new(AtomicBool::new(false));
    let sweepers = [
        tokio::spawn(sweep_on(store.clone(), 20, stop.clone())),
        tokio::spawn(sweep_on(store.portable_only(), 7, stop.clone())),
    ];
    let until = Instant::now() + Duration::from_secs(seconds().div_ceil(2));
    let owners: Vec<_> = (0..OWNERS)
        .map(|number| {
            let known = vec![Known::Gone; DOCUMENTS];
            let collection = it.db.collection("c");
            let (dice, tally) = (Dice::new(number), Tally::default());
            tokio::spawn(Owner { collection, number, known, next: None, dice, tally }.run(until))
        })
        .collect();
    let mut done = Vec::new();
    for owner in owners {
        done.push(owner.await.unwrap());
    }
    // What lives for a moment yet is to be due as well when the last pass begins.
    let moment = DateTime::from_millis(DateTime::now().timestamp_millis() + SOON);
    wait::until("the last dates to pass", wait::LONG, async || ttl.now().await.unwrap() > moment).await;
    stop.store(true, Ordering::SeqCst);
    let mut deleted = 0;
    for sweeper in sweepers {
        deleted += sweeper.await.unwrap();
    }
    let last = ttl.sweep("c").await.unwrap();
    assert_eq!(last.ended, Ended::Drained, "{last:?}");
    deleted += last.deleted;

    let mut tally = Tally::default();
    for owner in done {
        tally += owner.settle().await;
    }
    println!("supporting index: {supporting}, {tally:?}, deleted by sweeps: {deleted}");
    // Each deletion that was reported is one that an owner missed, and the other way round.
    assert_eq!(tally.swept, deleted, "{tally:?}");
    let enough = seconds() * 5;
    assert!(tally.swept > enough && tally.rescued > enough && tally.kept > enough, "this shows little: {tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_document_is_lost_that_could_not_have_been_due() {
    let server = Mongod::shared().await;
    for supporting in [true, false] {
        no_document_is_lost(&server.database().await, supporting).await;
    }
}
