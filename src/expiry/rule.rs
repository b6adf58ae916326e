//! A definition, understood: what it says of a document.

use mongodb::bson::{DateTime, Document, RawBsonRef, RawDocument};

use super::{
    absence::{Absence, absence},
    lookalike::number_in_words,
    partial::PartialFilter,
    path::{self, Unreadable},
    verdict::{Reason, Verdict},
};
use crate::{
    error::{Code, Refusal, Result},
    index::{Definition, ExpireAfter, FieldPath, TtlIndex, same_filter},
};

/// What a TTL index means: judges a document at an instant, without any database.
///
/// # Guarantees
///
/// Pure: the same document, definition and instant always give the same verdict. Never panics, whatever the bytes.
/// What cannot be read is kept.
///
/// ```
/// use std::time::Duration;
/// use ttl_index::{Rule, TtlIndex, bson::{DateTime, RawDocumentBuf, doc}};
///
/// let rule = Rule::new(&TtlIndex::on("ts").expire_after(Duration::from_secs(3600)))?;
/// let document = RawDocumentBuf::try_from(&doc! { "ts": "2026-01-01" }).unwrap();
/// let verdict = rule.judge(&document, DateTime::now());
/// assert!(!verdict.due);
/// assert_eq!(verdict.reason.to_string(), "\"ts\" is a string; TTL needs a BSON Date");
/// # Ok::<(), ttl_index::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rule {
    field: FieldPath,
    expire_after: ExpireAfter,
    partial: Option<PartialFilter>,
}

/// The dates at a document's TTL field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dates {
    /// The one that counts.
    pub(crate) earliest: DateTime,
    /// The largest key under which an index lists the document.
    pub(crate) latest: DateTime,
}

impl Rule {
    /// Checks the index as `create_index` does, as far as that needs no database.
    ///
    /// # Errors
    ///
    /// The refusal that `create_index` would give.
    pub fn new(index: &TtlIndex) -> Result<Self> {
        // The collection's name plays no part in the rule.
        Ok(Self::of(&Definition::parse("any", index)?)?)
    }

    pub(crate) fn of(definition: &Definition) -> Result<Self, Refusal> {
        let rule = Self {
            field: definition.field.clone(),
            expire_after: definition.expire_after,
            partial: definition.partial_filter.clone().map(PartialFilter::parse).transpose()?,
        };
        rule.check_collation(definition.collation)?;
        Ok(rule)
    }

    /// Refuses a rule whose filter a collation would understand in another way, if there is a collation.
    pub(crate) fn check_collation(&self, collation: bool) -> Result<(), Refusal> {
        if !collation || !self.compares_strings() {
            return Ok(());
        }
        Err(Refusal::new(
            Code::CannotCreateIndex,
            "the partial filter compares strings, and a collation would compare them in another way than the rule does; \
             compare something else, or do without the collation",
        ))
    }

    /// Says whether the document is due at `now`, when it expires, and why.
    pub fn judge(&self, document: &RawDocument, now: DateTime) -> Verdict {
        let never = |reason| Verdict { due: false, expires_at: None, reason };
        let dates = match self.dates(document) {
            Ok(Ok(dates)) => dates,
            Ok(Err(reason)) => return never(reason),
            Err(Unreadable(error)) => return never(Reason::Unreadable { error }),
        };
        let due = self.cutoff(now).is_some_and(|cutoff| dates.earliest <= cutoff);
        let field = self.field.as_str().to_owned();
        Verdict {
            due,
            expires_at: Some(self.expires_at(dates.earliest)),
            reason: if due { Reason::Expired { field } } else { Reason::NotYet { field } },
        }
    }

    /// The dates at the field, if the document expires at all.
    pub(crate) fn expiring_dates(&self, document: &RawDocument) -> Option<Dates> {
        self.dates(document).ok()?.ok()
    }

    /// The latest date that is due at `now`; none if no date can be that old.
    pub(crate) fn cutoff(&self, now: DateTime) -> Option<DateTime> {
        now.timestamp_millis().checked_sub(self.expire_after.millis()).map(DateTime::from_millis)
    }

    /// When a document with this earliest date expires; the end of time if that is beyond it.
    pub(crate) fn expires_at(&self, earliest: DateTime) -> DateTime {
        DateTime::from_millis(earliest.timestamp_millis().saturating_add(self.expire_after.millis()))
    }

    /// Whether both rules give the same verdict on every document.
    pub(crate) fn same_as(&self, other: &Rule) -> bool {
        fn source(rule: &Rule) -> Option<&Document> {
            rule.partial.as_ref().map(PartialFilter::source)
        }
        let same = self.field == other.field && self.expire_after == other.expire_after;
        same && same_filter(source(self), source(other))
    }

