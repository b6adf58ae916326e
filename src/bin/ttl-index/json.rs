//! Extended JSON, canonical or relaxed, in and out.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use anyhow::{Context, bail};
use serde_json::Value;
use ttl_index::bson::{Bson, DateTime, Document, RawDocument};

use super::failure::Usage;

/// The BSON that a piece of Extended JSON stands for.
pub(crate) fn value(text: &[u8]) -> Result<Bson, String> {
    let value: Value = serde_json::from_slice(text).map_err(|error| {
        let error = error.to_string();
        // Of one line, the column alone says where.
        format!("not JSON: {}", error.replace(" at line 1 column", " at column"))
    })?;
    Bson::try_from(value).map_err(|error| format!("not Extended JSON: {error}"))
}

/// As [`value`], of a document.
pub(crate) fn document(text: &str) -> Result<Document, String> {
    as_document(value(text.as_bytes())?)
}

fn as_document(value: Bson) -> Result<Document, String> {
    match value {
        Bson::Document(document) => Ok(document),
        _ => Err("not a document".to_owned()),
    }
}

/// In relaxed Extended JSON, null if there is none.
pub(crate) fn date(date: Option<DateTime>) -> Value {
    date.map_or(Value::Null, |date| Bson::DateTime(date).into_relaxed_extjson())
}

/// The `_id` of a document in relaxed Extended JSON; null if it cannot be read.
pub(crate) fn id(document: &RawDocument) -> Value {
    let id = document.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok());
    id.map_or(Value::Null, Bson::into_relaxed_extjson)
}

/// A document of 16 MB, the most that MongoDB stores, written as lavishly as Extended JSON can.
const LONGEST_LINE: u64 = 256 * 1024 * 1024;

/// JSON Lines, one document after the other; blank lines count and are skipped.
pub(crate) struct Lines {
    input: Box<dyn BufRead>,
    name: String,
    number: u64,
    buffer: Vec<u8>,
}

impl Lines {
    /// `-` is standard input.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let (input, name): (Box<dyn BufRead>, _) = if path.as_os_str() == "-" {
            (Box::new(BufReader::new(io::stdin())), "standard input".to_owned())
        } else {
            let name = path.display().to_string();
            let file = File::open(path).with_context(|| format!("opening {name}"))?;
            (Box::new(BufReader::new(file)), name)
        };
        Ok(Self { input, name, number: 0, buffer: Vec::new() })
    }

    /// None at the end.
    pub(crate) fn next(&mut self) -> anyhow::Result<Option<Document>> {
        loop {
            self.buffer.clear();
            let read = self.input.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut self.buffer);
            if read.with_context(|| format!("reading {}", self.name))? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.buffer.len() as u64 == LONGEST_LINE {
                bail!(Usage(format!("line {} of {} is too long for a document", self.number, self.name)));
            }
            if self.buffer.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match value(&self.buffer).and_then(as_document) {
                Ok(document) => return Ok(Some(document)),
                Err(why) => bail!(Usage(format!("line {} of {} is {why}", self.number, self.name))),
            }
        }
    }
}
