//! A news service whose readers save articles while old ones are deleted: nothing that was saved is ever lost.

use std::{collections::BTreeSet, time::Duration};

use mongodb::{
    Database,
    bson::{DateTime, Document, doc},
};
use ttl_index::{Reference, Sweeper, TtlIndex, TtlRegistry};

use super::{HOUR, index_children};
use crate::support::{database, dice::Dice, place::Place};

const TIME: Duration = Duration::from_secs(30);

/// An article expires every so many milliseconds.
const PACE: i64 = 2;
const WRITERS: u64 = 6;

/// How a reader saves an article.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// A read of its own, then a touch of the article, which a guard keeps from then on.
    Read,
    /// A mark on the article itself, which the partial filter then keeps.
    Mark,
}

impl Way {
    fn collection(self) -> &'static str {
        match self {
            Way::Read => "articles",
            Way::Mark => "marked",
        }
    }

    /// Whether the reader is told that it is saved.
    async fn save(self, ttl: &TtlRegistry, db: &Database, article: i64) -> bool {
        match self {
            Way::Read => {
                let now = ttl.now().await.unwrap();
                let reads = db.collection::<Document>("reads");
                let read = reads.insert_one(doc! { "article_id": article, "readAt": now }).await.unwrap();
                // Not for long: from then on it is the guard that keeps it.
                let until = DateTime::from_millis(now.timestamp_millis() + 200);
                let saved = ttl.touch("articles", [article], until).await.unwrap().missing == 0;
                if !saved {
                    reads.delete_one(doc! { "_id": read.inserted_id }).await.unwrap();
                }
                saved
            }
            Way::Mark => {
                let marking = doc! { "$set": { "saved": true } };
                let marked = db.collection::<Document>("marked").update_one(doc! { "_id": article }, marking).await;
                marked.unwrap().matched_count == 1
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_article_is_lost_that_a_reader_was_told_is_saved() {
    let it = database().await;
    let db = it.db.clone();
    let place = Place::Mongo(it);
    let ttl = place.registry().await;
    index_children(&place, &["reads"]).await;
    let index = || TtlIndex::on("expireAt").expire_after(Duration::ZERO);
    let reads = Reference::by("reads", "article_id").newer_than("readAt", HOUR);
    ttl.create_index("articles", index().keep_while(reads)).await.unwrap();
    ttl.create_index("marked", index().partial_filter(doc! { "saved": false })).await.unwrap();

    let count = i64::try_from(TIME.as_millis()).unwrap() / PACE;
    let first = ttl.now().await.unwrap().timestamp_millis() + 2_000;
    let article = |n: i64| doc! { "_id": n, "expireAt": DateTime::from_millis(first + PACE * n), "saved": false };
    for way in [Way::Read, Way::Mark] {
        place.insert(way.collection(), (0..count).map(article).collect()).await;
    }
    let sweeper =
        Sweeper::new(ttl.clone()).interval(Duration::from_millis(10)).max_rate(1e6).min_rate(1e6).start().unwrap();
    let writers = [Way::Read, Way::Mark].into_iter().flat_map(|way| (0..WRITERS).map(move |seed| (way, seed)));
    let writers: Vec<_> = writers
        .map(|(way, seed)| {
            let (ttl, db, mut dice) = (ttl.clone(), db.clone(), Dice::new(seed));
            tokio::spawn(async move {
                let (mut saved, mut late) = (BTreeSet::new(), 0);
                loop {
                    let now = ttl.now().await.unwrap().timestamp_millis();
                    if now > first + PACE * count + 500 {
                        break;
                    }
                    // Of those that expire about now, or a little earlier: how soon they are deleted is not promised.
                    let before = if dice.below(2) == 0 { 40 } else { 380 };
                    let article = (now - first) / PACE + i64::try_from(dice.below(before + 20)).unwrap()
                        - i64::try_from(before).unwrap();
                    if (0..count).contains(&article) && !saved.contains(&article) {
                        if way.save(&ttl, &db, article).await {
                            saved.insert(article);
                        } else {
                            late += 1;
                        }
                    }
                }
                (way, saved, late)
            })
        })
        .collect();
    let outcomes = futures_util::future::join_all(writers).await;
    sweeper.shutdown().await.unwrap();
    for collection in ["articles", "marked"] {
        // Everything once more, the kept ones too.
        ttl.sweep(collection).await.unwrap();
    }
    for way in [Way::Read, Way::Mark] {
        let of_way =
            || outcomes.iter().map(|it| it.as_ref().unwrap()).filter(|it| it.0.collection() == way.collection());
        let saved: BTreeSet<i64> = of_way().flat_map(|it| it.1.iter().copied()).collect();
        let late: u64 = of_way().map(|it| it.2).sum();
        let found: BTreeSet<i64> =
            place.documents(way.collection()).await.iter().map(|it| it.get_i64("_id").unwrap()).collect();
        let lost: Vec<_> = saved.difference(&found).collect();
        println!(
            "{way:?}: {} saved, {} lost, {late} too late, {} articles left of {count}",
            saved.len(),
            lost.len(),
            found.len()
        );
        assert!(lost.is_empty(), "{way:?}: {} of {} saved articles are lost: {lost:?}", lost.len(), saved.len());
        // It was a race at all.
        assert!(saved.len() > 100 && late > 10, "{way:?}: {} saved, {late} too late", saved.len());
        assert_eq!(saved.len(), found.len(), "{way:?}: what nobody saved is gone");
    }
}
