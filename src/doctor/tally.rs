//! What a sample of documents shows, judged one by one and not kept. Pure.

use std::collections::BTreeMap;

use mongodb::bson::{Bson, DateTime, RawBsonRef, RawDocument};

use super::{
    cause::{Cause, Found},
    finding::{Example, Finding, FindingKind, Harm},
    mend::{Convert, Field, Mend},
    report::Expiry,
    zone::{Ahead, Zone},
};
use crate::expiry::{PLAUSIBLE_SECONDS, PartialFilter, Rule, instant};

const EXAMPLES: usize = 3;

/// How many details findings of all kinds have between them; what more there are is counted without.
const MOST_GROUPS: usize = 64;

/// From when on something due is late: what Firestore promises.
const TARGET_LAG_MS: i64 = 24 * 3_600_000;

/// 1971-01-01. Dates before are zeros, defaults, and seconds taken for milliseconds.
const IMPLAUSIBLY_OLD_MS: i64 = 31_536_000_000;

/// 50 years from now on a date is as good as never.
const FAR_MS: i64 = 50 * 31_557_600_000;

/// The share of the sample, in percent, from which on nobody means it.
const NEARLY_ALL: f64 = 95.0;

/// What is known of a collection's documents.
pub(super) struct Tally<'a> {
    collection: &'a str,
    rule: &'a Rule,
    now: DateTime,
    pub(super) documents: u64,
    expiry: Expiry,
    zone: Zone,
    groups: BTreeMap<(Slot, Option<String>), Group>,
    overdue: Vec<Late>,
}

/// A document that is due for long.
struct Late {
    id: Bson,
    since: DateTime,
}

/// What documents are counted under until all of them are known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Slot {
    Kind(FindingKind),
    WithinZones,
    Beyond,
}

#[derive(Default)]
struct Group {
    documents: u64,
    examples: Vec<Example>,
    mend: Option<Mend>,
}

impl<'a> Tally<'a> {
    pub(super) fn new(collection: &'a str, rule: &'a Rule, now: DateTime) -> Self {
        Self {
            collection,
            rule,
            now,
            documents: 0,
            expiry: Expiry::default(),
            zone: Zone::new(rule),
            groups: BTreeMap::new(),
            overdue: Vec::new(),
        }
    }

    pub(super) fn note(&mut self, document: &RawDocument) {
        self.documents += 1;
        let verdict = self.rule.judge(document, self.now);
        match (verdict.due, verdict.expires_at) {
            (true, _) => self.expiry.due += 1,
            (false, Some(_)) => self.expiry.later += 1,
            (false, None) => self.expiry.never += 1,
        }
        if let Some(cause) = Cause::of(self.rule, document, &verdict.reason) {
            return self.count(Slot::Kind(cause.kind), document, &cause);
        }
        if let Some(dates) = self.rule.expiring_dates(document) {
            self.note_date(document, dates.earliest, verdict.expires_at.filter(|_| verdict.due));
        }
    }

    /// Notes what is odd about the date by which a document expires; `due` is since when it is due.
    fn note_date(&mut self, document: &RawDocument, date: DateTime, due: Option<DateTime>) {
        if let Some(due) = due {
            self.expiry.oldest_due = Some(self.expiry.oldest_due.map_or(due, |oldest| oldest.min(due)));
        }
        self.zone.dated += 1;
        let id = match document.get("_id") {
            Ok(Some(RawBsonRef::ObjectId(id))) => Some(id),
            _ => None,
        };
        let millis = date.timestamp_millis();
        let read_again = |millis: i64| Found::Words(format!("{}; meant {}", instant(date), at(millis)));
        let odd = |kind, found| Some(Cause::new(kind, found));
        let value = || Found::Value(RawBsonRef::DateTime(date));
        let cause = if PLAUSIBLE_SECONDS.contains(&millis) {
            odd(FindingKind::SecondsForMilliseconds, read_again(millis * 1000))
                .map(|cause| cause.converting(Some(Convert::Times1000)))
        } else if millis < IMPLAUSIBLY_OLD_MS {
            odd(FindingKind::ImplausiblyOld, value())
        } else if PLAUSIBLE_SECONDS.contains(&millis.div_euclid(1_000_000)) {
            odd(FindingKind::MillisecondsForSeconds, read_again(millis.div_euclid(1000)))
                .map(|cause| cause.converting(Some(Convert::By1000)))
        } else if millis.saturating_sub(self.now.timestamp_millis()) > FAR_MS {
            odd(FindingKind::FarFuture, value())
        } else {
            None
        };
        if let Some(cause) = cause {
            return self.count(Slot::Kind(cause.kind), document, &cause);
        }
        if let Some(since) = due.filter(|due| lag(*due, self.now) > TARGET_LAG_MS) {
            self.overdue.push(Late { id: id_of(document), since });
        }
        let slot = match self.zone.note(date, id, self.now) {
            Ahead::No => return,
            Ahead::WithinZones => Slot::WithinZones,
            Ahead::Beyond => Slot::Beyond,
        };
        self.count(slot, document, &Cause::new(FindingKind::FutureDate, value()));
    }

