//! `partialFilterExpression`: the conditions MongoDB allows in a partial index, matched on raw BSON.
//!
//! There is no negation among them, so that a comparison which is not certain can be taken for "does not match": it then
//! keeps the document.

mod differs;
mod types;

use std::{cmp::Ordering, fmt};

use mongodb::bson::{Bson, Document, RawBson, RawBsonRef, RawDocument};

use super::{
    compare::{compare, type_order},
    path::{self, Unreadable},
};
use crate::{
    error::{Code, Refusal},
    index::FieldPath,
    number::Number,
};

/// A partial filter, as it was written and as it is understood.
#[derive(Clone, Debug)]
pub(crate) struct PartialFilter {
    source: Document,
    condition: Condition,
}

#[derive(Clone, Debug)]
enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    At(FieldPath, Test),
}

/// What some value at a path must satisfy.
#[derive(Clone, Debug)]
enum Test {
    Compare(Operator, RawBson),
    Exists,
    /// BSON type numbers.
    HasType(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// How many levels of conditions there may be; MongoDB's `internalPartialFilterExpressionMaxDepth`.
const MAX_LEVELS: usize = 4;

/// How deep the values that conditions compare with may be nested.
const MAX_DEPTH: usize = 64;

/// How many fields a path may have: MongoDB lets documents be nested no deeper.
const MAX_PATH: usize = 100;

impl PartialFilter {
    pub(crate) fn parse(source: Document) -> Result<Self, Refusal> {
        let condition = parse_conditions(&source, 0)?;
        Ok(Self { source, condition })
    }

    pub(crate) fn source(&self) -> &Document {
        &self.source
    }

    pub(crate) fn matches(&self, document: &RawDocument) -> Result<bool, Unreadable> {
        self.condition.matches(document)
    }

    pub(crate) fn compares_strings(&self) -> bool {
        self.condition.compares_strings()
    }

    /// The fields the filter looks at.
    pub(crate) fn fields(&self) -> Vec<&str> {
        let mut fields = Vec::new();
        self.condition.collect_fields(&mut fields);
        fields
    }
}

impl fmt::Display for PartialFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl Condition {
    fn matches(&self, document: &RawDocument) -> Result<bool, Unreadable> {
        match self {
            Condition::All(all) => all.iter().try_fold(true, |so_far, c| Ok(so_far && c.matches(document)?)),
            Condition::Any(any) => any.iter().try_fold(false, |so_far, c| Ok(so_far || c.matches(document)?)),
            Condition::At(path, test) => {
                let mut satisfied = false;
                path::visit(document, path.parts(), &mut |value| satisfied |= test.accepts(value))?;
                Ok(satisfied)
            }
        }
    }

    fn compares_strings(&self) -> bool {
        match self {
            Condition::All(inner) | Condition::Any(inner) => inner.iter().any(Condition::compares_strings),
            Condition::At(_, Test::Compare(_, operand)) => holds_string(operand.as_raw_bson_ref()),
            Condition::At(..) => false,
        }
    }

    fn collect_fields<'a>(&'a self, fields: &mut Vec<&'a str>) {
        match self {
            Condition::All(inner) | Condition::Any(inner) => inner.iter().for_each(|c| c.collect_fields(fields)),
            Condition::At(path, _) => fields.push(path.as_str()),
        }
    }
}

impl Test {
    fn accepts(&self, value: Option<RawBsonRef<'_>>) -> bool {
        match self {
            Test::Exists => value.is_some(),
            Test::HasType(types) => value.is_some_and(|v| types.contains(&(v.element_type() as u8))),
            Test::Compare(operator, operand) => {
                let operand = operand.as_raw_bson_ref();
                match value {
                    None | Some(RawBsonRef::Undefined) => {
                        operand == RawBsonRef::Null && operator.accepts(Ordering::Equal)
                    }
                    Some(value) => type_order(value) == type_order(operand) && operator.holds(value, operand),
                }
            }
        }
    }
}

impl Operator {
    fn holds(self, value: RawBsonRef<'_>, operand: RawBsonRef<'_>) -> bool {
        if let (Some(a), Some(b)) = (Number::from_raw(value), Number::from_raw(operand))
            && (a.is_nan() || b.is_nan())
        {
            // NaN has no place in the order of numbers: it equals itself, and that is all.
            return a.is_nan() && b.is_nan() && self.accepts(Ordering::Equal);
        }
        compare(value, operand).is_some_and(|order| self.accepts(order))
    }

