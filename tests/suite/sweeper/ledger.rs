//! The books of a random hour: what the sweeper counted is what became of the documents, one by one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use ttl_index::{EmbeddedStore, Fault, HookedStore, ManualClock, Sweeper, TtlRegistry};

use super::index;
use crate::support::dice::Dice;

const SECOND: Duration = Duration::from_secs(1);
const COLLECTIONS: [&str; 3] = ["a", "b", "c"];

/// What must be counted in the end.
#[derive(Debug, Default, PartialEq)]
struct Books {
    deleted: u64,
    changed: u64,
    uncertain: u64,
    left: u64,
    delays: u64,
    delay: Duration,
    /// Documents that went without a sweeper.
    removed: u64,
    /// Those of them that are among the uncertain too.
    in_both: u64,
}

struct Hour {
    store: EmbeddedStore,
    clock: ManualClock,
    dice: Mutex<Dice>,
    /// How many batches have begun.
    begun: AtomicU64,
    books: Mutex<Books>,
    /// In which collection a document is.
    places: Mutex<HashMap<i64, &'static str>>,
}

impl Hour {
    fn dice(&self, end: u64) -> u64 {
        self.dice.lock().unwrap().below(end)
    }

    fn now(&self) -> i64 {
        self.clock.now().timestamp_millis()
    }

    fn after(&self, millis: i64) -> Bson {
        DateTime::from_millis(self.now() + millis).into()
    }

    /// What an application does in a second.
    async fn write(&self, id: i64) {
        let place = COLLECTIONS[usize::try_from(self.dice(3)).unwrap()];
        let collection = self.store.collection(place);
        let in_minutes = i64::try_from(self.dice(600_000)).unwrap() - 60_000;
        // First, as it may be due at once.
        self.places.lock().unwrap().insert(id, place);
        collection.insert_one(doc! { "_id": id, "t": self.after(in_minutes) }).await.unwrap();
        let other = i64::try_from(self.dice(u64::try_from(id + 1).unwrap())).unwrap();
        let place = self.places.lock().unwrap()[&other];
        let collection = self.store.collection(place);
        match self.dice(6) {
            0 => drop(collection.update_one(other, doc! { "$set": { "t": self.after(3_600_000) } }).await.unwrap()),
            1 => drop(collection.update_one(other, doc! { "$unset": { "t": 1 } }).await.unwrap()),
            // Of one that is due already a sweeper knows the date that it was found with, and no later one.
            2 if self.lives(place, other).await => {
                collection.update_one(other, doc! { "$set": { "t": self.after(-1_000) } }).await.unwrap();
            }
            3 => {
                let removed = collection.delete_one(other).await.unwrap();
                self.books.lock().unwrap().removed += u64::from(removed);
            }
            _ => {}
        }
    }

    async fn lives(&self, place: &str, id: i64) -> bool {
        let document = self.store.collection(place).find_one(id).await.unwrap();
        document.is_some_and(|it| it.get_datetime("t").is_ok_and(|date| date.timestamp_millis() > self.now()))
    }

    /// Between finding and deleting: some are rescued, some are removed, and some replies are lost.
    async fn disturb(&self, ids: Vec<Bson>) -> Fault {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let lost = self.dice(15) == 0;
        let (mut deleted, mut rescued, mut removed, mut delay) = (0, 0, 0, Duration::ZERO);
        for id in ids {
            let id = id.as_i64().unwrap();
            let collection = self.store.collection(self.places.lock().unwrap()[&id]);
            let document: Document = collection.find_one(id).await.unwrap().unwrap();
            match self.dice(10) {
                0 => {
                    rescued += 1;
                    collection.update_one(id, doc! { "$set": { "t": self.after(3_600_000) } }).await.unwrap();
                }
                // Whose delay was counted would not be known to the millisecond: two are gone, and one was deleted.
                1 if lost => {
                    removed += 1;
                    collection.delete_one(id).await.unwrap();
                }
                _ => {
                    deleted += 1;
                    let expired = document.get_datetime("t").unwrap().timestamp_millis();
                    delay += Duration::from_millis(u64::try_from(self.now() - expired).unwrap());
                }
            }
        }
        let mut books = self.books.lock().unwrap();
        books.removed += removed;
        if lost {
            // That they are gone is known, and not who did it.
            books.uncertain += deleted + removed;
            books.left += rescued;
            books.in_both += removed;
            return Fault::ReplyLost;
        }
        books.deleted += deleted;
        books.changed += rescued + removed;
        books.delays += deleted;
        books.delay += delay;
        Fault::None
    }
}

async fn the_books_of(seed: u64) {
    let clock = ManualClock::at(DateTime::from_millis(1_767_225_600_000));
    let store = EmbeddedStore::in_memory().unwrap().with_clock(clock.clone());
    let hour = Arc::new(Hour {
        store: store.clone(),
        clock,
        dice: Mutex::new(Dice::new(seed)),
        begun: AtomicU64::new(0),
        books: Mutex::default(),
        places: Mutex::default(),
    });
    let disturbing = hour.clone();
    let hooked = HookedStore::new(store, move |ids| {
        let hour = disturbing.clone();
        async move { hour.disturb(ids).await }
    });
    let ttl = TtlRegistry::open(hooked).await.unwrap();
    for collection in COLLECTIONS {
        ttl.create_index(collection, index()).await.unwrap();
    }
    let sweeper = Sweeper::new(ttl.clone()).max_rate(20.0).start().unwrap();
    let inserted = 3600_i64;
    for id in 0..inserted {
        hour.write(id).await;
        tokio::time::sleep(SECOND).await;
        // Not within a batch, so that the delay of each document is known to the millisecond.
        while hour.begun.load(Ordering::SeqCst) != ttl.counters().total.batches {
            tokio::task::yield_now().await;
        }
        hour.clock.advance(SECOND);
    }
    sweeper.shutdown().await.unwrap();

    let counted = ttl.counters().total;
    let books = std::mem::take(&mut *hour.books.lock().unwrap());
    let found = Books {
        deleted: counted.deleted,
        changed: counted.changed,
        uncertain: counted.uncertain,
        left: counted.left,
        delays: counted.delays.count,
        delay: counted.delays.sum,
        removed: books.removed,
        in_both: books.in_both,
    };
    assert_eq!(found, books, "seed {seed}");
    let mut there = 0;
    for collection in COLLECTIONS {
        there += hour.store.collection(collection).count().await.unwrap();
    }
    println!("seed {seed}: {inserted} inserted, {there} there, {books:?}");
    assert!(books.deleted > 500 && books.changed > 50 && books.uncertain > 10, "this shows little: {books:?}");
    let gone = books.deleted + books.uncertain + books.removed - books.in_both;
    assert_eq!(u64::try_from(inserted).unwrap(), there + gone, "{books:?}");
}

#[tokio::test(start_paused = true)]
async fn the_counters_of_a_random_hour_are_what_became_of_the_documents() {
    for seed in 0..2 {
        the_books_of(seed).await;
    }
}
