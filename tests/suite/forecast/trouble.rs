//! A count that does not work is none, and is not asked for again where it cannot work.

use mongodb::bson::{DateTime, Document, doc};
use ttl_index::{HookedStore, TtlIndex, TtlRegistry};

use super::{PERIOD, at, hooked, mongo};
use crate::support::{TestDatabase, mongod::Mongod};

async fn place(server: &Mongod) -> (TestDatabase, HookedStore) {
    let it = server.database().await;
    it.db.collection("c").insert_one(doc! { "t": at(0) }).await.unwrap();
    let store = hooked(mongo(&it, false));
    let ttl = TtlRegistry::open(store.clone()).await.unwrap();
    ttl.create_index("c", TtlIndex::on("t").expire_after(PERIOD)).await.unwrap();
    (it, store)
}

async fn fails(it: &TestDatabase, mode: &str, data: Document) {
    let mut fail = doc! { "configureFailPoint": "failCommand", "mode": mode };
    if !data.is_empty() {
        fail.insert("data", data);
    }
    it.client.database("admin").run_command(fail).await.unwrap();
}

async fn count(store: &HookedStore) -> ttl_index::Result<Option<u64>> {
    let counted = store.count_by_date("c", (None, DateTime::MAX), PERIOD, 100).await?;
    Ok(counted.map(|(slices, ..)| slices.iter().map(|(_, n)| n).sum()))
}

#[tokio::test]
async fn what_goes_wrong_is_no_count_or_an_error_and_no_more() {
    let server = Mongod::private(&["--setParameter", "enableTestCommands=1"]).await;
    let (it, store) = place(&server).await;
    assert_eq!(count(&store).await.unwrap(), Some(1));
    // Out of time, not allowed, no such index: not now.
    for code in [50, 262, 13, 2, 292] {
        fails(&it, "alwaysOn", doc! { "failCommands": ["aggregate"], "errorCode": code }).await;
        assert_eq!(count(&store).await.unwrap(), None, "{code}");
        fails(&it, "off", doc! {}).await;
        assert_eq!(count(&store).await.unwrap(), Some(1), "{code}");
    }
    // The server is away.
    for code in [91, 11600] {
        fails(&it, "alwaysOn", doc! { "failCommands": ["aggregate"], "errorCode": code }).await;
        assert!(count(&store).await.is_err(), "{code}");
        fails(&it, "off", doc! {}).await;
    }
    assert_eq!(count(&store).await.unwrap(), Some(1));
    // Not understood: never again.
    fails(&it, "alwaysOn", doc! { "failCommands": ["aggregate"], "errorCode": 40324 }).await;
    assert_eq!(count(&store).await.unwrap(), None);
    fails(&it, "off", doc! {}).await;
    assert_eq!(count(&store).await.unwrap(), None);
}

#[tokio::test]
async fn without_an_index_or_a_collection_nothing_is_counted() {
    let (it, store) = place(Mongod::shared().await).await;
    it.db.run_command(doc! { "dropIndexes": "c", "index": "t_1" }).await.unwrap();
    assert_eq!(count(&store).await.unwrap(), None);
    it.db.collection::<Document>("c").drop().await.unwrap();
    assert_eq!(count(&store).await.unwrap(), None);
}
