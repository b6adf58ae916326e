//! A declared reference: as it is written ([`Reference`]), and as it is in force once checked ([`ReferenceGuard`]).

use std::{fmt, time::Duration};

use mongodb::bson::{Bson, DateTime, Document, RawBson, RawBsonRef, RawDocument, doc};

use crate::{
    error::{Code, Refusal},
    expiry::visit,
    index::{FieldPath, check_field, period},
    namespace::CollectionName,
    number::Number,
};

/// The most guards of a TTL index: each is asked about every batch.
const MAX_GUARDS: usize = 16;

/// Keeps a document as long as another collection references it by its `_id`.
///
/// Declared when the TTL index is [made](crate::TtlIndex::keep_while), or [later](crate::TtlRegistry::set_guards), and stored
/// with it, so that every sweep in every process goes by it.
///
/// # Guarantees
///
/// A document that is referenced when it is about to be deleted stays. Values are compared as MongoDB's queries compare them,
/// so that the field may hold an array of `_id`s. What cannot be told, such as the age of a child without a date, keeps
/// the document. Children are never deleted along with it: give them a TTL index of their own.
///
/// # Assumptions
///
/// The children are read a moment before the delete, not in the same step: a child written in between does not save the
/// document. [`touch`](crate::TtlRegistry::touch) it after writing the child, and nothing is lost; `docs/guards.md` tells
/// why.
///
/// ```
/// use std::time::Duration;
/// use ttl_index::{Reference, TtlIndex};
///
/// let week = Duration::from_secs(7 * 86_400);
/// let articles = TtlIndex::on("publishedAt")
///     .expire_after(week)
///     .keep_while(Reference::by("reads", "article_id").newer_than("readAt", week))
///     .keep_while(Reference::by("likes", "article_id"));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a guard is declared by handing this to keep_while or set_guards"]
pub struct Reference {
    spec: Document,
}

impl Reference {
    /// As long as `collection` has a document whose `field` holds the `_id`; the path may be dotted.
    pub fn by(collection: impl Into<String>, field: impl Into<String>) -> Self {
        Self { spec: doc! { "collection": collection.into(), "field": field.into() } }
    }

    /// Only children count whose date in `date` is less than `age` ago, in whole seconds from 1 to 2,147,483,647; by default
    /// all.
    pub fn newer_than(mut self, date: impl Into<String>, age: Duration) -> Self {
        self.spec.insert("date", date.into());
        self.spec.insert("newerThanSeconds", period(age));
        self
    }

    /// Does without an index on the field of the children; by default one is demanded when the guard is declared.
    ///
    /// Every batch then reads the whole collection of the children. The embedded store always does.
    pub fn without_index(mut self) -> Self {
        self.spec.insert("withoutIndex", true);
        self
    }
}

/// Takes what is stored: `{collection, field, date, newerThanSeconds, withoutIndex}`, the last three if they are wanted.
impl From<Document> for Reference {
    fn from(spec: Document) -> Self {
        Self { spec }
    }
}

impl From<Reference> for Document {
    fn from(reference: Reference) -> Self {
        reference.spec
    }
}

/// In words, behind "as long as".
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match ReferenceGuard::parse(&self.spec) {
            Ok(guard) => guard.fmt(f),
            Err(_) => self.spec.fmt(f),
        }
    }
}

/// A reference, checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReferenceGuard {
    pub(crate) collection: CollectionName,
    pub(crate) field: FieldPath,
    newer: Option<Newer>,
    pub(crate) without_index: bool,
}

/// Only what is newer counts.
#[derive(Clone, Debug, PartialEq)]
struct Newer {
    date: FieldPath,
    than_seconds: i32,
}

