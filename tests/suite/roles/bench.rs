//! A server that asks who one is, and a user with one role.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use mongodb::{
    Client, Database,
    bson::{DateTime, Document, doc, oid::ObjectId},
};
use ttl_index::{MongoStore, TtlIndex, TtlRegistry};

use super::duties::{CHILDREN, Duty, LATE, SESSIONS, Way, guard};
use crate::support::{json, mongod::Mongod, program::Program};

const ROLE: &str = "theRole";

pub(super) struct Bench {
    _server: Mongod,
    /// The test's database, for somebody who may do anything.
    pub(super) admin: Database,
    pub(super) database: String,
    /// The same, for the user with the role.
    pub(super) uri: String,
    user: Database,
}

impl Bench {
    pub(super) async fn start() -> Bench {
        // Members of a replica set that asks its users who they are have to know each other, too.
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("key");
        fs::write(&key, ObjectId::new().to_hex()).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let server = Mongod::private(&[
            "--auth",
            "--keyFile",
            key.to_str().unwrap(),
            // As little as may be: users log in a hundred times.
            "--setParameter",
            "scramSHA256IterationCount=5000",
        ])
        .await;

        // The first user is made without one, from the same machine.
        let first = Client::with_uri_str(server.uri()).await.unwrap().database("admin");
        first.run_command(doc! { "createUser": "root", "pwd": "r", "roles": ["root"] }).await.unwrap();
        let login = |user: &str| server.uri().replace("mongodb://", &format!("mongodb://{user}@"));
        let database = "app".to_owned();
        let admin = Client::with_uri_str(login("root:r")).await.unwrap().database(&database);
        admin.run_command(doc! { "createRole": ROLE, "privileges": [], "roles": [] }).await.unwrap();
        admin.run_command(doc! { "createUser": "user", "pwd": "u", "roles": [ROLE] }).await.unwrap();
        let uri = login("user:u").replace("/?", &format!("/{database}?"));
        let user = Client::with_uri_str(&uri).await.unwrap().database(&database);
        Bench { _server: server, admin, database, uri, user }
    }

    /// The privileges of the role that the program prints for the database, which the server takes as it is.
    pub(super) async fn role(&self, duty: Duty, arguments: &[&str]) -> Vec<Document> {
        let [printed] = &Program::at(&self.uri).json(&[&["role", duty.word()], arguments].concat())[..] else {
            panic!()
        };
        let command = json::document(printed);
        self.admin.run_command(command.clone()).await.unwrap();
        self.admin.run_command(doc! { "dropRole": command.get_str("createRole").unwrap() }).await.unwrap();
        printed["privileges"].as_array().unwrap().iter().map(json::document).collect()
    }

    /// From now on the user has these privileges, and no others.
    pub(super) async fn give(&self, privileges: &[Document]) {
        self.admin.run_command(doc! { "updateRole": ROLE, "privileges": privileges }).await.unwrap();
    }

    /// As the user, by a handle that has found out nothing about the backend yet.
    pub(super) async fn registry(&self, way: Way) -> ttl_index::Result<TtlRegistry> {
        TtlRegistry::open(way.store(self.user.clone())).await
    }

    /// Nothing but what the duty begins with: documents, and TTL indexes unless it makes them.
    pub(super) async fn set_the_stage(&self, duty: Duty) {
        for collection in self.admin.list_collection_names().await.unwrap() {
            self.admin.collection::<Document>(&collection).drop().await.unwrap();
        }
        let documents = || (0..3).map(|id| doc! { "_id": id, "t": DateTime::from_millis(0) });
        self.admin.collection(SESSIONS).insert_many(documents()).await.unwrap();
        let children = self.admin.collection::<Document>(CHILDREN);
        children.create_index(mongodb::IndexModel::builder().keys(doc! { "session": 1 }).build()).await.unwrap();
        if duty == Duty::Manage {
            return;
        }
        let ttl = TtlRegistry::open(MongoStore::new(self.admin.clone())).await.unwrap();
        let index = || TtlIndex::on("t").expire_after(Duration::ZERO);
        ttl.create_index(SESSIONS, index().keep_while(guard())).await.unwrap();
        // Which does not make the collection: the first sweep is the first to see it.
        ttl.create_index(LATE, index().supporting_index(false)).await.unwrap();
        self.admin.collection(LATE).insert_many(documents()).await.unwrap();
    }
}
