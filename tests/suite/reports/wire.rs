//! What goes over the wire, and what the server says that a statement cost.

use std::sync::{Arc, Mutex};

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc};
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::ClientOptions;

use crate::support::{TestDatabase, database_with};

/// The commands that a client has sent.
#[derive(Clone, Default)]
pub(crate) struct Wire(Arc<Mutex<Vec<Document>>>);

impl Wire {
    /// Has what the client sends noted.
    pub(crate) fn watch(&self, options: &mut ClientOptions) {
        let noted = self.0.clone();
        options.command_event_handler = Some(EventHandler::callback(move |event| {
            if let CommandEvent::Started(event) = event {
                noted.lock().unwrap().push(event.command);
            }
        }));
    }

    /// The commands of this name sent so far, in their order.
    pub(crate) fn commands(&self, name: &str) -> Vec<Document> {
        self.all().into_iter().filter(|command| command.keys().next().is_some_and(|first| first == name)).collect()
    }

    /// All commands sent so far, in their order.
    pub(crate) fn all(&self) -> Vec<Document> {
        self.0.lock().unwrap().clone()
    }
}

/// A database, and the commands that its client sends.
pub(crate) async fn watched() -> (TestDatabase, Wire) {
    let wire = Wire::default();
    let database = database_with(|options| wire.watch(options)).await;
    (database, wire)
}

/// Has the server note every statement from now on.
pub(super) async fn profile(test: &TestDatabase) {
    test.db.run_command(doc! { "profile": 2 }).await.unwrap();
}

/// What the server noted of the finds (`query`) or deletes (`remove`) in a collection.
pub(super) async fn profiled(test: &TestDatabase, op: &str, collection: &str) -> Vec<Document> {
    let filter = doc! { "op": op, "ns": format!("{}.{collection}", test.db.name()) };
    let noted = test.db.collection::<Document>("system.profile").find(filter).await.unwrap();
    noted.try_collect().await.unwrap()
}

/// A count in a profile entry; what is not there did not happen.
pub(super) fn cost(entry: &Document, field: &str) -> i64 {
    entry.get(field).map_or(0, |value| {
        value.as_i64().or_else(|| value.as_i32().map(i64::from)).unwrap_or_else(|| panic!("{field} in {entry}"))
    })
}
