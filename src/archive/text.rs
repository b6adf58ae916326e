//! A document as a line of canonical Extended JSON, and back.

use std::collections::HashSet;

use mongodb::bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf};
use serde_json::Value;

use super::fields;
use crate::error::{Error, Result};

/// A document as a line of canonical [Extended JSON], and whether that line is as good as the document.
///
/// # Guarantees
///
/// If [`loss`](Self::loss) is none, [`parse`](Self::parse) makes the same document of the line, to the byte: that was tried.
///
/// Lost are a field name that stands twice in a document, the bits of a NaN and the keys of an array other than 0, 1, 2 …; and a
/// document that Extended JSON takes for something else, such as `{"$oid": "x"}`, comes back otherwise or not at all.
///
/// ```
/// use ttl_index::{JsonLine, bson::{RawDocumentBuf, doc}};
///
/// let document = RawDocumentBuf::try_from(&doc! { "_id": 1, "price": 2.0 }).unwrap();
/// let line = JsonLine::of(&document)?;
/// assert_eq!(line.as_str(), r#"{"_id":{"$numberInt":"1"},"price":{"$numberDouble":"2.0"}}"#);
/// assert_eq!(line.loss(), None);
/// assert_eq!(JsonLine::parse(line.as_str())?, document);
///
/// let odd = RawDocumentBuf::try_from(&doc! { "a": { "$symbol": "x" } }).unwrap();
/// assert_eq!(JsonLine::of(&odd)?.loss(), Some("\"a\", of the type EmbeddedDocument, would come back as a Symbol"));
/// # Ok::<(), ttl_index::Error>(())
/// ```
///
/// [Extended JSON]: https://www.mongodb.com/docs/manual/reference/mongodb-extended-json/
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonLine {
    text: String,
    loss: Option<String>,
}

impl JsonLine {
    /// Writes the document as one line.
    ///
    /// # Errors
    ///
    /// If the document cannot be read, as with a string that is not UTF-8.
    pub fn of(document: &RawDocument) -> Result<Self> {
        let readable = Document::try_from(document).map_err(|error| Error::Unreadable(error.to_string()))?;
        let value = Bson::Document(readable).into_canonical_extjson();
        let text = value.to_string();
        let loss = match Self::parse(&text) {
            Ok(read) if read.as_bytes() == document.as_bytes() => None,
            Ok(read) => Some(
                difference(document, &read, "").unwrap_or_else(|| "it would come back with other bytes".to_owned()),
            ),
            Err(error) => Some(refused(&value, "").unwrap_or_else(|| error.to_string())),
        };
        Ok(Self { text, loss })
    }

    /// The line, without a line break.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What the line does not hold of the document; none if it holds everything.
    pub fn loss(&self) -> Option<&str> {
        self.loss.as_deref()
    }

    /// The document that a line stands for.
    ///
    /// # Errors
    ///
    /// If the line is no Extended JSON, canonical or relaxed, of a document.
    pub fn parse(line: impl AsRef<[u8]>) -> Result<RawDocumentBuf> {
        let value: Value =
            serde_json::from_slice(line.as_ref()).map_err(|error| Error::Unreadable(format!("not JSON: {error}")))?;
        let not_extended = |why: String| Error::Unreadable(format!("not Extended JSON of a document: {why}"));
        match Bson::try_from(value).map_err(|error| not_extended(error.to_string()))? {
            Bson::Document(document) => {
                RawDocumentBuf::try_from(&document).map_err(|error| not_extended(error.to_string()))
            }
            other => Err(not_extended(format!("it is a value of the type {:?}", other.element_type()))),
        }
    }
}

/// The first difference that can be put in words.
fn difference(given: &RawDocument, read: &RawDocument, path: &str) -> Option<String> {
    let mut names = HashSet::new();
    for field in fields(given) {
        let (name, _) = field.ok()?;
        if !names.insert(name) {
            return Some(format!("\"{}\" stands twice in it", below(path, name)));
        }
    }
    fields(given).zip(fields(read)).find_map(|(given, read)| {
        let ((name, given), (_, read)) = (given.ok()?, read.ok()?);
        let path = below(path, name);
        match (given, read) {
            (RawBsonRef::Document(given), RawBsonRef::Document(read)) => difference(given, read, &path),
            (RawBsonRef::Array(given), RawBsonRef::Array(read)) => {
                let [given, read] = [given, read].map(|array| RawDocument::from_bytes(array.as_bytes()));
                difference(given.ok()?, read.ok()?, &path)
            }
            (given, read) => {
                let (was, is) = (given.element_type(), read.element_type());
                if was != is {
                    return Some(format!("\"{path}\", of the type {was:?}, would come back as a {is:?}"));
                }
                (given != read).then(|| format!("\"{path}\", a {was:?}, would come back as another one"))
            }
        }
    })
}

/// The innermost value that Extended JSON takes for something that it is not.
fn refused(value: &Value, path: &str) -> Option<String> {
    let within = match value {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| refused(value, &below(path, name))),
        Value::Array(items) => {
            (0..).zip(items).find_map(|(i, item): (u32, _)| refused(item, &below(path, &i.to_string())))
        }
        _ => None,
    };
    within.or_else(|| {
        let error = Bson::try_from(value.clone()).err()?;
        Some(format!("\"{path}\" would be taken for another type, and not be understood: {error}"))
    })
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests;
