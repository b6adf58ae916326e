//! Values of every BSON type, in every nesting.

use mongodb::bson::{
    Binary, Bson, DateTime, Document, JavaScriptCodeWithScope, Regex, Timestamp, oid::ObjectId, spec::BinarySubtype,
};
use proptest::{
    bool::ANY as ANY_BOOL,
    collection::vec,
    prelude::{Just, any},
    prop_oneof,
    sample::select,
    strategy::{BoxedStrategy, Strategy},
};
use serde_json::json;

use super::cutoff;
use crate::support::json;

/// What nested values are made of.
#[derive(Clone)]
pub(super) struct Vocabulary {
    /// The names of fields.
    names: Vec<String>,
    scalar: BoxedStrategy<Bson>,
}

impl Vocabulary {
    /// Every type, dates often.
    pub(super) fn dates(names: &[&str]) -> Vocabulary {
        Vocabulary::operands(names).or(3, date()).or(1, select(incomparable()).boxed())
    }

    /// What a filter may compare with, mostly from a few values so that they often meet.
    pub(super) fn operands(names: &[&str]) -> Vocabulary {
        Vocabulary { names: names.iter().map(ToString::to_string).collect(), scalar: operand() }
    }

    /// What is null, nearly null, or not.
    pub(super) fn nothing(names: &[&str]) -> Vocabulary {
        let scalar = select(vec![Bson::Null, Bson::Undefined, Bson::Int32(1), Bson::MinKey]).boxed();
        Vocabulary { names: names.iter().map(ToString::to_string).collect(), scalar }
    }

    /// The same, with other values besides: `weight` of them to every two of those so far.
    pub(super) fn or(mut self, weight: u32, values: BoxedStrategy<Bson>) -> Vocabulary {
        self.scalar = prop_oneof![2 => self.scalar, weight => values].boxed();
        self
    }

    /// Values, nested `depth` levels at most.
    pub(super) fn value(&self, depth: u32) -> BoxedStrategy<Bson> {
        // Not `prop_recursive`, whose nesting is too rarely as deep as it may be.
        (0..depth).fold(self.scalar.clone(), |inner, _| {
            prop_oneof![
                3 => self.scalar.clone(),
                1 => vec(inner.clone(), 0..4).prop_map(Bson::Array),
                1 => self.fields(&inner).prop_map(Bson::Document),
            ]
            .boxed()
        })
    }

    fn fields(&self, value: &BoxedStrategy<Bson>) -> BoxedStrategy<Document> {
        let field = (select(self.names.clone()), value.clone());
        vec(field, 0..3).prop_map(|fields| fields.into_iter().collect()).boxed()
    }

    /// Values that mostly have something at the path, by way of documents and arrays of all sorts.
    pub(super) fn along(&self, path: &[&str]) -> BoxedStrategy<Bson> {
        let any = self.value(2);
        let Some((first, rest)) = path.split_first() else { return any };
        let (first, inner) = ((*first).to_owned(), self.along(rest));
        let document = (self.fields(&self.value(1)), inner.clone(), ANY_BOOL)
            .prop_map(move |(others, value, last)| {
                let own = Document::from_iter([(first.clone(), value)]);
                let (start, end) = if last { (others, own) } else { (own, others) };
                Bson::Document(start.into_iter().chain(end).collect())
            })
            .boxed();
        let element = prop_oneof![3 => document.clone(), 1 => inner, 1 => any.clone()];
        prop_oneof![6 => document, 3 => vec(element, 0..4).prop_map(Bson::Array), 1 => any].boxed()
    }
}

/// Dates on both sides of the cutoff, near and as far as dates go.
pub(super) fn date() -> BoxedStrategy<Bson> {
    const MINUTE: i64 = 60_000;
    const HOUR: i64 = 60 * MINUTE;
    let cutoff = cutoff();
    let extreme = [
        i64::MIN,
        i64::MIN + 1,
        -62_135_596_800_001,
        -62_135_596_800_000,
        -1,
        0,
        1,
        1 << 31,
        1 << 53,
        253_402_300_799_999,
        253_402_300_800_000,
        i64::MAX - 1,
        i64::MAX,
    ];
    prop_oneof![
        (MINUTE..48 * HOUR).prop_map(move |before| cutoff - before),
        // Later by more than any test takes.
        (HOUR..48 * HOUR).prop_map(move |after| cutoff + after),
        select(extreme.to_vec()),
        any::<i64>().prop_filter("near the cutoff", move |date| date.abs_diff(cutoff) > HOUR.unsigned_abs()),
    ]
    .prop_map(|millis| Bson::DateTime(DateTime::from_millis(millis)))
    .boxed()
}

