//! When documents expire, as it is written in a file.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, Read},
};

/// The names of the columns, which may stand in the first line.
const HEADER: &str = "expires_at_seconds,count";

/// The longest line there is any use for.
const LONGEST_LINE: usize = 1000;

/// A simulation has a line for each minute, which is half a million in this time.
const LATEST: i64 = 366 * 86_400;

/// What is older is taken to be as old as this, which makes no difference: some thousands of years.
const EARLIEST: i64 = -100_000_000_000;

/// More could not be counted exactly where documents are divided by time.
const MOST: u64 = 1 << 53;

/// How many documents expire when: a load to plan for.
///
/// A text of lines `expires_at_seconds,count`, in any order: whole seconds since a rule comes into force, at most 366 days,
/// and negative for what has expired before; and how many documents expire then. Lines with the same second add up. Blank lines,
/// those that begin with `#`, and a first line with the names of the columns are skipped.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let trace = ttl_index::Trace::parse("expires_at_seconds,count\n-1,10000000\n3600,86400\n".as_bytes())?;
/// assert_eq!(trace.documents(), 10_086_400);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Seconds, ascending, and how many documents expire then: more than none.
    cohorts: Vec<(i64, u64)>,
    documents: u64,
}

/// Why a [`Trace`] cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A line is not `expires_at_seconds,count`.
    #[error("line {line}: {what}")]
    Line {
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The text could not be read.
    #[error("line {line} cannot be read")]
    Read {
        /// Counted from 1.
        line: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Trace {
    /// Reads it whole. What is wrong is named with the number of its line.
    pub fn parse(text: impl BufRead) -> Result<Self, TraceError> {
        let mut text = text;
        let (mut cohorts, mut documents, mut begun) = (BTreeMap::new(), 0_u64, false);
        let mut buffer = Vec::new();
        for line in 1.. {
            buffer.clear();
            let read = text.by_ref().take(LONGEST_LINE as u64).read_until(b'\n', &mut buffer);
            if read.map_err(|source| TraceError::Read { line, source })? == 0 {
                break;
            }
            let wrong = |what: String| TraceError::Line { line, what };
            if buffer.len() == LONGEST_LINE {
                return Err(wrong(format!("it is too long for {HEADER}")));
            }
            let words = std::str::from_utf8(&buffer).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
            let words = words.trim_start_matches('\u{feff}').trim();
            if words.is_empty() || words.starts_with('#') {
                continue;
            }
            let header = !begun && words.split(',').map(str::trim).eq(HEADER.split(','));
            begun = true;
            if header {
                continue;
            }
            let (second, count) = cohort(words).map_err(wrong)?;
            documents = documents.saturating_add(count);
            if documents > MOST {
                return Err(wrong(format!("with it there are more than {MOST} documents, the most of a trace")));
            }
            if count > 0 {
                *cohorts.entry(second).or_insert(0) += count;
            }
        }
        Ok(Self { cohorts: cohorts.into_iter().collect(), documents })
    }

    /// How many documents it has.
    pub fn documents(&self) -> u64 {
        self.documents
    }

    /// Seconds, ascending, and how many documents expire then.
    pub(super) fn cohorts(&self) -> &[(i64, u64)] {
        &self.cohorts
    }
}

fn cohort(words: &str) -> Result<(i64, u64), String> {
    let fields: Vec<&str> = words.split(',').map(str::trim).collect();
    let [second, count] = fields[..] else {
        return Err(format!("expected {HEADER}, but got {words:?}"));
    };
    let seconds =
        second.parse::<i64>().map_err(|_| format!("expected a whole number of seconds, but got {second:?}"))?;
    if seconds > LATEST {
        return Err(format!("{seconds} s are more than 366 days, the longest trace"));
    }
    let count = count.parse().map_err(|_| format!("expected a whole number of documents, but got {count:?}"))?;
    Ok((seconds.max(EARLIEST), count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cohorts(text: &str) -> Vec<(i64, u64)> {
        Trace::parse(text.as_bytes()).unwrap().cohorts
    }

    #[test]
    fn lines_are_sorted_and_added_up() {
        assert_eq!(cohorts(""), []);
        assert_eq!(cohorts("60,2\n-5,1\n60,3\n61,0\n"), [(-5, 1), (60, 5)]);
        assert_eq!(cohorts("0,4000000000"), [(0, 4_000_000_000)]);
        assert_eq!(cohorts("-9223372036854775808,1"), [(EARLIEST, 1)]);
    }

    #[test]
    fn comments_blank_lines_and_a_header_are_skipped() {
        let text = "\u{feff}# a burst\r\n\r\n expires_at_seconds , count \r\n 60 , 2 \r\n  # more\n\n+61,1";
        assert_eq!(cohorts(text), [(60, 2), (61, 1)]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, words) in [
            ("60", "line 1: expected expires_at_seconds,count, but got \"60\""),
            ("# a\n\n60,1,2", "line 3: expected expires_at_seconds,count"),
            ("1,1\nexpires_at_seconds,count", "line 2: expected a whole number of seconds"),
            ("seconds,count", "line 1: expected a whole number of seconds, but got \"seconds\""),
            ("1.5,1", "line 1: expected a whole number of seconds, but got \"1.5\""),
            ("1,-1", "line 1: expected a whole number of documents, but got \"-1\""),
            ("1,1e9", "line 1: expected a whole number of documents, but got \"1e9\""),
            ("1,NaN", "line 1: expected a whole number of documents"),
            ("1,", "line 1: expected a whole number of documents, but got \"\""),
            ("31622400,1\n31622401,1", "line 2: 31622401 s are more than 366 days"),
            ("1,9007199254740992\n2,1", "line 2: with it there are more than 9007199254740992 documents"),
            ("1,18446744073709551615\n", "line 1: with it there are more than"),
        ] {
            let error = Trace::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
        let not_text = Trace::parse(&b"1,1\n\xff,1\n"[..]).unwrap_err().to_string();
        assert_eq!(not_text, "line 2: it is not UTF-8");
        let endless = Trace::parse(io::BufReader::new(io::repeat(b'1'))).unwrap_err().to_string();
        assert_eq!(endless, "line 1: it is too long for expires_at_seconds,count");
    }
}
