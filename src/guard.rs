//! What keeps a document that is due: declared references, and a hook. Pure.
//!
//! - [`reference`]: "as long as `reads` has one with `article_id` = its `_id`": as it is written, and as it is checked;
//! - [`ids`]: which documents of a batch are referenced;
//! - [`veto`]: a hook of the program that sweeps.
//!
//! Nothing here asks a database. What is declared stands in the registry, so that every process goes by it; a hook is known
//! to its own process alone.

mod ids;
mod reference;
mod veto;

pub(crate) use ids::Ids;
pub use reference::Reference;
pub(crate) use reference::{Guards, ReferenceGuard};
pub(crate) use veto::Hook;
pub use veto::{Batch, Decision, Veto, VetoFuture};
