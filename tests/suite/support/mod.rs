//! What the tests stand on: a real database, fetched data and waiting.
//!
//! The tests run against a real `mongod`, found or fetched by [`fetch`] and run
//! by [`mongod`], or against the backend that `TTL_INDEX_TEST_URI` names.

pub(crate) mod dice;
pub(crate) mod fetch;
pub(crate) mod json;
pub(crate) mod mongod;
#[cfg(feature = "cli")]
pub(crate) mod page;
pub(crate) mod place;
#[cfg(feature = "cli")]
pub(crate) mod program;
pub(crate) mod proxy;
mod uri;
pub(crate) mod wait;

use mongodb::bson::oid::ObjectId;
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};

use self::mongod::Mongod;

/// The environment variable that names another backend to test.
const BACKEND: &str = "TTL_INDEX_TEST_URI";

/// A database that belongs to one test, and a client of that test's own.
///
/// The client is never shared: a driver client lives on the tokio runtime that
/// made it, and every `#[tokio::test]` has its own runtime.
pub(crate) struct TestDatabase {
    pub(crate) client: Client,
    pub(crate) db: Database,
    /// Leads another process, such as the command line program, to `db`.
    pub(crate) uri: String,
}

impl TestDatabase {
    /// A new database on the server that `server_uri` names.
    ///
    /// # Panics
    ///
    /// If the URI or the options are invalid.
    pub(crate) async fn open(server_uri: &str, configure: impl FnOnce(&mut ClientOptions)) -> TestDatabase {
        let name = unique_name();
        let uri = uri::with_database(server_uri, &name);
        let mut options = ClientOptions::parse(&uri)
            .await
            .unwrap_or_else(|error| panic!("the test backend's URI is invalid: {error}"));
        configure(&mut options);
        let client = Client::with_options(options)
            .unwrap_or_else(|error| panic!("the test's client options are invalid: {error}"));
        let db = client.database(&name);
        TestDatabase { client, db, uri }
    }

    /// Removes the database.
    ///
    /// Not done by a destructor, so that a failed test leaves its data behind
    /// on a backend that outlives the test. The tests' own server takes all
    /// databases with it.
    pub(crate) async fn drop(self) {
        self.db.drop().await.unwrap_or_else(|error| panic!("dropping {}: {error}", self.db.name()));
    }
}

/// A database of the backend under test.
///
/// # Panics
///
/// If there is no backend and no `mongod` to start one.
pub(crate) async fn database() -> TestDatabase {
    database_with(|_| {}).await
}

/// As [`database`], with changed client options: a command event handler, say.
pub(crate) async fn database_with(configure: impl FnOnce(&mut ClientOptions)) -> TestDatabase {
    let server_uri = match external_backend() {
        Some(uri) => uri,
        None => Mongod::shared().await.uri(),
    };
    TestDatabase::open(&server_uri, configure).await
}

/// The URI of the backend under test, if it is not the tests' own server.
///
/// For tests that need what only the tests' own server is known to have.
pub(crate) fn external_backend() -> Option<String> {
    std::env::var(BACKEND).ok().filter(|uri| !uri.is_empty())
}

/// `ttl_test_`, what can be had of the test's name, and an object id, which
/// stays unique on a backend that several machines use. At most 54 bytes; the
/// server's limit is 63.
fn unique_name() -> String {
    // The test harness names the thread of a test after the test.
    let thread = std::thread::current();
    let test: String = thread
        .name()
        .and_then(|path| path.rsplit("::").next())
        .unwrap_or_default()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
        .take(20)
        .collect();
    format!("ttl_test_{test}_{}", ObjectId::new().to_hex())
}
