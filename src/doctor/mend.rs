//! The update that would mend a finding, as `mongosh` takes it. Pure; never carried out here.

use std::fmt;

use mongodb::bson::{Bson, DateTime, Document, RawBsonRef, RawDocument, doc};

use crate::expiry::{Lookalike, PLAUSIBLE_SECONDS, Unit};

/// An `updateMany` with a pipeline, to be looked at and pasted into `mongosh`; nothing here carries it out.
///
/// It touches only documents that have what was found, leaves values that cannot be converted, and does nothing the second
/// time. It needs MongoDB 4.4, and 5.0 for field names with dots.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Mend {
    /// The collection.
    pub collection: String,
    /// Which documents.
    pub filter: Document,
    /// What is done to them.
    pub pipeline: Vec<Document>,
}

/// What has to be done to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Convert {
    /// It is a date, in the wrong place.
    AsIs,
    /// Text that the database can read as a date.
    Text,
    Number(Unit),
    DigitText(Unit),
    /// `$toDate` knows this type.
    Type(&'static str),
    /// A date of which seconds were taken for milliseconds.
    Times1000,
    /// A date of which milliseconds were taken for seconds.
    By1000,
    /// An array of arrays.
    Flatten,
}

impl Convert {
    pub(super) fn of(value: RawBsonRef<'_>) -> Option<Self> {
        match value {
            RawBsonRef::DateTime(_) => Some(Convert::AsIs),
            RawBsonRef::Timestamp(_) => Some(Convert::Type("timestamp")),
            RawBsonRef::ObjectId(_) => Some(Convert::Type("objectId")),
            other => match Lookalike::of(other)? {
                Lookalike::Iso | Lookalike::DateText => Some(Convert::Text),
                Lookalike::AmbiguousText => None,
                Lookalike::Epoch(unit) => Some(Convert::Number(unit)),
                Lookalike::EpochText(unit) => Some(Convert::DigitText(unit)),
            },
        }
    }

    /// The type that a query asks for.
    fn query_type(self) -> &'static str {
        match self {
            Convert::AsIs | Convert::Times1000 | Convert::By1000 => "date",
            Convert::Text | Convert::DigitText(_) => "string",
            Convert::Number(_) => "number",
            Convert::Type(name) => name,
            Convert::Flatten => "array",
        }
    }

    /// What holds of a value that is to be converted, as expressions.
    fn guard(self, value: &str) -> Vec<Document> {
        let is = |name: &str| doc! { "$eq": [{ "$type": value }, name] };
        let within = |low: Bson, high: Bson| [doc! { "$gte": [value, low] }, doc! { "$lt": [value, high] }];
        let range = |per_second: i64| (PLAUSIBLE_SECONDS.start * per_second, PLAUSIBLE_SECONDS.end * per_second);
        let dates = |(low, high): (i64, i64)| within(date(low), date(high));
        let like = |pattern: &str| doc! { "$regexMatch": { "input": value, "regex": pattern } };
        let mut guard = match self {
            Convert::Number(_) => vec![doc! { "$isNumber": value }],
            other => vec![is(other.query_type())],
        };
        match self {
            Convert::Number(unit) => {
                let (low, high) = range(unit.per_second());
                guard.extend(within(low.into(), high.into()));
            }
            Convert::Text => guard.push(doc! { "$not": [like("^[0-9]+$")] }),
            Convert::DigitText(unit) => {
                let digits = unit.per_second().ilog10();
                guard.push(like(&format!("^[0-9]{{{},{}}}$", 9 + digits, 10 + digits)));
            }
            Convert::Times1000 => guard.extend(dates(range(1))),
            Convert::By1000 => guard.extend(dates(range(1_000_000))),
            // Where there is a date beside the inner arrays it counts, and those within may be meant not to.
            Convert::Flatten => {
                let types = doc! { "$map": { "input": value, "in": { "$type": "$$this" } } };
                guard.push(doc! { "$in": ["array", types.clone()] });
                guard.push(doc! { "$not": [{ "$in": ["date", types] }] });
            }
            Convert::AsIs | Convert::Type(_) => {}
        }
        guard
    }

    fn apply(self, value: &str) -> Bson {
        let to_date = |number: Bson| Bson::from(doc! { "$toDate": { "$toLong": number } });
        let number = |unit: Unit, value: Bson| match unit {
            Unit::Seconds => to_date(doc! { "$multiply": [value, 1000] }.into()),
            Unit::Milliseconds => to_date(value),
            finer => to_date(doc! { "$divide": [value, finer.per_second() / 1000] }.into()),
        };
        match self {
            Convert::AsIs => value.into(),
            Convert::Text => doc! { "$convert": { "input": value, "to": "date", "onError": value } }.into(),
            Convert::Number(unit) => number(unit, value.into()),
            Convert::DigitText(unit) => number(unit, doc! { "$toLong": value }.into()),
            Convert::Type(_) => doc! { "$toDate": value }.into(),
            Convert::Times1000 => number(Unit::Seconds, doc! { "$toLong": value }.into()),
            Convert::By1000 => number(Unit::Microseconds, doc! { "$toLong": value }.into()),
            Convert::Flatten => doc! { "$reduce": {
                "input": value,
                "initialValue": [],
                "in": { "$concatArrays": [
                    "$$value",
                    { "$cond": [{ "$isArray": "$$this" }, "$$this", ["$$this"]] },
                ] },
            } }
            .into(),
        }
    }

    /// For an element that need not be one to convert.
    fn apply_if(self, value: &str) -> Bson {
        doc! { "$cond": [all(self.guard(value)), self.apply(value), value] }.into()
    }
}

