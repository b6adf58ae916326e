//! Why there is nothing at a field path, where that can be seen. Only ever told.

use mongodb::bson::{RawBsonRef, RawDocument};

/// What stands in the way of a path that finds nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// A field of a document whose very name has dots that the path has between its fields.
    LiteralName {
        /// How many fields of the path lead to the document.
        depth: usize,
        /// The name.
        name: String,
        /// How many fields of the path it stands for.
        fields: usize,
    },
    /// An array on the way holds nothing.
    EmptyArray,
    /// Nothing was noticed.
    Unknown,
}

pub(crate) fn absence(document: &RawDocument, path: &[String]) -> Absence {
    let (mut document, mut depth) = (document, 0);
    loop {
        let rest = &path[depth..];
        for fields in (2..=rest.len()).rev() {
            let name = rest[..fields].join(".");
            if matches!(document.get(name.as_str()), Ok(Some(_))) {
                return Absence::LiteralName { depth, name, fields };
            }
        }
        let Some(first) = rest.first() else { return Absence::Unknown };
        match document.get(first) {
            Ok(Some(RawBsonRef::Document(inner))) => (document, depth) = (inner, depth + 1),
            Ok(Some(RawBsonRef::Array(array))) if array.is_empty() => return Absence::EmptyArray,
            _ => return Absence::Unknown,
        }
    }
}
