//! What a collection's indexes show. Pure.

use std::time::Duration;

use mongodb::bson::{Bson, Document};

use super::{
    finding::{Finding, FindingKind},
    report::ExaminedIndex,
};
use crate::{
    entry::{Entry, IndexState},
    error::Refusal,
    expiry::Rule,
    guard::Guards,
    index::{ExpireAfter, TtlIndex},
    registry::walkable,
    store::PhysicalIndex,
};

/// An index of the database, with its TTL option if it has one.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) index: PhysicalIndex,
    expire_after: Option<Bson>,
    collation: bool,
}

/// A TTL index that documents can be judged by, or what is known of one.
pub(super) struct Subject {
    pub(super) index: ExaminedIndex,
    pub(super) rule: Option<Rule>,
    /// What keeps documents that are due.
    pub(super) guards: Guards,
    pub(super) findings: Vec<Finding>,
    pub(super) notes: Vec<String>,
}

impl Spec {
    /// Reads what `listIndexes` tells of an index.
    pub(super) fn of(spec: &Document) -> Option<Self> {
        let collation =
            spec.get_document("collation").is_ok_and(|it| it.get_str("locale").is_ok_and(|it| it != "simple"));
        let expire_after = spec.get("expireAfterSeconds").cloned();
        Some(Self { index: PhysicalIndex::of_spec(spec)?, expire_after, collation })
    }
}

/// The database's own TTL indexes.
pub(super) fn native(specs: &[Spec]) -> Vec<Subject> {
    specs.iter().filter_map(|spec| Some(native_subject(spec, spec.expire_after.as_ref()?, specs))).collect()
}

fn native_subject(spec: &Spec, period: &Bson, specs: &[Spec]) -> Subject {
    let PhysicalIndex { name, key, partial_filter, .. } = spec.index.clone();
    let (mut findings, mut notes) = (Vec::new(), Vec::new());
    let parsed = ExpireAfter::parse(period);
    if let Err(refusal) = &parsed {
        findings.push(Finding::of_index(FindingKind::NativeOddPeriod, refusal.message()));
    }
    findings.extend(never_expiring(parsed.as_ref().ok().map(|it| it.duration())));
    let field = one_field(&key);
    let rule = field.as_deref().and_then(|field| {
        // A fraction is cut off when MongoDB deletes.
        let seconds = period.as_f64().filter(|it| it.is_finite() && *it >= 0.0).map(f64::trunc);
        let period = parsed.ok().map(ExpireAfter::duration).or_else(|| Duration::try_from_secs_f64(seconds?).ok())?;
        let rule = |filter: Option<Document>| {
            let index = TtlIndex::on(field).expire_after(period);
            Rule::new(&filter.map_or(index.clone(), |filter| index.partial_filter(filter)))
        };
        let rule = rule(partial_filter.clone()).or_else(|error| {
            notes.push(format!("documents were judged without the partial filter: {error}"));
            rule(None)
        });
        rule.map_err(|error| notes.push(format!("no document was judged: {error}"))).ok()
    });
    if field.is_none() {
        findings.push(Finding::of_index(FindingKind::NativeNeverDeletes, key.to_string()));
    }
    notes.extend(rule.as_ref().and_then(|rule| collation_note(rule, spec.collation)));
    findings.extend(field.iter().flat_map(|field| in_other_indexes(field, specs)));
    let expire_after = rule.as_ref().and_then(|rule| u64::try_from(rule.period_millis()).ok());
    let expire_after = expire_after.map(Duration::from_millis);
    let index = ExaminedIndex { name, native: true, key, expire_after, partial_filter };
    Subject { index, rule, guards: Guards::default(), findings, notes }
}

/// The TTL index of this library's; `specs` are none if they could not be listed.
pub(super) fn ours(entry: &Entry, specs: Option<&[Spec]>, lists_by_date: bool) -> Subject {
    let definition = &entry.definition;
    let mut findings = Vec::new();
    if entry.state == IndexState::NeedsRepair {
        let problem = entry.problem.as_deref().unwrap_or("the registry does not say why");
        findings.push(Finding::of_index(FindingKind::NeedsRepair, problem));
    }
    findings.extend(never_expiring(Some(definition.expire_after.duration())));
    if let Some(specs) = specs {
        let native = specs.iter().filter(|spec| spec.expire_after.is_some());
        findings.extend(native.map(|spec| Finding::of_index(FindingKind::NativeBesides, &spec.index.name)));
        let walked = specs.iter().any(|spec| walkable(definition, &spec.index));
        // One that was noted and is gone is drift.
        if !lists_by_date && !walked && entry.supporting.is_none() {
            let why = if definition.supporting_index { "it was not built" } else { "the TTL index was made so" };
            findings.push(Finding::of_index(FindingKind::NoSupportingIndex, why));
        }
        findings.extend(in_other_indexes(definition.field.as_str(), specs));
    }
    let index = ExaminedIndex {
        name: definition.name.clone(),
        native: false,
        key: definition.key(),
        expire_after: Some(definition.expire_after.duration()),
        partial_filter: definition.partial_filter.clone(),
    };
    Subject { index, rule: Some(entry.rule.clone()), guards: entry.guards.clone(), findings, notes: Vec::new() }
}

