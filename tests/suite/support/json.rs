//! Extended JSON in the tests' data, and the catalogue of expiry cases.

use mongodb::bson::{Bson, DateTime, Document};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Stands for a Date some milliseconds after now, in the tests' data only.
const RELATIVE: &str = "$rel_ms";

/// The BSON document that an Extended JSON object, canonical or relaxed, stands
/// for. The order of the fields is kept.
///
/// # Panics
///
/// If the value is not the Extended JSON of a document.
pub(crate) fn document(value: &Value) -> Document {
    match bson(value) {
        Bson::Document(document) => document,
        other => panic!("{value} is no document but {other:?}"),
    }
}

/// As [`document`]; besides, `{"$rel_ms": N}` stands for the Date that is N
/// milliseconds after `now`.
///
/// # Panics
///
/// Also if such a Date is outside of BSON's range.
pub(crate) fn document_at(value: &Value, now: DateTime) -> Document {
    document(&absolute(value, now))
}

/// As [`document`], for a value of any type.
///
/// # Panics
///
/// If the value is not Extended JSON.
pub(crate) fn bson(value: &Value) -> Bson {
    // Not by way of the types' own conversions from JSON values, which are
    // optional in version 3 of the bson crate.
    Bson::deserialize(value).unwrap_or_else(|error| panic!("{value} is no Extended JSON: {error}"))
}

/// `value` with every relative Date replaced by a Date.
fn absolute(value: &Value, now: DateTime) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| absolute(item, now)).collect(),
        Value::Object(fields) => match fields.get(RELATIVE) {
            Some(offset) => date_at(offset, fields, now),
            None => fields.iter().map(|(key, field)| (key.clone(), absolute(field, now))).collect(),
        },
        scalar => scalar.clone(),
    }
}

fn date_at(offset: &Value, fields: &Map<String, Value>, now: DateTime) -> Value {
    assert_eq!(fields.len(), 1, "{RELATIVE} has company: {fields:?}");
    let millis = offset
        .as_i64()
        .unwrap_or_else(|| panic!("{RELATIVE} is no 64-bit integer: {offset}"))
        .checked_add(now.timestamp_millis())
        .unwrap_or_else(|| panic!("{RELATIVE} leaves the range of dates: {offset}"));
    json!({ "$date": { "$numberLong": millis.to_string() } })
}

/// One observation of what a real server's TTL monitor did to a document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// The key path of the TTL index.
    pub(crate) field: String,
    /// What the server made of the option.
    pub(crate) expire_after_seconds: i64,
    /// What the option was, as Extended JSON, if not the plain number.
    #[serde(default)]
    pub(crate) expire_after_seconds_raw: Option<Value>,
    #[serde(default)]
    pub(crate) partial_filter: Option<Value>,
    /// The value in the index's key, if not 1. A string means a special index.
    #[serde(default)]
    pub(crate) direction: Option<Value>,
    #[serde(default)]
    pub(crate) index_options: Option<Value>,
    /// Of a clustered collection, which expires by `_id` and has no TTL index.
    #[serde(default)]
    pub(crate) collection_options: Option<Value>,
    /// For [`document_at`]. May lack an `_id`.
    pub(crate) document: Value,
    /// Whether the server deleted the document.
    pub(crate) expired: bool,
    #[serde(default)]
    pub(crate) tags: Vec<String>,
}

/// The catalogue of observed expiry, `tests/data/expiry.json`.
///
/// # Panics
///
/// If the catalogue is malformed.
pub(crate) fn cases() -> Vec<Case> {
    #[derive(Deserialize)]
    struct Catalogue {
        cases: Vec<Case>,
    }
    let text = include_str!("../../data/expiry.json");
    let catalogue: Catalogue = serde_json::from_str(text).expect("expiry.json is malformed");
    catalogue.cases
}

#[cfg(test)]
mod tests;
