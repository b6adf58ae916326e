//! Documents of the bytes that the tables hold.

use mongodb::bson::{Document, RawDocumentBuf};

use crate::error::{Error, Result};

pub(super) fn parse_document(bytes: &[u8]) -> Result<Document> {
    Document::from_reader(bytes).map_err(Error::embedded("reading the embedded store"))
}

pub(super) fn parse_raw(bytes: &[u8]) -> Result<RawDocumentBuf> {
    RawDocumentBuf::from_bytes(bytes.to_vec()).map_err(unreadable)
}

pub(super) fn unreadable(error: impl std::fmt::Display) -> Error {
    Error::Unreadable(format!("a document of the embedded store cannot be read: {error}"))
}
