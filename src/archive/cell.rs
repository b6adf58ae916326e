//! A value as the text of a CSV cell.

use mongodb::bson::{Bson, RawBsonRef, Uuid, spec::BinarySubtype};
use serde_json::Value;

/// With these a spreadsheet begins a formula; the wide ones in East Asian locales.
const FORMULA: [char; 11] = ['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'];

/// The text of a value, which no spreadsheet takes for a formula.
pub(super) fn text(value: RawBsonRef<'_>) -> Result<String, String> {
    Ok(match value {
        RawBsonRef::Null => String::new(),
        RawBsonRef::Boolean(value) => value.to_string(),
        RawBsonRef::Int32(number) => number.to_string(),
        RawBsonRef::Int64(number) => number.to_string(),
        RawBsonRef::Double(number) => double(number),
        RawBsonRef::Decimal128(number) => number.to_string(),
        RawBsonRef::ObjectId(id) => id.to_hex(),
        RawBsonRef::String(text) | RawBsonRef::Symbol(text) => inert(text),
        RawBsonRef::DateTime(date) => match date.try_to_rfc3339_string() {
            Ok(text) => inert(&text),
            Err(_) => extended(value)?.to_string(),
        },
        RawBsonRef::Binary(binary) => match <[u8; 16]>::try_from(binary.bytes) {
            Ok(bytes) if binary.subtype == BinarySubtype::Uuid => Uuid::from_bytes(bytes).to_string(),
            _ => inert(extended(value)?["$binary"]["base64"].as_str().unwrap_or_default()),
        },
        value => extended(value)?.to_string(),
    })
}

/// The shortest text that is this number, and tells that it is no integer.
fn double(number: f64) -> String {
    if number.is_finite() || number.is_nan() {
        return format!("{number:?}");
    }
    if number > 0.0 { "Infinity".to_owned() } else { "-Infinity".to_owned() }
}

fn extended(value: RawBsonRef<'_>) -> Result<Value, String> {
    Ok(Bson::try_from(value).map_err(|error| error.to_string())?.into_canonical_extjson())
}

/// The text, behind a `'` if a spreadsheet would take it for a formula. A plain number may begin with its sign.
pub(super) fn inert(text: &str) -> String {
    if text.starts_with(FORMULA) && !is_number(text) { format!("'{text}") } else { text.to_owned() }
}

fn is_number(text: &str) -> bool {
    // Not the words, such as inf.
    let digits = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
    text.chars().all(digits) && text.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_spreadsheet_would_calculate_is_made_text_and_numbers_are_not() {
        for (text, cell) in [
            ("=1+1", "'=1+1"),
            ("=HYPERLINK(\"http://x\",\"y\")", "'=HYPERLINK(\"http://x\",\"y\")"),
            ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
            ("-2+3", "'-2+3"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\t=1"),
            ("\r=1", "'\r=1"),
            ("\n=1", "'\n=1"),
            ("＝1+1", "'＝1+1"),
            ("=", "'="),
            ("-", "'-"),
            ("+inf", "'+inf"),
            ("-e5", "'-e5"),
            ("--5", "'--5"),
            ("-5", "-5"),
            ("+5.25", "+5.25"),
            ("-1e-9", "-1e-9"),
            ("5=5", "5=5"),
            (" =1", " =1"),
            ("'=1", "'=1"),
            ("a", "a"),
            ("", ""),
        ] {
            assert_eq!(inert(text), cell, "{text:?}");
        }
    }
}
