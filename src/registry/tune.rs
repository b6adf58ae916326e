//! What an operator sets of the pace, for every sweeper of a database.

use std::{future::IntoFuture, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use mongodb::bson::{Bson, DateTime, Document, doc};
use tracing::info;

use super::{Slot, Snapshot, TtlRegistry, no_index};
use crate::{
    entry::{MAX_RATE, TARGET_LAG, check_max_rate, check_target_lag, read_max_rate, read_number, read_target_lag},
    error::{Code, Error, Refusal, Result},
    namespace::CollectionName,
    pacing::{Calendar, ClosedWindow, Terms, check_min_rate},
    store::Change,
};

/// The field of the registry that holds what is set.
pub(super) const TUNING: &str = "tuning";

const MIN_RATE: &str = "minRate";
const CLOSED: &str = "closed";
const FINISH_NOW: &str = "finishNow";

/// Others may change the registry in between; so often it is tried again.
const TRIES: u32 = 100;

impl TtlRegistry {
    /// Says what is set of the pace in this database, and sets it: for every sweeper in every process, now and after restarts.
    ///
    /// What is set here wins over the options of a [`Sweeper`](crate::Sweeper); what is not is left to them.
    ///
    /// # Guarantees
    ///
    /// One atomic change, or none without setters. The sweeper that is running goes by it within seconds.
    ///
    /// # Errors
    ///
    /// Refused, and nothing is changed, if a value is out of range; if the database has no registry, as before its first TTL
    /// index; for a [`collection`](Tune::collection), if it has no TTL index, or if what is set holds for a database only.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ttl_index::Error> {
    /// # use std::time::Duration;
    /// # use ttl_index::{EmbeddedStore, TtlIndex, TtlRegistry};
    /// # let ttl = TtlRegistry::open(EmbeddedStore::in_memory()?).await?;
    /// # ttl.create_index("sessions", TtlIndex::on("at").expire_after(Duration::ZERO)).await?;
    /// ttl.tune().max_rate(200.0).closed(vec!["Mon-Fri 09:00-17:00 Europe/Berlin".parse()?]).await?;
    /// ttl.tune().collection("sessions").target_lag(Duration::from_secs(3600)).await?;
    /// assert_eq!(ttl.tune().await?.max_rate, Some(200.0));
    /// ttl.tune().reset().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn tune(&self) -> Tune<'_> {
        Tune { registry: self, collection: None, reset: false, fields: Fields::default() }
    }
}

/// Sets the pace; see [`TtlRegistry::tune`].
#[derive(Debug)]
#[must_use = "nothing happens until it is awaited"]
pub struct Tune<'a> {
    registry: &'a TtlRegistry,
    collection: Option<String>,
    reset: bool,
    fields: Fields,
}

/// What is to be set.
#[derive(Debug, Default)]
struct Fields {
    target_lag: Option<Duration>,
    max_rate: Option<f64>,
    min_rate: Option<f64>,
    closed: Option<Vec<ClosedWindow>>,
    finish_now: Option<bool>,
}

