//! `operations`: what is told of creations and drops.

use std::future::IntoFuture;

use futures_util::{FutureExt, future::BoxFuture};

use super::TtlRegistry;
use crate::{
    error::Result,
    operation::{self, Operation},
};

impl TtlRegistry {
    /// Lists the operations of the database, newest first: creations, repairs and drops, under way or ended.
    ///
    /// # Guarantees
    ///
    /// An operation outlives the process that began it. The last 100 are kept, and all that run.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ttl_index::Error> {
    /// use std::time::Duration;
    /// use ttl_index::{EmbeddedStore, OperationState, TtlIndex, TtlRegistry};
    ///
    /// let ttl = TtlRegistry::open(EmbeddedStore::in_memory()?).await?;
    /// ttl.create_index("sessions", TtlIndex::on("expireAt").expire_after(Duration::ZERO)).await?;
    /// let operations = ttl.operations().await?;
    /// assert_eq!(operations[0].state, OperationState::Successful);
    /// assert_eq!(ttl.operations().id(&operations[0].id).await?, operations);
    /// # Ok(())
    /// # }
    /// ```
    pub fn operations(&self) -> ListOperations<'_> {
        ListOperations { registry: self, id: None }
    }
}

/// Lists operations; see [`TtlRegistry::operations`].
#[derive(Debug)]
#[must_use = "nothing happens until it is awaited"]
pub struct ListOperations<'a> {
    registry: &'a TtlRegistry,
    id: Option<String>,
}

impl ListOperations<'_> {
    /// Only the one with this id; by default all.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }
}

impl<'a> IntoFuture for ListOperations<'a> {
    type Output = Result<Vec<Operation>>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let mut operations = operation::all(&*self.registry.store).await?;
            operations.retain(|operation| self.id.as_ref().is_none_or(|id| *id == operation.id));
            Ok(operations)
        }
        .boxed()
    }
}
