//! Partial filters of every kind that MongoDB and this library allow, and documents to meet them.

use mongodb::bson::{Bson, DateTime, Document, doc};
use proptest::{
    collection::vec,
    option,
    prelude::Just,
    prop_oneof,
    sample::select,
    strategy::{BoxedStrategy, Strategy, Union},
};

use super::values::{self, Vocabulary, incomparable};

/// Documents of which most have expired and have something for the filter to look at.
pub(super) fn document(vocabulary: &Vocabulary, filter: &Document) -> BoxedStrategy<Document> {
    let mut seen = Seen::default();
    seen.collect(filter);
    let vocabulary = vocabulary.clone().or(1, select(incomparable()).boxed()).or(6, select(seen.operands).boxed());
    let expired = Just(Bson::DateTime(DateTime::from_millis(0)));
    let date = prop_oneof![8 => expired, 1 => values::date(), 1 => Vocabulary::dates(&["g"]).value(1)].boxed();
    let mut document = date.prop_map(|date| doc! { "t": date }).boxed();
    for field in ["f", "k"] {
        let below = seen.paths.iter().filter_map(|path| path.strip_prefix(field));
        let values: Vec<_> = below
            .map(|below| vocabulary.along(&below.split('.').skip(1).collect::<Vec<_>>()))
            .chain([vocabulary.value(2)])
            .collect();
        let value = option::weighted(0.9, Union::new(values));
        document = (document, value)
            .prop_map(move |(mut document, value)| {
                document.extend(value.map(|value| (field.to_owned(), value)));
                document
            })
            .boxed();
    }
    document
}

/// What a filter looks at, and what it compares that with.
#[derive(Default)]
struct Seen {
    paths: Vec<String>,
    operands: Vec<Bson>,
}

impl Seen {
    fn collect(&mut self, conditions: &Document) {
        for (path, test) in conditions {
            if let (true, Bson::Array(list)) = (path.starts_with('$'), test) {
                list.iter().filter_map(Bson::as_document).for_each(|conditions| self.collect(conditions));
                continue;
            }
            self.paths.push(path.clone());
            match test {
                Bson::Document(tests) if tests.keys().any(|name| name.starts_with('$')) => {
                    for (name, operand) in tests {
                        let list = operand.as_array().filter(|_| matches!(name.as_str(), "$in" | "$all"));
                        self.operands.extend(list.into_iter().flatten().cloned());
                        self.operands.push(operand.clone());
                    }
                }
                value => self.operands.push(value.clone()),
            }
        }
    }
}

/// Conditions on these paths, joined in every way.
pub(super) fn filter(vocabulary: &Vocabulary) -> BoxedStrategy<Document> {
    let path = select(vec!["f", "f", "f", "k", "k", "f.g", "f.g", "f.g.h", "f.0", "f.0.g", "f.g.0", "f.1", "t"]);
    let condition = (path, test(vocabulary)).prop_map(|(path, test)| {
        let mut condition = Document::new();
        condition.insert(path, test);
        condition
    });
    (0..2).fold(condition.boxed(), |inner, _| {
        let list = vec(inner.clone(), 1..4);
        prop_oneof![
            6 => inner.clone(),
            2 => list.clone().prop_map(|list| doc! { "$or": list }),
            1 => list.prop_map(|list| doc! { "$and": list }),
            1 => (inner.clone(), inner).prop_map(|(a, b)| a.into_iter().chain(b).collect::<Document>()),
        ]
        .boxed()
    })
}

/// What is asked of one path: equality, or one or two operators.
fn test(vocabulary: &Vocabulary) -> BoxedStrategy<Bson> {
    let operators = |count| vec(operator(vocabulary), count).prop_map(|all| Bson::Document(all.into_iter().collect()));
    prop_oneof![1 => vocabulary.value(2), 3 => operators(1), 1 => operators(2)].boxed()
}

fn operator(vocabulary: &Vocabulary) -> BoxedStrategy<(String, Bson)> {
    let value = vocabulary.value(2);
    let named = |name: &'static str, value: BoxedStrategy<Bson>| value.prop_map(move |value| (name.to_owned(), value));
    let range = (select(vec!["$gt", "$gte", "$lt", "$lte"]), value.clone());
    let list = vec(value.clone(), 1..4).prop_map(Bson::Array).boxed();
    let yes = select(vec![Bson::Boolean(true), Bson::Int32(1), Bson::Double(0.5), Bson::Int64(-1)]).boxed();
    prop_oneof![
        4 => range.prop_map(|(name, value)| (name.to_owned(), value)),
        1 => named("$eq", value),
        2 => named("$in", list.clone()),
        1 => named("$all", list),
        1 => named("$exists", yes),
        1 => named("$type", types()),
    ]
    .boxed()
}

/// Types by name and by number.
fn types() -> BoxedStrategy<Bson> {
    let names = ["double", "string", "object", "array", "bool", "date", "null", "int", "long", "decimal", "number"];
    let mut types: Vec<Bson> = names.map(|name| Bson::String(name.to_owned())).to_vec();
    types.extend([Bson::Int32(-1), Bson::Int64(127), Bson::Double(6.0), Bson::Int32(14)]);
    let one = select(types);
    prop_oneof![one.clone(), vec(one, 1..3).prop_map(Bson::Array)].boxed()
}
