//! Reading what is to be judged: the registry, the collections and their indexes, and a sample of the documents.

use std::collections::{BTreeSet, HashMap};

use mongodb::bson::{Bson, DateTime, Document};
use tokio_util::sync::CancellationToken;

use super::{
    candidates::Candidates,
    finding::{Finding, FindingKind, rank},
    indexes::{self, Spec, Subject},
    report::{Diagnosis, DoctorReport, ExaminedIndex, Sample},
    tally::Tally,
};
use crate::{
    entry::{Broken, Entry},
    error::{Code, Error, Refusal, Result},
    expiry::Rule,
    guard::Guards,
    namespace::CollectionName,
    registry::{Slot, Snapshot, keepers, serves},
    store::{Collection, DynStore, Kind},
    sweeper::{Drift, drift_of, drift_of_collection},
};

/// How many documents a guard is asked about at a time.
const MOST_IDS: usize = 500;

/// What was listed of the database.
struct Examination {
    store: DynStore,
    at: DateTime,
    size: u32,
    snapshot: Snapshot,
    /// None if they could not be listed.
    collections: Option<HashMap<String, Collection>>,
    notes: Vec<String>,
}

pub(super) async fn database(
    store: DynStore,
    only: Option<CollectionName>,
    size: u32,
    at: Option<DateTime>,
    stop: CancellationToken,
) -> Result<DoctorReport> {
    let at = match at {
        Some(at) => at,
        None => store.told_time().await?.ok_or_else(|| {
            Refusal::new(
                Code::InvalidOptions,
                "this database does not tell its time without being written to; give the instant to judge at",
            )
        })?,
    };
    let mut notes = Vec::new();
    let snapshot = noted(Snapshot::load(&*store).await, &mut notes)?;
    let collections = noted(store.collections().await, &mut notes)?;
    let blind = snapshot.is_none() && collections.is_none();
    let snapshot = snapshot.unwrap_or_default();
    let mut examination = Examination { store, at, size, snapshot, collections, notes };
    let mut diagnoses = Vec::new();
    for collection in examination.wanted(only.as_ref()) {
        if stop.is_cancelled() {
            return Err(Error::Interrupted);
        }
        diagnoses.extend(examination.collection(&collection, only.is_some()).await?);
    }
    // Where nothing could be looked at nothing is known to be well.
    if blind && diagnoses.iter().all(|it: &Diagnosis| it.index.is_none() && it.sample.is_none()) {
        return Err(Error::Unreadable(format!("nothing could be looked at: {}", examination.notes.join("; "))));
    }
    Ok(DoctorReport { at, diagnoses, notes: examination.notes })
}

