//! BSON values compared as MongoDB's queries compare them.

use std::cmp::Ordering;

use mongodb::bson::{RawArray, RawBinaryRef, RawBsonRef, RawDocument, spec::BinarySubtype};

use crate::number::Number;

/// The place of a value's type in MongoDB's order of types; types that compare with each other share it.
pub(crate) fn type_order(value: RawBsonRef<'_>) -> u8 {
    match value {
        RawBsonRef::MinKey => 0,
        RawBsonRef::Undefined => 1,
        RawBsonRef::Null => 2,
        RawBsonRef::Double(_) | RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Decimal128(_) => 3,
        RawBsonRef::String(_) | RawBsonRef::Symbol(_) => 4,
        RawBsonRef::Document(_) => 5,
        RawBsonRef::Array(_) => 6,
        RawBsonRef::Binary(_) => 7,
        RawBsonRef::ObjectId(_) => 8,
        RawBsonRef::Boolean(_) => 9,
        RawBsonRef::DateTime(_) => 10,
        RawBsonRef::Timestamp(_) => 11,
        RawBsonRef::RegularExpression(_) => 12,
        RawBsonRef::DbPointer(_) => 13,
        RawBsonRef::JavaScriptCode(_) => 14,
        RawBsonRef::JavaScriptCodeWithScope(_) => 15,
        RawBsonRef::MaxKey => 16,
    }
}

/// The order of two values; `None` where it is not certain, which callers take for "does not match".
pub(crate) fn compare(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> Option<Ordering> {
    let by_type = type_order(a).cmp(&type_order(b));
    if by_type.is_ne() {
        return Some(by_type);
    }
    match (a, b) {
        (RawBsonRef::String(a) | RawBsonRef::Symbol(a), RawBsonRef::String(b) | RawBsonRef::Symbol(b)) => {
            Some(a.as_bytes().cmp(b.as_bytes()))
        }
        (RawBsonRef::Document(a), RawBsonRef::Document(b)) => compare_documents(a, b),
        (RawBsonRef::Array(a), RawBsonRef::Array(b)) => compare_arrays(a, b),
        (RawBsonRef::Binary(a), RawBsonRef::Binary(b)) => {
            Some(binary_order(a).cmp(&binary_order(b)).then_with(|| a.bytes.cmp(b.bytes)))
        }
        (RawBsonRef::ObjectId(a), RawBsonRef::ObjectId(b)) => Some(a.bytes().cmp(&b.bytes())),
        (RawBsonRef::Boolean(a), RawBsonRef::Boolean(b)) => Some(a.cmp(&b)),
        (RawBsonRef::DateTime(a), RawBsonRef::DateTime(b)) => Some(a.cmp(&b)),
        (RawBsonRef::Timestamp(a), RawBsonRef::Timestamp(b)) => Some((a.time, a.increment).cmp(&(b.time, b.increment))),
        (
            RawBsonRef::MinKey | RawBsonRef::Undefined | RawBsonRef::Null | RawBsonRef::MaxKey,
            RawBsonRef::MinKey | RawBsonRef::Undefined | RawBsonRef::Null | RawBsonRef::MaxKey,
        ) => Some(Ordering::Equal),
        _ => Some(Number::from_raw(a)?.compare(&Number::from_raw(b)?)),
    }
}

/// What counts before the bytes: the length as stored, then the subtype.
fn binary_order(value: RawBinaryRef<'_>) -> (usize, u8) {
    // The old subtype stores its length a second time, within what is counted.
    let inner_length = if value.subtype == BinarySubtype::BinaryOld { 4 } else { 0 };
    (value.bytes.len() + inner_length, value.subtype.into())
}

/// Field by field in their order: first the type, then the name, then the value.
fn compare_documents(a: &RawDocument, b: &RawDocument) -> Option<Ordering> {
    let (mut a, mut b) = (a.iter(), b.iter());
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Some(Ordering::Equal),
            (None, Some(_)) => return Some(Ordering::Less),
            (Some(_), None) => return Some(Ordering::Greater),
            (Some(a), Some(b)) => {
                let ((a_name, a), (b_name, b)) = (a.ok()?, b.ok()?);
                let order = type_order(a).cmp(&type_order(b)).then_with(|| a_name.cmp(b_name));
                let order = if order.is_ne() { order } else { compare(a, b)? };
                if order.is_ne() {
                    return Some(order);
                }
            }
        }
    }
}

fn compare_arrays(a: &RawArray, b: &RawArray) -> Option<Ordering> {
    let (mut a, mut b) = (a.into_iter(), b.into_iter());
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Some(Ordering::Equal),
            (None, Some(_)) => return Some(Ordering::Less),
            (Some(_), None) => return Some(Ordering::Greater),
            (Some(a), Some(b)) => {
                let order = compare(a.ok()?, b.ok()?)?;
                if order.is_ne() {
                    return Some(order);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{Binary, Bson, RawBson};

    use super::*;

    #[test]
    fn binary_data_is_ordered_by_its_stored_length_first() {
        let binary =
            |subtype, bytes: &[u8]| RawBson::try_from(Bson::Binary(Binary { subtype, bytes: bytes.to_vec() })).unwrap();
        let ascending = [
            binary(BinarySubtype::Generic, &[9]),
            binary(BinarySubtype::Generic, &[1, 2]),
            binary(BinarySubtype::Uuid, &[1, 2]),
            binary(BinarySubtype::BinaryOld, &[1]),
            binary(BinarySubtype::Generic, &[0; 6]),
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(compare(a.as_raw_bson_ref(), b.as_raw_bson_ref()), Some(i.cmp(&j)), "{a:?} {b:?}");
            }
        }
    }
}
