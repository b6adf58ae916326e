//! What a diagnosis tells, and how it reads.

use std::{fmt, time::Duration};

use mongodb::bson::{DateTime, Document};

use super::{candidates::Candidate, finding::Finding, tally::percent};
use crate::{expiry::instant, store::SampledBy};

/// What [`doctor`](crate::TtlRegistry::doctor) found in a database.
///
/// Printed, it is a text for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DoctorReport {
    /// The instant at which documents were judged: the database's now, unless another was given.
    pub at: DateTime,
    /// One for each TTL index that was looked at, in the order of their collections' names.
    pub diagnoses: Vec<Diagnosis>,
    /// What could not be looked at, and why.
    pub notes: Vec<String>,
}

/// What was found of one collection by one TTL index.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The collection.
    pub collection: String,
    /// The TTL index by which it was judged; none if it has none.
    pub index: Option<ExaminedIndex>,
    /// The documents that were judged; none if none could be.
    pub sample: Option<Sample>,
    /// What is wrong, the worst first.
    pub findings: Vec<Finding>,
    /// Where there is no TTL index: the fields that one could be on.
    pub candidates: Vec<Candidate>,
    /// What could not be looked at, and why.
    pub notes: Vec<String>,
}

/// The TTL index by which documents were judged.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExaminedIndex {
    /// Its name.
    pub name: String,
    /// Whether it is the database's own.
    pub native: bool,
    /// Its key.
    pub key: Document,
    /// How long after their date documents expire; none if the stored period cannot be understood.
    pub expire_after: Option<Duration>,
    /// Only documents matching it expire.
    pub partial_filter: Option<Document>,
}

/// The documents that were judged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sample {
    /// How many.
    pub documents: u64,
    /// How many the collection has, more or less; none if the database does not say.
    pub total: Option<u64>,
    /// How they were chosen.
    pub by: SampledBy,
    /// Whether they expire; none where there is no rule to say.
    pub expiry: Option<Expiry>,
}

/// Whether the documents of a sample expire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expiry {
    /// How many are due.
    pub due: u64,
    /// How many expire later.
    pub later: u64,
    /// How many never do, as they are.
    pub never: u64,
    /// Since when the oldest of the due ones is.
    pub oldest_due: Option<DateTime>,
}

impl DoctorReport {
    /// Whether anything was found.
    pub fn has_findings(&self) -> bool {
        self.diagnoses.iter().any(|diagnosis| !diagnosis.findings.is_empty())
    }
}

impl fmt::Display for DoctorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.diagnoses.is_empty() {
            writeln!(f, "there is no TTL index")?;
        }
        for diagnosis in &self.diagnoses {
            diagnosis.fmt(f)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.index {
            Some(index) => writeln!(f, "{}: {index}", self.collection)?,
            None => writeln!(f, "{}: no TTL index", self.collection)?,
        }
        if let Some(sample) = &self.sample {
            writeln!(f, "  {sample}")?;
        }
        self.findings.iter().try_for_each(|finding| finding.fmt(f))?;
        for Candidate { field, dates, convertible } in &self.candidates {
            write!(f, "  {field} could be its field: a date in {dates} % of the documents")?;
            let others = *convertible > 0.0;
            writeln!(
                f,
                "{}",
                if others { format!(", what looks like one in {convertible} %") } else { String::new() }
            )?;
        }
        if self.findings.is_empty() && self.index.is_some() {
            writeln!(f, "  nothing found")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "  note: {note}"))
    }
}

impl fmt::Display for ExaminedIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.native { "the database's own TTL index" } else { "TTL index" };
        write!(f, "{whose} {} on {}", self.name, self.key)?;
        if let Some(period) = self.expire_after {
            write!(f, ", {} s after", period.as_secs())?;
        }
        match &self.partial_filter {
            Some(filter) => write!(f, ", where {filter}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.documents;
        if number == 0 {
            return f.write_str("no documents");
        }
        let of = self.total.map(|total| format!(" of about {total}")).unwrap_or_default();
        match self.by {
            SampledBy::All if number == 1 => f.write_str("the only document")?,
            SampledBy::All => write!(f, "all {number} documents")?,
            SampledBy::Random => write!(f, "{number}{of} documents, at random")?,
            SampledBy::Spread => write!(f, "{number}{of} documents, at even distances")?,
            SampledBy::First => write!(f, "the first {number}{of} documents, which may not be like the others")?,
        }
        let Some(Expiry { due, later, never, oldest_due }) = &self.expiry else { return Ok(()) };
        let share = |part: u64| percent(part, number);
        write!(f, ": {} % due, {} % later, {} % never", share(*due), share(*later), share(*never))?;
        match oldest_due {
            Some(oldest) => write!(f, "; the oldest due since {}", instant(*oldest)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}: {}", self.harm.as_str(), self.kind)?;
        if let Some(detail) = &self.detail {
            write!(f, ", {detail}")?;
        }
        if let (Some(documents), Some(percent)) = (self.documents, self.percent) {
            write!(f, ", {documents} document{} ({percent} %)", if documents == 1 { "" } else { "s" })?;
        }
        writeln!(f, ": {}", self.kind.meaning())?;
        for example in &self.examples {
            writeln!(f, "      _id {}: {}", example.id, example.found)?;
        }
        match &self.mend {
            Some(mend) => writeln!(f, "      to mend: {mend}"),
            None => Ok(()),
        }
    }
}
