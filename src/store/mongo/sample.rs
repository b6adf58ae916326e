//! Some documents of a collection, by reads alone: at random where the backend can, else the first ones.

use std::time::Duration;

use mongodb::{
    Cursor, Database,
    bson::{Document, RawDocumentBuf, doc},
};

use crate::{
    error::{Error, Result, server_code},
    namespace::CollectionName,
    store::sample::{Judge, Sampled, SampledBy},
};

/// How long the server may work on one of these reads.
const LIMIT: Duration = Duration::from_secs(20);

/// Documents in a reply, which is what is held in memory at once.
const BATCH: u32 = 100;

const UNAUTHORIZED: i32 = 13;
const OUT_OF_TIME: i32 = 50;

/// The ways to choose, best first.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Random,
    First,
    /// Where the backend takes no limit of time.
    FirstUnlimited,
}

pub(super) async fn sample(
    database: &Database,
    portable_only: bool,
    collection: &CollectionName,
    size: u32,
    judge: Judge<'_>,
) -> Result<Sampled> {
    let documents = database.collection::<RawDocumentBuf>(collection.as_str());
    let failed = || Error::backend(format!("reading some documents of {collection}"));
    let total = match documents.estimated_document_count().max_time(LIMIT).await {
        Ok(total) => Some(total),
        // It cannot count, or not in time: then it is not known.
        Err(error) if server_code(&error).is_some() => None,
        Err(error) => return Err(failed()(error)),
    };
    let ways: &[Way] = match total {
        _ if portable_only => &[Way::FirstUnlimited],
        Some(total) if total <= u64::from(size) => &[Way::First, Way::FirstUnlimited],
        _ => &[Way::Random, Way::First, Way::FirstUnlimited],
    };
    let mut read = 0;
    for (tried, way) in (1..).zip(ways) {
        match read_by(*way, &documents, size, &mut read, judge).await {
            Ok(()) => {
                let all = read < u64::from(size) || total == Some(read);
                let by = match way {
                    _ if all => SampledBy::All,
                    Way::Random => SampledBy::Random,
                    Way::First | Way::FirstUnlimited => SampledBy::First,
                };
                return Ok(Sampled { by, total, broken_off: None });
            }
            Err(error) if read > 0 => {
                let by = if *way == Way::Random { SampledBy::Random } else { SampledBy::First };
                return Ok(Sampled { by, total, broken_off: Some(failed()(error)) });
            }
            Err(error) if tried < ways.len() && goes_another_way(*way, &error) => {}
            Err(error) => return Err(failed()(error)),
        }
    }
    Ok(Sampled { by: SampledBy::First, total, broken_off: None })
}

/// What one way cannot do another may; what the user may not do stays so, and what takes long takes longer without a limit.
fn goes_another_way(way: Way, error: &mongodb::error::Error) -> bool {
    match server_code(error) {
        None | Some(UNAUTHORIZED) => false,
        Some(OUT_OF_TIME) => way == Way::Random,
        Some(_) => true,
    }
}

async fn read_by(
    way: Way,
    documents: &mongodb::Collection<RawDocumentBuf>,
    size: u32,
    read: &mut u64,
    judge: Judge<'_>,
) -> mongodb::error::Result<()> {
    let limit = i64::from(size);
    let mut cursor: Cursor<RawDocumentBuf> = match way {
        Way::Random => {
            let pipeline: [Document; 1] = [doc! { "$sample": { "size": limit } }];
            documents.aggregate(pipeline).with_type::<RawDocumentBuf>().max_time(LIMIT).batch_size(BATCH).await?
        }
        Way::First => documents.find(doc! {}).limit(limit).max_time(LIMIT).batch_size(BATCH).await?,
        Way::FirstUnlimited => documents.find(doc! {}).limit(limit).batch_size(BATCH).await?,
    };
    while cursor.advance().await? {
        judge(cursor.current());
        *read += 1;
    }
    Ok(())
}
