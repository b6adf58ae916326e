//! Answers of a database that say that there is too much to do just now.

use std::time::Duration;

use mongodb::error::Error as DriverError;

use super::{Error, server_code};

/// That there is too much to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overload {
    /// In the words of the database, or what they mean.
    pub(crate) answer: &'static str,
    /// When to ask again, if it said so.
    pub(crate) retry_after: Option<Duration>,
}

/// What codes mean.
///
/// Sources: MongoDB's error codes, and those of Azure Cosmos DB.
const CODES: [(i32, &str); 5] = [
    (50, "its time was over (50 MaxTimeMSExpired)"),
    (202, "its network was too slow (202 NetworkInterfaceExceededTimeLimit)"),
    (262, "its time was over (262 ExceededTimeLimit)"),
    (462, "too many requests came in (462 IngressRequestRateLimitExceeded)"),
    (16500, "the request rate is large (16500 TooManyRequests)"),
];

/// What labels mean, by MongoDB's specification of backpressure on clients.
const LABELS: [(&str, &str); 1] = [("SystemOverloadedError", "it is overloaded (SystemOverloadedError)")];

/// What words mean, in lower case: of a gRPC status that is passed on, or where the code stands in the text.
const WORDS: [(&str, &str); 4] = [
    ("error=16500", "the request rate is large (16500 TooManyRequests)"),
    ("request rate is large", "the request rate is large"),
    ("toomanyrequests", "there are too many requests"),
    ("resource_exhausted", "its resources are exhausted (RESOURCE_EXHAUSTED)"),
];

/// What precedes the number of milliseconds after which to ask again.
const RETRY_AFTER: &str = "retryafterms";

impl Error {
    /// That the database has too much to do, if that is what it answered.
    pub(crate) fn overload(&self) -> Option<Overload> {
        let Error::Backend { source, .. } = self else { return None };
        of(source)
    }
}

fn of(error: &DriverError) -> Option<Overload> {
    let words = error.kind.to_string().to_lowercase();
    let by_label = LABELS.iter().find(|(label, _)| error.contains_label(label)).map(|(_, answer)| *answer);
    let by_code = || {
        let code = server_code(error)?;
        CODES.iter().find(|(known, _)| *known == code).map(|(_, answer)| *answer)
    };
    let by_words = || WORDS.iter().find(|(known, _)| words.contains(known)).map(|(_, answer)| *answer);
    let answer = by_label.or_else(by_code).or_else(by_words)?;
    Some(Overload { answer, retry_after: retry_after(&words) })
}

/// `RetryAfterMs=34`, wherever it stands.
fn retry_after(words: &str) -> Option<Duration> {
    let (_, behind) = words.split_once(RETRY_AFTER)?;
    let digits = behind.trim_start_matches(|c: char| !c.is_ascii_digit() && c != ',' && c != ';');
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok().map(Duration::from_millis)
}
