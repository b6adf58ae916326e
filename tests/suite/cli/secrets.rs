//! A password is never shown, wherever it was given and whatever goes wrong.

use crate::support::mongod::Mongod;
use crate::support::program::{Program, Run};

const USER: &str = "somebody";
const PASSWORD: &str = "s3cret%21Pass";

#[track_caller]
fn keeps_the_secret(run: &Run) {
    let shown = format!("{}{}", run.stdout, run.stderr);
    for part in ["s3cret", "Pass", "%21"] {
        assert!(!shown.contains(part), "{run:?}");
    }
}

#[tokio::test]
async fn a_password_is_never_shown() {
    let server = Mongod::shared().await.uri().replace("mongodb://", "").replace("/?", "/db?");
    let wrong = format!("mongodb://{USER}:{PASSWORD}@{server}");
    let away = format!("mongodb://{USER}:{PASSWORD}@127.0.0.1:1/db?serverSelectionTimeoutMS=200");
    for (uri, words) in [(&wrong, "Authentication failed"), (&away, "Connection refused")] {
        for verbose in ["-v", "-vv", "--json"] {
            let run = Program::at(uri).run(&["list", verbose]);
            keeps_the_secret(&run);
            assert_eq!(run.code, Some(1), "{run:?}");
            assert!(run.stderr.contains(words), "{run:?}");
            let run = Program::alone().run(&["--uri", uri, "sweep", verbose]);
            keeps_the_secret(&run);
            assert_eq!(run.code, Some(1), "{run:?}");
        }
    }
}

#[tokio::test]
async fn a_password_is_not_in_what_a_store_shows_of_itself() {
    let client = mongodb::Client::with_uri_str(format!("mongodb://{USER}:{PASSWORD}@127.0.0.1:1/db")).await.unwrap();
    let shown = format!("{:#?}", ttl_index::MongoStore::new(client.database("db")));
    assert!(shown.contains("127.0.0.1"), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[test]
fn a_password_in_a_uri_that_is_wrong_is_not_shown_either() {
    let at = |rest: &str| format!("mongodb://{USER}:{PASSWORD}{rest}");
    for uri in [
        at("@h"),
        at("/@h/db"),
        at("?@h/db"),
        at("/?@h/db"),
        at("@@h/db"),
        at(":x@h/db"),
        at("%@h/db"),
        at("%FF@h/db"),
        at("#@h/db"),
        at("@h:port/db"),
        at("@h/db?tls=maybe"),
        at("@h/db?ssl=true&tls=false"),
        at("@h/db?nonsense"),
        at("@h/d$b"),
        at("@/db"),
        // The host was forgotten: the password stands for a port.
        at(""),
        at("/db"),
        at(",h/db"),
        format!("mongodb://h/db?authMechanism={PASSWORD}"),
        format!("mongodb://h/db?authMechanismProperties={PASSWORD}"),
        format!("mongo://{USER}:{PASSWORD}@h/db"),
        format!("mongodb+srv://{USER}:{PASSWORD}@h:1/db"),
        format!("{USER}:{PASSWORD}@h/db"),
    ] {
        for run in [Program::at(&uri).run(&["list"]), Program::alone().run(&["list", "--uri", &uri])] {
            keeps_the_secret(&run);
            assert_eq!(run.code, Some(2), "{uri}: {run:?}");
        }
    }
    let uri = at("@h/db");
    for arguments in [
        &[uri.as_str(), "list"][..],
        &["--ury", &uri, "list"],
        &["list", "c", &uri],
        &["sweep", "--rate", &uri],
        &["sweep", &format!("--rate={uri}")],
        &["create", "c", "t", "--expire-after", &uri],
        &["create", "c", "t", "--partial-filter", &uri],
    ] {
        let run = Program::alone().run(arguments);
        keeps_the_secret(&run);
        assert_eq!(run.code, Some(2), "{run:?}");
    }
    let run = Program::at(&uri).run(&["--help"]);
    keeps_the_secret(&run);
    assert!(run.stdout.contains("TTL_INDEX_URI"), "{run:?}");
}
