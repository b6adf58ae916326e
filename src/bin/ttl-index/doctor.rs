//! `doctor`.

use serde_json::{Value, json};
use ttl_index::{
    Candidate, Diagnosis, ExaminedIndex, Finding, FindingKind, Mend, Sample,
    bson::{Bson, Document},
};

use super::{
    args::Doctor,
    failure::{DONE, REFUSED},
    json, output,
    target::Target,
};

pub(crate) async fn run(args: Doctor, uri: Option<&str>, json: bool) -> anyhow::Result<u8> {
    let mut doctor = Target::open(uri).await?.doctor().sample(args.sample);
    if let Some(collection) = args.collection {
        doctor = doctor.collection(collection);
    }
    if let Some(now) = args.now {
        doctor = doctor.at(now);
    }
    let mut report = doctor.await?;
    for diagnosis in &mut report.diagnoses {
        diagnosis.findings.retain(|finding| !args.except.contains(&finding.kind));
    }
    if json {
        report.diagnoses.iter().try_for_each(|diagnosis| output::line(diagnosis_json(diagnosis)))?;
        report.notes.iter().try_for_each(|note| output::line(json!({ "note": note })))?;
    } else {
        output::line(report.to_string().trim_end())?;
    }
    Ok(if report.has_findings() { REFUSED } else { DONE })
}

/// A kind of finding by its name.
pub(crate) fn kind(name: &str) -> Result<FindingKind, String> {
    let names = || FindingKind::ALL.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ");
    FindingKind::parse(name).ok_or_else(|| format!("the findings are {}", names()))
}

fn diagnosis_json(diagnosis: &Diagnosis) -> Value {
    let candidate = |it: &Candidate| json!({ "field": it.field, "dates": it.dates, "convertible": it.convertible });
    json!({
        "collection": diagnosis.collection,
        "index": diagnosis.index.as_ref().map(index_json),
        "sample": diagnosis.sample.as_ref().map(sample_json),
        "findings": diagnosis.findings.iter().map(finding_json).collect::<Vec<_>>(),
        "candidates": diagnosis.candidates.iter().map(candidate).collect::<Vec<_>>(),
        "notes": diagnosis.notes,
    })
}

fn index_json(index: &ExaminedIndex) -> Value {
    json!({
        "name": index.name,
        "native": index.native,
        "key": relaxed(&index.key),
        "expireAfterSeconds": index.expire_after.map(|period| period.as_secs()),
        "partialFilterExpression": index.partial_filter.as_ref().map(relaxed),
    })
}

fn sample_json(sample: &Sample) -> Value {
    json!({
        "documents": sample.documents,
        "total": sample.total,
        "by": sample.by.as_str(),
        "due": sample.expiry.map(|it| it.due),
        "later": sample.expiry.map(|it| it.later),
        "never": sample.expiry.map(|it| it.never),
        "oldest_due": json::date(sample.expiry.and_then(|it| it.oldest_due)),
    })
}

fn finding_json(finding: &Finding) -> Value {
    let example = |it: &ttl_index::Example| json!({ "_id": it.id.clone().into_relaxed_extjson(), "found": it.found });
    json!({
        "kind": finding.kind.as_str(),
        "harm": finding.harm.as_str(),
        "rank": finding.harm.rank(),
        "detail": finding.detail,
        "meaning": finding.kind.meaning(),
        "documents": finding.documents,
        "percent": finding.percent,
        "examples": finding.examples.iter().map(example).collect::<Vec<_>>(),
        "mend": finding.mend.as_ref().map(mend_json),
    })
}

fn mend_json(mend: &Mend) -> Value {
    json!({
        "filter": relaxed(&mend.filter),
        "pipeline": mend.pipeline.iter().map(relaxed).collect::<Vec<_>>(),
        "mongosh": mend.to_string(),
    })
}

fn relaxed(document: &Document) -> Value {
    Bson::Document(document.clone()).into_relaxed_extjson()
}
