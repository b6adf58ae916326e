//! What stands at a field path, as MongoDB's queries and index keys see it.

use mongodb::bson::{RawArray, RawBsonRef, RawDocument};

/// Unreadable BSON on the way.
#[derive(Debug)]
pub(crate) struct Unreadable(pub(crate) String);

fn unreadable(error: impl std::fmt::Display) -> Unreadable {
    Unreadable(error.to_string())
}

/// Hands every value at the path to `visit`; `None` stands for a document in which the path ends early.
///
/// Arrays on the way are entered, but not arrays directly within arrays. A number in the path is both an element's
/// position and a field name of the documents in the array. An array at the end of the path is handed over element by
/// element and then as a whole, unless its position in another array was named by the path: then only as a whole.
pub(crate) fn visit<'a>(
    document: &'a RawDocument,
    path: &[String],
    visitor: &mut dyn FnMut(Option<RawBsonRef<'a>>),
) -> Result<(), Unreadable> {
    let Some((first, rest)) = path.split_first() else { return Ok(()) };
    match (document.get(first).map_err(unreadable)?, rest) {
        (Some(RawBsonRef::Array(array)), _) => visit_array(array, rest, visitor)?,
        (Some(value), []) => visitor(Some(value)),
        (Some(RawBsonRef::Document(inner)), _) => visit(inner, rest, visitor)?,
        _ => visitor(None),
    }
    Ok(())
}

fn visit_array<'a>(
    array: &'a RawArray,
    path: &[String],
    visitor: &mut dyn FnMut(Option<RawBsonRef<'a>>),
) -> Result<(), Unreadable> {
    let Some((first, rest)) = path.split_first() else {
        for element in array {
            visitor(Some(element.map_err(unreadable)?));
        }
        visitor(Some(RawBsonRef::Array(array)));
        return Ok(());
    };
    let named = position(first);
    for (index, element) in array.into_iter().enumerate() {
        let element = element.map_err(unreadable)?;
        if let RawBsonRef::Document(inner) = element {
            visit(inner, path, visitor)?;
        }
        if named != Some(index) {
            continue;
        }
        match (element, rest) {
            (element, []) => visitor(Some(element)),
            (RawBsonRef::Document(inner), rest) => visit(inner, rest, visitor)?,
            (RawBsonRef::Array(inner), rest) => visit_array(inner, rest, visitor)?,
            _ => {}
        }
    }
    Ok(())
}

/// The position in an array that a path component names: `0`, `17`, but not `01` or `+1`.
fn position(component: &str) -> Option<usize> {
    let canonical = component == "0" || !component.starts_with('0');
    (canonical && component.bytes().all(|b| b.is_ascii_digit())).then(|| component.parse().ok())?
}
