//! What stands at a field path, as MongoDB's queries and index keys see it.

use mongodb::bson::{RawArray, RawBsonRef, RawDocument, raw::RawElement};

/// Unreadable BSON on the way.
#[derive(Debug)]
pub(crate) struct Unreadable(pub(crate) String);

fn unreadable(error: impl std::fmt::Display) -> Unreadable {
    Unreadable(error.to_string())
}

/// A value at the end of a path, and the name that it stands under, or its position in an array, as written there.
pub(super) struct Place<'a> {
    pub(super) name: &'a str,
    pub(super) value: RawBsonRef<'a>,
}

/// Hands every value at the path to the visitor, as [`walk`] finds them.
pub(crate) fn visit<'a>(
    document: &'a RawDocument,
    path: &[String],
    visitor: &mut dyn FnMut(Option<RawBsonRef<'a>>),
) -> Result<(), Unreadable> {
    walk(document, path, &mut |place| visitor(place.map(|place| place.value)))
}

/// Hands every value at the path to `visitor`; `None` stands for a document in which the path ends early.
///
/// Arrays on the way are entered, but not arrays directly within arrays. A number in the path is both an element's
/// position and a field name of the documents in the array. An array at the end of the path is handed over element by
/// element and then as a whole, unless its position in another array was named by the path: then only as a whole.
pub(super) fn walk<'a>(
    document: &'a RawDocument,
    path: &[String],
    visitor: &mut dyn FnMut(Option<Place<'a>>),
) -> Result<(), Unreadable> {
    let Some((first, rest)) = path.split_first() else { return Ok(()) };
    match (field(document, first)?, rest) {
        (Some(Place { name, value: RawBsonRef::Array(array) }), _) => walk_array(name, array, rest, visitor)?,
        (Some(place), []) => visitor(Some(place)),
        (Some(Place { value: RawBsonRef::Document(inner), .. }), _) => walk(inner, rest, visitor)?,
        _ => visitor(None),
    }
    Ok(())
}

fn walk_array<'a>(
    name: &'a str,
    array: &'a RawArray,
    path: &[String],
    visitor: &mut dyn FnMut(Option<Place<'a>>),
) -> Result<(), Unreadable> {
    let Some((first, rest)) = path.split_first() else {
        for element in elements(array)? {
            visitor(Some(element?));
        }
        visitor(Some(Place { name, value: RawBsonRef::Array(array) }));
        return Ok(());
    };
    let named = position(first);
    for (index, element) in elements(array)?.enumerate() {
        let element = element?;
        if let RawBsonRef::Document(inner) = element.value {
            walk(inner, path, visitor)?;
        }
        if named != Some(index) {
            continue;
        }
        match (element, rest) {
            (element, []) => visitor(Some(element)),
            (Place { value: RawBsonRef::Document(inner), .. }, rest) => walk(inner, rest, visitor)?,
            (Place { name, value: RawBsonRef::Array(inner) }, rest) => walk_array(name, inner, rest, visitor)?,
            _ => {}
        }
    }
    Ok(())
}

/// The first field of this name. What stands before it is not looked into.
fn field<'a>(document: &'a RawDocument, wanted: &str) -> Result<Option<Place<'a>>, Unreadable> {
    for element in document.iter_elements() {
        let element = element.map_err(unreadable)?;
        let name = name_of(&element);
        if name == wanted {
            return Ok(Some(Place { name, value: element.value().map_err(unreadable)? }));
        }
    }
    Ok(None)
}

fn elements(array: &RawArray) -> Result<impl Iterator<Item = Result<Place<'_>, Unreadable>>, Unreadable> {
    // An array is stored as a document whose names are the positions.
    let elements = RawDocument::from_bytes(array.as_bytes()).map_err(unreadable)?.iter_elements();
    Ok(elements.map(|element| {
        let element = element.map_err(unreadable)?;
        Ok(Place { name: name_of(&element), value: element.value().map_err(unreadable)? })
    }))
}

#[allow(clippy::useless_asref)] // in BSON 3 a name has a type of its own
fn name_of<'a>(element: &RawElement<'a>) -> &'a str {
    element.key().as_ref()
}

/// The position in an array that a path component names: `0`, `17`, but not `01` or `+1`.
fn position(component: &str) -> Option<usize> {
    let canonical = component == "0" || !component.starts_with('0');
    (canonical && component.bytes().all(|b| b.is_ascii_digit())).then(|| component.parse().ok())?
}