impl ReferenceGuard {
    pub(crate) fn parse(spec: &Document) -> Result<Self, Refusal> {
        let refuse = |why: String| Refusal::new(Code::BadValue, format!("the guard {spec}: {why}"));
        let known = ["collection", "field", "date", "newerThanSeconds", "withoutIndex"];
        if let Some(unknown) = spec.keys().find(|field| !known.contains(&field.as_str())) {
            return Err(refuse(format!("the field '{unknown}' is not known")));
        }
        let text = |field: &str| match spec.get(field) {
            Some(Bson::String(text)) => Ok(text.as_str()),
            _ => Err(refuse(format!("'{field}' must be a string"))),
        };
        let path = |field: &str| {
            let path = text(field)?;
            check_field(path).map_err(|why| refuse(why.message().to_owned()))?;
            Ok(FieldPath::new(path))
        };
        let newer = match (spec.get("date"), spec.get("newerThanSeconds")) {
            (None, None) => None,
            (Some(_), Some(age)) => Some(Newer {
                date: path("date")?,
                than_seconds: age_of(age).ok_or_else(|| {
                    refuse("'newerThanSeconds' must be a whole number from 1 to 2147483647".to_owned())
                })?,
            }),
            _ => return Err(refuse("'date' and 'newerThanSeconds' go together".to_owned())),
        };
        let without_index = match spec.get("withoutIndex") {
            None => false,
            Some(Bson::Boolean(without)) => *without,
            Some(_) => return Err(refuse("'withoutIndex' must be true or false".to_owned())),
        };
        let collection = CollectionName::parse(text("collection")?).map_err(|why| refuse(why.message().to_owned()))?;
        Ok(Self { collection, field: path("field")?, newer, without_index })
    }

    pub(crate) fn to_document(&self) -> Document {
        let mut spec = doc! { "collection": self.collection.as_str(), "field": self.field.as_str() };
        if let Some(newer) = &self.newer {
            spec.extend(doc! { "date": newer.date.as_str(), "newerThanSeconds": newer.than_seconds });
        }
        if self.without_index {
            spec.insert("withoutIndex", true);
        }
        spec
    }

    /// The query for children that keep one of `ids` at `now`.
    pub(crate) fn filter(&self, ids: Vec<Bson>, now: DateTime) -> Document {
        let mut filter = Document::new();
        filter.insert(self.field.as_str(), doc! { "$in": ids });
        if let Some(newer) = &self.newer {
            let old = newer.too_old(now);
            let (mut recent, mut untold) = (Document::new(), Document::new());
            recent.insert(newer.date.as_str(), doc! { "$gt": old });
            // A child without a date cannot be told to be old. By type too: on some backends comparisons reach across types.
            untold.insert(newer.date.as_str(), doc! { "$not": { "$lte": old, "$type": "date" } });
            filter.insert("$or", vec![recent, untold]);
        }
        filter
    }

    /// What a query must return of the children. The first component only: a path is walked here.
    pub(crate) fn projection(&self) -> Document {
        let mut projection = doc! { "_id": 0 };
        projection.insert(self.field.parts().first().map_or("", String::as_str), 1);
        projection
    }

    /// Whether a child is new enough to count at `now`: the same as the query says.
    #[cfg_attr(not(feature = "embedded"), allow(dead_code))] // elsewhere the query does
    pub(crate) fn counts(&self, child: &RawDocument, now: DateTime) -> bool {
        let Some(newer) = &self.newer else { return true };
        let (too_old, mut recent, mut old) = (newer.too_old(now), false, false);
        let read = visit(child, newer.date.parts(), &mut |value| {
            if let Some(RawBsonRef::DateTime(date)) = value {
                recent |= date > too_old;
                old |= date <= too_old;
            }
        });
        read.is_err() || recent || !old
    }
}

impl Newer {
    /// The latest date that does not count any more.
    fn too_old(&self, now: DateTime) -> DateTime {
        DateTime::from_millis(now.timestamp_millis().saturating_sub(i64::from(self.than_seconds) * 1000))
    }
}

fn age_of(value: &Bson) -> Option<i32> {
    let number = RawBson::try_from(value.clone()).ok()?;
    let seconds = Number::from_raw(number.as_raw_bson_ref())?.as_i64()?;
    i32::try_from(seconds).ok().filter(|seconds| *seconds > 0)
}

impl fmt::Display for ReferenceGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" has one with {} = its _id", self.collection, self.field.as_str())?;
        let Some(newer) = &self.newer else { return Ok(()) };
        let units = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
        let (unit, name) = units.into_iter().find(|(unit, _)| newer.than_seconds % unit == 0).unwrap_or((1, "s"));
        write!(f, " newer than {}{name}", newer.than_seconds / unit)
    }
}

/// The guards of a TTL index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guards(Vec<ReferenceGuard>);

