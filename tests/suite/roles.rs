//! The roles that `ttl-index role` prints: enough for everything, and not one privilege too many.

mod bench;
mod doctor;
mod duties;

use mongodb::bson::{Document, doc};

use self::{
    bench::Bench,
    duties::{CHILDREN, Duty, LATE, SESSIONS, Way},
};
use crate::support::program::Program;

/// A privilege of a role: an action, and where it is allowed.
#[derive(Clone, Debug, PartialEq)]
struct Privilege {
    collection: String,
    action: String,
}

/// All but one of the privileges, as a role has them.
fn without(privileges: &[Document], left_out: &Privilege) -> Vec<Document> {
    let mut less = privileges.to_vec();
    for privilege in &mut less {
        if collection_of(privilege) == left_out.collection {
            let mut actions = privilege.get_array("actions").unwrap().clone();
            actions.retain(|action| action.as_str() != Some(&left_out.action));
            privilege.insert("actions", actions);
        }
    }
    less.retain(|privilege| !privilege.get_array("actions").unwrap().is_empty());
    less
}

fn collection_of(privilege: &Document) -> &str {
    privilege.get_document("resource").unwrap().get_str("collection").unwrap()
}

fn one_by_one(privileges: &[Document]) -> Vec<Privilege> {
    let of = |privilege: &Document| {
        let collection = collection_of(privilege).to_owned();
        let actions = privilege.get_array("actions").unwrap().iter();
        let actions: Vec<String> = actions.map(|action| action.as_str().unwrap().to_owned()).collect();
        actions.into_iter().map(move |action| Privilege { collection: collection.clone(), action })
    };
    privileges.iter().flat_map(of).collect()
}

/// What the role command is given, so that its role is for these collections, or for this way of using the library.
const FORMS: [(&[&str], Way); 3] = [(&[], Way::Usual), (NAMED, Way::Usual), (PORTABLE, Way::PortableOnly)];
const NAMED: &[&str] = &[SESSIONS, LATE, "--children", CHILDREN];
const PORTABLE: &[&str] = &[SESSIONS, LATE, "--children", CHILDREN, "--portable-only"];

