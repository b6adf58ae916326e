//! What is wrong with a collection's documents and indexes, found by reads alone.
//!
//! | file | concern |
//! |---|---|
//! | `doctor.rs` | the verb and its options |
//! | [`examine`] | reading: which indexes there are, and a sample of the documents |
//! | [`tally`] | what a sample shows, document by document: pure |
//! | [`cause`], [`elsewhere`], [`zone`] | why a document never expires, and what is odd about its date: pure |
//! | [`indexes`] | what the indexes show: pure |
//! | [`candidates`] | fields that could be a TTL field: pure |
//! | [`finding`], [`mend`], [`report`] | what is told, and how it reads |

mod candidates;
mod cause;
mod elsewhere;
mod examine;
mod finding;
mod indexes;
mod mend;
mod report;
mod tally;
mod zone;

pub use candidates::Candidate;
pub use finding::{Example, Finding, FindingKind, Harm};
pub use mend::Mend;
pub use report::{Diagnosis, DoctorReport, ExaminedIndex, Expiry, Sample};

use std::{fmt, future::IntoFuture};

use futures_util::{FutureExt, future::BoxFuture};
use mongodb::bson::DateTime;
use tokio_util::sync::CancellationToken;

use crate::{
    error::{Code, Error, Refusal, Result},
    namespace::CollectionName,
    registry::TtlRegistry,
    store::{DynStore, IntoStore},
};

/// The most documents of a collection that are judged.
const MAX_SAMPLE: u32 = 100_000;

impl TtlRegistry {
    /// Says what is wrong with the collections that have TTL indexes: which share of their documents expires, which never
    /// does, why, and what would mend it.
    ///
    /// Looks at the TTL indexes of this library and at the database's own. See [`Doctor`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ttl_index::Error> {
    /// use std::time::Duration;
    /// use ttl_index::{EmbeddedStore, FindingKind, TtlIndex, TtlRegistry, bson::doc};
    ///
    /// let store = EmbeddedStore::in_memory()?;
    /// let ttl = TtlRegistry::open(store.clone()).await?;
    /// ttl.create_index("sessions", TtlIndex::on("at").expire_after(Duration::ZERO)).await?;
    /// store.collection("sessions").insert_one(doc! { "_id": 1, "at": "2026-01-31T10:00:00Z" }).await?;
    ///
    /// let report = ttl.doctor().await?;
    /// let finding = &report.diagnoses[0].findings[0];
    /// assert_eq!((finding.kind, finding.percent), (FindingKind::IsoString, Some(100.0)));
    /// println!("{report}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn doctor(&self) -> Doctor {
        Doctor::new(self.store.clone())
    }
}

/// Examines a database; see [`TtlRegistry::doctor`].
///
/// # Guarantees
///
/// Reads only: nothing is written, not even what other calls try out on a scratch collection, so that a user with MongoDB's
/// role `read` is enough. What the user may not read is noted in the report. Documents are judged one by one and not kept.
/// Every query has a limit of time.
///
/// # Assumptions
///
/// What is told of documents holds for the sample. What is rarer than one in a few hundred may not be in it.
///
/// # Errors
///
/// If the database cannot be reached, or does not tell its time; refused if the name of the collection or the size of the
/// sample is not allowed.
#[must_use = "nothing happens until it is awaited"]
pub struct Doctor {
    store: DynStore,
    collection: Option<String>,
    sample: u32,
    at: Option<DateTime>,
}

impl Doctor {
    /// Of a database whose registry need not be there, or be readable: a first contact.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use ttl_index::{Doctor, MongoStore};
    ///
    /// let client = mongodb::Client::with_uri_str("mongodb://localhost").await?;
    /// println!("{}", Doctor::of(MongoStore::new(client.database("app"))).await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn of(store: impl IntoStore) -> Self {
        Self::new(store.into_store().0)
    }

    fn new(store: DynStore) -> Self {
        Self { store, collection: None, sample: 1_000, at: None }
    }

    /// Only this collection, whether or not it has a TTL index; by default all that have one.
    ///
    /// Of one that has none it is told which fields one could be on.
    pub fn collection(mut self, collection: impl Into<String>) -> Self {
        self.collection = Some(collection.into());
        self
    }

    /// The most documents of each collection that are judged, 1 to 100,000; 1,000 by default.
    pub fn sample(mut self, documents: u32) -> Self {
        self.sample = documents;
        self
    }

    /// Judges at this instant; by default the database's now.
    pub fn at(mut self, instant: DateTime) -> Self {
        self.at = Some(instant);
        self
    }
}

impl fmt::Debug for Doctor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doctor").field("collection", &self.collection).finish_non_exhaustive()
    }
}

impl IntoFuture for Doctor {
    type Output = Result<DoctorReport>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            if !(1..=MAX_SAMPLE).contains(&self.sample) {
                let message = format!("the sample must be 1 to {MAX_SAMPLE} documents, but got {}", self.sample);
                return Err(Refusal::new(Code::BadValue, message).into());
            }
            let only = self.collection.as_deref().map(CollectionName::parse).transpose()?;
            // A task of its own, stopped by a token: a driver call must not be dropped halfway.
            let stop = CancellationToken::new();
            let _stop_if_dropped = stop.clone().drop_guard();
            let examination = tokio::spawn(examine::database(self.store, only, self.sample, self.at, stop));
            match examination.await {
                Ok(report) => report,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Err(Error::Interrupted),
                },
            }
        }
        .boxed()
    }
}
