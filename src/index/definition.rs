//! The definition in force: checked once, so that nothing behind it has to check again.

use mongodb::bson::{Bson, Document, doc};

use super::{ExpireAfter, TtlIndex, seconds::type_alias};
use crate::{
    error::{Code, Refusal},
    namespace::CollectionName,
};

/// A dotted path to a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldPath {
    text: String,
    parts: Vec<String>,
}

impl FieldPath {
    /// Splits a path of any content; what a TTL field may be is decided by [`Definition::parse`].
    pub(crate) fn new(path: &str) -> Self {
        Self { text: path.to_owned(), parts: path.split('.').map(str::to_owned).collect() }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn parts(&self) -> &[String] {
        &self.parts
    }
}

/// A checked TTL index on a collection.
///
/// The partial filter and the guards are kept as they were written; `expiry::Rule` and `guard::Guards` understand them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Definition {
    pub(crate) collection: CollectionName,
    pub(crate) name: String,
    pub(crate) field: FieldPath,
    /// 1 or -1.
    pub(crate) direction: i32,
    pub(crate) expire_after: ExpireAfter,
    pub(crate) partial_filter: Option<Document>,
    /// Whether the maker asked for a collation; it matters to filters that compare strings.
    pub(crate) collation: bool,
    pub(crate) supporting_index: bool,
    /// What keeps documents that are due, as it was written.
    pub(crate) guards: Vec<Document>,
}

/// Whether two partial filters are the same as written.
///
/// A NaN is the same as itself here, or a filter that holds one would never be recognised again.
pub(crate) fn same_filter(a: Option<&Document>, b: Option<&Document>) -> bool {
    a == b || a.zip(b).is_some_and(|(a, b)| matches!((to_vec(a), to_vec(b)), (Some(a), Some(b)) if a == b))
}

fn to_vec(document: &Document) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    document.to_writer(&mut bytes).ok()?;
    Some(bytes)
}

/// How deep MongoDB lets documents be nested.
const MAX_DEPTH: usize = 100;

/// Options that `createIndexes` knows and that do not change what expires.
const WITHOUT_EFFECT: [&str; 5] = ["v", "sparse", "hidden", "background", "storageEngine"];

impl Definition {
    /// Checks what can be checked without the database, in the order in which MongoDB finds fault.
    pub(crate) fn parse(collection: &str, index: &TtlIndex) -> Result<Self, Refusal> {
        let collection = CollectionName::parse(collection)?;
        let mut spec = index.spec.clone();
        let mut key = match spec.remove("key") {
            Some(Bson::Document(key)) => key,
            other => {
                return Err(Refusal::new(
                    Code::TypeMismatch,
                    format!(
                        "The field 'key' must be an object, but got {}",
                        other.as_ref().map_or("nothing", type_alias)
                    ),
                ));
            }
        };
        let mut period = spec.remove("expireAfterSeconds");
        if period.is_none() {
            period = take_period_from_key(&mut key);
        }
        let name = parse_name(&mut spec, &key)?;
        let partial_filter = spec.remove("partialFilterExpression");
        let guards = parse_guards(spec.remove("guards"))?;
        let collation = spec.remove("collation").is_some_and(|c| c != Bson::Null);
        let unique = parse_unique(spec.remove("unique"))?;
        let sparse = matches!(spec.get("sparse"), Some(Bson::Boolean(true) | Bson::Int32(1)));
        for option in spec.keys() {
            if !WITHOUT_EFFECT.contains(&option.as_str()) {
                return Err(Refusal::new(
                    Code::InvalidIndexSpecificationOption,
                    format!("The field '{option}' is not valid for a TTL index specification"),
                ));
            }
        }
        let directions = parse_directions(&key)?;
        if key.len() == 1 && key.contains_key("_id") {
            return Err(Refusal::new(
                Code::InvalidIndexSpecificationOption,
                "The field 'expireAfterSeconds' is not valid for an _id index specification; \
                 put the date in a field of its own",
            ));
        }
        let Some(period) = period else {
            return Err(Refusal::new(
                Code::CannotCreateIndex,
                format!("a TTL index needs 'expireAfterSeconds'. Index spec: {{ key: {key}, name: \"{name}\" }}"),
            ));
        };
        let expire_after = ExpireAfter::parse(&period)?;
        let (Some((field, _)), [direction]) = (key.iter().next(), directions.as_slice()) else {
            return Err(Refusal::new(
                Code::CannotCreateIndex,
                format!(
                    "TTL indexes are single-field indexes, compound indexes do not support TTL. \
                     Index spec: {{ key: {key}, name: \"{name}\" }}"
                ),
            ));
        };
        let partial_filter = match partial_filter {
            None => None,
            Some(Bson::Document(filter)) => Some(filter),
            Some(other) => {
                return Err(Refusal::new(
                    Code::TypeMismatch,
                    format!("The field 'partialFilterExpression' must be an object, but got {}", type_alias(&other)),
                ));
            }
        };
        if sparse && partial_filter.is_some() {
            return Err(Refusal::new(
                Code::CannotCreateIndex,
                "cannot mix \"partialFilterExpression\" and \"sparse\" options",
            ));
        }
        if unique {
            return Err(Refusal::new(
                Code::CannotCreateIndex,
                "a TTL index does not guard uniqueness here; create an ordinary unique index on the field, \
                 which the TTL index then reuses",
            ));
        }
        check_field(field)?;
        Ok(Self {
            collection,
            name,
            field: FieldPath::new(field),
            direction: *direction,
            expire_after,
            partial_filter,
            collation,
            supporting_index: index.supporting_index,
            guards,
        })
    }