    fn count(&mut self, slot: Slot, document: &RawDocument, cause: &Cause<'_>) {
        let mut key = (slot, cause.detail.clone());
        if self.groups.len() >= MOST_GROUPS && !self.groups.contains_key(&key) {
            key.1 = None;
        }
        let group = self.groups.entry(key).or_default();
        if group.mend.is_none() {
            group.mend = cause.mend(Field {
                collection: self.collection,
                path: self.rule.field().parts(),
                partial_filter: self.rule.partial().map(PartialFilter::source),
            });
        }
        group.documents += 1;
        if group.examples.len() < EXAMPLES {
            group.examples.push(Example { id: id_of(document), found: cause.found.in_words() });
        }
    }

    /// The `_id`s of documents that are due for long.
    pub(super) fn overdue(&self) -> Vec<Bson> {
        self.overdue.iter().map(|late| late.id.clone()).collect()
    }

    /// Of those, in the same order, which are kept by a guard, and how many there are of them.
    pub(super) fn keep(&mut self, kept: &[bool]) -> usize {
        let before = self.overdue.len();
        let mut kept = kept.iter();
        self.overdue.retain(|_| !kept.next().copied().unwrap_or_default());
        before - self.overdue.len()
    }

    /// All of it, once every document of the sample was noted.
    pub(super) fn findings(self) -> (Expiry, Vec<Finding>) {
        let Self { documents: total, expiry, zone, groups, overdue, .. } = self;
        let mut findings: Vec<Finding> = overdue_finding(overdue, total).into_iter().collect();
        let mut suspicion = zone.suspicion();
        for ((slot, mut detail), group) in groups {
            let kind = match slot {
                Slot::Kind(kind) => Some(kind),
                Slot::WithinZones => zone.kind(Ahead::WithinZones),
                Slot::Beyond => zone.kind(Ahead::Beyond),
            };
            let Some(kind) = kind else { continue };
            if kind == FindingKind::TimeZoneSuspected {
                detail = suspicion.take();
            }
            // Dates ahead are one finding, however far.
            match findings.iter_mut().find(|other| other.kind == kind && other.detail == detail) {
                Some(other) => add(other, group, total),
                None => findings.push(finding(kind, detail, group, total)),
            }
        }
        // Of dates that do not lie ahead.
        if let Some(suspicion) = suspicion {
            findings.push(Finding::of_index(FindingKind::TimeZoneSuspected, suspicion));
        }
        keep_if_nearly_all(&mut findings);
        (expiry, findings)
    }
}

fn at(millis: i64) -> String {
    instant(DateTime::from_millis(millis))
}

fn lag(due: DateTime, now: DateTime) -> i64 {
    now.timestamp_millis().saturating_sub(due.timestamp_millis())
}

#[allow(clippy::cast_precision_loss)] // a share is shown to a tenth of a percent
pub(super) fn percent(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { (part as f64 * 1000.0 / total as f64).round() / 10.0 }
}

fn id_of(document: &RawDocument) -> Bson {
    document.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok()).unwrap_or(Bson::Null)
}

fn overdue_finding(overdue: Vec<Late>, total: u64) -> Option<Finding> {
    let oldest = overdue.iter().map(|late| late.since).min()?;
    let documents = overdue.len() as u64;
    let example = |late: Late| Example { id: late.id, found: format!("due since {}", instant(late.since)) };
    let examples = overdue.into_iter().take(EXAMPLES).map(example).collect();
    let group = Group { documents, examples, mend: None };
    Some(finding(FindingKind::Overdue, Some(format!("the oldest since {}", instant(oldest))), group, total))
}

fn finding(kind: FindingKind, detail: Option<String>, group: Group, total: u64) -> Finding {
    Finding {
        kind,
        harm: kind.harm(),
        detail,
        documents: Some(group.documents),
        percent: Some(percent(group.documents, total)),
        examples: group.examples,
        mend: group.mend,
    }
}