    pub(crate) fn field(&self) -> &FieldPath {
        &self.field
    }

    /// How long after its date a document expires, in milliseconds.
    pub(crate) fn period_millis(&self) -> i64 {
        self.expire_after.millis()
    }

    pub(crate) fn partial(&self) -> Option<&PartialFilter> {
        self.partial.as_ref()
    }

    /// Whether the partial filter compares strings, which a collation would do differently.
    pub(crate) fn compares_strings(&self) -> bool {
        self.partial.as_ref().is_some_and(PartialFilter::compares_strings)
    }

    pub(super) fn dates(&self, document: &RawDocument) -> Result<Result<Dates, Reason>, Unreadable> {
        let mut dates: Option<Dates> = None;
        let mut other = Other::default();
        path::visit(document, self.field.parts(), &mut |value| match value {
            Some(RawBsonRef::DateTime(date)) => {
                let range = dates.get_or_insert(Dates { earliest: date, latest: date });
                range.earliest = range.earliest.min(date);
                range.latest = range.latest.max(date);
            }
            value => other.note(value),
        })?;
        let Some(dates) = dates else { return Ok(Err(other.reason(&self.field, document))) };
        if let Some(partial) = &self.partial
            && !partial.matches(document)?
        {
            return Ok(Err(Reason::PartialFilter { filter: partial.to_string() }));
        }
        Ok(Ok(dates))
    }
}

/// What was found at the field instead of a date.
#[derive(Default)]
struct Other {
    found: Option<(&'static str, Option<String>)>,
    array: Option<ArrayFound>,
}

/// An array at the end of the path.
struct ArrayFound {
    hint: Option<&'static str>,
}

impl Other {
    fn note(&mut self, value: Option<RawBsonRef<'_>>) {
        match value {
            Some(RawBsonRef::Array(array)) => {
                self.array =
                    Some(ArrayFound { hint: array_hint(self.array.is_some() || holds_array(array), array.is_empty()) });
            }
            Some(value) if self.found.is_none() => self.found = Some((in_words(value), number_in_words(value))),
            Some(_) | None => {}
        }
    }

    fn reason(self, field: &FieldPath, document: &RawDocument) -> Reason {
        let name = field.as_str().to_owned();
        if let Some(ArrayFound { hint }) = self.array {
            return Reason::ArrayWithoutDate { field: name, hint };
        }
        if let Some((found, hint)) = self.found {
            return Reason::NotADate { field: name, found, hint };
        }
        let hint = match absence(document, field.parts()) {
            Absence::LiteralName { fields, .. } if fields == field.parts().len() => {
                Some("there is a field with this very name, dots included, which a path never sees")
            }
            Absence::LiteralName { .. } => {
                Some("there is a field whose very name is a part of it, dots included, which a path never sees")
            }
            Absence::EmptyArray => Some("an array on the way to it is empty"),
            Absence::Unknown => None,
        };
        Reason::Missing { field: name, hint }
    }
}

fn holds_array(array: &mongodb::bson::RawArray) -> bool {
    array.into_iter().any(|element| matches!(element, Ok(RawBsonRef::Array(_))))
}

fn array_hint(nested: bool, empty: bool) -> Option<&'static str> {
    match (nested, empty) {
        (true, _) => Some("only one level of an array is looked into"),
        (_, true) => Some("it is empty"),
        _ => None,
    }
}

