//! What a diagnosis tells, and how it reads.

use std::{
    fmt::{self, Write},
    time::Duration,
};

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

/// In the largest unit that leaves no rest.
fn in_words(period: Duration) -> String {
    let seconds = period.as_secs();
    let units = [(86_400, "d"), (3600, "h"), (60, "m")];
    let unit = units.iter().find(|(unit, _)| seconds != 0 && seconds.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{seconds}s"), |(unit, name)| format!("{}{name}", seconds / unit))
}

/// Writes a line in which nothing can move the cursor, colour the text, or turn its direction.
fn line(f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>) -> fmt::Result {
    fmt::write(&mut Visible(f), text)?;
    f.write_char('\n')
}

struct Visible<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl fmt::Write for Visible<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let turns =
            |c| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        text.chars().try_for_each(|c| match c {
            c if c.is_control() || turns(c) => fmt::Display::fmt(&c.escape_default(), self.0),
            c => self.0.write_char(c),
        })
    }
}

impl fmt::Display for DoctorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.diagnoses.is_empty() {
            line(f, format_args!("there is no TTL index"))?;
        }
        for diagnosis in &self.diagnoses {
            diagnosis.fmt(f)?;
        }
        self.notes.iter().try_for_each(|note| line(f, format_args!("note: {note}")))
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.index {
            Some(index) => line(f, format_args!("{}: {index}", self.collection))?,
            None => line(f, format_args!("{}: no TTL index", self.collection))?,
        }
        if let Some(sample) = &self.sample {
            line(f, format_args!("  {sample}"))?;
        }
        self.findings.iter().try_for_each(|finding| finding.fmt(f))?;
        for Candidate { field, dates, convertible } in &self.candidates {
            let others =
                if *convertible > 0.0 { format!(", what looks like one in {convertible} %") } else { String::new() };
            line(f, format_args!("  {field} could be its field: a date in {dates} % of the documents{others}"))?;
        }
        if self.findings.is_empty() && self.index.is_some() {
            line(f, format_args!("  nothing found"))?;
        }
        self.notes.iter().try_for_each(|note| line(f, format_args!("  note: {note}")))
    }
}

impl fmt::Display for ExaminedIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.native { "the database's own TTL index" } else { "TTL index" };
        write!(f, "{whose} {} on {}", self.name, self.key)?;
        if let Some(period) = self.expire_after {
            write!(f, ", {} after", in_words(period))?;
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
        let detail = self.detail.as_ref().map(|detail| format!(", {detail}")).unwrap_or_default();
        let share = match (self.documents, self.percent) {
            (Some(1), Some(percent)) => format!(", 1 document ({percent} %)"),
            (Some(documents), Some(percent)) => format!(", {documents} documents ({percent} %)"),
            _ => String::new(),
        };
        line(f, format_args!("  {}: {}{detail}{share}: {}", self.harm.as_str(), self.kind, self.kind.meaning()))?;
        for example in &self.examples {
            line(f, format_args!("      _id {}: {}", example.id, example.found))?;
        }
        match &self.mend {
            Some(mend) => line(f, format_args!("      to mend: {mend}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::Bson;

    use super::*;
    use crate::doctor::{Example, FindingKind};

    #[test]
    fn nothing_that_is_printed_can_move_the_cursor_or_turn_the_text() {
        let id = Bson::from("\u{1b}[31mid\nnote: fine\u{9b}");
        let example = Example { id, found: "a\u{202e}b ü".to_owned() };
        let finding =
            Finding { examples: vec![example], ..Finding::of_index(FindingKind::Renamed, "it is c\r\u{2066}") };
        let diagnosis = Diagnosis {
            collection: "c\u{7}".to_owned(),
            index: None,
            sample: None,
            findings: vec![finding],
            candidates: vec![Candidate { field: "f\u{1b}".to_owned(), dates: 1.0, convertible: 0.0 }],
            notes: vec!["n\u{200f}".to_owned()],
        };
        let told =
            DoctorReport { at: DateTime::MIN, diagnoses: vec![diagnosis], notes: vec!["m\t".to_owned()] }.to_string();
        assert_eq!(told.lines().count(), 6, "{told}");
        let odd = |c: &char| c.is_control() && *c != '\n' || ('\u{200e}'..='\u{2069}').contains(c);
        assert_eq!(told.chars().find(odd), None, "{told}");
        assert!(told.contains(r"\u{1b}[31mid\nnote: fine\u{9b}") && told.contains("ü"), "{told}");
    }

    #[test]
    fn a_period_is_in_the_largest_unit() {
        for (seconds, words) in [(0, "0s"), (90, "90s"), (5400, "90m"), (3600, "1h"), (2_592_000, "30d")] {
            assert_eq!(in_words(Duration::from_secs(seconds)), words);
        }
    }
}
