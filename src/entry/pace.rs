//! What an index, or the database, may be given to go by: checked, and as it is stored.

use std::time::Duration;

use mongodb::bson::{Bson, Document};

use crate::error::{Code, Refusal};

/// The fields that hold them.
pub(crate) const TARGET_LAG: &str = "targetLagSeconds";
pub(crate) const MAX_RATE: &str = "maxRate";

const SHORTEST_LAG: Duration = Duration::from_secs(1);
const LONGEST_LAG: Duration = Duration::from_secs(366 * 86_400);

pub(crate) fn check_target_lag(lag: Duration) -> Result<(), Refusal> {
    if (SHORTEST_LAG..=LONGEST_LAG).contains(&lag) {
        return Ok(());
    }
    Err(Refusal::new(Code::BadValue, format!("the target lag must be 1 s to 366 days, but got {lag:?}")))
}

pub(crate) fn check_max_rate(rate: f64) -> Result<(), Refusal> {
    if rate.is_finite() && rate > 0.0 {
        return Ok(());
    }
    Err(Refusal::new(Code::BadValue, format!("the rate must be a number above 0, but got {rate}")))
}

/// None if there is none; null counts as none.
pub(crate) fn read_target_lag(document: &Document) -> Result<Option<Duration>, Refusal> {
    let Some(seconds) = read_number(document, TARGET_LAG)? else { return Ok(None) };
    let unreadable = || Refusal::new(Code::BadValue, format!("{TARGET_LAG} must be 1 to 31622400, but is {seconds}"));
    let lag = Duration::try_from_secs_f64(seconds).map_err(|_| unreadable())?;
    check_target_lag(lag).map(|()| Some(lag)).map_err(|_| unreadable())
}

pub(crate) fn read_max_rate(document: &Document) -> Result<Option<f64>, Refusal> {
    let Some(rate) = read_number(document, MAX_RATE)? else { return Ok(None) };
    let unreadable = |_| Refusal::new(Code::BadValue, format!("{MAX_RATE} must be a number above 0, but is {rate}"));
    check_max_rate(rate).map(|()| Some(rate)).map_err(unreadable)
}

/// A number of whatever type, as a shell may have stored it.
#[allow(clippy::cast_precision_loss)] // what is that large is as good rounded
pub(crate) fn read_number(document: &Document, field: &str) -> Result<Option<f64>, Refusal> {
    match document.get(field) {
        None | Some(Bson::Null) => Ok(None),
        Some(Bson::Double(number)) => Ok(Some(*number)),
        Some(Bson::Int32(number)) => Ok(Some(f64::from(*number))),
        Some(Bson::Int64(number)) => Ok(Some(*number as f64)),
        Some(other) => Err(Refusal::new(Code::TypeMismatch, format!("{field} must be a number, but is {other}"))),
    }
}
