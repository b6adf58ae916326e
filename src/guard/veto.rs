//! A hook that sees each batch before it is deleted, and may keep documents of it.

use std::{error::Error, fmt, future::Future, pin::Pin, sync::Arc};

use mongodb::bson::RawDocumentBuf;

/// The documents that are about to be deleted; see [`Veto`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Batch<'a> {
    /// The collection.
    pub collection: &'a str,
    /// The name of the TTL index.
    pub index: &'a str,
    /// The documents, whole, as they were found a moment ago.
    pub documents: &'a [RawDocumentBuf],
}

impl<'a> Batch<'a> {
    pub(crate) fn new(collection: &'a str, index: &'a str, documents: &'a [RawDocumentBuf]) -> Self {
        Self { collection, index, documents }
    }
}

/// What a [`Veto`] decides of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// It may go.
    Delete,
    /// It stays, for now.
    Keep,
}

/// The answer of a [`Veto`], one decision for each document in their order.
pub type VetoFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Decision>, Box<dyn Error + Send + Sync>>> + Send + 'a>>;

/// A hook that sees each batch before it is deleted, and may keep documents of it.
///
/// Set on the handle of a registry by [`with_veto`](crate::TtlRegistry::with_veto).
///
/// # Guarantees
///
/// Nothing is deleted that the hook was not asked about and let go. It decides of documents as they were read for it, just before,
/// and they are deleted only as it saw them: one that changes while it decides stays, and is shown again if it is still due.
/// Reference guards are asked after it. An error, a panic, another number of decisions than
/// documents, or no answer within 30 s: nothing of the batch is deleted, and the pass fails.
///
/// # Assumptions
///
/// Where a backend cannot compare whole documents (that is tried out on a scratch collection) a document goes if it is still due,
/// even if something else in it has changed while the hook decided. So does, on MongoDB, one that no statement can repeat: with a
/// field name twice, text that is not UTF-8, about 16 MB or very deep; and one with a string `_id` in a collection with a default
/// collation, if the TTL index has no supporting index.
///
/// It is known to this process alone: a sweep of another one, which has no such hook, deletes without asking. It may see a
/// document twice, or one that is then not deleted, because it has changed meanwhile for instance. While it decides nothing
/// else is swept, and changes of TTL indexes wait.
///
/// ```
/// use ttl_index::{Batch, Decision, Veto, VetoFuture};
///
/// struct LegalHold;
///
/// impl Veto for LegalHold {
///     fn veto<'a>(&'a self, batch: Batch<'a>) -> VetoFuture<'a> {
///         Box::pin(async move {
///             // Here other services could be asked.
///             let held = |document: &ttl_index::bson::RawDocumentBuf| matches!(document.get_bool("hold"), Ok(true));
///             let decide = |held: bool| if held { Decision::Keep } else { Decision::Delete };
///             Ok(batch.documents.iter().map(|document| decide(held(document))).collect())
///         })
///     }
/// }
/// ```
pub trait Veto: Send + Sync {
    /// Decides of each document of the batch, in their order.
    fn veto<'a>(&'a self, batch: Batch<'a>) -> VetoFuture<'a>;
}

/// A hook that was set.
#[derive(Clone)]
pub(crate) struct Hook(pub(crate) Arc<dyn Veto>);

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}
