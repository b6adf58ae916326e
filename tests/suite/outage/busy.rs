//! A database that says it has too much to do: it is left alone for a while, and asked again.

use mongodb::bson::doc;
use ttl_index::Ended;

use super::{DOCUMENTS, due_behind, gone, sweeper::fail};
use crate::race::assert_adds_up;
use crate::support::mongod::Mongod;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_outlasts_answers_of_overload() {
    let server = Mongod::private(&["--setParameter", "enableTestCommands=1"]).await;
    for (command, code) in [("delete", 16500), ("delete", 462), ("find", 16500), ("find", 50)] {
        let what = format!("{code} for a {command}");
        let it = server.database().await;
        let ttl = due_behind(&it.uri, &it, DOCUMENTS).await;
        let namespace = format!("{}.c", it.db.name());
        let data = doc! { "failCommands": [command], "errorCode": code, "namespace": namespace };
        fail(&it.client, doc! { "times": 3 }, data).await;
        let report = ttl.sweep("c").await.unwrap();
        assert_eq!((report.deleted, report.ended), (DOCUMENTS, Ended::Drained), "{what}: {report:?}");
        assert_eq!((report.found, report.left), (DOCUMENTS, 0), "{what}: {report:?}");
        assert_adds_up(&report, &what);
        assert_eq!(gone(&it, DOCUMENTS).await, DOCUMENTS, "{what}");
        // Each was told of.
        let errors = ttl.counters().total.errors.get(&("backend", Some(code))).copied();
        assert_eq!(errors, Some(3), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_put_off_is_counted_only_once_it_is_tried_again() {
    let server = Mongod::private(&["--setParameter", "enableTestCommands=1"]).await;
    let it = server.database().await;
    let ttl = due_behind(&it.uri, &it, DOCUMENTS).await;
    let namespace = format!("{}.c", it.db.name());
    let data = doc! { "failCommands": ["delete"], "errorCode": 16500, "namespace": namespace };
    fail(&it.client, "alwaysOn", data).await;
    let time = std::time::Duration::from_secs(2);
    let report = ttl.sweep("c").max_time(time).await.unwrap();
    assert_eq!((report.deleted, report.found, report.ended), (0, 0, Ended::LimitReached), "{report:?}");
    assert!(report.oldest_due.is_some());
    assert_eq!(gone(&it, DOCUMENTS).await, 0);
}