    /// Writes the definition as an index specification, which `parse` reads back.
    pub(crate) fn to_spec(&self) -> Document {
        let mut spec = doc! {
            "name": &self.name,
            "key": self.key(),
            "expireAfterSeconds": self.expire_after.seconds(),
        };
        spec.extend(self.partial_filter.clone().map(|filter| ("partialFilterExpression".to_owned(), filter.into())));
        if !self.guards.is_empty() {
            spec.insert("guards", self.guards.clone());
        }
        spec
    }

    /// The key document, as in `{ts: 1}`.
    pub(crate) fn key(&self) -> Document {
        let mut key = Document::new();
        key.insert(self.field.as_str(), self.direction);
        key
    }
}

/// Understands `{"ts": 1, "expireAfterSeconds": 3600}`.
///
/// MongoDB would build a compound index on two fields. A value that is a direction (1 or -1) is left alone, since it may
/// really be one, and is then refused as part of a compound key.
fn take_period_from_key(key: &mut Document) -> Option<Bson> {
    let value = key.get("expireAfterSeconds")?;
    (key.len() > 1 && direction(value).is_err()).then(|| key.remove("expireAfterSeconds"))?
}

fn parse_name(spec: &mut Document, key: &Document) -> Result<String, Refusal> {
    match spec.remove("name") {
        None => Ok(default_name(key)),
        Some(Bson::String(name)) if name.is_empty() => {
            Err(Refusal::new(Code::CannotCreateIndex, "The index name cannot be empty"))
        }
        Some(Bson::String(name)) if name == "*" => {
            Err(Refusal::new(Code::BadValue, "The index name '*' is not valid; it stands for all indexes"))
        }
        Some(Bson::String(name)) if name.contains('\0') => {
            Err(Refusal::new(Code::CannotCreateIndex, "The index name cannot contain a NUL character"))
        }
        Some(Bson::String(name)) => Ok(name),
        Some(other) => Err(Refusal::new(
            Code::TypeMismatch,
            format!("The field 'name' must be a string, but got {}", type_alias(&other)),
        )),
    }
}

/// What an index is called that nobody named.
pub(crate) fn default_name(key: &Document) -> String {
    let part = |(field, value): (&String, &Bson)| match direction(value) {
        Ok(direction) => format!("{field}_{direction}"),
        Err(_) => format!("{field}_{value}"),
    };
    key.iter().map(part).collect::<Vec<_>>().join("_")
}

fn parse_unique(value: Option<Bson>) -> Result<bool, Refusal> {
    match value {
        None => Ok(false),
        Some(Bson::Boolean(unique)) => Ok(unique),
        Some(other) => Err(Refusal::new(
            Code::TypeMismatch,
            format!("The field 'unique' must be a bool, but got {}", type_alias(&other)),
        )),
    }
}

