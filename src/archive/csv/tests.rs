use mongodb::bson::{
    Binary, Bson, DateTime, Document, RawDocumentBuf, Timestamp, doc, oid::ObjectId, spec::BinarySubtype,
};
use proptest::prelude::*;

use super::*;

fn row(paths: &[&str], document: &Document) -> String {
    let row = CsvFields::new(paths.to_vec()).unwrap().row(&RawDocumentBuf::try_from(document).unwrap()).unwrap();
    String::from_utf8(row).unwrap()
}

#[test]
fn each_type_has_its_text() {
    let binary = |subtype, bytes: &[u8]| Bson::Binary(Binary { subtype, bytes: bytes.to_vec() });
    let decimal = |text: &str| Bson::Decimal128(text.parse().unwrap());
    for (value, cell) in [
        (Bson::Null, ""),
        (Bson::String(String::new()), ""),
        (Bson::String("a,b".to_owned()), "\"a,b\""),
        (Bson::String("a\r\n\"b\"".to_owned()), "\"a\r\n\"\"b\"\"\""),
        (Bson::String("=1".to_owned()), "'=1"),
        (Bson::Symbol("s".to_owned()), "s"),
        (Bson::Boolean(true), "true"),
        (Bson::Int32(-7), "-7"),
        (Bson::Int64(i64::MIN), "-9223372036854775808"),
        (Bson::Double(2.0), "2.0"),
        (Bson::Double(-0.1), "-0.1"),
        (Bson::Double(1e300), "1e300"),
        (Bson::Double(f64::NAN), "NaN"),
        (Bson::Double(f64::NEG_INFINITY), "-Infinity"),
        (decimal("-1.10"), "-1.10"),
        (Bson::DateTime(DateTime::from_millis(0)), "1970-01-01T00:00:00Z"),
        (Bson::DateTime(DateTime::from_millis(1_767_323_045_678)), "2026-01-02T03:04:05.678Z"),
        (Bson::DateTime(DateTime::MAX), "\"{\"\"$date\"\":{\"\"$numberLong\"\":\"\"9223372036854775807\"\"}}\""),
        (Bson::ObjectId(ObjectId::from_bytes([0xAB; 12])), "abababababababababababab"),
        (binary(BinarySubtype::Generic, b"\x00\x01\xFF"), "AAH/"),
        (binary(BinarySubtype::Generic, b"\xF8\x00\x00"), "'+AAA"),
        (binary(BinarySubtype::Uuid, &[0x11; 16]), "11111111-1111-1111-1111-111111111111"),
        (Bson::Array(vec![1.into()]), "\"[{\"\"$numberInt\"\":\"\"1\"\"}]\""),
        (Bson::Document(doc! {}), "{}"),
        (Bson::Timestamp(Timestamp { time: 1, increment: 2 }), "\"{\"\"$timestamp\"\":{\"\"t\"\":1,\"\"i\"\":2}}\""),
        (Bson::MaxKey, "\"{\"\"$maxKey\"\":1}\""),
    ] {
        assert_eq!(row(&["it", "none"], &doc! { "it": value.clone() }), format!("{cell},\r\n"), "{value}");
    }
}

#[test]
fn a_path_leads_through_documents_only() {
    let document = doc! { "a": { "b": { "c": 1 } }, "list": [{ "x": 1 }], "n": 5, "a.b": 2 };
    for (path, cell) in [
        ("a.b.c", "1"),
        ("a.b.c.d", ""),
        ("a.x", ""),
        ("n.x", ""),
        ("list.0", ""),
        ("list.x", ""),
        ("list", "\"[{\"\"x\"\":{\"\"$numberInt\"\":\"\"1\"\"}}]\""),
        ("a.b", "\"{\"\"c\"\":{\"\"$numberInt\"\":\"\"1\"\"}}\""),
    ] {
        assert_eq!(row(&[path, "none"], &document), format!("{cell},\r\n"), "{path}");
    }
}

#[test]
fn fields_that_name_no_column_are_refused() {
    for (paths, words) in [
        (&[][..], "a field at least"),
        (&["a", "b", "a"], "\"a\" is given twice"),
        (&[""], "empty name"),
        (&["a..b"], "\"a..b\" is no path"),
        (&[".a"], "empty name"),
    ] {
        let error = CsvFields::new(paths.to_vec()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_header_is_as_harmless_as_a_cell() {
    let fields = CsvFields::new(["=cmd", "a b", "x,y"]).unwrap();
    assert_eq!(fields.header().unwrap(), b"'=cmd,a b,\"x,y\"\r\n");
}

#[test]
fn a_field_that_cannot_be_read_is_named() {
    let bytes = [&16_i32.to_le_bytes()[..], b"\x02s\0", &3_i32.to_le_bytes(), b"\xFF\xFF\0\0\0"].concat();
    let bytes = [&i32::try_from(bytes.len() - 1).unwrap().to_le_bytes()[..], &bytes[4..bytes.len() - 1]].concat();
    let document = RawDocumentBuf::from_bytes(bytes).unwrap();
    let error = CsvFields::new(["s"]).unwrap().row(&document).unwrap_err();
    assert!(error.to_string().starts_with("\"s\": "), "{error}");
}

proptest! {
    #[test]
    fn rows_are_read_back_to_the_cells_that_were_written(texts in prop::collection::vec("[-=+@,;\"'\r\n\t a1é]{0,6}", 1..5)) {
        let paths: Vec<String> = (0..texts.len()).map(|i| format!("f{i}")).collect();
        let document: Document = paths.iter().cloned().zip(texts.iter().cloned().map(Bson::String)).collect();
        let fields = CsvFields::new(paths).unwrap();
        let bytes = [fields.header().unwrap(), fields.row(&RawDocumentBuf::try_from(&document).unwrap()).unwrap()].concat();
        let mut reader = ::csv::Reader::from_reader(bytes.as_slice());
        let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
        prop_assert_eq!(rows.len(), 1);
        let expected: Vec<String> = texts.iter().map(|text| cell::inert(text)).collect();
        prop_assert_eq!(rows[0].iter().collect::<Vec<_>>(), expected);
    }
}
