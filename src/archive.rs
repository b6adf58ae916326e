//! Documents as text: lines of Extended JSON that read back to the same bytes or say why not, and rows of CSV.

mod cell;
mod columns;
mod csv;
mod text;

pub use columns::CsvColumns;
pub use csv::CsvFields;
pub use text::JsonLine;

use mongodb::bson::{RawBsonRef, RawDocument};

use crate::error::{Error, Result};

/// The names and values in a document; the names are of a type of their own in BSON 3.
fn fields(document: &RawDocument) -> impl Iterator<Item = Result<(&str, RawBsonRef<'_>)>> {
    fn text<T: AsRef<str> + ?Sized>(name: &T) -> &str {
        name.as_ref()
    }
    document.into_iter().map(|field| match field {
        Ok((name, value)) => Ok((text(name), value)),
        Err(error) => Err(Error::Unreadable(error.to_string())),
    })
}
