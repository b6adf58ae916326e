//! Which columns the documents of a collection need.

use std::collections::HashSet;

use mongodb::bson::{RawBsonRef, RawDocument};

use super::{csv::CsvFields, fields};
use crate::error::{Code, Error, Refusal, Result};

/// The most columns that are found; a collection that needs more has values for names.
const MOST: usize = 1000;

/// The columns that documents need in CSV, found by looking at each: `_id` first, then in the order in which they appear.
///
/// A document within a document is not one column, but one for each of its fields; unless it is empty, or has a name that no
/// path can name, being empty or holding a dot.
///
/// ```
/// use ttl_index::{CsvColumns, bson::{RawDocumentBuf, doc}};
///
/// let mut columns = CsvColumns::default();
/// for document in [doc! { "_id": 1, "user": { "name": "Ada" } }, doc! { "_id": 2, "tags": ["a"], "user": { "age": 36 } }] {
///     columns.add(&RawDocumentBuf::try_from(&document).unwrap())?;
/// }
/// assert_eq!(columns.fields()?.paths(), ["_id", "user.name", "tags", "user.age"]);
/// # Ok::<(), ttl_index::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CsvColumns {
    paths: Vec<String>,
    known: HashSet<String>,
}

impl Default for CsvColumns {
    fn default() -> Self {
        Self { paths: vec!["_id".to_owned()], known: HashSet::from(["_id".to_owned()]) }
    }
}

impl CsvColumns {
    /// Adds the columns that this document needs, and says which is the first that was not known, if any was not.
    ///
    /// # Errors
    ///
    /// If the document cannot be read. Refused if it has a field that no path can name, or if it makes more than 1,000
    /// columns; [`CsvFields::new`] takes the fields that are wanted.
    pub fn add(&mut self, document: &RawDocument) -> Result<Option<&str>> {
        let known = self.paths.len();
        if let Some(name) = unnameable(document)? {
            return Err(refused(&format!("the field \"{name}\" cannot be named by a path")));
        }
        self.add_below("", document)?;
        Ok(self.paths.get(known).map(String::as_str))
    }

    /// The columns so far.
    ///
    /// # Errors
    ///
    /// None that is known.
    pub fn fields(&self) -> Result<CsvFields> {
        CsvFields::new(self.paths.clone())
    }

    fn add_below(&mut self, parent: &str, document: &RawDocument) -> Result<()> {
        for field in fields(document) {
            let (name, value) = field?;
            let path = if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") };
            match value {
                // A document as `_id` is one value.
                RawBsonRef::Document(inner) if path != "_id" && !inner.is_empty() && unnameable(inner)?.is_none() => {
                    self.add_below(&path, inner)?;
                }
                _ if self.known.contains(&path) => {}
                _ if self.paths.len() == MOST => return Err(refused(&format!("there are more than {MOST} columns"))),
                _ => {
                    self.known.insert(path.clone());
                    self.paths.push(path);
                }
            }
        }
        Ok(())
    }
}

/// A name in the document that cannot be part of a path.
fn unnameable(document: &RawDocument) -> Result<Option<String>> {
    for field in fields(document) {
        let (name, _) = field?;
        if name.is_empty() || name.contains('.') {
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}

fn refused(why: &str) -> Error {
    Refusal::new(Code::BadValue, format!("{why}; name the fields that are wanted")).into()
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{Document, RawDocumentBuf, doc};

    use super::*;

    fn add(columns: &mut CsvColumns, document: &Document) -> Result<Option<String>> {
        columns.add(&RawDocumentBuf::try_from(document).unwrap()).map(|new| new.map(str::to_owned))
    }

    #[test]
    fn every_value_that_is_no_document_gets_a_column_and_so_do_documents_that_cannot_be_entered() {
        let mut columns = CsvColumns::default();
        let document = doc! {
            "z": 1, "a": { "b": { "c": 1 }, "d": [{ "e": 1 }] }, "empty": {}, "dotted": { "x.y": 1, "z": 2 }, "_id": { "k": 1 },
        };
        assert_eq!(add(&mut columns, &document).unwrap().as_deref(), Some("z"));
        assert_eq!(add(&mut columns, &document).unwrap(), None);
        assert_eq!(add(&mut columns, &doc! { "a": 1, "z": { "q": 1 } }).unwrap().as_deref(), Some("a"));
        let paths = ["_id", "z", "a.b.c", "a.d", "empty", "dotted", "a", "z.q"];
        assert_eq!(columns.fields().unwrap().paths(), paths);
    }

    #[test]
    fn what_no_column_can_hold_is_refused_and_not_left_out() {
        let mut columns = CsvColumns::default();
        for name in ["a.b", ""] {
            let error = add(&mut columns, &doc! { name: 1 }).unwrap_err().to_string();
            assert!(error.contains(&format!("\"{name}\" cannot be named")), "{error}");
        }
        let wide: Document = (1..MOST).map(|i| (format!("f{i}"), i64::try_from(i).unwrap().into())).collect();
        add(&mut columns, &wide).unwrap();
        assert!(add(&mut columns, &doc! { "one more": 1 }).unwrap_err().to_string().contains("more than 1000 columns"));
    }
}