/// What the database answered and refused is noted; what did not get through is an error.
fn noted<T>(result: Result<T>, notes: &mut Vec<String>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.code().is_some() || matches!(error, Error::Unreadable(_)) => {
            notes.push(error.in_full());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl Examination {
    /// The one asked for, or all that may have a TTL index.
    fn wanted(&self, only: Option<&CollectionName>) -> BTreeSet<CollectionName> {
        if let Some(only) = only {
            return [only.clone()].into();
        }
        let ordinary = |(name, collection): (&String, &Collection)| {
            matches!(collection.kind, Kind::Ordinary | Kind::Capped).then(|| name.clone())
        };
        let listed = self.collections.iter().flatten().filter_map(ordinary);
        let entries = self.snapshot.slots.iter().map(|slot| slot.collection().to_owned());
        listed.chain(entries).filter_map(|name| CollectionName::parse(&name).ok()).collect()
    }

    async fn collection(&mut self, name: &CollectionName, asked_for: bool) -> Result<Vec<Diagnosis>> {
        let mut notes = Vec::new();
        let specs = noted(self.store.index_specs(name).await, &mut notes)?;
        let specs: Option<Vec<Spec>> = specs.map(|specs| specs.iter().filter_map(Spec::of).collect());
        let mut subjects = match self.snapshot.find(name) {
            Some(Slot::Good(entry)) => vec![self.ours(entry, specs.as_deref())],
            Some(Slot::Broken(broken)) => vec![not_understood(broken)],
            None => Vec::new(),
        };
        subjects.extend(indexes::native(specs.as_deref().unwrap_or_default()));
        if subjects.is_empty() {
            return Ok(if asked_for {
                vec![self.without_index(name, notes).await?]
            } else {
                self.notes.extend(notes);
                Vec::new()
            });
        }
        let mut diagnoses = Vec::new();
        for subject in subjects {
            let mut examined = self.diagnose(name, subject).await?;
            examined.notes.extend(notes.clone());
            diagnoses.push(examined);
        }
        Ok(diagnoses)
    }

    fn ours(&self, entry: &Entry, specs: Option<&[Spec]>) -> Subject {
        let mut subject = indexes::ours(entry, specs, self.store.lists_by_date());
        let Some(collections) = &self.collections else { return subject };
        let here = collections.get(entry.definition.collection.as_str());
        subject.notes.extend(indexes::collation_note(&entry.rule, here.is_some_and(|it| it.default_collation)));
        let drift = match specs {
            Some(specs) => {
                let kind = here.map(|it| it.kind).unwrap_or_default();
                let indexes = specs.iter().map(|spec| spec.index.clone()).collect();
                drift_of(entry, collections, &Collection { kind, indexes, ..Collection::default() })
            }
            None => drift_of_collection(entry, collections),
        };
        let known = |finding: &Finding| finding.kind == FindingKind::NeedsRepair;
        match drift {
            Drift::None { .. } => {}
            Drift::Renamed(to) => {
                subject.findings.push(Finding::of_index(FindingKind::Renamed, format!("it is {to}")));
            }
            // What the registry has noted already is not said twice.
            Drift::Broken(_) if subject.findings.iter().any(known) => {}
            Drift::Broken(why) => subject.findings.push(Finding::of_index(FindingKind::NeedsRepair, why)),
        }
        subject
    }

    async fn diagnose(&self, name: &CollectionName, subject: Subject) -> Result<Diagnosis> {
        let Subject { index, rule, guards, mut findings, mut notes } = subject;
        findings.extend(self.guards(&guards, &mut notes).await?);
        let sample = match &rule {
            None => None,
            Some(rule) => {
                let (sample, of_documents) = self.sample(name, rule, &guards, &mut notes).await?;
                findings.extend(of_documents);
                sample
            }
        };
        rank(&mut findings);
        let collection = name.to_string();
        Ok(Diagnosis { collection, index: Some(index), sample, findings, candidates: Vec::new(), notes })
    }

    async fn sample(
        &self,
        name: &CollectionName,
        rule: &Rule,
        guards: &Guards,
        notes: &mut Vec<String>,
    ) -> Result<(Option<Sample>, Vec<Finding>)> {
        let mut tally = Tally::new(name.as_str(), rule, self.at);
        let sampled = self.store.sample(name, self.size, &mut |document| tally.note(document)).await;
        let Some(sampled) = noted(sampled, notes)? else { return Ok((None, Vec::new())) };
        notes.extend(sampled.broken_off.map(|error| error.in_full()));
        let documents = tally.documents;
        if let Some(kept) = noted(self.kept(guards, &tally.overdue()).await, notes)? {
            let kept = tally.keep(&kept);
            if kept > 0 {
                let (s, are) = if kept == 1 { ("", "is") } else { ("s", "are") };
                notes.push(format!("{kept} document{s} that {are} overdue {are} kept by a guard"));
            }
        }
        let (expiry, findings) = tally.findings();
        let sample = Sample { documents, total: sampled.total, by: sampled.by, expiry: Some(expiry) };
        Ok((Some(sample), findings))
    }

    /// Which of these documents a guard keeps.
    async fn kept(&self, guards: &Guards, ids: &[Bson]) -> Result<Vec<bool>> {
        let mut kept = Vec::new();
        if !guards.is_empty() {
            for ids in ids.chunks(MOST_IDS) {
                kept.extend(keepers(&*self.store, guards, ids, self.at).await?.iter().map(Option::is_some));
            }
        }
        Ok(kept)
    }

    /// Whether the guards can be asked.
    async fn guards(&self, guards: &Guards, notes: &mut Vec<String>) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for guard in guards.iter().filter(|_| self.store.indexes_children()) {
            let Some(all) = &self.collections else { break };
            let children = all.get(guard.collection.as_str()).map(|it| it.kind);
            match children {
                None | Some(Kind::Missing) => {
                    findings.push(Finding::of_index(FindingKind::GuardMissing, guard.to_string()));
                }
                Some(Kind::Ordinary | Kind::Capped) if !guard.without_index => {
                    let specs = noted(self.store.index_specs(&guard.collection).await, notes)?;
                    let served = |specs: &Vec<Document>| {
                        specs.iter().filter_map(Spec::of).any(|spec| serves(&spec.index, guard.field.as_str()))
                    };
                    if specs.is_some_and(|specs| !served(&specs)) {
                        findings.push(Finding::of_index(FindingKind::GuardWithoutIndex, guard.to_string()));
                    }
                }
                Some(_) => {}
            }
        }
        Ok(findings)
    }

    async fn without_index(&self, name: &CollectionName, mut notes: Vec<String>) -> Result<Diagnosis> {
        if let Some(collections) = &self.collections {
            let kind = collections.get(name.as_str()).map(|it| it.kind).unwrap_or_default();
            notes.extend(kind.check(name).err().map(|refusal| refusal.message().to_owned()));
        }
        let mut candidates = Candidates::default();
        let mut documents = 0;
        let sampled = self
            .store
            .sample(name, self.size, &mut |document| {
                documents += 1;
                candidates.note(document);
            })
            .await;
        let sampled = noted(sampled, &mut notes)?;
        let sample = sampled.map(|sampled| {
            notes.extend(sampled.broken_off.map(|error| error.in_full()));
            Sample { documents, total: sampled.total, by: sampled.by, expiry: None }
        });
        if documents == 0 && sample.is_some() {
            notes.push("it is empty, or there is no such collection".to_owned());
        }
        let collection = name.to_string();
        Ok(Diagnosis { collection, index: None, sample, findings: Vec::new(), candidates: candidates.told(), notes })
    }
}

/// An entry of the registry that deletes nothing.
fn not_understood(broken: &Broken) -> Subject {
    let index = ExaminedIndex {
        name: broken.name.clone(),
        native: false,
        key: broken.key.clone(),
        expire_after: None,
        partial_filter: None::<Document>,
    };
    let finding = Finding::of_index(FindingKind::NeedsRepair, broken.refusal().message());
    Subject { index, rule: None, guards: Guards::default(), findings: vec![finding], notes: Vec::new() }
}
