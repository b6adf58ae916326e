//! The update that would mend a finding, as `mongosh` takes it. Pure; never carried out here.

use std::fmt;

use mongodb::bson::{Bson, DateTime, Document, RawBsonRef, doc};

use crate::expiry::{Lookalike, PLAUSIBLE_SECONDS, Unit};

/// An `updateMany` with a pipeline, to be looked at and pasted into `mongosh`; nothing here carries it out.
///
/// # Guarantees
///
/// Its filter matches only documents that are part of the finding, whatever else stands in the collection. It leaves values
/// that cannot be converted, and does nothing the second time. Where a filter cannot tell, no update is proposed.
///
/// # Assumptions
///
/// MongoDB 4.4, and 5.0 for field names with dots.
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
    /// Text as ISO 8601 has it.
    Iso,
    /// Text of another form that the database can read as a date.
    Text,
    Number(Unit),
    DigitText(Unit),
    /// `$toDate` knows this type.
    Type(&'static str),
    /// A date of which seconds were taken for milliseconds.
    Times1000,
    /// A date of which milliseconds were taken for seconds.
    By1000,
}

/// What [`Lookalike::Iso`] is, or less.
const ISO: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ][0-9]{2}:[0-9]{2}[ -~]{0,48})?$";

/// What [`Lookalike::DateText`] is, or less: 8 digits; a year first, and two numbers more; a year, a number and a month.
const DATE_TEXT: &str = concat!(
    "^(?! |.* $|[0-9]{4}-[0-9]{2}-[0-9]{2}($|[Tt ][0-9]{2}:[0-9]{2}))(?=[ -~]{1,64}$)(",
    "(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])($|T)",
    "|(19|20)[0-9]{2}(?=(.*[^0-9a-z][0-9]+(?![0-9a-z])){2})(?![0-9a-z])",
    "|(?=(.*[^0-9a-z])?(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))",
    "(?=(.*[^0-9a-z])?(19|20)[0-9]{2}(?![0-9a-z]))",
    "(?=(.*[^0-9a-z])?[0-9]+[^0-9a-z](.*[^0-9a-z])?[0-9]+(?![0-9a-z])))"
);

impl Convert {
    pub(super) fn of(value: RawBsonRef<'_>) -> Option<Self> {
        match value {
            RawBsonRef::DateTime(_) => Some(Convert::AsIs),
            RawBsonRef::Timestamp(_) => Some(Convert::Type("timestamp")),
            RawBsonRef::ObjectId(_) => Some(Convert::Type("objectId")),
            other => match Lookalike::of(other)? {
                Lookalike::Iso => Some(Convert::Iso),
                Lookalike::DateText => Some(Convert::Text),
                Lookalike::AmbiguousText => None,
                Lookalike::Epoch(unit) => Some(Convert::Number(unit)),
                Lookalike::EpochText(unit) => Some(Convert::DigitText(unit)),
            },
        }
    }

    /// What holds of exactly the values that are of this kind, or of fewer, as expressions; each is evaluated only if those
    /// before it hold.
    fn guard(self, value: &str) -> Vec<Document> {
        let is = |name: &str| doc! { "$eq": [{ "$type": value }, name] };
        let within = |of: Bson, low: Bson, high: Bson| [doc! { "$gte": [of.clone(), low] }, doc! { "$lt": [of, high] }];
        let range =
            |per_second: i64| (PLAUSIBLE_SECONDS.start * per_second, PLAUSIBLE_SECONDS.end.saturating_mul(per_second));
        let dates = |(low, high): (i64, i64)| within(value.into(), date(low), date(high));
        let like = |pattern: &str| doc! { "$regexMatch": { "input": value, "regex": pattern, "options": "i" } };
        let mut guard = Vec::new();
        match self {
            Convert::AsIs => guard.push(is("date")),
            Convert::Type(name) => guard.push(is(name)),
            Convert::Iso => guard.extend([is("string"), like(ISO)]),
            Convert::Text => guard.extend([is("string"), like(DATE_TEXT)]),
            Convert::Number(unit) => {
                let (low, high) = range(unit.per_second());
                guard.push(doc! { "$isNumber": value });
                guard.extend(within(value.into(), low.into(), high.into()));
                // Of decimal numbers whole ones only.
                let whole = doc! { "$eq": [value, { "$trunc": value }] };
                guard.push(doc! { "$or": [{ "$ne": [{ "$type": value }, "decimal"] }, whole] });
            }
            Convert::DigitText(unit) => {
                let (low, high) = range(unit.per_second());
                let number = doc! { "$convert": { "input": value, "to": "long", "onError": 0 } };
                guard.extend([is("string"), like("^[0-9]{9,19}$")]);
                guard.extend(within(number.into(), low.into(), high.into()));
            }
            Convert::Times1000 => {
                guard.push(is("date"));
                guard.extend(dates(range(1)));
            }
            Convert::By1000 => {
                guard.push(is("date"));
                guard.extend(dates(range(1_000_000)));
            }
        }
        guard
    }

