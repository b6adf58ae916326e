//! Documents at even distances over a collection.

use std::sync::Arc;

use super::{blocking, tables::Tables};
use crate::{
    error::Result,
    namespace::CollectionName,
    store::sample::{Judge, Sampled, SampledBy},
};

/// Documents that are held in memory at once.
const PAGE: usize = 100;

pub(super) async fn sample(
    tables: &Arc<Tables>,
    collection: &CollectionName,
    size: u32,
    judge: Judge<'_>,
) -> Result<Sampled> {
    let name = collection.as_str().to_owned();
    let total = blocking(tables, move |tables| tables.count(&name)).await?;
    let stride = total.div_ceil(u64::from(size)).max(1);
    let (mut after, mut left) = (None, size as usize);
    loop {
        let (name, limit) = (collection.as_str().to_owned(), left.min(PAGE));
        let page = blocking(tables, move |tables| {
            let mut passed = 0;
            tables.scan(&name, after.as_deref(), limit, |_, _| {
                passed += 1;
                passed % stride == 0
            })
        })
        .await?;
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        left -= page.len();
        for (_, document) in &page {
            judge(document);
        }
    }
    let by = if stride == 1 { SampledBy::All } else { SampledBy::Spread };
    Ok(Sampled { by, total: Some(total), broken_off: None })
}
