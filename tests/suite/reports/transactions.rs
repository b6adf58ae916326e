//! Reports about an application's transactions on the real server.

use futures_util::StreamExt;
use mongodb::{
    bson::{Document, doc},
    change_stream::event::OperationType,
};
use ttl_index::Ended;

use super::play::Play;
use crate::support::json;

#[tokio::test]
async fn ttl_141_transaction_write_conflict() {
    for mut play in Play::mongod("TTL-141").await {
        let begin = play.until("begin_transaction").await;
        let documents = play.database().db.collection::<Document>("c");
        let mut session = play.database().client.start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        for update in begin["updates"].as_array().unwrap() {
            let (filter, change) = (play.stage.document(&update["filter"]), play.stage.document(&update["update"]));
            documents.update_one(filter, change).session(&mut session).await.unwrap();
        }
        play.until_prose("2 is gone, 1 present; the sweeper did not block on 1").await;
        let report = play.last_sweep();
        assert_eq!((report.deleted, report.left, report.ended), (1, 1, Ended::Drained), "{report:?}");
        assert!(report.oldest_due.is_some());
        assert_eq!(play.place.count("c").await, 1);
        play.until("commit_transaction").await;
        session.commit_transaction().await.unwrap();
        play.finish().await;
    }
}

#[tokio::test]
async fn ttl_151_change_visibility() {
    for mut play in Play::mongod("TTL-151").await {
        play.until("open_change_stream").await;
        let documents = play.database().db.collection::<Document>("c");
        let mut changes = documents.watch().await.unwrap();
        let begin = play.until("begin_transaction").await;
        let mut session = play.database().client.start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        for document in begin["inserts"].as_array().unwrap() {
            documents.insert_one(play.stage.document(document)).session(&mut session).await.unwrap();
        }
        play.until_prose("uncommitted insert neither seen nor deleted").await;
        let report = play.last_sweep();
        assert_eq!((report.found, report.deleted, report.ended), (0, 0, Ended::Drained), "{report:?}");
        play.until("commit_transaction").await;
        session.commit_transaction().await.unwrap();
        play.until_prose("events: insert 1 then delete 1").await;
        for expected in [OperationType::Insert, OperationType::Delete] {
            let change = changes.next().await.unwrap().unwrap();
            assert_eq!(change.operation_type, expected, "{change:?}");
            assert_eq!(change.document_key, Some(doc! { "_id": json::bson(&1.into()) }));
        }
        assert_eq!(play.last_sweep().deleted, 1);
        play.finish().await;
    }
}
