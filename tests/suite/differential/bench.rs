//! The three that are compared: the server's own TTL index, and sweeps of the two stores.

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use mongodb::{
    bson::{Document, doc},
    error::ErrorKind,
};
use ttl_index::{Ended, TtlRegistry};

use super::PERIOD;
use crate::support::{mongod::Mongod, place::Place, wait};

/// The server's refusal of a document whose path can be read in two ways.
const AMBIGUOUS: i32 = 16746;

/// A TTL index to compare.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) field: &'static str,
    pub(super) filter: Option<Document>,
}

impl Subject {
    fn spec(&self) -> Document {
        let mut key = Document::new();
        key.insert(self.field, 1);
        let mut spec = doc! { "key": key, "name": "ttl", "expireAfterSeconds": PERIOD };
        spec.extend(self.filter.clone().map(|filter| ("partialFilterExpression".to_owned(), filter.into())));
        spec
    }
}

/// The `_id`s that are left.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) by_server: BTreeSet<i32>,
    pub(super) by_mongo: BTreeSet<i32>,
    pub(super) by_embedded: BTreeSet<i32>,
}

impl Left {
    /// A document that not all of them keep or delete.
    pub(super) fn disagreement(&self) -> Option<i32> {
        let by_sweep = self.by_server.symmetric_difference(&self.by_mongo);
        by_sweep.chain(self.by_server.symmetric_difference(&self.by_embedded)).min().copied()
    }
}

/// The server with its TTL monitor running, and a store of either kind.
pub(super) struct Bench {
    mongo: Place,
    embedded: Place,
    by_mongo: TtlRegistry,
    by_embedded: TtlRegistry,
}

fn native(collection: &str) -> String {
    format!("{collection}_native")
}

impl Bench {
    pub(super) async fn new() -> Bench {
        let (mongo, embedded) = (Place::Mongo(Mongod::shared().await.database().await), Place::embedded());
        let (by_mongo, by_embedded) = (mongo.registry().await, embedded.registry().await);
        Bench { mongo, embedded, by_mongo, by_embedded }
    }

    fn db(&self) -> &mongodb::Database {
        match &self.mongo {
            Place::Mongo(it) => &it.db,
            Place::Embedded(_) => unreachable!("it was made on a server"),
        }
    }

    /// Makes the same TTL index everywhere; whether it was accepted, which must be the same everywhere too.
    pub(super) async fn prepare(&self, collection: &str, subject: &Subject) -> bool {
        let command = doc! { "createIndexes": native(collection), "indexes": [subject.spec()] };
        let by_server = self.db().run_command(command).await;
        let by_mongo = self.by_mongo.create_index(collection, subject.spec()).await;
        let by_embedded = self.by_embedded.create_index(collection, subject.spec()).await;
        let accepted = (by_server.is_ok(), by_mongo.is_ok(), by_embedded.is_ok());
        assert!(
            accepted == (true, true, true) || accepted == (false, false, false),
            "{subject:?}: {by_server:?}, {by_mongo:?}, {by_embedded:?}"
        );
        by_server.is_ok()
    }

    /// Inserts everywhere what the server takes, and returns the `_id`s: the documents' numbers.
    pub(super) async fn insert(&self, collection: &str, mut documents: Vec<Document>) -> Vec<i32> {
        for (number, document) in (0..).zip(&mut documents) {
            document.insert("_id", number);
        }
        let natively =
            self.db().collection::<Document>(&native(collection)).insert_many(&documents).ordered(false).await;
        if let Err(error) = natively {
            let ErrorKind::InsertMany(failed) = *error.kind else { panic!("inserting failed: {error}") };
            let refused = failed.write_errors.unwrap_or_default();
            assert!(refused.iter().all(|refusal| refusal.code == AMBIGUOUS), "{refused:?}");
            let refused: HashSet<usize> = refused.iter().map(|refusal| refusal.index).collect();
            let mut number = 0..;
            documents.retain(|_| number.next().is_some_and(|number| !refused.contains(&number)));
        }
        let ids = documents.iter().map(|document| document.get_i32("_id").unwrap()).collect();
        if !documents.is_empty() {
            self.mongo.insert(collection, documents.clone()).await;
            self.embedded.insert(collection, documents).await;
        }
        ids
    }

    /// Waits until the server's TTL monitor has begun and ended a pass.
    pub(super) async fn wait_for_monitor(&self) {
        let before = self.passes().await;
        // The first to end may have begun before.
        let passed = async || self.passes().await >= before + 2;
        wait::until("two passes of the TTL monitor", Duration::from_secs(120), passed).await;
    }

    async fn passes(&self) -> i64 {
        let status = self.db().run_command(doc! { "serverStatus": 1 }).await.unwrap();
        let ttl = status.get_document("metrics").unwrap().get_document("ttl").unwrap();
        ttl.get_i64("passes").unwrap()
    }

    /// Sweeps both stores and says what is left of all three.
    pub(super) async fn sweep(&self, collection: &str) -> Left {
        for ttl in [&self.by_mongo, &self.by_embedded] {
            let report = ttl.sweep(collection).await.unwrap();
            assert_eq!(report.ended, Ended::Drained, "{report:?}");
        }
        Left {
            by_server: ids(&self.mongo, &native(collection)).await,
            by_mongo: ids(&self.mongo, collection).await,
            by_embedded: ids(&self.embedded, collection).await,
        }
    }

    /// What becomes of one document.
    pub(super) async fn try_alone(&self, collection: &str, subject: &Subject, document: Document) -> Left {
        assert!(self.prepare(collection, subject).await);
        self.insert(collection, vec![document]).await;
        self.wait_for_monitor().await;
        self.sweep(collection).await
    }
}

async fn ids(place: &Place, collection: &str) -> BTreeSet<i32> {
    place.documents(collection).await.iter().map(|document| document.get_i32("_id").unwrap()).collect()
}
