//! Documents put back from an archive.

use std::{collections::HashSet, fmt, future::IntoFuture, path::PathBuf, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use mongodb::bson::{Bson, DateTime, RawDocumentBuf};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{
    archive::{ArchiveReader, blocking},
    error::{Code, Error, Refusal, Result},
    expiry::{Raised, Rule},
    namespace::CollectionName,
    registry::{Snapshot, TtlRegistry},
    store::{PhysicalIndex, Placed, Store, id_bytes},
};

/// Documents that are inserted at a time, and their bytes.
const PAGE: usize = 200;
const PAGE_BYTES: usize = 8 * 1024 * 1024;

/// An `_id`, in little space: an archive may have many.
type Mark = [u8; 16];

/// How long documents are there again, unless it is said otherwise.
const EXTEND: Duration = Duration::from_secs(30 * 86_400);

impl TtlRegistry {
    /// Puts the documents of an archive file back: of each the version that was deleted last.
    ///
    /// # Guarantees
    ///
    /// All of the file is compared with its manifest before anything is inserted. Nothing is overwritten: a document whose
    /// `_id` is taken is left as it is now. A version that was archived and then not deleted is left out, and so are all
    /// before it. An older version is never inserted in the place of a newer one that the database does not take.
    ///
    /// What can be read beyond what the manifest tells of, after a crash or with an older manifest, is put back as well, and
    /// counted as [`beyond`](Restored::beyond).
    ///
    /// Dates in the TTL field are moved so far that no document expires within 30 days, or as
    /// [`extend`](Restore::extend) says; nothing else differs from what was deleted. Without a TTL index the documents are as
    /// they were.
    ///
    /// Begun again after it was interrupted it goes on with what is missing.
    ///
    /// # Errors
    ///
    /// [`Error::Archive`] if the file is not what was written; nothing was inserted then. Refused if it is CSV, and if the
    /// collection has a TTL index of the server's own and none of this library: the server would delete the documents again. What the
    /// database does not take, for a unique index say, is no error: it is in [`Restored`], and the others go on.
    ///
    /// ```no_run
    /// # async fn example(ttl: ttl_index::TtlRegistry) -> Result<(), ttl_index::Error> {
    /// let restored = ttl.restore("sessions.jsonl.gz").await?;
    /// println!("{} are there again, {} were there", restored.inserted, restored.there);
    /// # Ok(())
    /// # }
    /// ```
    pub fn restore(&self, path: impl Into<PathBuf>) -> Restore {
        Restore { registry: self.clone(), path: path.into(), into: None, extend: EXTEND }
    }
}

/// Puts documents back; see [`TtlRegistry::restore`].
#[must_use = "nothing happens until it is awaited"]
pub struct Restore {
    registry: TtlRegistry,
    path: PathBuf,
    into: Option<String>,
    extend: Duration,
}

/// What became of the documents of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The collection they were put into.
    pub collection: String,
    /// Documents that were inserted.
    pub inserted: u64,
    /// Documents whose `_id` was taken: left as they are.
    pub there: u64,
    /// Versions that had not been deleted when they were archived, and all that are older than another one in the archive.
    pub skipped: u64,
    /// Documents that the database does not take, for a unique index say.
    pub refused: u64,
    /// Those of the inserted that the manifest does not tell of, because of a crash or because it is an older one: whether they
    /// were deleted is not known, only that they were missing.
    pub beyond: u64,
    /// What the database said of the first that it refused.
    pub refusal: Option<String>,
}

impl Restore {
    /// The collection to put them into; by default the one they were deleted from.
    pub fn into_collection(mut self, name: impl Into<String>) -> Self {
        self.into = Some(name.into());
        self
    }

    /// How long from now on none of them expires; 30 days by default.
    pub fn extend(mut self, time: Duration) -> Self {
        self.extend = time;
        self
    }

