//! Random documents: what this library leaves, on MongoDB and in an embedded store, is what MongoDB's own TTL monitor
//! leaves.
//!
//! `TTL_INDEX_TEST_SEED` chooses other documents.

mod bench;
mod filters;
mod values;

use std::collections::BTreeSet;

use mongodb::bson::{Bson, DateTime, Document, doc};
use proptest::{
    option,
    strategy::{BoxedStrategy, Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use self::{
    bench::{Bench, Left, Subject},
    values::Vocabulary,
};

/// Documents made for each run; not all of them are taken by the server.
const DOCUMENTS: usize = 2_800;

/// How many smaller documents are tried to explain a disagreement.
const MAX_SHRINKS: usize = 80;

type Tree = Box<dyn ValueTree<Value = Document>>;

fn runner() -> TestRunner {
    let seed = match std::env::var("TTL_INDEX_TEST_SEED") {
        Ok(seed) => seed.parse::<u64>().expect("TTL_INDEX_TEST_SEED is a number"),
        Err(_) => 20_260_801,
    };
    println!("TTL_INDEX_TEST_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

#[tokio::test]
async fn without_a_filter_the_same_documents_are_left() {
    compare(&mut runner(), vec![on("t")]).await;
}

#[tokio::test]
async fn with_a_dotted_path_the_same_documents_are_left() {
    compare(&mut runner(), ["a.b", "a.b", "a.0", "a.0.b", "a.b.c", "a.b.0", "a.1"].map(on).to_vec()).await;
}

/// A TTL index without a filter, and documents for it.
fn on(field: &'static str) -> (Subject, BoxedStrategy<Document>) {
    let path: Vec<_> = field.split('.').collect();
    let vocabulary = Vocabulary::dates(&["b", "c", "0", "1", "00", "", "b.c"]);
    let value = option::weighted(0.95, vocabulary.along(&path[1..]));
    let first = path[0].to_owned();
    let documents = (value, vocabulary.value(0)).prop_map(move |(value, literal)| {
        let mut document = Document::from_iter(value.map(|value| (first.clone(), value)));
        if field != first {
            // Its very name is the path, which the path never sees.
            document.insert(field, literal);
        }
        document
    });
    (Subject { field, filter: None }, documents.boxed())
}

#[tokio::test]
async fn with_partial_filters_the_same_documents_are_left() {
    let mut runner = runner();
    let vocabulary = Vocabulary::operands(&["g", "g", "h", "0", "1"]);
    let subjects = (0..60)
        .map(|_| {
            let filter = filters::filter(&vocabulary).new_tree(&mut runner).unwrap().current();
            let documents = filters::document(&vocabulary, &filter);
            (Subject { field: "t", filter: Some(filter) }, documents)
        })
        .collect();
    compare(&mut runner, subjects).await;
}

#[tokio::test]
async fn next_to_nothing_the_same_documents_are_left() {
    let mut runner = runner();
    let filters = [
        doc! { "f": Bson::Null },
        doc! { "f": { "$in": [Bson::Null] } },
        doc! { "f": { "$in": [Bson::Null, 1] } },
        doc! { "f": { "$all": [Bson::Null] } },
        doc! { "f": { "$lte": Bson::Null } },
        doc! { "f": { "$lt": Bson::Null } },
        doc! { "f": { "$exists": true } },
        doc! { "f.g": Bson::Null },
        doc! { "f.g": { "$in": [Bson::Null, 1] } },
        doc! { "f.g": { "$gte": Bson::Null } },
        doc! { "f.0": Bson::Null },
        doc! { "f.0": { "$in": [Bson::Null, 1] } },
        doc! { "f.0.g": Bson::Null },
        doc! { "f.g.h": { "$in": [Bson::Null, 1] } },
        doc! { "f": { "$type": "null" } },
        doc! { "f": [Bson::Null] },
        doc! { "f": { "g": Bson::Null } },
        doc! { "f": { "$in": [[Bson::Null], [], 1] } },
    ];
    let vocabulary = Vocabulary::nothing(&["g", "h", "0", "1"]);
    let documents = filters::document(&vocabulary, &doc! { "f": Bson::Null, "f.g": Bson::Null, "f.g.h": Bson::Null });
    let subject = |filter| (Subject { field: "t", filter: Some(filter) }, documents.clone());
    compare(&mut runner, filters.map(subject).to_vec()).await;
}

/// Gives each subject its share of the documents, and compares what is left of them everywhere.
async fn compare(runner: &mut TestRunner, subjects: Vec<(Subject, BoxedStrategy<Document>)>) {
    let bench = Bench::new().await;
    let share = DOCUMENTS.div_ceil(subjects.len());
    let mut trials = Vec::new();
    for (number, (subject, strategy)) in subjects.into_iter().enumerate() {
        let trees: Vec<Tree> = (0..share).map(|_| strategy.new_tree(runner).unwrap()).collect();
        let collection = format!("c{number}");
        if bench.prepare(&collection, &subject).await {
            let inserted = bench.insert(&collection, trees.iter().map(|tree| tree.current()).collect()).await;
            trials.push((subject, collection, trees, inserted));
        }
    }
    bench.wait_for_monitor().await;

    let (mut inserted, mut kept) = (0, 0);
    for (subject, collection, mut trees, ids) in trials {
        let left = bench.sweep(&collection).await;
        inserted += ids.len();
        kept += left.by_server.len();
        if let Some(id) = left.disagreement() {
            panic!("{}", explain(&bench, &subject, trees.swap_remove(usize::try_from(id).unwrap())).await);
        }
    }
    println!("{inserted} documents of which {kept} are left");
    // Otherwise nothing was compared.
    assert!(inserted >= 2_000, "only {inserted} documents could be inserted");
    assert!(kept.min(inserted - kept) > inserted / 10, "{kept} of {inserted} are left");
}

/// Looks for the smallest document on which the disagreement remains.
async fn explain(bench: &Bench, subject: &Subject, mut tree: Tree) -> String {
    let mut smallest = None;
    let mut more = true;
    for attempt in 0..MAX_SHRINKS {
        if !more {
            break;
        }
        let document = tree.current();
        let left = bench.try_alone(&format!("shrink{attempt}"), subject, document.clone()).await;
        more = if left.disagreement().is_some() {
            smallest = Some((document, left));
            tree.simplify()
        } else {
            tree.complicate()
        };
    }
    match smallest {
        Some((document, left)) => format!("{subject:?} on {document}:\n{}", verdicts(&left)),
        None => format!("{subject:?} on {}: not reproduced by the document alone", tree.current()),
    }
}

fn verdicts(left: &Left) -> String {
    let verdict = |ids: &BTreeSet<i32>| if ids.is_empty() { "deletes" } else { "keeps" };
    format!(
        "the server's TTL monitor {} it, a sweep of MongoDB {} it, a sweep of the embedded store {} it",
        verdict(&left.by_server),
        verdict(&left.by_mongo),
        verdict(&left.by_embedded)
    )
}

/// The period of all TTL indexes here, in seconds.
const PERIOD: u32 = 3_600;

/// The cutoff when a document is made. Dates keep their distance from it, so that the time a test takes does not matter.
fn cutoff() -> i64 {
    DateTime::now().timestamp_millis() - i64::from(PERIOD) * 1000
}
