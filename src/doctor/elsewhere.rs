//! A date that stands beside the TTL field rather than in it: spelt differently, a level deeper or higher. Pure.

use mongodb::bson::{RawBsonRef, RawDocument};

use super::{finding::FindingKind, mend::Convert};

/// A value that the TTL field was probably meant to hold.
pub(super) struct Elsewhere<'a> {
    pub(super) kind: FindingKind,
    pub(super) path: Vec<String>,
    pub(super) value: RawBsonRef<'a>,
}

/// How many fields of a document are looked at.
const MOST_FIELDS: usize = 200;

/// Looks around a path at which nothing was found, or a document.
pub(super) fn look_around<'a>(document: &'a RawDocument, path: &[String]) -> Option<Elsewhere<'a>> {
    let found = |kind, (path, value)| Elsewhere { kind, path, value };
    let spelt = || respelt(document, path).map(|it| found(FindingKind::SpeltDifferently, it));
    let deeper = || deeper(document, path).map(|it| found(FindingKind::DateDeeper, it));
    let higher = || higher(document, path).map(|it| found(FindingKind::DateShallower, it));
    spelt().or_else(deeper).or_else(higher)
}

type Place<'a> = (Vec<String>, RawBsonRef<'a>);

fn respelt<'a>(document: &'a RawDocument, path: &[String]) -> Option<Place<'a>> {
    let (first, rest) = path.split_first()?;
    if let Some(there) = get(document, first) {
        let (mut path, value) = respelt(there.as_document()?, rest)?;
        path.insert(0, first.clone());
        return Some((path, value));
    }
    fields(document).filter(|(name, _)| similar(name, first)).find_map(|(name, value)| {
        if rest.is_empty() {
            return is_instant(value).then(|| (vec![name.to_owned()], value));
        }
        let value = at(value.as_document()?, rest)?;
        is_instant(value).then(|| ([&[name.to_owned()], rest].concat(), value))
    })
}

/// In a document that stands in the place of the date, or beside it under the same name.
fn deeper<'a>(document: &'a RawDocument, path: &[String]) -> Option<Place<'a>> {
    if let Some(RawBsonRef::Document(inner)) = at(document, path) {
        let (name, value) = fields(inner).find(|(_, value)| is_instant(*value))?;
        return Some(([path, &[name.to_owned()]].concat(), value));
    }
    let (last, parents) = path.split_last()?;
    let parent = if parents.is_empty() { document } else { at(document, parents)?.as_document()? };
    fields(parent).find_map(|(name, inner)| {
        let value = get(inner.as_document()?, last)?;
        is_instant(value).then(|| ([parents, &[name.to_owned(), last.clone()]].concat(), value))
    })
}

fn higher<'a>(document: &'a RawDocument, path: &[String]) -> Option<Place<'a>> {
    let [parents @ .., _, last] = path else { return None };
    let path = [parents, std::slice::from_ref(last)].concat();
    let value = at(document, &path)?;
    is_instant(value).then_some((path, value))
}

fn is_instant(value: RawBsonRef<'_>) -> bool {
    Convert::of(value).is_some_and(|convert| convert != Convert::Type("objectId"))
}

fn get<'a>(document: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
    document.get(name).ok().flatten()
}

/// Through documents only.
fn at<'a>(document: &'a RawDocument, path: &[String]) -> Option<RawBsonRef<'a>> {
    let (first, rest) = path.split_first()?;
    let value = get(document, first)?;
    if rest.is_empty() { Some(value) } else { at(value.as_document()?, rest) }
}

/// The fields of a document, up to the first that cannot be read.
pub(super) fn fields(document: &RawDocument) -> impl Iterator<Item = (&str, RawBsonRef<'_>)> {
    document.iter().take(MOST_FIELDS).map_while(Result::ok).map(|(name, value)| (text(name), value))
}

/// A field's name, of which the driver's BSON 2 and 3 have different types.
fn text<T: AsRef<str> + ?Sized>(name: &T) -> &str {
    name.as_ref()
}

/// Whether one name may be a slip of the other: case, underscores, plural, a letter or two.
fn similar(one: &str, other: &str) -> bool {
    let plain = |name: &str| {
        let letters = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase);
        letters.take(64).collect::<Vec<char>>()
    };
    let (a, b) = (plain(one), plain(other));
    let allowed = match a.len().min(b.len()) {
        0..=3 => 0,
        4..=6 => 1,
        _ => 2,
    };
    one != other && a.len().abs_diff(b.len()) <= allowed && distance(&a, &b) <= allowed
}

/// How many letters have to be put in, taken out or changed.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{DateTime, Document, RawDocumentBuf, doc};

    use super::*;

    #[test]
    fn slips_of_the_pen_are_told_from_other_names() {
        for (one, other) in [
            ("created_at", "createdAt"),
            ("CreatedAt", "createdAt"),
            ("expiresAt", "expireAt"),
            ("expireAts", "expireAt"),
            ("creatdAt", "createdAt"),
            ("createdOn", "createdAt"),
            ("times", "time"),
            ("TS", "ts"),
        ] {
            assert!(similar(one, other), "{one} {other}");
        }
        for (one, other) in [("updatedAt", "createdAt"), ("t", "ts"), ("ts", "ts"), ("at", "it"), ("end", "start")] {
            assert!(!similar(one, other), "{one} {other}");
        }
    }

    fn found(document: &Document, path: &str) -> Option<(FindingKind, String)> {
        let document = RawDocumentBuf::try_from(document).unwrap();
        let path: Vec<String> = path.split('.').map(str::to_owned).collect();
        look_around(&document, &path).map(|it| (it.kind, it.path.join(".")))
    }

    #[test]
    fn a_date_beside_the_field_is_found_and_nothing_else() {
        let date = DateTime::from_millis(0);
        for (document, path, kind, place) in [
            (doc! { "created_at": date }, "createdAt", FindingKind::SpeltDifferently, "created_at"),
            (doc! { "Meta": { "ts": date } }, "meta.ts", FindingKind::SpeltDifferently, "Meta.ts"),
            (
                doc! { "meta": { "created_at": "2020-01-01" } },
                "meta.createdAt",
                FindingKind::SpeltDifferently,
                "meta.created_at",
            ),
            (doc! { "meta": { "ts": date } }, "ts", FindingKind::DateDeeper, "meta.ts"),
            (doc! { "ts": { "date": "2020-01-01" } }, "ts", FindingKind::DateDeeper, "ts.date"),
            (doc! { "a": { "x": { "ts": date } } }, "a.ts", FindingKind::DateDeeper, "a.x.ts"),
            (doc! { "ts": date }, "meta.ts", FindingKind::DateShallower, "ts"),
            (doc! { "a": { "c": date } }, "a.b.c", FindingKind::DateShallower, "a.c"),
        ] {
            assert_eq!(found(&document, path), Some((kind, place.to_owned())), "{document}");
        }
        for document in [
            doc! { "createdBy": "somebody" },
            doc! { "updatedAt": date },
            doc! { "created_at": 5 },
            doc! { "meta": [{ "createdAt": date }] },
            doc! {},
        ] {
            assert_eq!(found(&document, "createdAt"), None, "{document}");
        }
    }
}
