//! Documents counted by their date, by the listing that sweeps walk.

use mongodb::bson::{DateTime, oid::ObjectId};

use super::tables::Tables;
use crate::{
    error::Result,
    store::{Census, CensusRange, census::Count},
};

pub(super) fn count(tables: &Tables, entry: ObjectId, range: CensusRange) -> Result<Census> {
    let mut count = Count::new(range);
    let first = range.from.map_or(Some(i64::MIN), |from| from.timestamp_millis().checked_add(1));
    let Some(first) = first.filter(|_| range.limit > 0) else { return Ok(Census::default()) };
    tables.dates(entry, first, |date| {
        let wanted = date <= range.until && !count.is_full();
        if wanted {
            count.date(date);
        }
        wanted
    })?;
    Ok(count.census())
}

/// The earliest date after this one that is listed under an entry.
pub(super) fn date_after(tables: &Tables, entry: ObjectId, date: DateTime) -> Result<Option<DateTime>> {
    let Some(after) = date.timestamp_millis().checked_add(1) else { return Ok(None) };
    let mut first = None;
    tables.dates(entry, after, |date| {
        first = Some(date);
        false
    })?;
    Ok(first)
}
