//! Children and dates that are written at the very instant between two steps of a batch.

use std::{sync::Arc, time::Duration};

use mongodb::bson::doc;
use ttl_index::{Ended, Error, Fault, HookedStore, TtlRegistry};

use super::{before_now, due, ids, index_children, likes};
use crate::{
    race::{Setting, assert_adds_up},
    support::place::Place,
};

/// A registry over the setting's store, of which nothing is hooked.
async fn plain(setting: &Setting) -> TtlRegistry {
    match &*setting.place {
        Place::Mongo(it) => TtlRegistry::open(setting.mongo_store(it.db.clone())).await.unwrap(),
        Place::Embedded(store) => TtlRegistry::open(store.clone()).await.unwrap(),
    }
}

async fn prepare(setting: &Setting) -> TtlRegistry {
    let ttl = plain(setting).await;
    index_children(&setting.place, &["likes"]).await;
    ttl.create_index("articles", setting.on("at").keep_while(likes())).await.unwrap();
    setting.place.insert("articles", (0..4).map(due).collect()).await;
    ttl
}

async fn like(place: Arc<Place>, article: i32) {
    place.insert("likes", vec![doc! { "_id": article, "article_id": article }]).await;
}

#[tokio::test]
async fn a_child_that_comes_between_find_and_guard_saves_its_parent() {
    for setting in Setting::all().await {
        let what = setting.describe();
        prepare(&setting).await;
        let place = setting.place.clone();
        let hooked: HookedStore =
            setting.hooked_store(|_| async { Fault::None }).before_guard(move |_| like(place.clone(), 1));
        let report = TtlRegistry::open(hooked).await.unwrap().sweep("articles").await.unwrap();
        assert_eq!((report.deleted, report.kept), (3, 1), "{what}: {report:?}");
        assert_eq!(ids(&setting.place, "articles").await, [1], "{what}");
    }
}

/// What no guard can exclude, and the touch does: 1 is touched after its child was written, 2 is not.
#[tokio::test]
async fn a_touch_between_guard_and_delete_saves_what_a_child_alone_does_not() {
    for setting in Setting::all().await {
        let what = setting.describe();
        let plain = prepare(&setting).await;
        let (place, touching) = (setting.place.clone(), plain.clone());
        let ttl = setting
            .hooked(move |_| {
                let (place, ttl) = (place.clone(), touching.clone());
                async move {
                    like(place.clone(), 1).await;
                    like(place, 2).await;
                    let until = before_now(&ttl, -1).await;
                    let touched = ttl.touch("articles", [1], until).await.unwrap();
                    assert_eq!((touched.moved, touched.missing), (1, 0));
                    Fault::None
                }
            })
            .await;
        let report = ttl.sweep("articles").await.unwrap();
        assert_eq!((report.deleted, report.changed), (3, 1), "{what}: {report:?}");
        assert_adds_up(&report, &what);
        assert_eq!(ids(&setting.place, "articles").await, [1], "{what}");
        // By then it is due again, and kept.
        plain.touch("articles", [1], super::OLD).await.unwrap();
        let later = before_now(&plain, -1).await;
        crate::support::wait::until("it to be due again", crate::support::wait::LONG, async || {
            plain.now().await.unwrap() > later
        })
        .await;
        let report = plain.sweep("articles").await.unwrap();
        assert_eq!((report.deleted, report.kept), (0, 1), "{what}: {report:?}");
        // Who comes too late is told so.
        let touched = plain.touch("articles", [1, 2], super::OLD).await.unwrap();
        assert_eq!((touched.later, touched.missing), (1, 1), "{what}");
    }
}

/// In the embedded store the transaction that deletes goes by the guards; elsewhere the next batch does, and whoever has
/// declared them waits for that.
#[tokio::test]
async fn a_pass_ends_when_guards_are_declared_meanwhile() {
    for setting in Setting::all().await {
        let what = setting.describe();
        let declaring = plain(&setting).await;
        index_children(&setting.place, &["likes"]).await;
        declaring.create_index("articles", setting.on("at")).await.unwrap();
        setting.place.insert("articles", (0..4).map(due).collect()).await;
        setting.place.insert("likes", vec![doc! { "article_id": [0, 1, 2, 3] }]).await;
        let ttl = setting
            .hooked(move |_| {
                let ttl = declaring.clone();
                async move {
                    // Not within the batch that it would wait for.
                    let declared = ttl.set_guards("articles", [likes()]).max_wait(Duration::ZERO).await;
                    assert!(matches!(declared, Ok(_) | Err(Error::NotYetGuaranteed { .. })), "{declared:?}");
                    Fault::None
                }
            })
            .await;
        let report = ttl.sweep("articles").batch_size(1).await.unwrap();
        assert_eq!(report.ended, Ended::Cancelled, "{what}: {report:?}");
        let under_way = u64::from(!matches!(*setting.place, Place::Embedded(_)));
        assert_eq!(report.deleted, under_way, "{what}: {report:?}");
        let report = ttl.sweep("articles").await.unwrap();
        assert_eq!((report.deleted, report.kept), (0, 4 - under_way), "{what}: {report:?}");
    }
}
