//! Guards by the program, and in a process of its own.

use mongodb::bson::{DateTime, Document, doc};
use serde_json::json;

use super::{OLD, due, index_children};
use crate::support::{database, place::Place, program::Program, wait};

const LIKES: &str = r#"{"collection":"likes","field":"article_id"}"#;
const READS: &str = r#"{"collection":"reads","field":"article_id","newerThanSeconds":604800,"date":"readAt"}"#;

#[tokio::test]
async fn guards_are_declared_listed_explained_and_taken_back() {
    let it = database().await;
    let program = Program::at(&it.uri);
    let place = Place::Mongo(it);
    program.run(&["create", "articles", "at", "--keep-while", LIKES]).failed(3, "createIndex");
    index_children(&place, &["likes", "reads"]).await;
    let created = program.json(&["create", "articles", "at", "--keep-while", LIKES, "--keep-while", READS]);
    let reads = json!({ "collection": "reads", "field": "article_id", "date": "readAt", "newerThanSeconds": 604_800 });
    let likes = json!({ "collection": "likes", "field": "article_id" });
    assert_eq!(created[0]["guards"], json!([likes, reads]));
    program.run(&["create", "articles", "at"]).failed(3, "85 IndexOptionsConflict");
    let listed = program.run(&["list"]).stdout;
    let words =
        r#""likes" has one with article_id = its _id, or "reads" has one with article_id = its _id newer than 7d"#;
    assert!(listed.contains("KEPT WHILE") && listed.contains(words), "{listed}");

    let ttl = place.registry().await;
    place.insert("articles", vec![due(1), due(2), doc! { "_id": 3, "at": DateTime::MAX }]).await;
    place.insert("reads", vec![doc! { "article_id": 1, "readAt": ttl.now().await.unwrap() }]).await;
    let explained = program.run(&["explain", "articles"]).stdout;
    let verdicts: Vec<&str> = explained.lines().collect();
    let kept = "kept while \"reads\" has one with article_id = its _id newer than 7d";
    assert!(verdicts[0].starts_with("1: due since") && verdicts[0].ends_with(kept), "{explained}");
    assert!(!verdicts[1].contains("kept") && !verdicts[2].contains("kept"), "{explained}");
    let explained = program.json(&["explain", "articles"]);
    assert_eq!(explained[0]["kept_while"], json!(kept.trim_start_matches("kept while ")));
    assert!(explained[1].get("kept_while").is_none());

    let swept = program.json(&["sweep", "articles"]);
    assert_eq!(
        (&swept[0]["deleted"], &swept[0]["kept"], &swept[0]["oldest_due"]),
        (&json!(1), &json!(1), &json!(null))
    );
    program.run(&["guard", "articles"]).failed(2, "--none");
    program.run(&["guard", "articles", "--keep-while", LIKES, "--none"]).failed(2, "cannot be used with");
    program
        .run(&["guard", "articles", "--keep-while", r#"{"collection":"likes"}"#])
        .failed(3, "'field' must be a string");
    let set = program.json(&["guard", "articles", "--keep-while", LIKES]);
    assert_eq!(set[0]["guards"], json!([likes]));
    let none = program.json(&["guard", "articles", "--none"]);
    assert!(none[0].get("guards").is_none());
    assert_eq!(program.json(&["sweep", "articles"])[0]["deleted"], json!(1));
}

/// Every sweeper goes by what stands in the registry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweeper_in_another_process_asks_the_guards() {
    let it = database().await;
    let program = Program::at(&it.uri);
    let articles = it.db.collection::<Document>("articles");
    let place = Place::Mongo(it);
    index_children(&place, &["likes"]).await;
    let mut running = program.start(&["run", "--interval", "1s"]);
    let ttl = place.registry().await;
    place.insert("likes", vec![doc! { "article_id": (0..500).map(|n| 2 * n).collect::<Vec<i32>>() }]).await;
    // Documents are there before the index is: nothing is deleted before its guards are in force.
    place.insert("articles", (0..1000).map(due).collect()).await;
    ttl.create_index("articles", super::articles().keep_while(super::likes())).await.unwrap();
    wait::until("the free ones to go", wait::LONG, async || place.count("articles").await <= 500).await;
    let latest = doc! { "_id": 1001, "at": DateTime::from_millis(OLD.timestamp_millis() + 1) };
    articles.insert_one(latest).await.unwrap();
    running.kill().unwrap();
    running.wait().unwrap();
    let even = articles.count_documents(doc! { "_id": { "$mod": [2, 0] } }).await.unwrap();
    assert_eq!(even, 500);
}
