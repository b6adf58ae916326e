//! Playing a report on a store: the stage, and the order of the steps.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;
use ttl_index::{EmbeddedStore, Fault, HookedStore, ManualClock, MongoStore, SweepReport, TtlRegistry};

use super::background::Background;
use super::catalogue::Report;
use super::steps;
use crate::support::place::Place;
use crate::support::{TestDatabase, database, json};

/// Dates so near to a report's now are moved along with it; those further away are extremes that are meant as such.
const NEAR_MS: i64 = 400 * 86_400_000;

/// A report on one store.
pub(super) struct Play {
    report: &'static Report,
    next: usize,
    pub(super) place: Arc<Place>,
    pub(super) ttl: TtlRegistry,
    pub(super) stage: Arc<Stage>,
    /// Where time goes by of itself.
    pub(super) background: Option<Background>,
    /// The embedded store's file, of a report that restarts.
    file: Option<TempDir>,
}

/// What the steps share, those of a hook too.
pub(super) struct Stage {
    pub(super) clock: ManualClock,
    /// From the report's now to the store's now.
    shift: i64,
    /// What happens between finding and deleting in the next batch.
    pub(super) hook: Mutex<Vec<Value>>,
    pub(super) sweeps: Mutex<Vec<SweepReport>>,
    /// When a batch ended and how many documents it deleted.
    pub(super) batches: Mutex<Vec<(Instant, u64)>>,
}

impl Play {
    /// On the embedded store, whose clock shows the report's now.
    pub(super) async fn embedded(id: &str) -> Vec<Play> {
        vec![Play::on_embedded(id, ManualClock::at(Report::find(id).now())).await]
    }

    /// The same with a clock that goes along with tokio's, which must be paused.
    pub(super) async fn ticking(id: &str) -> Play {
        let mut play = Play::on_embedded(id, ManualClock::ticking_from(Report::find(id).now())).await;
        play.background = Some(Background::new(Duration::from_secs(1)));
        play
    }

    /// On the real server in real time, a second of the report taking so long.
    pub(super) async fn at_pace(id: &str, second: Duration) -> Play {
        let mut play = Play::on(id, database().await).await;
        play.background = Some(Background::new(second));
        play
    }

    async fn on_embedded(id: &str, clock: ManualClock) -> Play {
        let report = Report::find(id);
        let reopens = |step: &Value| step["op"] == "restart_layer" || step["op"] == "maintenance_mode";
        let file = report.steps().iter().any(reopens).then(|| TempDir::new().unwrap());
        let place = Arc::new(Place::Embedded(open_embedded(file.as_ref(), &clock)));
        let stage = Arc::new(Stage::new(clock, 0));
        let ttl = hooked(&place, &stage).await;
        Play { report, next: 0, place, ttl, stage, background: None, file }
    }

    /// On the real server, whose clock cannot be set: the report's dates are moved to its now.
    pub(super) async fn mongod(id: &str) -> Vec<Play> {
        vec![Play::on(id, database().await).await]
    }

    /// On a server's database made ready by the test.
    pub(super) async fn on(id: &str, database: TestDatabase) -> Play {
        let report = Report::find(id);
        let place = Arc::new(Place::Mongo(database));
        let now = place.registry().await.now().await.unwrap();
        let shift = now.timestamp_millis() - report.now().timestamp_millis();
        let stage = Arc::new(Stage::new(ManualClock::at(now), shift));
        let ttl = hooked(&place, &stage).await;
        Play { report, next: 0, place, ttl, stage, background: None, file: None }
    }

    /// One after the other on both.
    pub(super) async fn both(id: &str) -> Vec<Play> {
        let mut plays = Play::embedded(id).await;
        plays.extend(Play::mongod(id).await);
        plays
    }

    /// Plays the remaining steps, all of which must be ones that need no hand.
    pub(super) async fn finish(mut self) -> Play {
        while let Some(step) = self.advance() {
            self.play(step).await;
        }
        if let Some(background) = &self.background {
            background.shutdown().await;
        }
        self
    }