fn in_words(value: RawBsonRef<'_>) -> &'static str {
    match value {
        RawBsonRef::Double(_) | RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Decimal128(_) => "a number",
        RawBsonRef::String(_) => "a string",
        RawBsonRef::Array(_) => "an array",
        RawBsonRef::Document(_) => "a document",
        RawBsonRef::Boolean(_) => "a boolean",
        RawBsonRef::Null => "null",
        RawBsonRef::RegularExpression(_) => "a regular expression",
        RawBsonRef::JavaScriptCode(_) | RawBsonRef::JavaScriptCodeWithScope(_) => "JavaScript code",
        RawBsonRef::Timestamp(_) => "a BSON Timestamp, MongoDB's internal type",
        RawBsonRef::Binary(_) => "binary data",
        RawBsonRef::ObjectId(_) => "an ObjectId",
        RawBsonRef::DateTime(_) => "a date",
        RawBsonRef::Symbol(_) => "a symbol",
        RawBsonRef::Undefined => "undefined",
        RawBsonRef::MaxKey => "MaxKey",
        RawBsonRef::MinKey => "MinKey",
        RawBsonRef::DbPointer(_) => "a DBPointer",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mongodb::bson::{Bson, RawDocumentBuf, doc};

    use super::*;

    fn judge(field: &str, period: u64, document: &Document, now: i64) -> Verdict {
        let rule = Rule::new(&TtlIndex::on(field).expire_after(Duration::from_secs(period))).unwrap();
        rule.judge(&RawDocumentBuf::try_from(document).unwrap(), DateTime::from_millis(now))
    }

    #[test]
    fn the_cutoff_is_inclusive_to_the_millisecond() {
        let document = doc! { "t": DateTime::from_millis(1_000) };
        assert!(judge("t", 60, &document, 61_000).due);
        assert!(!judge("t", 60, &document, 60_999).due);
    }

    #[test]
    fn dates_at_the_ends_of_time_neither_overflow_nor_wrap() {
        let (min, max) = (doc! { "t": DateTime::MIN }, doc! { "t": DateTime::MAX });
        let longest = 2_147_483_647;
        for now in [i64::MIN, i64::MIN + 1, 0, i64::MAX] {
            assert!(judge("t", 0, &min, now).due, "{now}");
            assert_eq!(judge("t", 0, &max, now).due, now == i64::MAX, "{now}");
            assert!(!judge("t", longest, &max, now).due, "{now}");
        }
        // The first date has not been for a millisecond yet: nothing can be a second old.
        assert!(!judge("t", 1, &min, i64::MIN).due);
        assert!(judge("t", longest, &min, 0).due);
        assert_eq!(judge("t", longest, &max, 0).expires_at, Some(DateTime::MAX));
    }

    #[test]
    fn the_reason_says_what_stands_in_the_way() {
        let date = DateTime::from_millis(0);
        for (field, document, reason) in [
            ("ts", doc! { "ts": "2026-01-01" }, "\"ts\" is a string; TTL needs a BSON Date"),
            ("ts", doc! { "ts": 5 }, "\"ts\" is a number; TTL needs a BSON Date"),
            ("ts", doc! { "ts": Bson::Null }, "\"ts\" is null; TTL needs a BSON Date"),
            ("ts", doc! { "x": 1 }, "\"ts\" is missing; TTL needs a BSON Date"),
            ("ts", doc! { "ts": [] }, "\"ts\" is an array without a BSON Date; it is empty"),
            (
                "ts",
                doc! { "ts": [[date]] },
                "\"ts\" is an array without a BSON Date; only one level of an array is looked into",
            ),
            (
                "ts",
                doc! { "ts": 1_527_206_400 },
                "\"ts\" is a number; TTL needs a BSON Date; as seconds since 1970 it is 2018-05-25T00:00:00Z",
            ),
            (
                "a.b.c",
                doc! { "a": { "b.c": date } },
                "\"a.b.c\" is missing; TTL needs a BSON Date; \
                 there is a field whose very name is a part of it, dots included, which a path never sees",
            ),
            ("a.b", doc! { "a": [] }, "\"a.b\" is missing; TTL needs a BSON Date; an array on the way to it is empty"),
            (
                "a.b",
                doc! { "a.b": date },
                "\"a.b\" is missing; TTL needs a BSON Date; \
                 there is a field with this very name, dots included, which a path never sees",
            ),
        ] {
            let verdict = judge(field, 0, &document, 0);
            assert_eq!(verdict.reason.to_string(), reason);
            assert_eq!((verdict.due, verdict.expires_at), (false, None));
        }
    }

    #[test]
    fn unreadable_bytes_keep_the_document() {
        // An embedded document that claims to be longer than what holds it.
        let bytes = [&20_i32.to_le_bytes()[..], b"\x03t\0", &99_i32.to_le_bytes(), &[0; 9]].concat();
        let rule = Rule::new(&TtlIndex::on("t.x").expire_after(Duration::ZERO)).unwrap();
        if let Ok(document) = RawDocument::from_bytes(&bytes) {
            let verdict = rule.judge(document, DateTime::MAX);
            assert!(!verdict.due);
            assert!(matches!(verdict.reason, Reason::Unreadable { .. }), "{verdict}");
        }
    }

    #[test]
    fn the_partial_filter_is_named_when_it_keeps_a_document() {
        let index = TtlIndex::on("t").expire_after(Duration::ZERO).partial_filter(doc! { "s": "done" });
        let rule = Rule::new(&index).unwrap();
        let document = RawDocumentBuf::try_from(&doc! { "t": DateTime::MIN, "s": "open" }).unwrap();
        let verdict = rule.judge(&document, DateTime::MAX);
        assert!(!verdict.due);
        assert_eq!(verdict.reason.to_string(), "the partial filter { \"s\": \"done\" } does not match");
        // MaxKey and MinKey say nothing about dates.
        assert!(!judge("t", 0, &doc! { "t": Bson::MinKey }, i64::MAX).due);
    }
}