    /// The date; `otherwise` if it turns out to be none.
    fn apply(self, value: &str, otherwise: &str) -> Bson {
        let to_date = |number: Bson| Bson::from(doc! { "$toDate": { "$toLong": number } });
        let number = |unit: Unit, value: Bson| match unit {
            Unit::Seconds => to_date(doc! { "$multiply": [value, 1000] }.into()),
            Unit::Milliseconds => to_date(value),
            finer => to_date(doc! { "$divide": [value, finer.per_second() / 1000] }.into()),
        };
        match self {
            Convert::AsIs => value.into(),
            Convert::Iso | Convert::Text => {
                doc! { "$convert": { "input": value, "to": "date", "onError": otherwise } }.into()
            }
            Convert::Number(unit) => number(unit, value.into()),
            Convert::DigitText(unit) => number(unit, doc! { "$toLong": value }.into()),
            Convert::Type(_) => doc! { "$toDate": value }.into(),
            Convert::Times1000 => number(Unit::Seconds, doc! { "$toLong": value }.into()),
            Convert::By1000 => number(Unit::Microseconds, doc! { "$toLong": value }.into()),
        }
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

/// A collection's TTL field.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) collection: &'a str,
    pub(super) path: &'a [String],
    pub(super) partial_filter: Option<&'a Document>,
}

impl Field<'_> {
    /// Converts the one value that stands at the field.
    pub(super) fn value(self, convert: Convert) -> Option<Mend> {
        let value = self.expression();
        self.mend(convert.guard(&value), convert.apply(&value, &value))
    }

    /// Converts every element of an array of nothing else.
    pub(super) fn elements(self, convert: Convert) -> Option<Mend> {
        let (array, each) = (self.expression(), "$$this");
        // An array of documents on the way makes one of what is in them, which is not to be set.
        let mut guard = self.parents(&["object"]);
        guard.extend([doc! { "$isArray": &array }, doc! { "$ne": [&array, []] }]);
        let input = doc! { "$cond": [{ "$isArray": &array }, &array, []] };
        guard.push(doc! { "$allElementsTrue": [{ "$map": { "input": input, "in": all(convert.guard(each)) } }] });
        let converted = doc! { "$map": { "input": &array, "in": convert.apply(each, each) } };
        self.mend(guard, converted.into())
    }

    /// Puts what is the only field of a document in the place of that document.
    pub(super) fn unwrapped(self, name: &str, convert: Convert) -> Option<Mend> {
        let whole = self.expression();
        let value = format!("{whole}.{name}");
        let mut guard = vec![doc! { "$eq": [&whole, { name: &value }] }];
        guard.extend(convert.guard(&value));
        self.mend(guard, convert.apply(&value, &whole)).filter(|_| is_plain(name))
    }

    /// Puts the value of a field with dots in its name at the path that it looks like.
    pub(super) fn literal_name(self, depth: usize, name: &str) -> Option<Mend> {
        let get = |depth: usize, name: &str| {
            let input = if depth == 0 { "$$ROOT".to_owned() } else { format!("${}", self.path[..depth].join(".")) };
            doc! { "$getField": { "field": name, "input": input } }
        };
        let mut guard = vec![doc! { "$eq": [{ "$type": get(depth, name) }, "date"] }];
        guard.extend(self.parents(&["object", "missing"]));
        guard.push(doc! { "$eq": [{ "$type": self.expression() }, "missing"] });
        // Of several such names another one may be meant.
        for start in 0..self.path.len() {
            for end in start + 2..=self.path.len() {
                let other = self.path[start..end].join(".");
                if (start, other.as_str()) != (depth, name) {
                    guard.push(doc! { "$eq": [{ "$type": get(start, &other) }, "missing"] });
                }
            }
        }
        self.mend(guard, get(depth, name).into())
    }

    fn expression(self) -> String {
        format!("${}", self.path.join("."))
    }

    /// Of which types the fields on the way are.
    fn parents(self, types: &[&str]) -> Vec<Document> {
        let parents = (1..self.path.len()).map(|end| format!("${}", self.path[..end].join(".")));
        parents.map(|parent| doc! { "$in": [{ "$type": parent }, types] }).collect()
    }

    fn mend(self, guard: Vec<Document>, value: Bson) -> Option<Mend> {
        // An `_id` cannot be changed.
        if self.path[0] == "_id" || !self.path.iter().all(|part| is_plain(part)) {
            return None;
        }
        let mut filter = doc! { "$expr": all(guard) };
        if let Some(partial) = self.partial_filter {
            filter = doc! { "$and": [partial.clone(), filter] };
        }
        let pipeline = vec![doc! { "$set": { self.path.join("."): value } }];
        Some(Mend { collection: self.collection.to_owned(), filter, pipeline })
    }
}

/// Whether an expression can name the field.
fn is_plain(part: &str) -> bool {
    !part.is_empty() && !part.contains(['$', '.', '\0']) && !part.bytes().all(|b| b.is_ascii_digit())
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