/// Values that a partial filter here refuses to compare with.
pub(super) fn incomparable() -> Vec<Bson> {
    let old = DateTime::from_millis(0);
    let regex = Regex { pattern: "^a".try_into().unwrap(), options: "i".try_into().unwrap() };
    let scope: Document = [("b".to_owned(), Bson::DateTime(old))].into_iter().collect();
    vec![
        Bson::MinKey,
        Bson::MaxKey,
        // Nearly null, and what queries differ most about.
        Bson::Undefined,
        Bson::Undefined,
        Bson::Undefined,
        Bson::RegularExpression(regex),
        Bson::JavaScriptCode("f()".to_owned()),
        Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope { code: "f()".to_owned(), scope }),
        Bson::Symbol("a".to_owned()),
        json::bson(&json!({ "$dbPointer": { "$ref": "c", "$id": { "$oid": "000000000000000000000000" } } })),
    ]
}

/// Values that a partial filter may compare with.
fn operand() -> BoxedStrategy<Bson> {
    prop_oneof![
        4 => select(numbers()),
        3 => select(["", "a", "A", "aa", "b", "ä", "a\0"].map(|text| Bson::String(text.to_owned())).to_vec()),
        3 => Just(Bson::Null),
        2 => ANY_BOOL.prop_map(Bson::Boolean),
        2 => select([i64::MIN, 0, 1_000, i64::MAX].map(|date| Bson::DateTime(DateTime::from_millis(date))).to_vec()),
        1 => select(vec![[0; 12], [1; 12], [255; 12]]).prop_map(|bytes| Bson::ObjectId(ObjectId::from_bytes(bytes))),
        1 => select(vec![(0, 1), (1, 0), (1, 1), (u32::MAX, 0)])
            .prop_map(|(time, increment)| Bson::Timestamp(Timestamp { time, increment })),
        1 => select(binaries()),
    ]
    .boxed()
}

fn binaries() -> Vec<Bson> {
    let binary = |subtype, bytes: &[u8]| Bson::Binary(Binary { subtype, bytes: bytes.to_vec() });
    vec![
        binary(BinarySubtype::Generic, &[]),
        binary(BinarySubtype::Generic, &[1]),
        binary(BinarySubtype::Generic, &[1, 2]),
        binary(BinarySubtype::Generic, &[2]),
        binary(BinarySubtype::UserDefined(200), &[1]),
        binary(BinarySubtype::BinaryOld, &[1]),
        binary(BinarySubtype::Uuid, &[1; 16]),
    ]
}

/// Numbers that are equal, or nearly so, across the four types.
fn numbers() -> Vec<Bson> {
    let two_53 = 1_i64 << 53;
    let doubles = [
        0.0,
        -0.0,
        0.1,
        1.0,
        1.5,
        -1.0,
        9_007_199_254_740_992.0,
        9_223_372_036_854_775_808.0,
        -9_223_372_036_854_775_808.0,
        5e-324,
        f64::MAX,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let decimals = [
        "0",
        "-0E+3",
        "0.1",
        "0.1000000000000000055511151231257827",
        "0.1000000000000000055511151231257828",
        "1",
        "1.0",
        "1E+0",
        "10E-1",
        "1.5",
        "-1",
        "9007199254740992",
        "9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "1E-6176",
        "9.999999999999999999999999999999999E+6144",
        "Infinity",
        "-Infinity",
        "NaN",
    ];
    let integers = [0, 1, -1, two_53, two_53 + 1, i64::MAX, i64::MIN].map(Bson::Int64);
    [0, 1, -1, i32::MAX]
        .map(Bson::Int32)
        .into_iter()
        .chain(integers)
        .chain(doubles.map(Bson::Double))
        .chain(decimals.map(|text| Bson::Decimal128(text.parse().unwrap())))
        .collect()
}