fn parse_guards(value: Option<Bson>) -> Result<Vec<Document>, Refusal> {
    let guards = match value {
        None => Some(Vec::new()),
        Some(Bson::Array(guards)) => guards.iter().map(|guard| guard.as_document().cloned()).collect(),
        Some(_) => None,
    };
    guards.ok_or_else(|| Refusal::new(Code::TypeMismatch, "The field 'guards' must be an array of objects"))
}

fn parse_directions(key: &Document) -> Result<Vec<i32>, Refusal> {
    if key.is_empty() {
        return Err(Refusal::new(Code::CannotCreateIndex, "Index keys cannot be an empty object"));
    }
    key.iter()
        .map(|(field, value)| {
            direction(value).map_err(|why| {
                let message = format!("Error in specification {{ key: {key} }} :: field \"{field}\" :: {why}");
                Refusal::new(Code::CannotCreateIndex, message)
            })
        })
        .collect()
}

fn direction(value: &Bson) -> Result<i32, String> {
    match value {
        Bson::Int32(n @ (1 | -1)) => Ok(*n),
        Bson::Int64(1) => Ok(1),
        Bson::Int64(-1) => Ok(-1),
        Bson::Double(n) if n.to_bits() == 1.0_f64.to_bits() => Ok(1),
        Bson::Double(n) if n.to_bits() == (-1.0_f64).to_bits() => Ok(-1),
        Bson::String(kind) => Err(format!(
            "a \"{kind}\" index cannot be a TTL index: MongoDB accepts it and then never deletes; use 1 or -1"
        )),
        other => Err(format!("the direction of a TTL index is 1 or -1, but got {other}")),
    }
}