impl Tune<'_> {
    /// For the TTL index of this collection; for the whole database by default. Only the target lag and the rate can be set
    /// for one index.
    pub fn collection(mut self, collection: impl Into<String>) -> Self {
        self.collection = Some(collection.into());
        self
    }

    /// Within which a document shall be gone that is due, 1 s to 366 days.
    pub fn target_lag(mut self, lag: Duration) -> Self {
        self.fields.target_lag = Some(lag);
        self
    }

    /// The most documents a second, above 0; of a collection, beside what the database is allowed.
    pub fn max_rate(mut self, documents_per_second: f64) -> Self {
        self.fields.max_rate = Some(documents_per_second);
        self
    }

    /// The documents a second below which it goes no slower while anything is due, 0 or above.
    pub fn min_rate(mut self, documents_per_second: f64) -> Self {
        self.fields.min_rate = Some(documents_per_second);
        self
    }

    /// When nothing is deleted, instead of what was set before; always open, if there is none.
    pub fn closed(mut self, windows: Vec<ClosedWindow>) -> Self {
        self.fields.closed = Some(windows);
        self
    }

    /// Whether what is due now is to be deleted as fast as is allowed, closed windows or not.
    pub fn finish_now(mut self, value: bool) -> Self {
        self.fields.finish_now = Some(value);
        self
    }

    /// Leaves everything to the sweeper's options again that is not set along with this.
    pub fn reset(mut self) -> Self {
        self.reset = true;
        self
    }

    async fn carry_out(&self) -> Result<Tuning> {
        self.fields.check()?;
        match &self.collection {
            Some(collection) => self.of_index(&CollectionName::parse(collection)?).await,
            None => self.of_database().await,
        }
    }

    fn changes_nothing(&self) -> bool {
        !self.reset && self.fields.is_empty()
    }

    async fn of_database(&self) -> Result<Tuning> {
        let store = &*self.registry.store;
        for _ in 0..TRIES {
            let registry = store.registry().await?;
            let snapshot = Snapshot::of(registry.as_ref())?;
            let Some(revision) = snapshot.revision.filter(|_| !self.changes_nothing()) else {
                return if self.changes_nothing() { Ok(snapshot.tuning) } else { Err(no_registry().into()) };
            };
            let before = registry.as_ref().and_then(|registry| registry.get_document(TUNING).ok());
            let mut tuning = before.filter(|_| !self.reset).cloned().unwrap_or_default();
            tuning.extend(self.fields.to_document());
            match self.fields.finish_now {
                Some(true) => drop(tuning.insert(FINISH_NOW, store.now().await?)),
                Some(false) => drop(tuning.remove(FINISH_NOW)),
                None => {}
            }
            let parsed = Tuning::parse(&Bson::Document(tuning.clone()));
            let change = Change::Tune { tuning: (!tuning.is_empty()).then(|| tuning.clone()), revision };
            if store.change_registry(change).await?.is_some() {
                info!(%tuning, "the pace is set");
                return Ok(parsed);
            }
        }
        let why = "the registry of TTL indexes was changed by others all the time; try again";
        Err(Refusal::new(Code::ConflictingOperationInProgress, why).into())
    }

    async fn of_index(&self, collection: &CollectionName) -> Result<Tuning> {
        if let Some(what) = self.fields.not_of_an_index() {
            let why = format!("{what} can be set for the whole database only, not for {collection}");
            return Err(Refusal::new(Code::InvalidOptions, why).into());
        }
        let store = &*self.registry.store;
        let snapshot = Snapshot::load(store).await?;
        if !self.changes_nothing() {
            let entry = match snapshot.find(collection).ok_or_else(|| no_index(collection))? {
                Slot::Good(entry) => entry.id,
                Slot::Broken(broken) => broken.id.ok_or_else(|| Error::from(broken.refusal()))?,
            };
            let mut tuning = if self.reset {
                doc! { TARGET_LAG: null, MAX_RATE: null }
            } else {
                doc! {}
            };
            tuning.extend(self.fields.to_document());
            let change = Change::Set { entry, fields: tuning.clone(), revision: None };
            if store.change_registry(change).await?.is_none() {
                let why = "the TTL index was dropped while its pace was being set";
                return Err(Refusal::new(Code::IndexNotFound, why).into());
            }
            info!(%collection, %tuning, "the pace of a TTL index is set");
        }
        let snapshot = Snapshot::load(store).await?;
        let entry = snapshot.understood(collection)?;
        Ok(Tuning { target_lag: entry.target_lag, max_rate: entry.max_rate, ..Tuning::default() })
    }
}

impl<'a> IntoFuture for Tune<'a> {
    type Output = Result<Tuning>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let tuned = self.carry_out().await;
            self.registry.told("tune", self.collection.as_deref().unwrap_or_default(), "", tuned)
        }
        .boxed()
    }
}

fn no_registry() -> Refusal {
    let why = "there is nothing to set the pace of: the database has no TTL index; make one first";
    Refusal::new(Code::NamespaceNotFound, why)
}

impl Fields {
    fn check(&self) -> Result<(), Refusal> {
        self.target_lag.map_or(Ok(()), check_target_lag)?;
        self.max_rate.map_or(Ok(()), check_max_rate)?;
        self.min_rate.map_or(Ok(()), check_min_rate)?;
        self.closed.clone().map_or(Ok(()), |windows| Calendar::from(windows).check())
    }

    fn is_empty(&self) -> bool {
        self.to_document().is_empty() && self.finish_now.is_none()
    }

