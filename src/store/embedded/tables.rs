//! The tables in the file, and the only place where the storage engine is called.
//!
//! ```text
//! documents: (collection, key of _id)              -> BSON
//! due:       (entry's id, earliest date, key of _id) -> ()
//! meta:      "registry"                            -> BSON,   "revision" -> i64
//!            collection "/" id                     -> BSON, a record of the store's own
//! ```
//!
//! `due` holds a row for each document that the entry's rule lets expire, kept in the same transaction as the document.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use mongodb::bson::{DateTime, Document, RawDocument, RawDocumentBuf, oid::ObjectId};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use super::{
    bytes::{parse_document, parse_raw, unreadable},
    rules::{CompiledEntry, Rules, apply, compile},
};
use crate::{
    error::{Error, Result},
    store::{BATCH_BYTES, Change, Wake},
};

type Key<'a> = &'a [u8];
const DOCUMENTS: TableDefinition<(&str, Key), &[u8]> = TableDefinition::new("documents");
const DUE: TableDefinition<(&[u8; 12], i64, Key), ()> = TableDefinition::new("due");
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");

/// What the engine may keep in memory of a file; its own default is 1 GiB. The system keeps the file at hand as well. Each
/// thread that may block has allocated some of it, so that an allocator holds a multiple of what is in use.
const CACHE_BYTES: usize = 16 << 20;

/// One file, or memory.
pub(super) struct Tables {
    database: Database,
    /// The registry's rules, understood, with the revision they are of.
    rules: Mutex<Option<(i64, Arc<Rules>)>>,
    /// Rung when the registry has changed, or a document expires earlier than expected.
    pub(super) wake: Wake,
}

/// A transaction that writes, with the rules it must keep the `due` rows by.
pub(super) struct Writing {
    transaction: WriteTransaction,
    rules: Arc<Rules>,
    /// The revision of the registry that these are the rules of.
    revision: i64,
    /// When the earliest of the documents expires that were listed in this transaction.
    earliest: Option<DateTime>,
}

fn failed<E: Into<Box<dyn std::error::Error + Send + Sync>>>(action: &'static str) -> impl FnOnce(E) -> Error {
    Error::embedded(action)
}

const READING: &str = "reading the embedded store";
const WRITING: &str = "writing the embedded store";

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

