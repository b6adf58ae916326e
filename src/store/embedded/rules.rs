//! The registry in the embedded store: what its rules are, and the guards of its changes. Pure.

use std::collections::HashMap;

use mongodb::bson::{Bson, Document, oid::ObjectId};

use crate::{
    entry::Entry,
    error::{Error, Result},
    expiry::Rule,
    guard::Guards,
    store::{Change, MAX_INDEXES},
};

/// The rules in force, by the identity of their entry.
pub(super) type Rules = HashMap<ObjectId, CompiledEntry>;

/// What writing a document must know of an entry.
#[derive(Debug)]
pub(super) struct CompiledEntry {
    pub(super) collection: String,
    pub(super) rule: Rule,
    pub(super) guards: Guards,
    /// Whether its documents are listed in `due`.
    pub(super) indexed: bool,
}

/// Understands the entries; a broken one lists nothing and deletes nothing.
pub(super) fn compile(registry: &Document) -> Rules {
    understood(registry)
        .map(|entry| {
            let collection = entry.definition.collection.as_str().to_owned();
            let indexed = entry.definition.supporting_index;
            (entry.id, CompiledEntry { collection, rule: entry.rule, guards: entry.guards, indexed })
        })
        .collect()
}

/// The entries that can be understood.
pub(super) fn understood(registry: &Document) -> impl Iterator<Item = Entry> {
    let entries = registry.get_array("indexes").map(Vec::as_slice).unwrap_or_default();
    entries.iter().filter_map(|entry| Entry::parse(entry.as_document()?).ok())
}

/// The same guards as the updates on MongoDB hold.
pub(super) fn apply(registry: &mut Document, change: Change, revision: Option<i64>) -> Result<bool> {
    // A registry that is made by a pause lists none.
    let entries = registry.entry("indexes".to_owned()).or_insert_with(|| Bson::Array(Vec::new()));
    let Some(entries) = entries.as_array_mut() else {
        return Err(Error::Unreadable("the registry of TTL indexes is not an array".to_owned()));
    };
    let at = |entries: &[Bson], id: ObjectId| {
        entries
            .iter()
            .position(|entry| entry.as_document().is_some_and(|e| e.get_object_id("id").is_ok_and(|found| found == id)))
    };
    match change {
        Change::Add(entry) => {
            let same = |other: &Document| other.get("collection") == entry.get("collection");
            if entries.len() >= MAX_INDEXES || entries.iter().filter_map(|e| e.as_document()).any(same) {
                return Ok(false);
            }
            entries.push(entry.into());
        }
        Change::Set { revision: Some(expected), .. } if revision != Some(expected) => return Ok(false),
        Change::Set { entry, fields, .. } => {
            let Some(found) = at(entries, entry).and_then(|i| entries[i].as_document_mut()) else { return Ok(false) };
            found.extend(fields);
        }
        Change::Remove { entry } => {
            let Some(found) = at(entries, entry) else { return Ok(false) };
            entries.remove(found);
        }
        Change::Rename { entry, to } => {
            let taken = entries
                .iter()
                .filter_map(Bson::as_document)
                .any(|e| e.get_str("collection").is_ok_and(|c| c == to.as_str()));
            let found = at(entries, entry).and_then(|i| entries[i].as_document_mut());
            let Some(found) = found.filter(|_| !taken) else { return Ok(false) };
            found.insert("collection", to.as_str());
        }
        Change::TakeBack { entry } => {
            let unfinished = |i: &usize| {
                entries[*i].as_document().is_some_and(|e| e.get_str("state").is_ok_and(|state| state != "ACTIVE"))
            };
            let Some(found) = at(entries, entry).filter(unfinished) else { return Ok(false) };
            entries.remove(found);
        }
        Change::Pause(Some(pause)) => {
            registry.insert("paused", pause);
        }
        Change::Tune { revision: expected, .. } if revision != Some(expected) => return Ok(false),
        Change::Tune { tuning: Some(tuning), .. } => {
            registry.insert("tuning", tuning);
        }
        Change::Tune { tuning: None, .. } => {
            registry.remove("tuning");
        }
        Change::Pause(None) => return Ok(registry.remove("paused").is_some()),
    }
    Ok(true)
}