fn date(millis: i64) -> Bson {
    DateTime::from_millis(millis).into()
}

fn all(mut conditions: Vec<Document>) -> Document {
    if conditions.len() == 1 {
        conditions.remove(0)
    } else {
        doc! { "$and": conditions }
    }
}

impl Mend {
    /// Converts what stands at a path of this document, and of those that are built as it is.
    pub(super) fn in_place(
        collection: &str,
        document: &RawDocument,
        path: &[String],
        convert: Convert,
    ) -> Option<Self> {
        if !path.iter().all(|part| is_plain(part)) {
            return None;
        }
        let mut arrays = arrays_on(document, path);
        if convert == Convert::Flatten {
            // It is for the array as a whole.
            *arrays.last_mut()? = false;
        }
        let dotted = path.join(".");
        let value = format!("${dotted}");
        let (filter, set) = if arrays.contains(&true) {
            let mut filter = doc! { &dotted: { "$type": convert.query_type() } };
            if let Some(first) = arrays.iter().position(|is_array| *is_array)
                && first + 1 < path.len()
            {
                filter.insert(path[..=first].join("."), doc! { "$type": "array" });
            }
            (filter, doc! { &path[0]: rebuilt(&format!("${}", path[0]), &path[1..], &arrays, convert, 0) })
        } else {
            (doc! { "$expr": all(convert.guard(&value)) }, doc! { dotted: convert.apply(&value) })
        };
        Some(Self { collection: collection.to_owned(), filter, pipeline: vec![doc! { "$set": set }] })
    }

    /// Puts what stands elsewhere at the path.
    pub(super) fn from_elsewhere(
        collection: &str,
        path: &[String],
        elsewhere: &[String],
        convert: Convert,
    ) -> Option<Self> {
        if !path.iter().chain(elsewhere).all(|part| is_plain(part)) {
            return None;
        }
        let value = format!("${}", elsewhere.join("."));
        let within = elsewhere.starts_with(path);
        let missing = doc! { "$eq": [{ "$type": format!("${}", path.join(".")) }, "missing"] };
        let guard = convert.guard(&value).into_iter().chain((!within).then_some(missing)).collect();
        let pipeline = vec![doc! { "$set": { path.join("."): convert.apply(&value) } }];
        Some(Self { collection: collection.to_owned(), filter: doc! { "$expr": all(guard) }, pipeline })
    }