    async fn run(self, stop: CancellationToken) -> Result<Restored> {
        let reader = blocking(move || ArchiveReader::open(&self.path)).await?;
        let collection = CollectionName::parse(self.into.as_deref().unwrap_or(reader.collection()))?;
        let store = &*self.registry.store;
        // What is there must be what the TTL index was made for, if there is one.
        let rule = if Snapshot::load(store).await?.find(&collection).is_some() {
            Some(self.registry.rule(collection.as_str()).await?)
        } else {
            not_by_the_server(&collection, &store.indexes(&collection).await?)?;
            None
        };
        let millis = i64::try_from(self.extend.as_millis()).unwrap_or(i64::MAX);
        let until = DateTime::from_millis(store.now().await?.timestamp_millis().saturating_add(millis));
        let mut restored = Restored { collection: collection.to_string(), ..Restored::default() };
        let mut done: HashSet<Mark> = HashSet::new();
        let batches = reader.batches().len();
        let reader = Arc::new(Mutex::new(reader));
        // The last version comes first, and is in the way of those before it.
        for number in (0..batches).rev() {
            let from = reader.clone();
            let (documents, not_deleted, beyond) = blocking(move || {
                let mut from = from.blocking_lock();
                let not_deleted = from.batches()[number].not_deleted.clone();
                Ok((from.documents(number)?, not_deleted, from.is_beyond(number)))
            })
            .await?;
            done.extend(not_deleted.iter().map(|id| mark(id)));
            let count = documents.len() as u64;
            // Whatever becomes of it: an older version is never put in its place.
            let mut documents: Vec<RawDocumentBuf> =
                documents.into_iter().rev().filter(|document| done.insert(mark(&id_of(document)))).collect();
            restored.skipped += count - documents.len() as u64;
            if let Some(rule) = &rule {
                documents = documents.into_iter().map(|it| raised(rule, it, until)).collect::<Result<_>>()?;
            }
            let before = restored.inserted;
            for page in pages(documents) {
                if stop.is_cancelled() {
                    return Err(Error::Interrupted);
                }
                restored.insert(store, &collection, page).await?;
            }
            if beyond {
                restored.beyond += restored.inserted - before;
            }
        }
        Ok(restored)
    }
}

impl Restored {
    async fn insert(&mut self, store: &dyn Store, into: &CollectionName, page: Vec<RawDocumentBuf>) -> Result<()> {
        let ids: Vec<Option<Bson>> =
            page.iter().map(|it| it.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok())).collect();
        for (placed, id) in store.insert_missing(into, page).await?.into_iter().zip(ids) {
            match placed {
                Placed::Inserted => self.inserted += 1,
                Placed::There => self.there += 1,
                Placed::Refused(why) => {
                    self.refused += 1;
                    let id = id.map(|id| id.to_string());
                    debug!(collection = %into, id, why, "a document is not restored");
                    self.refusal.get_or_insert(why);
                }
            }
        }
        Ok(())
    }
}

/// Refuses a collection in which the server itself would soon delete what is put back, by dates that nobody moved.
fn not_by_the_server(into: &CollectionName, indexes: &[PhysicalIndex]) -> Result<(), Refusal> {
    let Some(native) = indexes.iter().find(|index| index.native_ttl) else { return Ok(()) };
    let why = format!(
        "{into} has the TTL index {} of the server's own, by which the documents could go again within a minute: dates are \
         moved by a TTL index of this library alone. Drop that index, or restore into another collection",
        native.name
    );
    Err(Refusal::new(Code::IndexOptionsConflict, why))
}

fn id_of(document: &RawDocumentBuf) -> Vec<u8> {
    let id = document.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok());
    id.map(|id| id_bytes(&id)).unwrap_or_default()
}

fn mark(id: &[u8]) -> Mark {
    let mut mark = Mark::default();
    mark.copy_from_slice(&Sha256::digest(id)[..16]);
    mark
}

fn raised(rule: &Rule, document: RawDocumentBuf, until: DateTime) -> Result<RawDocumentBuf> {
    Ok(match rule.raised(&document, until)? {
        Raised::To(raised) => raised,
        Raised::Never | Raised::Already => document,
    })
}

fn pages(documents: Vec<RawDocumentBuf>) -> Vec<Vec<RawDocumentBuf>> {
    let (mut pages, mut bytes) = (vec![Vec::new()], 0);
    for document in documents {
        let size = document.as_bytes().len();
        let page = pages.last().map_or(0, Vec::len);
        if page == PAGE || (page > 0 && bytes + size > PAGE_BYTES) {
            pages.push(Vec::new());
            bytes = 0;
        }
        bytes += size;
        if let Some(page) = pages.last_mut() {
            page.push(document);
        }
    }
    pages.retain(|page| !page.is_empty());
    pages
}

impl fmt::Debug for Restore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Restore").field("path", &self.path).finish_non_exhaustive()
    }
}

impl IntoFuture for Restore {
    type Output = Result<Restored>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let stop = CancellationToken::new();
            let _stop_if_dropped = stop.clone().drop_guard();
            // A task of its own: a driver call must not be dropped halfway.
            match tokio::spawn(self.run(stop)).await {
                Ok(restored) => restored,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Err(Error::Interrupted),
                },
            }
        }
        .boxed()
    }
}