    /// What cannot be set for one index.
    fn not_of_an_index(&self) -> Option<&'static str> {
        let set = [
            (self.min_rate.is_some(), "the lowest rate"),
            (self.closed.is_some(), "closed windows"),
            (self.finish_now.is_some(), "finishing now"),
        ];
        set.into_iter().find_map(|(set, what)| set.then_some(what))
    }

    fn to_document(&self) -> Document {
        let closed = self.closed.as_ref().map(|windows| windows.iter().map(ToString::to_string).collect::<Vec<_>>());
        let fields = [
            (TARGET_LAG, self.target_lag.map(|lag| lag.as_secs_f64().into())),
            (MAX_RATE, self.max_rate.map(Bson::from)),
            (MIN_RATE, self.min_rate.map(Bson::from)),
            (CLOSED, closed.map(Bson::from)),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

/// What is set of the pace; what is not is left to the options of the sweeper.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Tuning {
    /// Within which a document shall be gone that is due.
    pub target_lag: Option<Duration>,
    /// The most documents a second.
    pub max_rate: Option<f64>,
    /// The documents a second below which it goes no slower while anything is due.
    pub min_rate: Option<f64>,
    /// When nothing is deleted; always open, if there is none.
    pub closed: Option<Vec<ClosedWindow>>,
    /// When it was asked to delete as fast as is allowed what was due then, by the database's clock.
    pub finish_now: Option<DateTime>,
    /// What is stored and cannot be understood; the sweeper's options hold instead.
    pub problem: Option<String>,
}

impl Tuning {
    /// What is in force, where a sweeper has these options.
    pub(crate) fn over(&self, options: &Terms) -> Terms {
        Terms {
            target_lag: self.target_lag.unwrap_or(options.target_lag),
            max_rate: self.max_rate.unwrap_or(options.max_rate),
            min_rate: self.min_rate.unwrap_or(options.min_rate),
            closed: self.closed.clone().map_or_else(|| options.closed.clone(), Calendar::from),
        }
    }

    /// What can be understood of what is stored.
    pub(super) fn parse(stored: &Bson) -> Self {
        let Some(document) = stored.as_document() else {
            let problem =
                (*stored != Bson::Null).then(|| format!("what is stored of the pace is no document: {stored}"));
            return Self { problem, ..Self::default() };
        };
        let mut problems = Vec::new();
        let mut tuning = Self {
            target_lag: understood(read_target_lag(document), &mut problems),
            max_rate: understood(read_max_rate(document), &mut problems),
            min_rate: understood(read_min_rate(document), &mut problems),
            closed: understood(read_closed(document), &mut problems),
            finish_now: understood(read_finish_now(document), &mut problems),
            problem: None,
        };
        tuning.problem = (!problems.is_empty()).then(|| problems.join("; "));
        tuning
    }
}

fn understood<T>(read: Result<Option<T>, Refusal>, problems: &mut Vec<String>) -> Option<T> {
    read.unwrap_or_else(|refusal| {
        problems.push(refusal.message().to_owned());
        None
    })
}

fn read_min_rate(document: &Document) -> Result<Option<f64>, Refusal> {
    let Some(rate) = read_number(document, MIN_RATE)? else { return Ok(None) };
    let why = format!("{MIN_RATE} must be 0 or a number above, but is {rate}");
    check_min_rate(rate).map(|()| Some(rate)).map_err(|refusal| Refusal::new(refusal.code(), why))
}

/// All of them, or none: which were meant is not guessed.
fn read_closed(document: &Document) -> Result<Option<Vec<ClosedWindow>>, Refusal> {
    let windows = match document.get(CLOSED) {
        None | Some(Bson::Null) => return Ok(None),
        Some(Bson::Array(windows)) => windows,
        Some(other) => {
            return Err(Refusal::new(
                Code::TypeMismatch,
                format!("{CLOSED} must be a list of windows, but is {other}"),
            ));
        }
    };
    let window = |stored: &Bson| match stored {
        Bson::String(window) => window.parse::<ClosedWindow>(),
        other => Err(Refusal::new(Code::TypeMismatch, format!("{CLOSED} must hold windows as text, but has {other}"))),
    };
    let windows: Vec<_> = windows.iter().map(window).collect::<Result<_, _>>()?;
    Calendar::from(windows.clone()).check().map(|()| Some(windows))
}

fn read_finish_now(document: &Document) -> Result<Option<DateTime>, Refusal> {
    match document.get(FINISH_NOW) {
        None | Some(Bson::Null) => Ok(None),
        Some(Bson::DateTime(asked)) => Ok(Some(*asked)),
        Some(other) => Err(Refusal::new(Code::TypeMismatch, format!("{FINISH_NOW} must be a date, but is {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_wins_over_the_options_and_what_is_not_is_left_to_them() {
        let window = |text: &str| Calendar::from(vec![text.parse().unwrap()]);
        let options = Terms { min_rate: 7.0, closed: window("01:00-02:00"), ..Terms::default() };
        assert_eq!(Tuning::default().over(&options), options);
        let set = doc! { "maxRate": 5, "targetLagSeconds": 60_i64, "closed": ["03:00-04:00"], "minRate": null };
        let over = Tuning::parse(&set.into()).over(&options);
        assert_eq!((over.max_rate, over.min_rate, over.target_lag), (5.0, 7.0, Duration::from_secs(60)));
        assert_eq!(over.closed, window("03:00-04:00"));
        let open = Tuning::parse(&doc! { "closed": [] }.into()).over(&options);
        assert!(open.closed.is_empty());
    }
}
