//! A document as a row of CSV.

use std::collections::HashSet;

use csv::{Terminator, WriterBuilder};
use mongodb::bson::{RawBsonRef, RawDocument};

use super::cell;
use crate::error::{Code, Error, Refusal, Result};

/// The fields of documents that become the columns of CSV, as RFC 4180 writes it: commas, quotes where they are needed, CRLF
/// at the end of each row, UTF-8.
///
/// A field is a dotted path through documents. What is in an array is no cell of its own: the array is, as a whole.
///
/// | value | cell |
/// |---|---|
/// | missing, `null`, empty string | empty: CSV does not tell them apart |
/// | string, symbol | as it is |
/// | number | plain, the point of a double included: `7`, `2.0`, `1e300`, `NaN`, `-Infinity` |
/// | boolean | `true`, `false` |
/// | date | RFC 3339 in UTC, with as many decimals as needed: `2026-01-02T03:04:05.678Z` |
/// | `ObjectId` | hexadecimal |
/// | binary data | base64; a UUID (subtype 4) as `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` |
/// | anything else: documents, arrays, dates beyond the year 9999 … | canonical Extended JSON |
///
/// # Guarantees
///
/// No cell is a formula to a spreadsheet: what begins with `=`, `+`, `-`, `@`, a tab or a line break is put behind a `'`, in the
/// header as well. Numbers are left as they are.
///
/// ```
/// use ttl_index::{CsvFields, bson::{DateTime, RawDocumentBuf, doc}};
///
/// let fields = CsvFields::new(["_id", "user.name", "at"])?;
/// let document = doc! { "_id": -1, "user": { "name": "=1+1, \"x\"" }, "at": DateTime::from_millis(0) };
/// let row = fields.row(&RawDocumentBuf::try_from(&document).unwrap())?;
/// assert_eq!(String::from_utf8_lossy(&fields.header()?), "_id,user.name,at\r\n");
/// assert_eq!(String::from_utf8_lossy(&row), "-1,\"'=1+1, \"\"x\"\"\",1970-01-01T00:00:00Z\r\n");
/// # Ok::<(), ttl_index::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvFields {
    paths: Vec<String>,
}

impl CsvFields {
    /// These fields, in this order.
    ///
    /// # Errors
    ///
    /// Refused if there is none, if one stands twice, or if a name within a path is empty.
    pub fn new<I>(paths: I) -> Result<Self>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let paths: Vec<String> = paths.into_iter().map(Into::into).collect();
        let refuse = |why| Err(Refusal::new(Code::BadValue, why).into());
        if paths.is_empty() {
            return refuse("CSV needs a field at least".to_owned());
        }
        let mut seen = HashSet::new();
        for path in &paths {
            if path.split('.').any(str::is_empty) {
                return refuse(format!("\"{path}\" is no path of a field: it holds an empty name"));
            }
            if !seen.insert(path) {
                return refuse(format!("the field \"{path}\" is given twice"));
            }
        }
        Ok(Self { paths })
    }

    /// The paths, in the order of the columns.
    pub fn paths(&self) -> &[String] {
        &self.paths
    }

    /// The row that names the columns, with its end.
    ///
    /// # Errors
    ///
    /// If the row could not be put together, which is not known to happen.
    pub fn header(&self) -> Result<Vec<u8>> {
        written(&self.paths.iter().map(|path| cell::inert(path)).collect::<Vec<_>>())
    }

    /// The row of a document, with its end.
    ///
    /// # Errors
    ///
    /// If one of the fields cannot be read.
    pub fn row(&self, document: &RawDocument) -> Result<Vec<u8>> {
        let cell = |path: &String| {
            let text = match at(document, path) {
                Ok(None) => return Ok(String::new()),
                Ok(Some(value)) => cell::text(value),
                Err(why) => Err(why),
            };
            text.map_err(|why| Error::Unreadable(format!("\"{path}\": {why}")))
        };
        written(&self.paths.iter().map(cell).collect::<Result<Vec<_>>>()?)
    }
}

fn at<'a>(document: &'a RawDocument, path: &str) -> Result<Option<RawBsonRef<'a>>, String> {
    let mut names = path.split('.');
    let Some(first) = names.next() else { return Ok(None) };
    let get = |document: &'a RawDocument, name| document.get(name).map_err(|error| error.to_string());
    names.try_fold(get(document, first)?, |found, name| match found {
        Some(RawBsonRef::Document(inner)) => get(inner, name),
        _ => Ok(None),
    })
}

fn written(cells: &[String]) -> Result<Vec<u8>> {
    let room = cells.iter().map(|cell| cell.len() + 3).sum();
    let mut row = WriterBuilder::new().terminator(Terminator::CRLF).buffer_capacity(room).from_writer(Vec::new());
    let unwritten = |error: String| Error::Unreadable(format!("a row of CSV could not be put together: {error}"));
    row.write_record(cells).map_err(|error| unwritten(error.to_string()))?;
    row.into_inner().map_err(|error| unwritten(error.to_string()))
}

#[cfg(test)]
mod tests;