impl Guards {
    pub(crate) fn parse(specs: &[Document]) -> Result<Self, Refusal> {
        let refuse = |why: String| Err(Refusal::new(Code::BadValue, why));
        if specs.len() > MAX_GUARDS {
            return refuse(format!("{} guards are too many; a TTL index has {MAX_GUARDS} at most", specs.len()));
        }
        let mut guards = Vec::new();
        for spec in specs {
            let guard = ReferenceGuard::parse(spec)?;
            if guards.contains(&guard) {
                return refuse(format!("the guard {spec} is there twice"));
            }
            guards.push(guard);
        }
        Ok(Self(guards))
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, ReferenceGuard> {
        self.0.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether both keep the same documents.
    pub(crate) fn same_as(&self, other: &Guards) -> bool {
        self.0.len() == other.0.len() && self.0.iter().all(|guard| other.0.contains(guard))
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::RawDocumentBuf;

    use super::*;

    fn parse(spec: impl Into<Document>) -> Result<ReferenceGuard, Refusal> {
        ReferenceGuard::parse(&spec.into())
    }

    #[test]
    fn a_guard_is_read_back_as_it_was_written_and_said_in_words() {
        let week = Duration::from_secs(7 * 86_400);
        for (reference, words) in [
            (Reference::by("likes", "a.id"), "\"likes\" has one with a.id = its _id"),
            (
                Reference::by("reads", "article_id").newer_than("readAt", week),
                "\"reads\" has one with article_id = its _id newer than 7d",
            ),
            (
                Reference::by("reads", "x").newer_than("at", Duration::from_secs(61)).without_index(),
                "\"reads\" has one with x = its _id newer than 61s",
            ),
        ] {
            let guard = parse(reference.clone()).unwrap();
            assert_eq!(parse(guard.to_document()).unwrap(), guard);
            assert_eq!(reference.to_string(), words);
        }
    }

    #[test]
    fn whatever_would_have_to_be_guessed_is_refused() {
        let good = doc! { "collection": "reads", "field": "a", "date": "at", "newerThanSeconds": 60.0 };
        assert!(parse(good.clone()).is_ok());
        for (field, value) in [
            ("collection", Bson::Null),
            ("collection", "ttl_index.lease".into()),
            ("field", Bson::Int32(1)),
            ("field", "".into()),
            ("field", "a..b".into()),
            ("field", "$a".into()),
            ("date", Bson::Null),
            ("newerThanSeconds", Bson::Int32(0)),
            ("newerThanSeconds", Bson::Int32(-1)),
            ("newerThanSeconds", Bson::Double(f64::NAN)),
            ("newerThanSeconds", Bson::Double(1.5)),
            ("newerThanSeconds", Bson::Int64(2_147_483_648)),
            ("newerThanSeconds", "7d".into()),
            ("withoutIndex", Bson::Int32(1)),
            ("newerThenSeconds", Bson::Int32(1)),
        ] {
            let mut spec = good.clone();
            spec.insert(field, value);
            assert_eq!(parse(spec.clone()).unwrap_err().code(), Code::BadValue, "{spec}");
        }
        for lacking in ["collection", "field", "date", "newerThanSeconds"] {
            let mut spec = good.clone();
            spec.remove(lacking);
            assert!(parse(spec).is_err(), "without {lacking}");
        }
        assert!(Guards::parse(&[good.clone(), good]).is_err(), "twice");
    }

    #[test]
    fn a_child_whose_age_cannot_be_told_counts() {
        let guard = parse(Reference::by("reads", "a").newer_than("at", Duration::from_secs(1))).unwrap();
        let date = |millis| Bson::DateTime(DateTime::from_millis(millis));
        for (at, counts) in [
            (date(4_001), true),
            (date(4_000), false),
            (Bson::Array(vec![date(0), date(4_001)]), true),
            (Bson::Array(vec![date(0), "x".into()]), false),
            (Bson::String("2026-01-01".into()), true),
            (Bson::Null, true),
            (Bson::Array(vec![]), true),
        ] {
            let child = RawDocumentBuf::try_from(&doc! { "at": at }).unwrap();
            assert_eq!(guard.counts(&child, DateTime::from_millis(5_000)), counts, "{child:?}");
        }
        let without = RawDocumentBuf::new();
        assert!(guard.counts(&without, DateTime::from_millis(5_000)));
    }
}
