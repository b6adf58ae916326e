//! Raw bytes as a document, and as a definition: the rule never panics, and what it cannot read it keeps.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ttl_index::{
    Reason, Rule, TtlIndex,
    bson::{DateTime, Document, RawDocument, doc},
};

/// Definitions whose paths and filters reach into every corner of the rule.
static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let filters = [
        doc! {},
        doc! { "a": { "$gt": 1, "$lte": 9.5 }, "b": { "$in": [1, "x", null] } },
        doc! { "$or": [{ "a.0": { "$type": ["date", "array"] } }, { "b.a": { "$exists": true } }] },
        doc! { "a": { "$all": [1, [2]] }, "$and": [{ "b": { "a": 1 } }] },
    ];
    let mut rules = Vec::new();
    for field in ["a", "a.b", "a.0", "a.0.b", "0.0.0", "b.a.b.a"] {
        for filter in &filters {
            for seconds in [0, 1, 2_147_483_647] {
                let spec = doc! {
                    "key": { field: 1 }, "expireAfterSeconds": seconds, "partialFilterExpression": filter,
                };
                rules.push(Rule::new(&TtlIndex::from(spec)).expect("a valid definition"));
            }
        }
    }
    rules
});

fuzz_target!(|bytes: &[u8]| {
    let Ok(document) = RawDocument::from_bytes(bytes) else { return };
    let instants = [DateTime::MIN, DateTime::from_millis(0), DateTime::from_millis(1_700_000_000_000), DateTime::MAX];
    for rule in RULES.iter() {
        for now in instants {
            let verdict = rule.judge(document, now);
            assert!(!verdict.due || verdict.expires_at.is_some_and(|at| at <= now), "{verdict}");
            assert!(!verdict.due || matches!(verdict.reason, Reason::Expired { .. }), "{verdict}");
            let _ = verdict.to_string();
        }
    }
    // The same bytes as a definition.
    if let Ok(spec) = Document::from_reader(bytes)
        && let Ok(rule) = Rule::new(&TtlIndex::from(spec))
    {
        let _ = rule.judge(document, DateTime::MAX);
    }
});
