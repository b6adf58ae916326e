//! Documents counted by their date, from the keys of the supporting index alone where that can be.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures_util::TryStreamExt;
use mongodb::{
    Cursor,
    bson::{Bson, DateTime, Document, RawBsonRef, RawDocument, RawDocumentBuf, doc},
    options::Hint,
};
use tracing::{debug, info};

use super::{
    Mongo,
    answer::{ANSWER, answered},
    probe::Extensions,
};
use crate::{
    error::{Error, Result},
    expiry::{Bounds, visit},
    store::{Census, CensusRange, CensusTarget, PhysicalIndex, census::Count},
};

/// How long the server may work on a count, and how many of its keys take a second at worst.
const LIMIT: Duration = Duration::from_secs(2);
const KEYS_A_SECOND: u64 = 250_000;

/// How many slices or keys there are in a reply.
const BATCH: u32 = 10_000;

/// The server's words for a question that it does not understand.
const NOT_UNDERSTOOD: [i32; 8] = [
    9,     // FailedToParse
    40,    // ConflictingUpdateOperators, as some say of a stage
    59,    // CommandNotFound
    115,   // CommandNotSupported
    168,   // InvalidPipelineOperator
    238,   // NotImplemented
    15952, // an unknown accumulator
    40324, // an unknown stage
];

/// Whether the backend was found not to count.
#[derive(Debug, Default)]
pub(super) struct Uncounted(AtomicBool);

impl Mongo {
    pub(super) async fn count_by_date(&self, of: &CensusTarget, range: CensusRange) -> Result<Option<Census>> {
        let Some(index) = of.index.as_ref().filter(|_| !self.uncounted.0.load(Ordering::Relaxed)) else {
            return Ok(None);
        };
        if range.from.is_some_and(|from| from >= range.until) || range.limit == 0 {
            return Ok(Some(Census::default()));
        }
        let extensions = self.readable().await?;
        let counting = answered(ANSWER + limit(range.limit), async {
            let counted = match by_keys(of, index, range, extensions) {
                Some((first, last)) => self.count_keys(of, index, range, first, last).await,
                None => self.count_slices(of, index, range, extensions).await,
            };
            counted.map_err(Error::backend(format!("counting documents of {} by their date", of.collection)))
        });
        match counting.await {
            Ok(census) => Ok(Some(census)),
            Err(error) if error.is_away() || error.code().is_none() => Err(error),
            Err(error) => {
                debug!(collection = %of.collection, error = error.in_full(), "documents were not counted by their date");
                if error.code().is_some_and(|code| NOT_UNDERSTOOD.contains(&code)) {
                    info!(database = self.database.name(), "this backend cannot count documents by their date");
                    self.uncounted.0.store(true, Ordering::Relaxed);
                }
                Ok(None)
            }
        }
    }

    /// The server counts, and says how many each slice has.
    async fn count_slices(
        &self,
        of: &CensusTarget,
        index: &PhysicalIndex,
        range: CensusRange,
        extensions: &Extensions,
    ) -> mongodb::error::Result<Census> {
        let documents = self.database.collection::<Document>(of.collection.as_str());
        let pipeline = pipeline(of, index, range, extensions);
        let mut counting = documents.aggregate(pipeline).with_type::<RawDocumentBuf>().batch_size(BATCH);
        if extensions.hint {
            counting = counting.hint(Hint::Name(index.name.clone()));
        }
        if extensions.max_time {
            counting = counting.max_time(limit(range.limit));
        }
        let mut slices: Cursor<RawDocumentBuf> = counting.await?;
        let mut count = Count::new(range);
        while let Some(slice) = slices.try_next().await? {
            let documents = slice.get("n").ok().flatten().and_then(whole).unwrap_or(0).unsigned_abs();
            match slice.get("_id").ok().flatten().and_then(whole) {
                Some(number) => count.slice(number, documents),
                None => count.several(documents),
            }
        }
        Ok(count.census())
    }