    fn accepts(self, order: Ordering) -> bool {
        match self {
            Operator::Equal => order.is_eq(),
            Operator::Less => order.is_lt(),
            Operator::LessOrEqual => order.is_le(),
            Operator::Greater => order.is_gt(),
            Operator::GreaterOrEqual => order.is_ge(),
        }
    }
}

fn holds_string(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::String(_) => true,
        RawBsonRef::Array(array) => array.into_iter().flatten().any(holds_string),
        RawBsonRef::Document(document) => document.iter().flatten().any(|(_, value)| holds_string(value)),
        _ => false,
    }
}

fn unsupported(what: &str) -> Refusal {
    Refusal::new(
        Code::CannotCreateIndex,
        format!(
            "Expression not supported in partial index: {what}; allowed are equality, $eq, $gt, $gte, $lt, $lte, $in, \
             $all, $exists: true, $type, $and and $or"
        ),
    )
}

fn parse_conditions(filter: &Document, level: usize) -> Result<Condition, Refusal> {
    // Several conditions side by side are an `$and` of their own.
    let count: usize = filter.values().map(|value| operators(value).map_or(1, Document::len)).sum();
    let level = level + usize::from(count > 1);
    let mut all = Vec::new();
    for (key, value) in filter {
        match (key.as_str(), value) {
            ("$and", value) => all.push(Condition::All(parse_list("$and", value, level)?)),
            ("$or", value) => all.push(Condition::Any(parse_list("$or", value, level)?)),
            ("$expr", _) => {
                return Err(Refusal::new(Code::QueryFeatureNotAllowed, "$expr is not allowed in a partial filter"));
            }
            (operator, _) if operator.starts_with('$') => return Err(unsupported(operator)),
            (path, _) if path.split('.').count() > MAX_PATH => return Err(unsupported("a path of so many fields")),
            (path, value) => parse_field(&FieldPath::new(path), value, level, &mut all)?,
        }
    }
    Ok(Condition::All(all))
}

fn check_level(level: usize) -> Result<(), Refusal> {
    if level < MAX_LEVELS {
        return Ok(());
    }
    let message = format!("partialFilterExpression depth may not exceed {MAX_LEVELS}");
    Err(Refusal::new(Code::CannotCreateIndex, message))
}

fn parse_list(operator: &str, value: &Bson, level: usize) -> Result<Vec<Condition>, Refusal> {
    let bad = || Refusal::new(Code::BadValue, format!("{operator} must be a nonempty array of conditions"));
    let Bson::Array(list) = value else { return Err(bad()) };
    if list.is_empty() {
        return Err(bad());
    }
    check_level(level + 1)?;
    list.iter().map(|item| parse_conditions(item.as_document().ok_or_else(bad)?, level + 1)).collect()
}

/// The document, if it holds operators and is not a value to be equal to.
fn operators(value: &Bson) -> Option<&Document> {
    value.as_document().filter(|document| document.keys().next().is_some_and(|first| first.starts_with('$')))
}

fn parse_field(path: &FieldPath, value: &Bson, level: usize, all: &mut Vec<Condition>) -> Result<(), Refusal> {
    check_level(level)?;
    let Some(operators) = operators(value) else {
        all.push(Condition::At(path.clone(), equal(value)?));
        return Ok(());
    };
    for (operator, value) in operators {
        let at = |test| Condition::At(path.clone(), test);
        let condition = match operator.as_str() {
            "$eq" => at(equal(value)?),
            "$lt" => at(Test::Compare(Operator::Less, operand(value)?)),
            "$lte" => at(Test::Compare(Operator::LessOrEqual, operand(value)?)),
            "$gt" => at(Test::Compare(Operator::Greater, operand(value)?)),
            "$gte" => at(Test::Compare(Operator::GreaterOrEqual, operand(value)?)),
            "$exists" => at(parse_exists(value)?),
            "$type" => at(Test::HasType(types::parse(value)?)),
            "$in" => Condition::Any(parse_values("$in", value)?.into_iter().map(at).collect()),
            "$all" => {
                check_level(level + 1)?;
                Condition::All(parse_values("$all", value)?.into_iter().map(at).collect())
            }
            other => return Err(unsupported(other)),
        };
        all.push(condition);
    }
    Ok(())
}

