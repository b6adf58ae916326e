//! What a pass deletes, and which index it walks.

use mongodb::bson::{DateTime, doc};
use tracing::warn;

use super::{READS_ALL, Sweeping};
use crate::{
    error::{Code, Refusal, Result},
    registry::walkable,
    store::{Change, Kind, PhysicalIndex, Target},
};

impl Sweeping<'_> {
    /// What to delete, if the collection is there and is the one the index was made for.
    pub(super) async fn target(&mut self, cutoff: DateTime) -> Result<Option<Target>> {
        let (entry, seen) = (self.visit.entry, &self.visit.seen);
        let definition = &entry.definition;
        if seen.kind == Kind::Missing {
            return Ok(None);
        }
        seen.kind.check(&definition.collection)?;
        entry.check_identity(seen.uuid.as_ref())?;
        if let (None, Some(uuid)) = (&entry.uuid, &seen.uuid) {
            // The collection appears for the first time: from now on it is the one that is meant.
            let fields = doc! { "collectionUUID": uuid.clone() };
            self.visit.store.change_registry(Change::Set { entry: entry.id, fields, revision: None }).await?;
        }
        if entry.rule.compares_strings() && seen.default_collation {
            return Err(Refusal::new(
                Code::InvalidOptions,
                format!(
                    "{} compares strings by a collation, and the partial filter of the TTL index {} does not",
                    definition.collection, definition.name
                ),
            )
            .into());
        }
        Ok(Some(Target {
            entry: entry.id,
            collection: definition.collection.clone(),
            rule: entry.rule.clone(),
            guards: entry.guards.clone(),
            cutoff,
            index: self.index_to_walk(),
            uuid: seen.uuid.clone(),
            collated: seen.default_collation,
            fence: self.fence(),
            reading: self.visit.reading(),
            screened: self.visit.is_screened(),
        }))
    }

    fn index_to_walk(&self) -> Option<PhysicalIndex> {
        let definition = &self.visit.entry.definition;
        let noted = self.visit.entry.supporting.as_ref()?;
        let usable = |index: &&PhysicalIndex| walkable(definition, index);
        let indexes = &self.visit.seen.indexes;
        let named = indexes.iter().find(|index| index.name == noted.name).filter(usable);
        let index = named.or_else(|| indexes.iter().find(usable)).cloned();
        if index.is_none() {
            warn!(
                collection = %definition.collection, index = definition.name, supporting = noted.name,
                "{READS_ALL}"
            );
        }
        index
    }
}