/// What a note says of a filter that the database compares by a collation.
pub(super) fn collation_note(rule: &Rule, collation: bool) -> Option<String> {
    let refused: Option<Refusal> = rule.check_collation(collation).err();
    refused
        .map(|_| "the partial filter compares strings by a collation, and documents were judged without one".to_owned())
}

/// 68 years: as long as documents have been stored.
fn never_expiring(period: Option<Duration>) -> Option<Finding> {
    let period = period.filter(|it| it.as_secs() == u64::from(i32::MAX.unsigned_abs()))?;
    Some(Finding::of_index(FindingKind::NeverExpiringPeriod, format!("{} s", period.as_secs())))
}

/// The field of an index that can be a TTL index.
fn one_field(key: &Document) -> Option<String> {
    let mut fields = key.iter();
    let (Some((field, direction)), None) = (fields.next(), fields.next()) else { return None };
    let is_number = matches!(direction, Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_));
    (is_number && !field.contains("$**")).then(|| field.clone())
}

/// Indexes on several fields, the TTL field among them.
fn in_other_indexes(field: &str, specs: &[Spec]) -> Vec<Finding> {
    let others = specs.iter().filter(|spec| spec.index.key.len() > 1 && spec.index.key.contains_key(field));
    others
        .map(|spec| {
            let PhysicalIndex { name, key, .. } = &spec.index;
            let leading = key.keys().next().is_some_and(|first| first == field);
            let place = if leading { "leads" } else { "is a further part of" };
            Finding::of_index(FindingKind::FieldInOtherIndex, format!("{field} {place} {name}, {key}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;

    use super::*;

    fn specs(periods: &[Bson]) -> Vec<Spec> {
        let spec = |period: &Bson| doc! { "name": "t", "key": { "t": 1 }, "expireAfterSeconds": period };
        periods.iter().map(|period| Spec::of(&spec(period)).unwrap()).collect()
    }

    /// As other backends, and other versions of MongoDB, keep them in their catalogue.
    #[test]
    fn a_period_that_is_not_understood_alike_everywhere_is_told_and_documents_are_judged_where_that_can_be() {
        for (period, seconds) in [
            (Bson::Double(1.5), Some(1)),
            (Bson::Double(f64::NAN), None),
            (Bson::Int32(-1), None),
            (Bson::String("3600".to_owned()), None),
        ] {
            let subject = native(&specs(std::slice::from_ref(&period))).remove(0);
            let kinds: Vec<_> = subject.findings.iter().map(|finding| finding.kind).collect();
            assert_eq!(kinds, [FindingKind::NativeOddPeriod], "{period}");
            assert_eq!(subject.rule.map(|rule| rule.period_millis() / 1000), seconds, "{period}");
        }
        let subject = native(&specs(&[Bson::Int64(i32::MAX.into())])).remove(0);
        assert_eq!(subject.findings[0].kind, FindingKind::NeverExpiringPeriod);
    }

    #[test]
    fn a_filter_that_is_not_understood_is_noted_and_documents_are_judged_without() {
        let area = doc! { "place": { "$geoWithin": { "$center": [[0, 0], 1] } } };
        let spec = doc! {
            "name": "t", "key": { "t": 1 }, "expireAfterSeconds": 60, "partialFilterExpression": area,
        };
        let subject = native(&[Spec::of(&spec).unwrap()]).remove(0);
        assert!(
            subject.rule.is_some() && subject.notes[0].contains("without the partial filter"),
            "{:?}",
            subject.notes
        );

        let spec = doc! {
            "name": "t", "key": { "t": 1 }, "expireAfterSeconds": 60, "partialFilterExpression": { "s": "x" },
            "collation": { "locale": "de" },
        };
        let subject = native(&[Spec::of(&spec).unwrap()]).remove(0);
        assert!(subject.notes[0].contains("collation"), "{:?}", subject.notes);
    }
}
