//! Why one document never expires, more exactly than the verdict says it. Pure.

use mongodb::bson::{Bson, DateTime, RawBsonRef, RawDocument};

use super::{
    elsewhere::{Elsewhere, fields, look_around},
    finding::FindingKind,
    mend::{Convert, Field, Mend, Shell},
};
use crate::expiry::{Absence, Lookalike, Reason, Rule, Unit, absence, instant, visit};

/// What is told of a document.
pub(super) struct Cause<'a> {
    pub(super) kind: FindingKind,
    /// What tells findings of this kind apart.
    pub(super) detail: Option<String>,
    pub(super) found: Found<'a>,
    remedy: Remedy,
}

/// What an example shows.
pub(super) enum Found<'a> {
    Value(RawBsonRef<'a>),
    At(String, RawBsonRef<'a>),
    Words(String),
}

enum Remedy {
    None,
    InPlace(Convert),
    Elements(Convert),
    /// In the document that stands in the place of the date, and is nothing else.
    Unwrapped(String, Convert),
    LiteralName {
        depth: usize,
        name: String,
    },
}

/// The longest example, in characters.
const LONGEST: usize = 80;

/// How many fields a document without the right one is shown with.
const SHOWN_FIELDS: usize = 8;

impl<'a> Cause<'a> {
    pub(super) fn new(kind: FindingKind, found: Found<'a>) -> Self {
        Self { kind, detail: None, found, remedy: Remedy::None }
    }

    pub(super) fn converting(self, convert: Option<Convert>) -> Self {
        Self { remedy: convert.map_or(Remedy::None, Remedy::InPlace), ..self }
    }

    pub(super) fn detailed(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    /// Of a document for which the rule gave this reason.
    pub(super) fn of(rule: &Rule, document: &'a RawDocument, reason: &Reason) -> Option<Self> {
        let path = rule.field().parts();
        match reason {
            Reason::Expired { .. } | Reason::NotYet { .. } => None,
            Reason::Unreadable { error } => Some(Self::new(FindingKind::Unreadable, Found::Words(error.clone()))),
            Reason::PartialFilter { .. } => Some(filtered(rule, document)),
            Reason::Missing { .. } => Some(missing(document, path)),
            Reason::NotADate { .. } | Reason::ArrayWithoutDate { .. } => {
                let mut values = Vec::new();
                // What could be judged can be walked again.
                visit(document, path, &mut |value| values.extend(value)).ok()?;
                // The whole comes after its elements.
                let array = values.iter().rev().find_map(|value| value.as_array());
                if let Some(array) = array {
                    return Some(in_array(array, &values));
                }
                let value = values.into_iter().next()?;
                let inside = value.as_document().and_then(|_| look_around(document, path));
                Some(inside.map_or_else(|| value_cause(value), |it| unwrapped(it, value)))
            }
        }
    }

    pub(super) fn mend(&self, field: Field<'_>) -> Option<Mend> {
        match &self.remedy {
            Remedy::None => None,
            Remedy::InPlace(convert) => field.value(*convert),
            Remedy::Elements(convert) => field.elements(*convert),
            Remedy::Unwrapped(name, convert) => field.unwrapped(name, *convert),
            Remedy::LiteralName { depth, name } => field.literal_name(*depth, name),
        }
    }
}

impl Found<'_> {
    pub(super) fn in_words(&self) -> String {
        match self {
            Found::Value(value) => in_words(*value),
            Found::At(path, value) => format!("{path}: {}", in_words(*value)),
            Found::Words(words) => shortened(words.clone()),
        }
    }
}

/// The kind and the conversion of a value that is neither a date nor an array.
fn value_kind(value: RawBsonRef<'_>) -> FindingKind {
    match value {
        RawBsonRef::Null => FindingKind::NullField,
        RawBsonRef::Timestamp(_) => FindingKind::Timestamp,
        RawBsonRef::ObjectId(_) => FindingKind::ObjectId,
        other => match Lookalike::of(other) {
            None => FindingKind::OtherType,
            Some(Lookalike::Iso) => FindingKind::IsoString,
            Some(Lookalike::DateText | Lookalike::AmbiguousText) => FindingKind::DateString,
            Some(Lookalike::EpochText(_)) => FindingKind::EpochString,
            Some(Lookalike::Epoch(Unit::Seconds)) => FindingKind::EpochSeconds,
            Some(Lookalike::Epoch(Unit::Milliseconds)) => FindingKind::EpochMilliseconds,
            Some(Lookalike::Epoch(Unit::Microseconds)) => FindingKind::EpochMicroseconds,
            Some(Lookalike::Epoch(Unit::Nanoseconds)) => FindingKind::EpochNanoseconds,
        },
    }
}

fn value_cause(value: RawBsonRef<'_>) -> Cause<'_> {
    let cause = Cause::new(value_kind(value), Found::Value(value)).converting(Convert::of(value));
    match Lookalike::of(value) {
        Some(Lookalike::AmbiguousText) => cause.detailed("whether the day or the month comes first cannot be told"),
        Some(Lookalike::EpochText(unit)) => cause.detailed(unit.name()),
        _ => cause,
    }
}

fn in_array<'a>(array: &'a mongodb::bson::RawArray, values: &[RawBsonRef<'a>]) -> Cause<'a> {
    let whole = Found::Value(RawBsonRef::Array(array));
    if array.is_empty() {
        return Cause::new(FindingKind::EmptyArray, whole);
    }
    let nested = array.into_iter().flatten().any(|element| element.as_array().is_some());
    if nested {
        return Cause::new(FindingKind::NestedArray, whole);
    }
    let cause = Cause::new(FindingKind::ArrayWithoutDate, whole);
    let convertible = values.iter().find_map(|value| Some((*value, Convert::of(*value)?)));
    let Some((value, convert)) = convertible else { return cause };
    let alike = array.into_iter().flatten().all(|element| Convert::of(element) == Some(convert));
    let remedy = if alike { Remedy::Elements(convert) } else { Remedy::None };
    Cause { remedy, ..cause }.detailed(format!("of {}", value_kind(value)))
}

fn missing<'a>(document: &'a RawDocument, path: &[String]) -> Cause<'a> {
    match absence(document, path) {
        Absence::EmptyArray => {
            return Cause::new(FindingKind::EmptyArray, Found::Words("an array on the way is empty".to_owned()));
        }
        Absence::LiteralName { depth, name, fields } => {
            let container = path[..depth].iter().try_fold(document, |it, part| it.get_document(part).ok());
            let value = container.and_then(|it| it.get(name.as_str()).ok().flatten());
            let found = value.map_or_else(|| Found::Words(name.clone()), |value| Found::At(format!("{name:?}"), value));
            let cause = Cause::new(FindingKind::LiteralDottedName, found).detailed(format!("{name:?}"));
            let remedy = match value {
                Some(RawBsonRef::DateTime(_)) if depth + fields == path.len() => Remedy::LiteralName { depth, name },
                _ => Remedy::None,
            };
            return Cause { remedy, ..cause };
        }
        Absence::Unknown => {}
    }
    look_around(document, path).map_or_else(
        || {
            let names: Vec<&str> = fields(document).map(|(name, _)| name).take(SHOWN_FIELDS).collect();
            Cause::new(FindingKind::MissingField, Found::Words(format!("has {}", names.join(", "))))
        },
        placed_elsewhere,
    )
}

/// No update is proposed: that nothing else in a document looks like the date as well, no filter can say.
fn placed_elsewhere(it: Elsewhere<'_>) -> Cause<'_> {
    let Elsewhere { kind, path, value } = it;
    let dotted = path.join(".");
    Cause { kind, detail: Some(format!("in {dotted}")), found: Found::At(dotted, value), remedy: Remedy::None }
}

/// Within the document that stands in the place of the date.
fn unwrapped<'a>(it: Elsewhere<'a>, whole: RawBsonRef<'a>) -> Cause<'a> {
    let only = whole.as_document().is_some_and(|whole| fields(whole).count() == 1);
    let remedy = match (it.path.last(), Convert::of(it.value)) {
        (Some(name), Some(convert)) if only => Remedy::Unwrapped(name.clone(), convert),
        _ => Remedy::None,
    };
    Cause { remedy, ..placed_elsewhere(it) }
}

fn filtered<'a>(rule: &Rule, document: &'a RawDocument) -> Cause<'a> {
    let Some(field) = rule.partial().and_then(|partial| partial.differing_field(document)) else {
        return Cause::new(FindingKind::PartialFilter, Found::Words("none of its alternatives matches".to_owned()));
    };
    let mut first = None;
    let path: Vec<String> = field.split('.').map(str::to_owned).collect();
    let _ = visit(document, &path, &mut |value| first = first.or(value));
    let found = match first {
        Some(value) => Found::At(field.to_owned(), value),
        None => Found::Words(format!("{field} is missing")),
    };
    Cause::new(FindingKind::PartialFilter, found).detailed(format!("by {field}"))
}

/// A value as it is shown, shortened.
fn in_words(value: RawBsonRef<'_>) -> String {
    let number = |value: RawBsonRef<'_>, shown: String| match (Lookalike::of(value), value) {
        (Some(Lookalike::Epoch(unit)), _) => format!("{shown} ({})", unit.name()),
        _ => shown,
    };
    match value {
        RawBsonRef::DateTime(date) => instant(date),
        RawBsonRef::String(text) => shortened(format!("{text:?}")),
        RawBsonRef::ObjectId(id) => format!("ObjectId({id}), made {}", instant(id.timestamp())),
        RawBsonRef::Timestamp(it) => format!(
            "Timestamp({}, {}): {}",
            it.time,
            it.increment,
            instant(DateTime::from_millis(i64::from(it.time) * 1000))
        ),
        RawBsonRef::Binary(binary) => format!("{} bytes", binary.bytes.len()),
        value => {
            let shown = Bson::try_from(value).map_or_else(|error| error.to_string(), |bson| Shell(&bson).to_string());
            number(value, shortened(shown))
        }
    }
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
