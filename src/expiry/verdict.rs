//! The answer to "is this document due, when, and why not?".

use std::fmt;

use mongodb::bson::DateTime;

/// What the rule says of one document at one instant.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Verdict {
    /// Whether the document has expired by the rule, so that a sweep by it deletes the document.
    pub due: bool,
    /// The earliest date at the field plus `expireAfterSeconds`; none if the document never expires as it stands.
    pub expires_at: Option<DateTime>,
    /// Why.
    pub reason: Reason,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.due, self.expires_at) {
            (true, Some(at)) => write!(f, "due since {}: {}", instant(at), self.reason),
            (false, Some(at)) => write!(f, "expires {}: {}", instant(at), self.reason),
            (_, None) => write!(f, "never expires: {}", self.reason),
        }
    }
}

/// An instant as people read it; what lies beyond the calendar as its milliseconds.
pub(crate) fn instant(at: DateTime) -> String {
    at.try_to_rfc3339_string().unwrap_or_else(|_| format!("{} ms after 1970", at.timestamp_millis()))
}

/// Why a document is due, is not due yet, or never expires.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The period after the earliest date has passed.
    Expired {
        /// The path of the TTL field.
        field: String,
    },
    /// The period after the earliest date has not passed yet.
    NotYet {
        /// The path of the TTL field.
        field: String,
    },
    /// There is nothing at the field path.
    Missing {
        /// The path of the TTL field.
        field: String,
        /// What else was noticed, such as a field whose very name is the dotted path.
        hint: Option<&'static str>,
    },
    /// What is at the field path is not a date.
    NotADate {
        /// The path of the TTL field.
        field: String,
        /// What is there, in words.
        found: &'static str,
        /// What else was noticed: of a number, which instant it would be.
        hint: Option<String>,
    },
    /// There is an array at the field path, without a date directly in it.
    ArrayWithoutDate {
        /// The path of the TTL field.
        field: String,
        /// What was noticed of its contents.
        hint: Option<&'static str>,
    },
    /// The partial filter does not match.
    PartialFilter {
        /// The filter.
        filter: String,
    },
    /// The document cannot be read; it is kept.
    Unreadable {
        /// What is wrong with it.
        error: String,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hinted = |f: &mut fmt::Formatter<'_>, hint: Option<&str>| match hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        };
        match self {
            Reason::Expired { field } => write!(f, "the earliest date in \"{field}\" is past its period"),
            Reason::NotYet { field } => write!(f, "the period after the earliest date in \"{field}\" is not over"),
            Reason::Missing { field, hint } => {
                write!(f, "\"{field}\" is missing; TTL needs a BSON Date")?;
                hinted(f, *hint)
            }
            Reason::NotADate { field, found, hint } => {
                write!(f, "\"{field}\" is {found}; TTL needs a BSON Date")?;
                hinted(f, hint.as_deref())
            }
            Reason::ArrayWithoutDate { field, hint } => {
                write!(f, "\"{field}\" is an array without a BSON Date")?;
                hinted(f, *hint)
            }
            Reason::PartialFilter { filter } => write!(f, "the partial filter {filter} does not match"),
            Reason::Unreadable { error } => write!(f, "the document cannot be read and is kept: {error}"),
        }
    }
}