/// With the role everything goes, and without any one privilege of it something does not, and says which is missing.
///
/// Runs of the program block the test, for as long as a lease takes to lapse: the driver's own tasks need another thread.
async fn is_enough_and_no_more(duty: Duty) {
    let bench = Bench::start().await;
    for (arguments, way) in FORMS {
        let role = bench.role(duty, arguments).await;
        bench.give(&role).await;
        bench.set_the_stage(duty).await;
        duties::by_the_library(&bench, duty, way).await.unwrap();
        bench.set_the_stage(duty).await;
        duties::by_the_program(&bench, duty).unwrap();

        let privileges = one_by_one(&role);
        assert!(privileges.len() > 1, "{privileges:?}");
        for missing in privileges {
            bench.give(&without(&role, &missing)).await;
            bench.set_the_stage(duty).await;
            let by_library = duties::by_the_library(&bench, duty, way).await.err();
            // The program knows the usual way only; but it alone reads the documents that it explains.
            let by_program = if way == Way::Usual || by_library.is_none() {
                bench.set_the_stage(duty).await;
                duties::by_the_program(&bench, duty).err()
            } else {
                None
            };
            // Operations are told of on the side: a change that cannot be noted is made all the same, and only logged.
            if duty == Duty::Manage && missing.collection == "ttl_index.operations" && by_library.is_none() {
                continue;
            }
            assert!(by_library.is_some() || by_program.is_some(), "{duty:?} needs no {missing:?} for {arguments:?}");
            if let Some(error) = by_library {
                let told = error.missing_privilege().unwrap_or_else(|| panic!("{missing:?}: {error}"));
                assert!(told.actions.contains(&missing.action.as_str()), "{missing:?}: {error}");
                assert_eq!(told.database, bench.database, "{missing:?}: {error}");
                let anywhere = missing.collection.is_empty();
                assert!(anywhere || told.collection.as_ref() == Some(&missing.collection), "{missing:?}: {error}");
                assert!(error.to_string().contains(&told.to_string()), "{error}");
                assert_eq!(error.code(), Some(13));
            }
            if let Some(stderr) = by_program {
                let words = [&missing.action, &missing.collection, "ttl-index role"];
                assert!(words.iter().all(|word| stderr.contains(*word)), "{missing:?}: {stderr}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_role_to_sweep_is_enough_and_no_more() {
    is_enough_and_no_more(Duty::Sweep).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_role_to_manage_is_enough_and_no_more() {
    is_enough_and_no_more(Duty::Manage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_role_to_look_is_enough_and_no_more() {
    is_enough_and_no_more(Duty::Look).await;
}

/// In a plan, what may not be read is not an error.
#[tokio::test]
async fn who_may_look_may_count() {
    let bench = Bench::start().await;
    bench.give(&bench.role(Duty::Look, &[]).await).await;
    bench.set_the_stage(Duty::Look).await;
    let plan = bench.registry(Way::Usual).await.unwrap().plan().await.unwrap();
    assert_eq!((plan.backlog, &plan.indexes[0].uncounted), (3, &None), "{plan:?}");
}

#[tokio::test]
async fn a_role_does_not_do_for_another_duty() {
    let bench = Bench::start().await;
    for (role, other, lacks) in [
        (Duty::Sweep, Duty::Manage, "insert"),
        (Duty::Manage, Duty::Sweep, "insert"),
        (Duty::Look, Duty::Sweep, "insert"),
        (Duty::Look, Duty::Manage, "update"),
    ] {
        bench.give(&bench.role(role, &[]).await).await;
        bench.set_the_stage(other).await;
        let error = duties::by_the_library(&bench, other, Way::Usual).await.unwrap_err();
        let told = error.missing_privilege().unwrap();
        assert!(told.actions.contains(&lacks), "{role:?} for {other:?}: {error}");
        // Nor was anything done halfway.
        assert_eq!(bench.admin.collection::<Document>(SESSIONS).count_documents(doc! {}).await.unwrap(), 3);
    }
}

#[tokio::test]
async fn what_is_missing_is_said_in_one_short_line() {
    let bench = Bench::start().await;
    let role = bench.role(Duty::Sweep, &[SESSIONS, "--children", CHILDREN]).await;
    let remove = Privilege { collection: SESSIONS.to_owned(), action: "remove".to_owned() };
    bench.give(&without(&role, &remove)).await;
    bench.set_the_stage(Duty::Sweep).await;
    let run = Program::at(&bench.uri).run(&["sweep", SESSIONS]);
    assert_eq!(run.code, Some(1), "{run:?}");
    let expected = format!(
        "error: sweeping {SESSIONS}: deleting what is due in {SESSIONS} failed: the user lacks the privilege remove on the \
         collection {SESSIONS} of the database {}; `ttl-index role` prints the roles that have what is needed\n",
        bench.database
    );
    assert_eq!(run.stderr, expected);
}

#[test]
fn a_role_is_for_the_database_of_the_uri_or_the_one_that_is_named() {
    let database = |program: &Program, arguments: &[&str]| {
        let role = &program.json(&[&["role", "look"], arguments].concat())[0];
        assert_eq!(role["createRole"], "ttlIndexLook");
        role["privileges"][0]["resource"]["db"].as_str().unwrap().to_owned()
    };
    // Nobody listens there: no connection is made.
    let away = Program::at("mongodb://u:s3cret@127.0.0.1:1/app?authSource=admin");
    assert_eq!(database(&away, &[]), "app");
    assert_eq!(database(&away, &["--db", "other"]), "other");
    assert_eq!(database(&Program::alone(), &[]), "<DB>");
    for (uri, words) in [
        ("mongodb://u:s3cret@127.0.0.1:1", "--db"),
        ("mongodb://u:s3cret@:s3cret/x?y", "--db"),
        ("embedded::memory:", "no users"),
    ] {
        let run = Program::at(uri).run(&["role", "look"]);
        run.failed(2, words);
        assert!(!run.stderr.contains("s3cret"), "{run:?}");
    }
}

#[test]
fn a_role_is_printed_as_the_command_that_makes_it() {
    let program = Program::alone();
    let run = program.run(&["role", "manage", "--db", "app"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    let readable: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert!(run.stdout.lines().count() > 10, "{run:?}");
    assert_eq!(program.json(&["role", "manage", "--db", "app"]), [readable]);
}
