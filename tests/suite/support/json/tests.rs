//! The catalogue becomes exactly the BSON that it describes.

use std::collections::HashSet;

use mongodb::bson::spec::ElementType;
use mongodb::bson::{Bson, DateTime, Document, Timestamp, doc};
use serde_json::{Map, Value, json};

use super::{bson, cases, document, document_at};

/// The type that Extended JSON means, read from the specification and not from
/// what the parser under test does; `None` for a plain object.
fn type_of_wrapper(fields: &Map<String, Value>) -> Option<ElementType> {
    let keys: Vec<&str> = fields.keys().map(String::as_str).collect();
    Some(match keys[..] {
        ["$rel_ms" | "$date"] => ElementType::DateTime,
        ["$numberInt"] => ElementType::Int32,
        ["$numberLong"] => ElementType::Int64,
        ["$numberDouble"] => ElementType::Double,
        ["$numberDecimal"] => ElementType::Decimal128,
        ["$oid"] => ElementType::ObjectId,
        ["$timestamp"] => ElementType::Timestamp,
        ["$binary"] => ElementType::Binary,
        ["$undefined"] => ElementType::Undefined,
        ["$minKey"] => ElementType::MinKey,
        ["$maxKey"] => ElementType::MaxKey,
        ["$dbPointer"] => ElementType::DbPointer,
        ["$code"] => ElementType::JavaScriptCode,
        ["$code", "$scope"] => ElementType::JavaScriptCodeWithScope,
        ["$symbol"] => ElementType::Symbol,
        ["$regularExpression"] => ElementType::RegularExpression,
        _ => return None,
    })
}

/// Compares a parsed value with its source, all the way down.
fn assert_types(source: &Value, parsed: &Bson, path: &str) {
    let expected = match source {
        Value::Null => ElementType::Null,
        Value::Bool(_) => ElementType::Boolean,
        Value::String(_) => ElementType::String,
        Value::Array(_) => ElementType::Array,
        Value::Number(number) => match number.as_i64() {
            Some(integer) if i32::try_from(integer).is_ok() => ElementType::Int32,
            Some(_) => ElementType::Int64,
            None => ElementType::Double,
        },
        Value::Object(fields) => type_of_wrapper(fields).unwrap_or(ElementType::EmbeddedDocument),
    };
    assert_eq!(parsed.element_type(), expected, "{path}: {source}");
    match (source, parsed) {
        (Value::Array(source), Bson::Array(parsed)) => {
            assert_eq!(source.len(), parsed.len(), "{path}");
            for (i, (source, parsed)) in source.iter().zip(parsed).enumerate() {
                assert_types(source, parsed, &format!("{path}.{i}"));
            }
        }
        (Value::Object(source), Bson::Document(parsed)) => {
            assert!(source.keys().eq(parsed.keys()), "{path}: order of {source:?}");
            for (key, field) in source {
                assert_types(field, &parsed[key], &format!("{path}.{key}"));
            }
        }
        _ => {}
    }
}

#[test]
fn every_case_has_the_types_it_describes() {
    let now = DateTime::now();
    let cases = cases();
    assert_eq!(cases.len(), 621);
    for case in &cases {
        let document = document_at(&case.document, now);
        assert_types(&case.document, &Bson::Document(document.clone()), &case.name);
        // What the driver sends must be what was parsed.
        let mut bytes = Vec::new();
        document.to_writer(&mut bytes).unwrap();
        let back = Document::from_reader(&bytes[..]).unwrap();
        // Compared as text, because NaN is not equal to itself.
        assert_eq!(format!("{back:?}"), format!("{document:?}"), "{}", case.name);
    }
}

#[test]
fn every_case_is_complete() {
    let cases = cases();
    let names: HashSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), cases.len(), "two cases share a name");
    for case in &cases {
        let options = [&case.partial_filter, &case.index_options, &case.collection_options];
        for value in options.into_iter().flatten() {
            assert_types(value, &Bson::Document(document(value)), &case.name);
        }
        if let Some(raw) = &case.expire_after_seconds_raw {
            assert_types(raw, &bson(raw), &case.name);
        }
        if let Some(direction) = &case.direction {
            let special = case.tags.iter().any(|tag| tag == "special-index");
            assert!(direction.is_i64() || special, "{}", case.name);
        }
        assert!(!case.field.is_empty(), "{}", case.name);
        assert!(i32::try_from(case.expire_after_seconds).is_ok(), "{}", case.name);
    }
    assert!(cases.iter().any(|case| case.expired));
    assert!(cases.iter().any(|case| !case.expired));
}

#[test]
fn values_survive_and_keep_their_order() {
    let now = DateTime::from_millis(1_000);
    let source = json!({
        "z": { "$rel_ms": -2_000 },
        "a": [{ "$minKey": 1 }, { "$numberDecimal": "NaN" }, { "$undefined": true }],
        "date": { "$date": { "$numberLong": "-9223372036854775808" } },
        "relaxed": { "$date": "2013-01-01T10:00:00Z" },
        "time": { "$timestamp": { "t": 7, "i": 8 } },
        "code": { "$code": "f()" },
        "scoped": { "$code": "f()", "$scope": { "x": 1 } },
        "symbol": { "$symbol": "s" },
        "regex": { "$regularExpression": { "pattern": "^a", "options": "i" } },
        "pointer": { "$dbPointer": { "$ref": "c", "$id": { "$oid": "3b9aca000000000000000000" } } },
        "reference": { "$ref": "c", "$id": { "$rel_ms": 0 } },
        "int": 1, "long": 4_294_967_296_i64, "double": 1.5, "null": null,
    });
    let parsed = document_at(&source, now);
    assert_types(&source, &Bson::Document(parsed.clone()), "source");

    assert_eq!(parsed.get_datetime("z").unwrap(), &DateTime::from_millis(-1_000));
    assert_eq!(parsed.get_datetime("date").unwrap(), &DateTime::MIN);
    let relaxed = DateTime::from_millis(1_357_034_400_000);
    assert_eq!(parsed.get_datetime("relaxed").unwrap(), &relaxed);
    let time = Timestamp { time: 7, increment: 8 };
    assert_eq!(parsed.get_timestamp("time").unwrap(), time);
    assert_eq!(parsed.get("symbol"), Some(&Bson::Symbol("s".into())));
    let reference = doc! { "$ref": "c", "$id": now };
    assert_eq!(parsed.get_document("reference").unwrap(), &reference);
}

#[test]
fn relative_dates_reach_the_ends_of_the_range() {
    let source = json!({ "a": { "$rel_ms": i64::MAX - 5 } });
    let parsed = document_at(&source, DateTime::from_millis(5));
    assert_eq!(parsed.get_datetime("a").unwrap(), &DateTime::MAX);
}

#[test]
#[should_panic(expected = "leaves the range of dates")]
fn relative_dates_do_not_saturate() {
    let source = json!({ "a": { "$rel_ms": i64::MAX } });
    document_at(&source, DateTime::from_millis(1));
}

#[test]
#[should_panic(expected = "is no document")]
fn a_scalar_is_no_document() {
    document(&json!({ "$numberInt": "1" }));
}