fn equal(value: &Bson) -> Result<Test, Refusal> {
    Ok(Test::Compare(Operator::Equal, operand(value)?))
}

/// A value to compare with, of a type whose comparison is the same everywhere.
fn operand(value: &Bson) -> Result<RawBson, Refusal> {
    match value {
        Bson::RegularExpression(_) => return Err(unsupported("a regular expression")),
        Bson::Undefined => return Err(Refusal::new(Code::BadValue, "cannot compare to undefined")),
        Bson::MinKey | Bson::MaxKey | Bson::JavaScriptCode(_) | Bson::JavaScriptCodeWithScope(_) => {
            return Err(unsupported("a comparison with MinKey, MaxKey or code"));
        }
        Bson::Symbol(_) | Bson::DbPointer(_) => return Err(unsupported("a comparison with a deprecated type")),
        _ => {}
    }
    if depth_of(value) > MAX_DEPTH {
        return Err(unsupported("a value nested too deeply"));
    }
    RawBson::try_from(value.clone())
        .map_err(|error| Refusal::new(Code::BadValue, format!("the partial filter holds an unusable value: {error}")))
}

fn depth_of(value: &Bson) -> usize {
    match value {
        Bson::Array(array) => 1 + array.iter().map(depth_of).max().unwrap_or(0),
        Bson::Document(document) => 1 + document.iter().map(|(_, v)| depth_of(v)).max().unwrap_or(0),
        _ => 0,
    }
}

fn parse_values(operator: &str, value: &Bson) -> Result<Vec<Test>, Refusal> {
    let Bson::Array(values) = value else {
        return Err(Refusal::new(Code::BadValue, format!("{operator} needs an array")));
    };
    if values.is_empty() {
        return Err(Refusal::new(Code::BadValue, format!("an empty {operator} matches no document; give it values")));
    }
    if values.iter().any(|value| operators(value).is_some()) {
        return Err(unsupported(&format!("an operator within {operator}")));
    }
    values.iter().map(equal).collect()
}