impl Tables {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let opening = format!("opening {}", path.display());
        // The engine takes what it reads for what it wrote, and panics on a damaged file.
        match std::panic::catch_unwind(|| builder().create(path)) {
            Ok(Ok(database)) => Self::ready(database),
            Ok(Err(redb::DatabaseError::DatabaseAlreadyOpen)) => Err(Error::InUse { path: path.display().to_string() }),
            Ok(Err(error)) => Err(Error::embedded(opening)(error)),
            Err(_) => Err(Error::embedded(opening)("the file is damaged")),
        }
    }

    pub(super) fn in_memory() -> Result<Self> {
        let backend = redb::backends::InMemoryBackend::new();
        Self::ready(builder().create_with_backend(backend).map_err(failed("opening a store in memory"))?)
    }

    /// Reading expects the tables to be there.
    fn ready(database: Database) -> Result<Self> {
        let transaction = database.begin_write().map_err(failed(WRITING))?;
        transaction.open_table(DOCUMENTS).map_err(failed(WRITING))?;
        transaction.open_table(DUE).map_err(failed(WRITING))?;
        transaction.open_table(META).map_err(failed(WRITING))?;
        transaction.commit().map_err(failed(WRITING))?;
        Ok(Self { database, rules: Mutex::new(None), wake: Wake::new() })
    }

    pub(super) fn registry(&self) -> Result<Option<Document>> {
        let meta = self.database.begin_read().map_err(failed(READING))?;
        let meta = meta.open_table(META).map_err(failed(READING))?;
        let bytes = meta.get("registry").map_err(failed(READING))?;
        bytes.map(|bytes| parse_document(bytes.value())).transpose()
    }

    pub(super) fn revision(&self) -> Result<Option<i64>> {
        let meta = self.database.begin_read().map_err(failed(READING))?;
        read_revision(&meta.open_table(META).map_err(failed(READING))?)
    }

    /// A record of the store's own.
    pub(super) fn own(&self, key: &str) -> Result<Option<Document>> {
        let meta = self.database.begin_read().map_err(failed(READING))?;
        let meta = meta.open_table(META).map_err(failed(READING))?;
        meta.get(key).map_err(failed(READING))?.map(|bytes| parse_document(bytes.value())).transpose()
    }

    pub(super) fn own_with_prefix(&self, prefix: &str) -> Result<Vec<Document>> {
        let meta = self.database.begin_read().map_err(failed(READING))?;
        let meta = meta.open_table(META).map_err(failed(READING))?;
        let mut found = Vec::new();
        for row in meta.range(prefix..).map_err(failed(READING))? {
            let (key, bytes) = row.map_err(failed(READING))?;
            if !key.value().starts_with(prefix) {
                break;
            }
            found.push(parse_document(bytes.value())?);
        }
        Ok(found)
    }

    pub(super) fn get(&self, collection: &str, key: Key<'_>) -> Result<Option<RawDocumentBuf>> {
        let read = self.database.begin_read().map_err(failed(READING))?;
        let documents = read.open_table(DOCUMENTS).map_err(failed(READING))?;
        let found = documents.get((collection, key)).map_err(failed(READING))?;
        found.map(|bytes| parse_raw(bytes.value())).transpose()
    }

    /// Documents in the order of their keys, those after `after`, for which `wanted` says yes, at most `limit`, and no more
    /// than memory is for.
    pub(super) fn scan(
        &self,
        collection: &str,
        after: Option<Key<'_>>,
        limit: usize,
        mut wanted: impl FnMut(Key<'_>, &RawDocument) -> bool,
    ) -> Result<Vec<(Vec<u8>, RawDocumentBuf)>> {
        let read = self.database.begin_read().map_err(failed(READING))?;
        let documents = read.open_table(DOCUMENTS).map_err(failed(READING))?;
        let start = (collection, after.unwrap_or_default());
        let (mut found, mut size) = (Vec::new(), 0);
        for row in documents.range(start..).map_err(failed(READING))? {
            let (row_key, bytes) = row.map_err(failed(READING))?;
            let (row_collection, key) = row_key.value();
            if row_collection != collection || found.len() == limit || size >= BATCH_BYTES {
                break;
            }
            let document = RawDocument::from_bytes(bytes.value()).map_err(unreadable)?;
            if Some(key) != after && wanted(key, document) {
                size += bytes.value().len();
                found.push((key.to_vec(), parse_raw(bytes.value())?));
            }
        }
        Ok(found)
    }

    /// How many documents a collection has; counted one by one.
    pub(super) fn count(&self, collection: &str) -> Result<u64> {
        let mut count = 0;
        self.scan(collection, None, usize::MAX, |_, _| {
            count += 1;
            false
        })?;
        Ok(count)
    }

    /// Hands over the dates listed under an entry, from this one on and ascending, until `wanted` says no.
    pub(super) fn dates(&self, entry: ObjectId, from: i64, mut wanted: impl FnMut(DateTime) -> bool) -> Result<()> {
        let read = self.database.begin_read().map_err(failed(READING))?;
        let due = read.open_table(DUE).map_err(failed(READING))?;
        let entry = entry.bytes();
        for row in due.range((&entry, from, Key::default())..).map_err(failed(READING))? {
            let (row, _) = row.map_err(failed(READING))?;
            let (row_entry, date, _) = row.value();
            if *row_entry != entry || !wanted(DateTime::from_millis(date)) {
                break;
            }
        }
        Ok(())
    }

    /// The documents listed under an entry, in the order of their dates and keys, from here up to that date, at most `limit`,
    /// and no more than memory is for.
    pub(super) fn scan_due(
        &self,
        collection: &str,
        entry: ObjectId,
        from: (DateTime, Key<'_>),
        until: DateTime,
        limit: usize,
        mut wanted: impl FnMut(Key<'_>) -> bool,
    ) -> Result<Vec<RawDocumentBuf>> {
        let read = self.database.begin_read().map_err(failed(READING))?;
        let due = read.open_table(DUE).map_err(failed(READING))?;
        let documents = read.open_table(DOCUMENTS).map_err(failed(READING))?;
        let entry = entry.bytes();
        let (mut found, mut size) = (Vec::new(), 0);
        for row in due.range((&entry, from.0.timestamp_millis(), from.1)..).map_err(failed(READING))? {
            let (row, ()) = row.map(|(key, _)| (key, ())).map_err(failed(READING))?;
            let (row_entry, date, key) = row.value();
            let full = found.len() == limit || size >= BATCH_BYTES;
            if *row_entry != entry || date > until.timestamp_millis() || full {
                break;
            }
            if wanted(key)
                && let Some(bytes) = documents.get((collection, key)).map_err(failed(READING))?
            {
                size += bytes.value().len();
                found.push(parse_raw(bytes.value())?);
            }
        }
        Ok(found)
    }

    /// Runs `work` in one durable transaction; an error leaves everything as it was.
    pub(super) fn write<T>(&self, work: impl FnOnce(&mut Writing) -> Result<T>) -> Result<T> {
        let transaction = self.database.begin_write().map_err(failed(WRITING))?;
        let (revision, rules) = self.rules_in(&transaction)?;
        let mut writing = Writing { transaction, rules, revision, earliest: None };
        let result = work(&mut writing)?;
        // The cache holds what is committed. One transaction writes at a time, so nothing newer can be in it.
        let mut cached = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        *cached = None;
        writing.transaction.commit().map_err(failed(WRITING))?;
        *cached = Some((writing.revision, writing.rules));
        drop(cached);
        if writing.revision != revision {
            self.wake.ring();
        } else if let Some(earliest) = writing.earliest {
            self.wake.expires(earliest);
        }
        Ok(result)
    }

    /// The rules that a transaction sees; understood anew only when the revision has changed.
    fn rules_in(&self, transaction: &WriteTransaction) -> Result<(i64, Arc<Rules>)> {
        let meta = transaction.open_table(META).map_err(failed(READING))?;
        let revision = read_revision(&meta)?.unwrap_or(-1);
        if let Some((of, rules)) = &*self.rules.lock().unwrap_or_else(PoisonError::into_inner)
            && *of == revision
        {
            return Ok((revision, rules.clone()));
        }
        let registry = meta.get("registry").map_err(failed(READING))?;
        let registry = registry.map(|bytes| parse_document(bytes.value())).transpose()?.unwrap_or_default();
        Ok((revision, Arc::new(compile(&registry))))
    }
}

impl Writing {
    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    pub(super) fn get(&self, collection: &str, key: Key<'_>) -> Result<Option<RawDocumentBuf>> {
        let documents = self.transaction.open_table(DOCUMENTS).map_err(failed(READING))?;
        let found = documents.get((collection, key)).map_err(failed(READING))?;
        found.map(|bytes| parse_raw(bytes.value())).transpose()
    }

    /// Writes a document, or removes it, together with its `due` rows; returns what was there.
    pub(super) fn put(
        &mut self,
        collection: &str,
        key: Key<'_>,
        document: Option<&RawDocument>,
    ) -> Result<Option<RawDocumentBuf>> {
        let mut documents = self.transaction.open_table(DOCUMENTS).map_err(failed(WRITING))?;
        let mut due = self.transaction.open_table(DUE).map_err(failed(WRITING))?;
        let place = (collection, key);
        let old = match document {
            Some(document) => documents.insert(place, document.as_bytes()).map_err(failed(WRITING))?,
            None => documents.remove(place).map_err(failed(WRITING))?,
        };
        let old = old.map(|bytes| parse_raw(bytes.value())).transpose()?;
        for (id, entry) in self.rules.iter().filter(|(_, entry)| entry.indexed && entry.collection == collection) {
            let date = |d: &RawDocument| entry.rule.expiring_dates(d).map(|dates| dates.earliest.timestamp_millis());
            let (before, after) = (old.as_deref().and_then(date), document.and_then(date));
            if before == after {
                continue;
            }
            if let Some(before) = before {
                due.remove((&id.bytes(), before, key)).map_err(failed(WRITING))?;
            }
            if let Some(after) = after {
                due.insert((&id.bytes(), after, key), ()).map_err(failed(WRITING))?;
                let expires = entry.rule.expires_at(DateTime::from_millis(after));
                self.earliest = Some(self.earliest.map_or(expires, |earliest| earliest.min(expires)));
            }
        }
        Ok(old)
    }

    pub(super) fn own(&self, key: &str) -> Result<Option<Document>> {
        let meta = self.transaction.open_table(META).map_err(failed(READING))?;
        meta.get(key).map_err(failed(READING))?.map(|bytes| parse_document(bytes.value())).transpose()
    }

    pub(super) fn put_own(&mut self, key: &str, record: Option<&Document>) -> Result<()> {
        let mut meta = self.transaction.open_table(META).map_err(failed(WRITING))?;
        match record {
            Some(record) => put_document(&mut meta, key, record),
            None => meta.remove(key).map(drop).map_err(failed(WRITING)),
        }
    }

    /// Makes a registry change if its guard holds, and lists or unlists the documents of what it adds or takes away;
    /// returns the revision from then on.
    pub(super) fn change_registry(&mut self, change: Change) -> Result<Option<i64>> {
        let mut meta = self.transaction.open_table(META).map_err(failed(WRITING))?;
        let registry = meta.get("registry").map_err(failed(WRITING))?.map(|bytes| parse_document(bytes.value()));
        let mut registry = registry.transpose()?.unwrap_or_default();
        let before = read_revision(&meta)?;
        if !apply(&mut registry, change, before)? {
            return Ok(None);
        }
        let revision = before.unwrap_or(0) + 1;
        registry.insert("_id", "registry");
        registry.insert("revision", revision);
        put_document(&mut meta, "registry", &registry)?;
        meta.insert("revision", revision.to_le_bytes().as_slice()).map_err(failed(WRITING))?;
        drop(meta);
        let before = std::mem::replace(&mut self.rules, Arc::new(compile(&registry)));
        self.revision = revision;
        let rules = self.rules.clone();
        let indexed = |rules: &Rules, id: &ObjectId| rules.get(id).is_some_and(|entry| entry.indexed);
        for id in before.keys().filter(|id| indexed(&before, id) && !indexed(&rules, id)) {
            self.unlist(*id)?;
        }
        for (id, entry) in rules.iter().filter(|(id, entry)| entry.indexed && !indexed(&before, id)) {
            self.list(*id, entry)?;
        }
        Ok(Some(revision))
    }

    fn unlist(&self, id: ObjectId) -> Result<()> {
        let mut due = self.transaction.open_table(DUE).map_err(failed(WRITING))?;
        let id = id.bytes();
        let whole = (&id, i64::MIN, Key::default())..=(&id, i64::MAX, &[0xFF][..]);
        due.retain_in(whole, |_, ()| false).map_err(failed(WRITING))
    }

    fn list(&self, id: ObjectId, entry: &CompiledEntry) -> Result<()> {
        let documents = self.transaction.open_table(DOCUMENTS).map_err(failed(WRITING))?;
        let mut due = self.transaction.open_table(DUE).map_err(failed(WRITING))?;
        for row in documents.range((entry.collection.as_str(), Key::default())..).map_err(failed(WRITING))? {
            let (place, bytes) = row.map_err(failed(WRITING))?;
            let (collection, key) = place.value();
            if collection != entry.collection {
                break;
            }
            let document = RawDocument::from_bytes(bytes.value()).map_err(unreadable)?;
            if let Some(dates) = entry.rule.expiring_dates(document) {
                due.insert((&id.bytes(), dates.earliest.timestamp_millis(), key), ()).map_err(failed(WRITING))?;
            }
        }
        Ok(())
    }

    /// Removes every document of a collection, and says how many.
    pub(super) fn clear(&mut self, collection: &str) -> Result<u64> {
        let mut cleared = 0;
        while let Some(key) = self.first_key(collection)? {
            self.put(collection, &key, None)?;
            cleared += 1;
        }
        Ok(cleared)
    }

    fn first_key(&self, collection: &str) -> Result<Option<Vec<u8>>> {
        let documents = self.transaction.open_table(DOCUMENTS).map_err(failed(READING))?;
        let first = documents.range((collection, Key::default())..).map_err(failed(READING))?.next();
        let Some((place, _)) = first.transpose().map_err(failed(READING))? else { return Ok(None) };
        let (found, key) = place.value();
        Ok((found == collection).then(|| key.to_vec()))
    }
}

fn read_revision(meta: &impl ReadableTable<&'static str, &'static [u8]>) -> Result<Option<i64>> {
    let Some(bytes) = meta.get("revision").map_err(failed(READING))? else { return Ok(None) };
    let bytes = bytes.value().try_into().map_err(failed(READING))?;
    Ok(Some(i64::from_le_bytes(bytes)))
}

fn put_document(meta: &mut redb::Table<'_, &'static str, &'static [u8]>, key: &str, document: &Document) -> Result<()> {
    let mut bytes = Vec::new();
    document.to_writer(&mut bytes).map_err(failed(WRITING))?;
    meta.insert(key, bytes.as_slice()).map(drop).map_err(failed(WRITING))
}
