//! The documents of a batch by their `_id`, and which of them a child references.

use std::collections::HashMap;

use mongodb::bson::{Bson, RawBson, RawBsonRef, RawDocument, doc};

use super::ReferenceGuard;
use crate::{
    error::{Error, Result},
    expiry::{type_order, visit},
    number::Number,
};

/// `_id`s, each with whether it was found to be referenced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ids(HashMap<Vec<u8>, Row>);

#[derive(Clone, Debug)]
struct Row {
    id: Bson,
    referenced: bool,
}

impl Ids {
    /// None of them referenced yet.
    pub(crate) fn new(ids: impl IntoIterator<Item = Bson>) -> Self {
        Self(ids.into_iter().map(|id| (key(&id), Row { id, referenced: false })).collect())
    }

    pub(crate) fn unreferenced(&self) -> Vec<Bson> {
        self.0.values().filter(|row| !row.referenced).map(|row| row.id.clone()).collect()
    }

    pub(crate) fn is_referenced(&self, id: &Bson) -> bool {
        self.0.get(&key(id)).is_some_and(|row| row.referenced)
    }

    pub(crate) fn mark(&mut self, id: &Bson) {
        self.mark_key(&key(id));
    }

    /// Marks those that this child references, and says whether there are any.
    pub(crate) fn mark_those_of(&mut self, guard: &ReferenceGuard, child: &RawDocument) -> Result<bool> {
        let mut any = false;
        visit(child, guard.field.parts(), &mut |value| {
            let mut bytes = Vec::new();
            // What is missing is null to a query.
            if add_key(value.unwrap_or(RawBsonRef::Null), &mut bytes).is_some() {
                any |= self.mark_key(&bytes);
            }
        })
        .map_err(|unreadable| {
            Error::Unreadable(format!("a document of {} cannot be read: {}", guard.collection, unreadable.0))
        })?;
        Ok(any)
    }

    fn mark_key(&mut self, key: &[u8]) -> bool {
        let row = self.0.get_mut(key);
        row.map(|row| row.referenced = true).is_some()
    }
}

/// Bytes that two values share exactly if MongoDB's queries take them for equal.
fn key(id: &Bson) -> Vec<u8> {
    let mut bytes = Vec::new();
    let added = RawBson::try_from(id.clone()).ok().and_then(|raw| add_key(raw.as_raw_bson_ref(), &mut bytes));
    // Of no value that was read from a document.
    if added.is_none() {
        bytes = id.to_string().into_bytes();
    }
    bytes
}

fn add_key(value: RawBsonRef<'_>, bytes: &mut Vec<u8>) -> Option<()> {
    bytes.push(type_order(value));
    match value {
        RawBsonRef::String(text) | RawBsonRef::Symbol(text) => add_sized(text.as_bytes(), bytes),
        RawBsonRef::Document(fields) => {
            for field in fields {
                let (name, value) = field.ok()?;
                bytes.push(1);
                add_sized(name_bytes(name), bytes);
                add_key(value, bytes)?;
            }
            bytes.push(0);
        }
        RawBsonRef::Array(elements) => {
            for element in elements {
                bytes.push(1);
                add_key(element.ok()?, bytes)?;
            }
            bytes.push(0);
        }
        value => {
            let plain = || {
                let mut element = Vec::new();
                doc! { "": Bson::try_from(value).ok()? }.to_writer(&mut element).ok()?;
                Some(element)
            };
            let number = Number::from_raw(value).map(|number| number.canonical().into_bytes());
            add_sized(&number.or_else(plain)?, bytes);
        }
    }
    Some(())
}

/// With the length first, so that nothing runs into what comes after it.
fn add_sized(part: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend(part.len().to_le_bytes());
    bytes.extend(part);
}

/// In BSON 3 a name has a type of its own.
fn name_bytes(name: &(impl AsRef<str> + ?Sized)) -> &[u8] {
    name.as_ref().as_bytes()
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{DateTime, RawDocumentBuf, oid::ObjectId};
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{expiry::compare, guard::Reference};

    fn guard(field: &str) -> ReferenceGuard {
        ReferenceGuard::parse(&Reference::by("c", field).into()).unwrap()
    }

    #[test]
    fn a_child_references_what_a_query_would_find_it_by() {
        let ids = [
            Bson::Int32(1),
            Bson::String("1".to_owned()),
            Bson::Null,
            Bson::Double(f64::NAN),
            Bson::Document(doc! { "a": 1, "b": 2 }),
            Bson::Document(doc! { "b": 2, "a": 1 }),
        ];
        for (child, expected) in [
            (doc! { "p": 1.0 }, &[0][..]),
            (doc! { "p": [1_i64, "1", "2"] }, &[0, 1]),
            (doc! { "p": "2" }, &[]),
            (doc! { "q": 1 }, &[2]),
            (doc! { "p": Bson::Null }, &[2]),
            (doc! { "p": f64::NAN }, &[3]),
            (doc! { "p": { "a": 1.0, "b": 2_i64 } }, &[4]),
            (doc! { "p": [{ "b": 2, "a": 1 }] }, &[5]),
        ] {
            let mut all = Ids::new(ids.clone());
            let any = all.mark_those_of(&guard("p"), &RawDocumentBuf::try_from(&child).unwrap()).unwrap();
            let marked: Vec<usize> = (0..ids.len()).filter(|i| all.is_referenced(&ids[*i])).collect();
            assert_eq!((marked.as_slice(), any), (expected, !expected.is_empty()), "{child}");
            assert_eq!(all.unreferenced().len(), ids.len() - expected.len());
        }
        let mut dotted = Ids::new(ids.clone());
        let child = RawDocumentBuf::try_from(&doc! { "a": [{ "p": "x" }, { "p": "1" }] }).unwrap();
        assert!(dotted.mark_those_of(&guard("a.p"), &child).unwrap());
        assert!(dotted.is_referenced(&ids[1]) && !dotted.is_referenced(&ids[0]));
    }

    fn value() -> impl Strategy<Value = Bson> {
        let scalar = prop_oneof![
            (-2..3_i32).prop_map(Bson::Int32),
            (-2..3_i64).prop_map(Bson::Int64),
            prop_oneof![Just(0.5), Just(-0.0), Just(1.0), Just(f64::NAN)].prop_map(Bson::Double),
            "[ab]{0,2}".prop_map(Bson::String),
            "[ab]{0,2}".prop_map(Bson::Symbol),
            any::<bool>().prop_map(Bson::Boolean),
            (0..3_i64).prop_map(|millis| Bson::DateTime(DateTime::from_millis(millis))),
            Just(Bson::ObjectId(ObjectId::from_bytes([1; 12]))),
            Just(Bson::Null),
        ];
        scalar.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..3).prop_map(Bson::Array),
                vec(("[ab]", inner), 0..3).prop_map(|fields| Bson::Document(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn values_share_a_key_exactly_if_they_compare_as_equal(a in value(), b in value()) {
            let raw = |value: &Bson| RawBson::try_from(value.clone()).unwrap();
            let (x, y) = (raw(&a), raw(&b));
            let equal = compare(x.as_raw_bson_ref(), y.as_raw_bson_ref()).is_some_and(std::cmp::Ordering::is_eq);
            prop_assert_eq!(key(&a) == key(&b), equal);
            prop_assert_eq!(key(&a), key(&a));
        }
    }
}
