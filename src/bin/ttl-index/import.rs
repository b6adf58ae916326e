//! `import`.

use std::path::Path;

use anyhow::{Context, bail};
use serde_json::json;

use super::{
    failure::{DONE, Usage},
    json::Lines,
    output,
    target::{PAGE, Target},
};

pub(crate) async fn run(collection: &str, file: &Path, uri: Option<&str>, json: bool) -> anyhow::Result<u8> {
    // A mistake here would put a foreign document in the place of the registry.
    if collection.starts_with("ttl_index.") {
        bail!(Usage(format!("{collection} holds this program's own data")));
    }
    let mut lines = Lines::open(file)?;
    let target = Target::open_or_make(uri).await?;
    let bar = output::progress(format!("importing into {collection}"));
    let mut imported = 0;
    let outcome = copy_in(&target, collection, &mut lines, &mut imported, |done| bar.set_position(done)).await;
    bar.finish_and_clear();
    outcome.with_context(|| format!("{imported} documents were imported into {collection}, then it ended"))?;
    if json {
        output::line(json!({ "collection": collection, "imported": imported }))?;
    } else {
        output::line(format_args!("imported {imported} documents into {collection}"))?;
    }
    Ok(DONE)
}

async fn copy_in(
    target: &Target,
    collection: &str,
    lines: &mut Lines,
    imported: &mut u64,
    progress: impl Fn(u64),
) -> anyhow::Result<()> {
    loop {
        let mut page = Vec::with_capacity(PAGE as usize);
        while page.len() < PAGE as usize {
            match lines.next()? {
                Some(document) => page.push(document),
                None => break,
            }
        }
        if page.is_empty() {
            return Ok(());
        }
        let size = page.len();
        let (inserted, outcome) = match target.insert(collection, page).await {
            Ok(()) => (size, Ok(())),
            Err(interrupted) => (interrupted.inserted, Err(interrupted.error)),
        };
        *imported += inserted as u64;
        outcome?;
        progress(*imported);
    }
}