/// Refuses what no field in an index can be called.
pub(crate) fn check_field(field: &str) -> Result<(), Refusal> {
    let refuse = |why: &str| Err(Refusal::new(Code::CannotCreateIndex, format!("\"{field}\": {why}")));
    if field == "$**" || field.ends_with(".$**") {
        return refuse("Index type 'wildcard' cannot be a TTL index");
    }
    if field.contains('\0') {
        return refuse("the field name contains a NUL character");
    }
    if field.split('.').count() > MAX_DEPTH {
        return refuse("a path goes deeper than documents can be nested");
    }
    for (depth, part) in field.split('.').enumerate() {
        if part.is_empty() {
            return refuse("Index keys cannot contain an empty field");
        }
        // The fields of a DBRef are the only ones that MongoDB lets start so.
        let of_reference = depth > 0 && ["$ref", "$id", "$db"].contains(&part);
        if part.starts_with('$') && !of_reference {
            return refuse("Index key contains an illegal field name: field name starts with '$'");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mongodb::{IndexModel, options::IndexOptions};

    use super::*;

    fn parse(spec: Document) -> Result<Definition, Refusal> {
        Definition::parse("c", &TtlIndex::from(spec))
    }

    #[test]
    fn the_key_form_of_the_firestore_manual_is_understood() {
        for (key, seconds) in
            [(doc! { "ts": 1, "expireAfterSeconds": 3600 }, 3600), (doc! { "ts": 1, "expireAfterSeconds": 0 }, 0)]
        {
            let definition = parse(key).unwrap();
            assert_eq!(
                (definition.name.as_str(), definition.field.as_str(), definition.expire_after.seconds()),
                ("ts_1", "ts", seconds)
            );
        }
        // 1 may be a direction: not guessed.
        for ambiguous in [doc! { "ts": 1, "expireAfterSeconds": 1 }, doc! { "ts": 1, "expireAfterSeconds": -1 }] {
            assert_eq!(parse(ambiguous).unwrap_err().code(), Code::CannotCreateIndex);
        }
        assert!(parse(doc! { "ts": 1, "expireAfterSeconds": "3600" }).is_err());
        assert!(parse(doc! { "ts": 1, "expireAfterSeconds": f64::NAN }).is_err());
    }

    #[test]
    fn the_drivers_model_and_the_builder_mean_the_same() {
        let options = IndexOptions::builder()
            .expire_after(Duration::from_secs(60))
            .partial_filter_expression(doc! { "s": 1 })
            .build();
        let model = IndexModel::builder().keys(doc! { "a.b": -1 }).options(options).build();
        let from_model = Definition::parse("c", &model.into()).unwrap();
        assert_eq!(from_model.name, "a.b_-1");
        let built =
            TtlIndex::from(doc! { "a.b": -1 }).expire_after(Duration::from_secs(60)).partial_filter(doc! { "s": 1 });
        assert_eq!(from_model, Definition::parse("c", &built).unwrap());
    }

    #[test]
    fn a_definition_that_cannot_be_honoured_is_refused_with_mongodbs_code() {
        use Code::{BadValue, CannotCreateIndex, InvalidIndexSpecificationOption, InvalidNamespace, TypeMismatch};
        for (spec, code) in [
            (doc! { "key": { "a": 1, "b": 1 }, "expireAfterSeconds": 1 }, CannotCreateIndex),
            (doc! { "key": { "_id": 1 }, "expireAfterSeconds": 1 }, InvalidIndexSpecificationOption),
            (doc! { "key": { "a": "hashed" }, "expireAfterSeconds": 1 }, CannotCreateIndex),
            (doc! { "key": { "a": "text" }, "expireAfterSeconds": 1 }, CannotCreateIndex),
            (doc! { "key": { "a": "2dsphere" }, "expireAfterSeconds": 1 }, CannotCreateIndex),
            (doc! { "key": { "$**": 1 }, "expireAfterSeconds": 1 }, CannotCreateIndex),
            (doc! { "key": { "a.$**": 1 }, "expireAfterSeconds": 1 }, CannotCreateIndex),
            (doc! { "key": { "a": 0 }, "expireAfterSeconds": 1 }, CannotCreateIndex),
            (doc! { "key": { "a": true }, "expireAfterSeconds": 1 }, CannotCreateIndex),
            (doc! { "key": { "a..b": 1 }, "expireAfterSeconds": 1 }, CannotCreateIndex),
            (doc! { "key": { "a.$b": 1 }, "expireAfterSeconds": 1 }, CannotCreateIndex),
            (doc! { "key": { "$id": 1 }, "expireAfterSeconds": 1 }, CannotCreateIndex),
            (doc! { "key": { vec!["a"; 101].join("."): 1 }, "expireAfterSeconds": 1 }, CannotCreateIndex),
            (doc! { "key": {}, "expireAfterSeconds": 1 }, CannotCreateIndex),
            (doc! { "key": { "a": 1 } }, CannotCreateIndex),
            (doc! { "key": { "a": 1 }, "expireAfterSeconds": Bson::Null }, CannotCreateIndex),
            (doc! { "key": { "a": 1 }, "expireafterseconds": 1 }, InvalidIndexSpecificationOption),
            (doc! { "key": { "a": 1 }, "expireAfterSeconds": 1, "unique": true }, CannotCreateIndex),
            (doc! { "key": { "a": 1 }, "expireAfterSeconds": 1, "name": "" }, CannotCreateIndex),
            (doc! { "key": { "a": 1 }, "expireAfterSeconds": 1, "name": "*" }, BadValue),
            (doc! { "key": { "a": 1 }, "expireAfterSeconds": 1, "name": 5 }, TypeMismatch),
            (doc! { "key": { "a": 1 }, "expireAfterSeconds": 1, "partialFilterExpression": "x" }, TypeMismatch),
        ] {
            let text = spec.to_string();
            assert_eq!(parse(spec).unwrap_err().code(), code, "{text}");
        }
        let good = TtlIndex::on("a").expire_after(Duration::ZERO);
        assert_eq!(Definition::parse("system.x", &good).unwrap_err().code(), InvalidNamespace);
    }

    #[test]
    fn a_filter_with_a_nan_is_the_same_as_itself() {
        let (nan, one) = (doc! { "a": { "$in": [f64::NAN] } }, doc! { "a": 1 });
        assert!(same_filter(Some(&nan), Some(&nan.clone())));
        assert!(same_filter(None, None));
        assert!(!same_filter(Some(&nan), Some(&one)));
        assert!(!same_filter(Some(&nan), None));
    }

    #[test]
    fn the_date_may_be_the_id_of_a_reference() {
        assert_eq!(parse(doc! { "key": { "a.$id": 1 }, "expireAfterSeconds": 1 }).unwrap().field.as_str(), "a.$id");
    }

    #[test]
    fn below_the_id_a_ttl_field_is_allowed() {
        assert_eq!(parse(doc! { "key": { "_id.t": 1 }, "expireAfterSeconds": 1 }).unwrap().name, "_id.t_1");
    }
}
