//! A hook of the program that sweeps.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use mongodb::bson::doc;
use ttl_index::{Batch, Decision, EmbeddedStore, Ended, Sweeper, TtlRegistry, Veto, VetoFuture};

use super::{articles, due, ids, index_children, likes};
use crate::{
    race::assert_adds_up,
    support::{place::Place, wait},
};

/// Keeps what has a hold, and notes what it was asked about.
#[derive(Clone, Default)]
struct Hold(Arc<Mutex<Vec<String>>>);

impl Veto for Hold {
    fn veto<'a>(&'a self, batch: Batch<'a>) -> VetoFuture<'a> {
        Box::pin(async move {
            let held = batch.documents.iter().map(|document| matches!(document.get_bool("hold"), Ok(true)));
            let words = batch.documents.iter().map(|document| document.get_str("word").unwrap().to_owned());
            self.0.lock().unwrap().extend(words);
            assert_eq!((batch.collection, batch.index), ("articles", "at_1"));
            Ok(held.map(|held| if held { Decision::Keep } else { Decision::Delete }).collect())
        })
    }
}

fn article(id: i32) -> mongodb::bson::Document {
    let mut article = due(id);
    article.extend(doc! { "word": format!("w{id}"), "hold": id % 3 == 0 });
    article
}

#[tokio::test]
async fn a_hook_sees_whole_documents_and_keeps_some_of_them() {
    for place in Place::all().await {
        let hold = Hold::default();
        let ttl = place.registry().await.with_veto(hold.clone());
        index_children(&place, &["likes"]).await;
        ttl.create_index("articles", articles().keep_while(likes())).await.unwrap();
        place.insert("articles", (0..9).map(article).collect()).await;
        place.insert("likes", vec![doc! { "article_id": 1 }]).await;
        let report = ttl.sweep("articles").batch_size(4).await.unwrap();
        assert_eq!((report.deleted, report.kept, report.ended), (5, 4, Ended::Drained), "{report:?}");
        assert_adds_up(&report, "veto");
        assert_eq!(ids(&place, "articles").await, [0, 1, 3, 6]);
        // It is not asked about what a guard keeps anyway.
        let mut asked = hold.0.lock().unwrap().clone();
        asked.sort();
        assert_eq!(asked, ["w0", "w2", "w3", "w4", "w5", "w6", "w7", "w8"]);
        // A handle without the hook does not know of it.
        assert_eq!(place.registry().await.sweep("articles").await.unwrap().deleted, 3);
    }
}

/// What goes wrong with a hook.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Error,
    Panic,
    TooFew,
    TooMany,
    Silence,
}

impl Veto for Trouble {
    fn veto<'a>(&'a self, batch: Batch<'a>) -> VetoFuture<'a> {
        Box::pin(async move {
            match self {
                Trouble::Error => Err("the archive is away".into()),
                Trouble::Panic => panic!("in a hook"),
                Trouble::TooFew => Ok(Vec::new()),
                Trouble::TooMany => Ok(vec![Decision::Delete; batch.documents.len() + 1]),
                Trouble::Silence => std::future::pending().await,
            }
        })
    }
}

async fn deletes_nothing(place: &Place, trouble: Trouble, words: &str) {
    let ttl = place.registry().await.with_veto(trouble);
    let report = ttl.sweep("articles").await.unwrap();
    assert_eq!((report.ended, report.deleted, report.left), (Ended::Failed, 0, 4), "{trouble:?}: {report:?}");
    assert_adds_up(&report, "trouble");
    let error = report.error.unwrap();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(error.kind() == "veto" && source.contains(words), "{trouble:?}: {error}: {source}");
    assert_eq!(place.count("articles").await, 4);
}

#[tokio::test]
async fn a_hook_that_fails_keeps_the_whole_batch() {
    for place in Place::all().await {
        place.registry().await.create_index("articles", articles()).await.unwrap();
        place.insert("articles", (0..4).map(article).collect()).await;
        deletes_nothing(&place, Trouble::Error, "the archive is away").await;
        deletes_nothing(&place, Trouble::Panic, "panicked").await;
        deletes_nothing(&place, Trouble::TooFew, "0 times about 4 documents").await;
        deletes_nothing(&place, Trouble::TooMany, "5 times about 4 documents").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_does_not_answer_keeps_the_whole_batch() {
    let place = Place::embedded();
    place.registry().await.create_index("articles", articles()).await.unwrap();
    place.insert("articles", (0..4).map(article).collect()).await;
    deletes_nothing(&place, Trouble::Silence, "not answered within 30s").await;
}

/// Fails twice, and keeps everything from then on.
#[derive(Default)]
struct Recovering(Arc<AtomicUsize>);

impl Veto for Recovering {
    fn veto<'a>(&'a self, batch: Batch<'a>) -> VetoFuture<'a> {
        let before = self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if before < 2 { Err("not yet".into()) } else { Ok(vec![Decision::Keep; batch.documents.len()]) }
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweeper_asks_the_hook_of_its_registry_and_survives_its_failures() {
    let store = EmbeddedStore::in_memory().unwrap();
    let hook = Recovering::default();
    let ttl = TtlRegistry::open(store.clone()).await.unwrap().with_veto(Recovering(hook.0.clone()));
    ttl.create_index("articles", articles()).await.unwrap();
    store.collection("articles").insert_many((0..4).map(article)).await.unwrap();
    let sweeper = Sweeper::new(ttl).start().unwrap();
    wait::until("the kept ones to be told of", wait::LONG, async || {
        let status = sweeper.status();
        status.indexes.first().and_then(|index| index.visits.clone()).is_some_and(|visits| visits.kept == 4)
    })
    .await;
    let visits = sweeper.status().indexes[0].visits.clone().unwrap();
    assert_eq!((visits.deleted, visits.failures, visits.oldest_due), (0, 0, None), "{visits:?}");
    sweeper.shutdown().await.unwrap();
    assert_eq!(store.collection("articles").count().await.unwrap(), 4);
}
