//! The manifest beside an archive file: what the file holds, in lines that vouch for themselves.
//!
//! Pure. A line is a JSON document whose last field, `check`, is the beginning of the SHA-256 of the `check` of the line
//! before and of the line itself up to there. So a line that was changed, left out or moved is noticed.

use std::fmt::Write;

use mongodb::bson::{Bson, DateTime, RawDocumentBuf, doc};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{form::Form, text::JsonLine};
use crate::store::id_bytes;

/// The version of the format.
const VERSION: u64 = 1;

const CHECK: &str = ",\"check\":\"";

/// What stands in the first line: what the file is an archive of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) database: String,
    pub(crate) collection: String,
    pub(crate) form: Form,
}

/// Documents that were written together, and are in the file for certain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) documents: u64,
    pub(crate) sha256: String,
    /// The `_id`s of those that were still there, or there again, after the delete.
    pub(crate) not_deleted: Vec<Vec<u8>>,
}

/// A manifest, understood.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manifest {
    /// None if not even the first line is there as a whole.
    pub(crate) header: Option<Header>,
    pub(crate) batches: Vec<Batch>,
    /// How many bytes of it are whole lines.
    pub(crate) whole: u64,
    /// The check of the last line.
    check: String,
}

impl Manifest {
    /// A last line without its end is one whose writing was cut off, and says nothing.
    ///
    /// # Errors
    ///
    /// In words, if a whole line is not as it was written.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let mut manifest = Self::default();
        for (number, line) in (1..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
            let Some(whole) = line.strip_suffix(b"\n") else { break };
            manifest.take(whole).map_err(|why| format!("line {number} of it {why}"))?;
            manifest.whole += line.len() as u64;
        }
        Ok(manifest)
    }

    /// Up to where the file is vouched for.
    pub(crate) fn end(&self) -> u64 {
        self.batches.last().map_or(0, |batch| batch.offset + batch.bytes)
    }

    pub(crate) fn documents(&self) -> u64 {
        self.batches.iter().map(|batch| batch.documents).sum()
    }

    fn take(&mut self, line: &[u8]) -> Result<(), String> {
        let damaged = || "is not as it was written".to_owned();
        let text = std::str::from_utf8(line).map_err(|_| damaged())?;
        let (body, check) = text.rsplit_once(CHECK).ok_or_else(damaged)?;
        if check.strip_suffix("\"}") != Some(&check_of(&self.check, body)) {
            return Err(damaged());
        }
        let line: Value = serde_json::from_str(text).map_err(|_| damaged())?;
        self.check = check_of(&self.check, body);
        if self.header.is_none() {
            self.header = Some(header_of(&line)?);
        } else if let Some(ids) = line["not_deleted"].as_array() {
            let batch = self.batches.last_mut().ok_or_else(|| "speaks of no batch".to_owned())?;
            for id in ids {
                batch.not_deleted.push(id_of(id)?);
            }
        } else {
            let batch = batch_of(&line).ok_or_else(|| "says nothing that is known".to_owned())?;
            if batch.offset != self.end() {
                return Err("does not go on where the one before ends".to_owned());
            }
            self.batches.push(batch);
        }
        Ok(())
    }

    /// The line that says what the file is an archive of.
    pub(crate) fn begin(&mut self, header: &Header) -> String {
        let mut line = json!({
            "ttl_index_archive": VERSION,
            "database": header.database,
            "collection": header.collection,
            "format": header.form.name(),
        });
        if let Some(fields) = header.form.fields() {
            line["fields"] = json!(fields);
        }
        self.header = Some(header.clone());
        self.line(&line)
    }

    /// The line that vouches for a batch; `at` is none for one that was found in the file.
    pub(crate) fn add(&mut self, batch: Batch, at: Option<DateTime>) -> String {
        let mut line = json!({
            "offset": batch.offset,
            "bytes": batch.bytes,
            "documents": batch.documents,
            "sha256": batch.sha256,
        });
        line["at"] = at.and_then(|at| at.try_to_rfc3339_string().ok()).into();
        self.batches.push(batch);
        self.line(&line)
    }

    /// The line that says which documents of the last batch were not deleted.
    pub(crate) fn not_deleted(&mut self, ids: &[Bson]) -> String {
        // An `_id` that is no line would not have been archived as one; in CSV it need not be told.
        let lines = ids.iter().filter_map(|id| {
            let line = JsonLine::of(&RawDocumentBuf::try_from(&doc! { "_id": id }).ok()?).ok()?;
            serde_json::from_str::<Value>(line.as_str()).ok()
        });
        let line = json!({ "not_deleted": lines.collect::<Vec<_>>() });
        self.line(&line)
    }

    fn line(&mut self, line: &Value) -> String {
        let mut text = line.to_string();
        text.pop();
        self.check = check_of(&self.check, &text);
        let _ = writeln!(text, "{CHECK}{}\"}}", self.check);
        self.whole += text.len() as u64;
        text
    }
}

/// The SHA-256, in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn check_of(before: &str, body: &str) -> String {
    let mut sum = sha256(format!("{before}{body}").as_bytes());
    sum.truncate(16);
    sum
}

fn header_of(line: &Value) -> Result<Header, String> {
    let version = line["ttl_index_archive"].as_u64();
    if version != Some(VERSION) {
        return Err(format!("is of another version of this format: {}", line["ttl_index_archive"]));
    }
    let text = |name: &str| line[name].as_str().map(str::to_owned);
    let fields = line["fields"].as_array().map(|fields| fields.iter().filter_map(Value::as_str).map(str::to_owned));
    let form = text("format").and_then(|name| Form::named(&name, fields.map(Iterator::collect)));
    match (text("database"), text("collection"), form) {
        (Some(database), Some(collection), Some(form)) => Ok(Header { database, collection, form }),
        _ => Err(format!("names a format that is not known: {}", line["format"])),
    }
}

fn batch_of(line: &Value) -> Option<Batch> {
    let number = |name: &str| line[name].as_u64();
    Some(Batch {
        offset: number("offset")?,
        bytes: number("bytes")?,
        documents: number("documents")?,
        sha256: line["sha256"].as_str()?.to_owned(),
        not_deleted: Vec::new(),
    })
}

fn id_of(value: &Value) -> Result<Vec<u8>, String> {
    let line =
        JsonLine::parse(value.to_string()).map_err(|error| format!("has an _id that cannot be read: {error}"))?;
    let id = line.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok());
    id.map(|id| id_bytes(&id)).ok_or_else(|| "lacks an _id".to_owned())
}
