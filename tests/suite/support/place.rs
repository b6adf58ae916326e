//! The two kinds of store behind one face, so that a test says the same of both.

use mongodb::bson::{Bson, Document, doc};
use ttl_index::{EmbeddedStore, MongoStore, TtlRegistry};

use super::{TestDatabase, database};

/// A database of the test's own, on one of the stores.
pub(crate) enum Place {
    Mongo(TestDatabase),
    Embedded(EmbeddedStore),
}

impl Place {
    /// One of each kind.
    pub(crate) async fn all() -> Vec<Place> {
        vec![Place::embedded(), Place::Mongo(database().await)]
    }

    pub(crate) fn embedded() -> Place {
        Place::Embedded(EmbeddedStore::in_memory().unwrap())
    }

    pub(crate) async fn registry(&self) -> TtlRegistry {
        match self {
            Place::Mongo(it) => TtlRegistry::open(MongoStore::new(it.db.clone())).await.unwrap(),
            Place::Embedded(store) => TtlRegistry::open(store.clone()).await.unwrap(),
        }
    }

    pub(crate) async fn insert(&self, collection: &str, documents: Vec<Document>) {
        match self {
            Place::Mongo(it) => {
                it.db.collection(collection).insert_many(documents).await.unwrap();
            }
            Place::Embedded(store) => {
                store.collection(collection).insert_many(documents).await.unwrap();
            }
        }
    }

    /// `{$set: …, $unset: …}` on the document with this `_id`.
    pub(crate) async fn update(&self, collection: &str, id: impl Into<Bson>, update: Document) {
        match self {
            Place::Mongo(it) => {
                let it = it.db.collection::<Document>(collection);
                it.update_one(doc! { "_id": id.into() }, update).await.unwrap();
            }
            Place::Embedded(store) => {
                store.collection(collection).update_one(id, update).await.unwrap();
            }
        }
    }

    pub(crate) async fn replace(&self, collection: &str, id: impl Into<Bson>, document: Document) {
        match self {
            Place::Mongo(it) => {
                it.db.collection(collection).replace_one(doc! { "_id": id.into() }, document).await.unwrap();
            }
            Place::Embedded(store) => {
                store.collection(collection).replace_one(id, document).await.unwrap();
            }
        }
    }

    pub(crate) async fn delete(&self, collection: &str, id: impl Into<Bson>) {
        match self {
            Place::Mongo(it) => {
                it.db.collection::<Document>(collection).delete_one(doc! { "_id": id.into() }).await.unwrap();
            }
            Place::Embedded(store) => {
                store.collection(collection).delete_one(id).await.unwrap();
            }
        }
    }

    pub(crate) async fn drop_collection(&self, collection: &str) {
        match self {
            Place::Mongo(it) => it.db.collection::<Document>(collection).drop().await.unwrap(),
            Place::Embedded(store) => {
                store.collection(collection).drop().await.unwrap();
            }
        }
    }

    pub(crate) async fn find(&self, collection: &str, id: impl Into<Bson>) -> Option<Document> {
        match self {
            Place::Mongo(it) => it.db.collection(collection).find_one(doc! { "_id": id.into() }).await.unwrap(),
            Place::Embedded(store) => store.collection(collection).find_one(id).await.unwrap(),
        }
    }

    /// All documents, in no particular order.
    pub(crate) async fn documents(&self, collection: &str) -> Vec<Document> {
        match self {
            Place::Mongo(it) => {
                use futures_util::TryStreamExt;
                let found = it.db.collection::<Document>(collection).find(doc! {}).await.unwrap();
                found.try_collect().await.unwrap()
            }
            Place::Embedded(store) => {
                let mut pages = store.collection(collection).documents();
                let mut all = Vec::new();
                while let Some(page) = pages.next_page(1000).await.unwrap() {
                    all.extend(page.iter().map(|raw| Document::from_reader(raw.as_bytes()).unwrap()));
                }
                all
            }
        }
    }

    pub(crate) async fn count(&self, collection: &str) -> u64 {
        match self {
            Place::Mongo(it) => it.db.collection::<Document>(collection).count_documents(doc! {}).await.unwrap(),
            Place::Embedded(store) => store.collection(collection).count().await.unwrap(),
        }
    }
}
