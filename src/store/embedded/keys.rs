//! `_id` values as keys: two values share a key exactly if MongoDB takes them for the same `_id`.

use mongodb::bson::{Bson, Document, RawBson, doc};

use crate::{
    error::{Code, Refusal},
    number::Number,
};

/// The key of an `_id`.
///
/// Numbers are equal across types (1, 1.0 and `NumberLong(1)`), everything else by type and bytes.
pub(super) fn id_key(id: &Bson) -> Result<Vec<u8>, Refusal> {
    let refuse = |what: &str| Err(Refusal::new(Code::BadValue, format!("the '_id' value cannot be {what}: {id}")));
    match id {
        Bson::Array(_) => return refuse("an array"),
        Bson::RegularExpression(_) => return refuse("a regular expression"),
        Bson::Undefined => return refuse("undefined"),
        _ => {}
    }
    let number = RawBson::try_from(id.clone()).ok().and_then(|raw| Number::from_raw(raw.as_raw_bson_ref()));
    if let Some(number) = number {
        return Ok([b"n".as_slice(), number.canonical().as_bytes()].concat());
    }
    // As an element without a name: the type first, then the value.
    let mut bytes = Vec::new();
    if let Err(error) = doc! { "": id }.to_writer(&mut bytes) {
        return refuse(&format!("written ({error})"));
    }
    // Without the document's length and its closing zero.
    Ok([b"v", &bytes[4..bytes.len() - 1]].concat())
}

/// The `_id` of a document, given one first if it has none, as drivers do.
pub(super) fn ensure_id(document: &mut Document) -> Bson {
    if let Some(id) = document.get("_id") {
        return id.clone();
    }
    let id = Bson::ObjectId(mongodb::bson::oid::ObjectId::new());
    let rest = std::mem::take(document);
    document.insert("_id", id.clone());
    document.extend(rest);
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ids_share_a_key_and_others_do_not() {
        let key = |id: Bson| id_key(&id).unwrap();
        assert_eq!(key(Bson::Int32(1)), key(Bson::Double(1.0)));
        assert_eq!(key(Bson::Int64(1)), key(Bson::Decimal128("1.0".parse().unwrap())));
        assert_ne!(key(Bson::Int32(1)), key(Bson::Double(1.5)));
        assert_ne!(key(Bson::Int32(1)), key(Bson::String("1".to_owned())));
        assert_ne!(key(Bson::Null), key(Bson::Boolean(false)));
        assert_ne!(key(Bson::Document(doc! { "a": 1, "b": 1 })), key(Bson::Document(doc! { "b": 1, "a": 1 })));
        assert!(id_key(&Bson::Array(vec![])).is_err());
    }
}