    /// Plays up to the next step of this kind, which is left to the test.
    pub(super) async fn until(&mut self, op: &str) -> &'static Value {
        loop {
            let step = self.advance().unwrap_or_else(|| panic!("{}: there is no further {op}", self.report.id));
            if step["op"] == op {
                return step;
            }
            self.play(step).await;
        }
    }

    /// Plays up to the next expectation in prose, which must be the one that the test goes on to assert.
    pub(super) async fn until_prose(&mut self, text: &str) {
        let step = self.until("expect").await;
        assert_eq!(step["text"], text, "{}", self.report.id);
    }

    pub(super) async fn play(&mut self, step: &Value) {
        if step["op"] == "restart_layer" {
            self.restart().await;
        } else {
            steps::play(self, step).await;
        }
    }

    fn advance(&mut self) -> Option<&'static Value> {
        let step = self.report.steps().get(self.next)?;
        self.next += 1;
        Some(step)
    }

    /// Closes everything and opens it anew.
    pub(super) async fn restart(&mut self) {
        let reopened = match &*self.place {
            Place::Mongo(old) => {
                let client = mongodb::Client::with_uri_str(&old.uri).await.unwrap();
                let db = client.database(old.db.name());
                Some(TestDatabase { client, db, uri: old.uri.clone() })
            }
            Place::Embedded(_) => None,
        };
        // Every handle of the file must be gone before it is opened again.
        let nothing = Place::embedded();
        self.ttl = nothing.registry().await;
        self.place = Arc::new(nothing);
        self.place = Arc::new(match reopened {
            Some(database) => Place::Mongo(database),
            None => Place::Embedded(open_embedded(self.file.as_ref(), &self.stage.clock)),
        });
        self.ttl = hooked(&self.place, &self.stage).await;
    }

    /// What the last pass reported.
    pub(super) fn last_sweep(&self) -> SweepReport {
        self.stage.sweeps.lock().unwrap().pop().expect("nothing was swept")
    }

    /// Where time goes by of itself.
    pub(super) fn background(&self) -> &Background {
        self.background.as_ref().unwrap_or_else(|| panic!("{} needs a clock that goes on", self.report.id))
    }

    pub(super) fn database(&self) -> &TestDatabase {
        match &*self.place {
            Place::Mongo(database) => database,
            Place::Embedded(_) => panic!("{} needs the real server", self.report.id),
        }
    }
}

impl Stage {
    fn new(clock: ManualClock, shift: i64) -> Stage {
        Stage { clock, shift, hook: Mutex::default(), sweeps: Mutex::default(), batches: Mutex::default() }
    }

    /// An Extended JSON document of the report, its dates moved to the store's now.
    pub(super) fn document(&self, value: &Value) -> Document {
        match self.moved(Bson::Document(json::document(value))) {
            Bson::Document(document) => document,
            other => panic!("{other} is no document"),
        }
    }

    fn moved(&self, value: Bson) -> Bson {
        let now = self.clock.now().timestamp_millis() - self.shift;
        match value {
            Bson::DateTime(date) => {
                let millis = date.timestamp_millis();
                let near = millis.checked_sub(now).is_some_and(|away| away.abs() < NEAR_MS);
                DateTime::from_millis(if near { millis + self.shift } else { millis }).into()
            }
            Bson::Array(items) => items.into_iter().map(|item| self.moved(item)).collect::<Vec<_>>().into(),
            Bson::Document(fields) => {
                fields.into_iter().map(|(name, field)| (name, self.moved(field))).collect::<Document>().into()
            }
            other => other,
        }
    }
}

/// A registry that plays the hook's steps before the first delete after they were set.
async fn hooked(place: &Arc<Place>, stage: &Arc<Stage>) -> TtlRegistry {
    let (hook_place, hook_stage) = (place.clone(), stage.clone());
    let hook = move |_ids: Vec<Bson>| {
        let (place, stage) = (hook_place.clone(), hook_stage.clone());
        async move {
            let steps = std::mem::take(&mut *stage.hook.lock().unwrap());
            for step in steps {
                steps::write(&place, &stage, &step).await;
            }
            Fault::None
        }
    };
    let store = match &**place {
        Place::Mongo(database) => HookedStore::new(MongoStore::new(database.db.clone()), hook),
        Place::Embedded(store) => HookedStore::new(store.clone(), hook),
    };
    TtlRegistry::open(store).await.unwrap()
}

fn open_embedded(file: Option<&TempDir>, clock: &ManualClock) -> EmbeddedStore {
    let store = match file {
        Some(directory) => EmbeddedStore::open(directory.path().join("documents")),
        None => EmbeddedStore::in_memory(),
    };
    store.unwrap().with_clock(clock.clone())
}
