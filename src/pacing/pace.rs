//! What a pass goes by: when the next batch may begin, and how large it is.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use mongodb::bson::oid::ObjectId;
use tokio::time::{Instant, sleep_until};

use super::{SharedHealth, Size, Throttle};

/// The longest pause after a batch, however bad things are.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How many seconds' worth of a rate of its own an index has deleted at once: enough to keep that rate, though others have their
/// turns in between, and no burst.
const OWN_SECONDS: f64 = 2.0;

/// The pace of one index.
///
/// Without a limit it goes as fast as the database stays healthy: otherwise it rests after each batch, for so long that the
/// database is at it for a share of the time only.
#[derive(Debug)]
pub(crate) struct Pace {
    index: ObjectId,
    throttle: Throttle,
    health: SharedHealth,
    size: Size,
    /// The most documents a second of its own.
    own: Option<f64>,
    rest_until: Option<Instant>,
}

impl Pace {
    pub(crate) fn new(index: ObjectId, size: Size, throttle: Throttle, health: SharedHealth) -> Self {
        Self { index, throttle, health, size, own: None, rest_until: None }
    }

    /// Waits until the next batch may begin.
    pub(crate) async fn ready(&self) {
        let asked = self.health.lock().asked_to_wait_until();
        if let Some(until) = self.rest_until.max(asked) {
            sleep_until(until).await;
        }
        self.throttle.ready().await;
    }

    /// The most documents that the next batch may have.
    pub(crate) fn documents(&self) -> u32 {
        let most = self.size.at_rate(self.throttle.rate());
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
        let own = self.own.map_or(u32::MAX, |own| (own * OWN_SECONDS).ceil().max(1.0) as u32);
        most.min(own)
    }

    /// So many documents were found and deleted, or seen to stay, and the database took so long for it.
    pub(crate) fn done(&mut self, documents: u32, took: Duration) {
        self.throttle.spend(documents);
        self.size.learn(documents, took);
        let now = Instant::now();
        let health = {
            let mut health = self.health.lock();
            health.batch(self.index, documents, took, now);
            health.verdict(now)
        };
        self.rest_until = None;
        if self.throttle.rate() == f64::INFINITY && health.factor < 1.0 {
            let rest = took.as_secs_f64() * (health.factor.recip() - 1.0);
            let rest = Duration::try_from_secs_f64(rest).unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE);
            self.rest_until = Some(now + rest);
        }
    }

    /// Some of so many documents could not be deleted in time; how long it took says nothing of the database.
    pub(crate) fn gave_up(&mut self, documents: u32) {
        self.throttle.spend(documents);
        self.size.gave_up();
        self.rest_until = None;
    }

    /// The database answered a batch of so many documents that there is too much to do, and perhaps when to ask again.
    pub(crate) fn overloaded(&mut self, documents: u32, answer: &str, retry_after: Option<Duration>) {
        self.throttle.spend(documents);
        self.size.halve();
        self.health.lock().overloaded(answer, retry_after, Instant::now());
    }
}

/// The paces of all indexes of a database: one throttle, one health, and a size of batches for each.
#[derive(Debug)]
pub(crate) struct Paces {
    throttle: Throttle,
    health: SharedHealth,
    cap: u32,
    of: HashMap<ObjectId, Pace>,
}

impl Paces {
    pub(crate) fn new(cap: u32, throttle: Throttle, health: SharedHealth) -> Self {
        Self { throttle, health, cap, of: HashMap::new() }
    }

    /// The most documents that a batch may have at the rate as it is.
    pub(crate) fn largest(&self) -> u32 {
        Size::asked(self.cap).at_rate(self.throttle.rate())
    }

    /// The pace of an index, which may have a rate of its own.
    pub(crate) fn of(&mut self, index: ObjectId, own: Option<f64>) -> &mut Pace {
        let Self { throttle, health, cap, of } = self;
        let new = || Pace::new(index, Size::up_to(*cap), throttle.clone(), health.clone());
        let pace = of.entry(index).or_insert_with(new);
        pace.own = own;
        pace
    }

    /// Forgets those of other indexes than these.
    pub(crate) fn keep(&mut self, indexes: &HashSet<ObjectId>) {
        self.of.retain(|index, _| indexes.contains(index));
        self.health.lock().keep(indexes);
    }
}
