//! `touch`: moving the dates of documents, so that they stay.

use std::future::IntoFuture;

use futures_util::{FutureExt, future::BoxFuture};
use mongodb::bson::{Bson, DateTime};

use super::{Snapshot, TtlRegistry, guards::check_ids};
use crate::{error::Result, guard::Ids, namespace::CollectionName, store::Touched};

impl TtlRegistry {
    /// Moves the dates of documents so that none of them expires before `until`.
    ///
    /// # Guarantees
    ///
    /// No date becomes earlier, and a document that never expires is not made to. All dates in the TTL field that are too
    /// early are moved, in arrays and within documents too. A document that was moved is not deleted by a batch that found it
    /// before: the delete asks for its date again.
    ///
    /// Once this has returned with `missing` at 0, all of the documents are there, and are not deleted as expired before
    /// `until`. So a child that was *written before* is safe: whoever looks after `until` finds it. Each document
    /// is changed in one step, and nothing in it but the dates; one with an array in the field is read for that, and again if
    /// the dates are no longer where they were. On the embedded store all of it is one transaction.
    ///
    /// # Assumptions
    ///
    /// It goes by the TTL index as it is when this is called: a period that is made shorter meanwhile may not be reckoned
    /// with.
    ///
    /// # Errors
    ///
    /// Refused if the collection has no TTL index, or one that cannot be understood, or an `_id` cannot be one. After
    /// another error some may have been moved; it can be repeated.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ttl_index::Error> {
    /// # use std::time::Duration;
    /// # use ttl_index::{EmbeddedStore, TtlIndex, TtlRegistry, bson::{DateTime, doc}};
    /// # let store = EmbeddedStore::in_memory()?;
    /// # let ttl = TtlRegistry::open(store.clone()).await?;
    /// # ttl.create_index("articles", TtlIndex::on("expireAt").expire_after(Duration::ZERO)).await?;
    /// # store.collection("articles").insert_one(doc! { "_id": 1, "expireAt": DateTime::MIN }).await?;
    /// // First the child, then the touch, and only then is it saved.
    /// store.collection("reads").insert_one(doc! { "article_id": 1, "readAt": ttl.now().await? }).await?;
    /// let soon = DateTime::from_millis(ttl.now().await?.timestamp_millis() + 60_000);
    /// let touched = ttl.touch("articles", [1], soon).await?;
    /// let saved = touched.missing == 0;
    /// # assert!(saved);
    /// # Ok(())
    /// # }
    /// ```
    pub fn touch(
        &self,
        collection: impl Into<String>,
        ids: impl IntoIterator<Item = impl Into<Bson>>,
        until: DateTime,
    ) -> Touch<'_> {
        Touch { registry: self, collection: collection.into(), ids: ids.into_iter().map(Into::into).collect(), until }
    }
}

/// Moves dates; see [`TtlRegistry::touch`].
#[derive(Debug)]
#[must_use = "nothing happens until it is awaited"]
pub struct Touch<'a> {
    registry: &'a TtlRegistry,
    collection: String,
    ids: Vec<Bson>,
    until: DateTime,
}

impl<'a> IntoFuture for Touch<'a> {
    type Output = Result<Touched>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let collection = CollectionName::parse(&self.collection)?;
            check_ids(&self.ids)?;
            let store = &*self.registry.store;
            let snapshot = Snapshot::load(store).await?;
            let rule = &snapshot.understood(&collection)?.rule;
            // Each once.
            let ids = Ids::new(self.ids).unreferenced();
            store.touch(&collection, rule, ids, self.until).await
        }
        .boxed()
    }
}