    /// Puts the value of a field with dots in its name at the path that it looks like.
    pub(super) fn from_literal_name(collection: &str, path: &[String], depth: usize, name: &str) -> Option<Self> {
        if !path.iter().all(|part| is_plain(part)) {
            return None;
        }
        let input = if depth == 0 { "$$ROOT".to_owned() } else { format!("${}", path[..depth].join(".")) };
        let value = doc! { "$getField": { "field": name, "input": input } };
        let filter = doc! { "$expr": { "$eq": [{ "$type": value.clone() }, "date"] } };
        let pipeline = vec![doc! { "$set": { path.join("."): value } }];
        Some(Self { collection: collection.to_owned(), filter, pipeline })
    }
}

/// Whether an expression can name the field.
fn is_plain(part: &str) -> bool {
    !part.is_empty() && !part.contains(['$', '.', '\0']) && !part.bytes().all(|b| b.is_ascii_digit())
}

/// For each field of the path, whether an array stands there; of an array's elements the first document is followed.
fn arrays_on(document: &RawDocument, path: &[String]) -> Vec<bool> {
    let mut arrays = vec![false; path.len()];
    let mut document = Some(document);
    for (part, is_array) in path.iter().zip(&mut arrays) {
        let value = document.and_then(|document| document.get(part).ok().flatten());
        document = match value {
            Some(RawBsonRef::Document(inner)) => Some(inner),
            Some(RawBsonRef::Array(array)) => {
                *is_array = true;
                array.into_iter().flatten().find_map(RawBsonRef::as_document)
            }
            _ => None,
        };
    }
    arrays
}

/// The value that stands at `value`, with what is at the rest of the path converted.
fn rebuilt(value: &str, rest: &[String], arrays: &[bool], convert: Convert, level: usize) -> Bson {
    let name = format!("e{level}");
    let element = if arrays[0] { format!("$${name}") } else { value.to_owned() };
    let inner = match rest.split_first() {
        None => convert.apply_if(&element),
        Some((first, rest)) => {
            let value = rebuilt(&format!("{element}.{first}"), rest, &arrays[1..], convert, level + 1);
            doc! { "$mergeObjects": [&element, { first: value }] }.into()
        }
    };
    if arrays[0] { doc! { "$map": { "input": value, "as": name, "in": inner } }.into() } else { inner }
}

impl fmt::Display for Mend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "db.getCollection({:?}).updateMany({}, [", self.collection, Shell(&self.filter.clone().into()))?;
        for stage in &self.pipeline {
            Shell(&stage.clone().into()).fmt(f)?;
        }
        f.write_str("])")
    }
}

/// A value as `mongosh` reads it.
pub(super) struct Shell<'a>(pub(super) &'a Bson);

impl fmt::Display for Shell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Bson::Document(document) => {
                f.write_str("{")?;
                for (number, (name, value)) in document.iter().enumerate() {
                    let bare = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_$".contains(&b))
                        && !name.starts_with(|c: char| c.is_ascii_digit());
                    let separator = if number == 0 { "" } else { ", " };
                    if bare {
                        write!(f, "{separator}{name}: {}", Shell(value))?;
                    } else {
                        write!(f, "{separator}{name:?}: {}", Shell(value))?;
                    }
                }
                f.write_str("}")
            }
            Bson::Array(values) => {
                f.write_str("[")?;
                for (number, value) in values.iter().enumerate() {
                    write!(f, "{}{}", if number == 0 { "" } else { ", " }, Shell(value))?;
                }
                f.write_str("]")
            }
            Bson::String(text) => write!(f, "{text:?}"),
            Bson::DateTime(date) => match date.try_to_rfc3339_string() {
                Ok(text) => write!(f, "ISODate({text:?})"),
                Err(_) => write!(f, "new Date({})", date.timestamp_millis()),
            },
            other => write!(f, "{other}"),
        }
    }
}