    /// The server hands over the keys. More to send, and nothing else to read: of a partial index, an aggregation reads
    /// every document to see what the index says already.
    async fn count_keys(
        &self,
        of: &CensusTarget,
        index: &PhysicalIndex,
        range: CensusRange,
        first: Document,
        last: Document,
    ) -> mongodb::error::Result<Census> {
        let field = of.rule.field().as_str();
        let mut keys = self
            .database
            .collection::<RawDocumentBuf>(of.collection.as_str())
            .find(doc! {})
            .projection(
                [("_id".to_owned(), Bson::Int32(0)), (field.to_owned(), Bson::Int32(1))]
                    .into_iter()
                    .collect::<Document>(),
            )
            .hint(Hint::Name(index.name.clone()))
            .min(first)
            .max(last)
            .limit(i64::try_from(range.limit).unwrap_or(i64::MAX))
            .batch_size(BATCH)
            .max_time(limit(range.limit))
            .await?;
        let mut count = Count::new(range);
        while keys.advance().await? {
            match only_date(of, keys.current()) {
                Some(date) => count.date(date),
                None => count.several(1),
            }
        }
        Ok(count.census())
    }
}

/// How long the server may work on a count of so many keys.
fn limit(keys: u64) -> Duration {
    LIMIT.max(Duration::from_secs(keys / KEYS_A_SECOND))
}

/// The first key and the one behind the last, where the index has just the documents of the rule and can be walked between
/// two keys.
fn by_keys(
    of: &CensusTarget,
    index: &PhysicalIndex,
    range: CensusRange,
    extensions: &Extensions,
) -> Option<(Document, Document)> {
    let key = |date: DateTime| [(of.rule.field().as_str().to_owned(), Bson::DateTime(date))].into_iter().collect();
    let next = |date: DateTime| date.timestamp_millis().checked_add(1).map(DateTime::from_millis);
    let first = range.from.map_or(Some(DateTime::MIN), next)?;
    let serves = index.partial_filter.is_some() && ascending(index) && extensions.max_time && !extensions.sharded;
    (serves && extensions.key_range).then_some(())?;
    Some((key(first), key(next(range.until)?)))
}

fn ascending(index: &PhysicalIndex) -> bool {
    index.key.iter().next().is_some_and(|(_, direction)| match direction {
        Bson::Int32(n) => *n > 0,
        Bson::Int64(n) => *n > 0,
        Bson::Double(n) => *n > 0.0,
        _ => false,
    })
}

fn pipeline(of: &CensusTarget, index: &PhysicalIndex, range: CensusRange, extensions: &Extensions) -> Vec<Document> {
    let next = |date: DateTime| DateTime::from_millis(date.timestamp_millis().saturating_add(1));
    let from = range.from.map(next);
    let bounds = Bounds { from, until: range.until, demand_type: extensions.demand_type };
    let mut pipeline = vec![doc! { "$match": of.rule.find_filter(bounds, &[]) }];
    // The index yields its order anyway; with several keys to a document, the server would sort all of them.
    if !(extensions.hint && ascending(index)) || extensions.sharded {
        let order: Document = [(of.rule.field().as_str().to_owned(), Bson::Int32(1))].into_iter().collect();
        pipeline.push(doc! { "$sort": order });
    }
    let field = format!("${}", of.rule.field().as_str());
    let since_1970 = doc! { "$subtract": [&field, DateTime::from_millis(0)] };
    let width = i64::try_from(range.slice.as_millis()).unwrap_or(i64::MAX).max(1);
    let number = doc! { "$floor": { "$divide": [since_1970, width] } };
    pipeline.push(doc! { "$limit": i64::try_from(range.limit).unwrap_or(i64::MAX) });
    pipeline.push(doc! { "$group": {
        "_id": { "$cond": [{ "$isArray": [&field] }, Bson::Null, number] },
        "n": { "$sum": 1 },
    } });
    pipeline
}

/// The date at the field, if there is one and no array on the way to it.
fn only_date(of: &CensusTarget, document: &RawDocument) -> Option<DateTime> {
    let (mut date, mut values) = (None, 0);
    let mut see = |value: Option<RawBsonRef<'_>>| {
        values += 1;
        date = value.and_then(RawBsonRef::as_datetime);
    };
    visit(document, of.rule.field().parts(), &mut see).ok()?;
    date.filter(|_| values == 1)
}

/// A number of any type, as it is.
#[allow(clippy::cast_possible_truncation)] // beyond the range it becomes its end
fn whole(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(n) => Some(n.into()),
        RawBsonRef::Int64(n) => Some(n),
        RawBsonRef::Double(n) if !n.is_nan() => Some(n as i64),
        _ => None,
    }
}