fn parse_exists(value: &Bson) -> Result<Test, Refusal> {
    let wanted = match value {
        Bson::Boolean(wanted) => *wanted,
        Bson::Int32(n) => *n != 0,
        Bson::Int64(n) => *n != 0,
        Bson::Double(n) => *n != 0.0,
        other => return Err(unsupported(&format!("$exists: {other}"))),
    };
    if wanted { Ok(Test::Exists) } else { Err(unsupported("$exists: false")) }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{DateTime, RawDocumentBuf, doc};

    use super::*;

    /// From bytes, since the constructors of the driver's BSON 2 and 3 differ.
    fn bson_regex() -> Bson {
        let mut bytes = b"\x0b\0\0\0\x0br\0x\0\0\0".to_vec();
        bytes[0] = u8::try_from(bytes.len()).unwrap();
        Document::from_reader(bytes.as_slice()).unwrap().remove("r").unwrap()
    }

    fn matches(filter: Document, document: &Document) -> bool {
        let document = RawDocumentBuf::try_from(document).unwrap();
        PartialFilter::parse(filter).unwrap().matches(&document).unwrap()
    }

    #[test]
    fn comparisons_stay_within_a_type() {
        assert!(matches(doc! { "n": { "$gt": 5 } }, &doc! { "n": 6.5 }));
        assert!(!matches(doc! { "n": { "$gt": 5 } }, &doc! { "n": "6" }));
        assert!(!matches(doc! { "n": { "$lt": 5 } }, &doc! { "n": Bson::Null }));
        assert!(!matches(doc! { "n": { "$lt": 5 } }, &doc! { "n": f64::NAN }));
        assert!(matches(doc! { "n": { "$gte": f64::NAN } }, &doc! { "n": f64::NAN }));
        assert!(matches(doc! { "d": { "$lt": DateTime::MAX } }, &doc! { "d": DateTime::MIN }));
    }

    #[test]
    fn null_equals_missing_but_not_within_an_empty_array() {
        assert!(matches(doc! { "n": Bson::Null }, &doc! {}));
        assert!(matches(doc! { "a.b": Bson::Null }, &doc! { "a": [{ "c": 1 }] }));
        assert!(!matches(doc! { "a.b": Bson::Null }, &doc! { "a": [] }));
        assert!(!matches(doc! { "n": Bson::Null }, &doc! { "n": [] }));
        assert!(matches(doc! { "n": { "$in": [1, Bson::Null] } }, &doc! {}));
    }

    #[test]
    fn arrays_match_by_element_and_as_a_whole() {
        assert!(matches(doc! { "n": 2 }, &doc! { "n": [1, 2] }));
        assert!(matches(doc! { "n": [1, 2] }, &doc! { "n": [1, 2] }));
        assert!(matches(doc! { "n": [1, 2] }, &doc! { "n": [[1, 2]] }));
        assert!(!matches(doc! { "n": [2, 1] }, &doc! { "n": [1, 2] }));
        assert!(matches(doc! { "n": { "$all": [1, 2] } }, &doc! { "n": [2, 1] }));
        assert!(matches(doc! { "n": { "$type": "array" } }, &doc! { "n": [] }));
        assert!(matches(doc! { "n": { "$gt": 1, "$lt": 5 } }, &doc! { "n": [0, 9] }));
    }

    #[test]
    fn what_mongodb_refuses_in_a_partial_filter_is_refused() {
        for (filter, code) in [
            (doc! { "a": { "$ne": 1 } }, Code::CannotCreateIndex),
            (doc! { "a": { "$nin": [1] } }, Code::CannotCreateIndex),
            (doc! { "a": { "$not": { "$gt": 1 } } }, Code::CannotCreateIndex),
            (doc! { "$nor": [{ "a": 1 }] }, Code::CannotCreateIndex),
            (doc! { "a": { "$exists": false } }, Code::CannotCreateIndex),
            (doc! { "a": { "$regex": "x" } }, Code::CannotCreateIndex),
            (doc! { "a": bson_regex() }, Code::CannotCreateIndex),
            (doc! { "a": { "$elemMatch": { "b": 1 } } }, Code::CannotCreateIndex),
            (doc! { "a": { "$size": 1 } }, Code::CannotCreateIndex),
            (doc! { "a": { "$mod": [2, 1] } }, Code::CannotCreateIndex),
            (doc! { "$expr": { "$eq": [1, 1] } }, Code::QueryFeatureNotAllowed),
            (doc! { "$and": [] }, Code::BadValue),
            (doc! { "a": { "$in": [] } }, Code::BadValue),
            (doc! { "a": { "$type": "dat" } }, Code::BadValue),
            (doc! { "a": { "$type": ["date", "dat"] } }, Code::BadValue),
            (doc! { "a": { "$gt": 1, "b": 1 } }, Code::CannotCreateIndex),
            (doc! { "$or": [{ "$or": [{ "a": 1, "b": { "$all": [1] } }] }] }, Code::CannotCreateIndex),
        ] {
            let text = filter.to_string();
            assert_eq!(PartialFilter::parse(filter).unwrap_err().code(), code, "{text}");
        }
    }

    #[test]
    fn conditions_are_nested_as_deeply_as_mongodb_allows() {
        assert!(matches(doc! { "$or": [{ "$or": [{ "a": 1, "b": { "$gte": 1 } }] }] }, &doc! { "a": 1, "b": 1 }));
        assert!(matches(doc! { "$and": [{ "$and": [{ "$and": [{ "a": 1 }] }] }] }, &doc! { "a": 1 }));
    }

    #[test]
    fn a_filter_knows_whether_it_compares_strings() {
        let compares = |filter| PartialFilter::parse(filter).unwrap().compares_strings();
        assert!(compares(doc! { "a": { "$in": [1, "x"] } }));
        assert!(compares(doc! { "$or": [{ "n": 1 }, { "a": { "b": ["x"] } }] }));
        assert!(!compares(doc! { "a": { "$type": "string" }, "n": { "$gt": 1 } }));
    }
}
