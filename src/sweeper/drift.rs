//! What has become of a collection behind the registry's back. Pure.

use std::collections::HashMap;

use crate::{
    entry::Entry,
    namespace::CollectionName,
    registry::walkable,
    store::{Collection, Kind, PhysicalIndex},
};

/// What was noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Drift {
    /// All is as it should be, except for this warning, if there is one.
    None { warning: Option<String> },
    /// The collection has this name now.
    Renamed(CollectionName),
    /// The index must not be swept by, until somebody has looked.
    Broken(String),
}

/// Whether the collections are what the entry was made for. They were listed not long ago.
pub(crate) fn of_collection(entry: &Entry, collections: &HashMap<String, Collection>) -> Drift {
    let name = &entry.definition.collection;
    // A warning is about the indexes, which are not looked at here.
    let fine = Drift::None { warning: entry.problem.clone() };
    let here = collections.get(name.as_str());
    let is_meant = |collection: &Collection| entry.uuid.is_some() && collection.uuid == entry.uuid;
    if here.is_some_and(is_meant) {
        return fine;
    }
    let elsewhere = collections.iter().find(|(_, collection)| is_meant(collection));
    match (elsewhere, here) {
        (Some((to, _)), _) => match CollectionName::parse(to) {
            Ok(to) => Drift::Renamed(to),
            Err(refusal) => Drift::Broken(format!("{name} was renamed to {to}: {}", refusal.message())),
        },
        // Dropped, and not made again: nothing is due.
        (None, None) => fine,
        (None, Some(here)) => match here.kind.check(name) {
            Err(refusal) => Drift::Broken(refusal.message().to_owned()),
            Ok(()) if entry.uuid.is_some() && here.uuid.is_some() => Drift::Broken(format!(
                "{name} was dropped and made again, or another collection was renamed to it; repair the TTL index if it \
                 shall hold for the collection that is there now, or drop it"
            )),
            Ok(()) => fine,
        },
    }
}

/// Both.
pub(crate) fn of(entry: &Entry, collections: &HashMap<String, Collection>, seen: &Collection) -> Drift {
    match of_collection(entry, collections) {
        Drift::None { .. } => of_indexes(entry, seen.kind, &seen.indexes),
        drift => drift,
    }
}

/// Whether the collection's indexes are as they were left.
fn of_indexes(entry: &Entry, kind: Kind, indexes: &[PhysicalIndex]) -> Drift {
    let definition = &entry.definition;
    if let Some(noted) = &entry.supporting
        && kind != Kind::Missing
        && !indexes.iter().any(|index| walkable(definition, index))
    {
        return Drift::Broken(format!(
            "the supporting index {} of {} is gone or hidden; repair the TTL index, and it is built again",
            noted.name, definition.collection
        ));
    }
    let native = indexes.iter().find(|index| index.native_ttl);
    Drift::None {
        warning: native.map(|index| {
            format!(
                "{} has the database's own TTL index {} besides, which deletes by its own rule",
                definition.collection, index.name
            )
        }),
    }
}
