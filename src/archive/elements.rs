//! The fields of a document, one after the other.

use mongodb::bson::{RawBsonRef, RawDocument};

use crate::error::{Error, Result};

/// The names and values in a document; the names are of a type of their own in BSON 3.
pub(super) fn fields(document: &RawDocument) -> impl Iterator<Item = Result<(&str, RawBsonRef<'_>)>> {
    fn text<T: AsRef<str> + ?Sized>(name: &T) -> &str {
        name.as_ref()
    }
    document.into_iter().map(|field| match field {
        Ok((name, value)) => Ok((text(name), value)),
        Err(error) => Err(Error::Unreadable(error.to_string())),
    })
}