fn add(finding: &mut Finding, group: Group, total: u64) {
    let documents = finding.documents.unwrap_or_default() + group.documents;
    (finding.documents, finding.percent) = (Some(documents), Some(percent(documents, total)));
    finding.examples.extend(group.examples);
    finding.examples.truncate(EXAMPLES);
}

/// What keeps documents and may be meant for some of them is not for nearly all.
fn keep_if_nearly_all(findings: &mut [Finding]) {
    use FindingKind::{EmptyArray, FarFuture, MissingField, NullField, PartialFilter};
    let keeping =
        |finding: &Finding| matches!(finding.kind, EmptyArray | FarFuture | MissingField | NullField | PartialFilter);
    let together: f64 = findings.iter().filter(|it| keeping(it)).filter_map(|it| it.percent).sum();
    if together >= NEARLY_ALL {
        findings.iter_mut().filter(|it| keeping(it)).for_each(|it| it.harm = Harm::Keeps);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mongodb::bson::{Document, RawDocumentBuf, doc};

    use super::*;
    use crate::index::TtlIndex;

    /// 2026-01-01T00:00:00Z.
    const NOW: DateTime = DateTime::from_millis(1_767_225_600_000);

    fn findings(documents: impl IntoIterator<Item = Document>) -> (Expiry, Vec<Finding>) {
        let rule = Rule::new(&TtlIndex::on("t").expire_after(Duration::from_secs(3600))).unwrap();
        let mut tally = Tally::new("c", &rule, NOW);
        for document in documents {
            tally.note(&RawDocumentBuf::try_from(&document).unwrap());
        }
        tally.findings()
    }

    fn kinds(millis: i64) -> Vec<FindingKind> {
        let found = findings([doc! { "t": DateTime::from_millis(millis) }]).1;
        found.into_iter().map(|finding| finding.kind).collect()
    }

    #[test]
    fn odd_dates_are_told_by_their_magnitude_up_to_the_ends_of_time() {
        use FindingKind::{FarFuture, ImplausiblyOld, MillisecondsForSeconds, Overdue, SecondsForMilliseconds};
        for (millis, expected) in [
            (1_700_000_000, &[SecondsForMilliseconds][..]),
            (0, &[ImplausiblyOld]),
            (-62_135_596_800_000, &[ImplausiblyOld]),
            (i64::MIN, &[ImplausiblyOld]),
            (IMPLAUSIBLY_OLD_MS - 1, &[ImplausiblyOld]),
            (IMPLAUSIBLY_OLD_MS, &[Overdue]),
            (NOW.timestamp_millis() - 25 * 3_600_000, &[]),
            (NOW.timestamp_millis() - 25 * 3_600_000 - 1, &[Overdue]),
            (NOW.timestamp_millis(), &[]),
            (NOW.timestamp_millis() + FAR_MS + 1, &[FarFuture]),
            (253_402_300_799_000, &[FarFuture]),
            (1_700_000_000_000_000, &[MillisecondsForSeconds]),
            (i64::MAX, &[FarFuture]),
        ] {
            assert_eq!(kinds(millis), expected, "{millis}");
        }
    }

    #[test]
    fn shares_are_of_the_sample_and_what_nearly_all_have_is_not_meant() {
        let with = |nulls: i32, dates: i32| {
            let nulls = (0..nulls).map(|_| doc! { "t": Bson::Null });
            nulls.chain((0..dates).map(|_| doc! { "t": NOW })).collect::<Vec<_>>()
        };
        let (expiry, found) = findings(with(19, 2));
        assert_eq!((expiry.due, expiry.later, expiry.never), (0, 2, 19));
        assert_eq!((found[0].percent, found[0].harm), (Some(90.5), Harm::Doubt));
        let (_, found) = findings(with(38, 2));
        assert_eq!((found[0].percent, found[0].harm), (Some(95.0), Harm::Keeps));
        assert_eq!(found[0].examples.len(), EXAMPLES);
    }

    #[test]
    fn what_is_held_does_not_grow_with_the_details_there_are() {
        let document = |number: i32| {
            let name: String = number.to_string().chars().map(|c| char::from(c as u8 - b'0' + b'a')).collect();
            let mut inner = Document::new();
            inner.insert(name, doc! { "t": NOW });
            inner
        };
        let (_, found) = findings((0..1_000).map(document));
        assert!(found.len() <= MOST_GROUPS + 1, "{}", found.len());
        assert_eq!(found.iter().filter_map(|finding| finding.documents).sum::<u64>(), 1_000);
    }
}
