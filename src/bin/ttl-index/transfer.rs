//! `import` and `export`.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use serde_json::json;
use ttl_index::bson::Bson;

use super::{
    failure::{DONE, Usage},
    json::{self, Lines},
    output,
    target::{PAGE, Target},
};

pub(crate) async fn import(collection: &str, file: &Path, uri: Option<&str>, json: bool) -> anyhow::Result<u8> {
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

pub(crate) async fn export(
    collection: &str,
    file: Option<PathBuf>,
    uri: Option<&str>,
    json: bool,
) -> anyhow::Result<u8> {
    let target = Target::open(uri).await?;
    let mut pages = target.documents(collection).await?;
    let (mut out, name): (Box<dyn Write>, _) = match &file {
        Some(path) => {
            let name = path.display().to_string();
            (Box::new(File::create(path).with_context(|| format!("making {name}"))?), name)
        }
        None => (Box::new(io::stdout()), "standard output".to_owned()),
    };
    let mut out = BufWriter::new(&mut out);
    let writing = || format!("writing to {name}");
    let bar = output::progress(format!("exporting {collection}"));
    let mut exported = 0_u64;
    loop {
        let page = pages.next(PAGE).await?;
        if page.is_empty() {
            break;
        }
        for raw in &page {
            let document = Bson::Document(json::parsed(raw)?).into_canonical_extjson();
            serde_json::to_writer(&mut out, &document).with_context(writing)?;
            out.write_all(b"\n").with_context(writing)?;
        }
        exported += page.len() as u64;
        bar.set_position(exported);
    }
    out.flush().with_context(writing)?;
    bar.finish_and_clear();
    match file {
        None => {}
        Some(_) if json => output::line(json!({ "collection": collection, "exported": exported }))?,
        Some(_) => output::line(format_args!("exported {exported} documents of {collection} to {name}"))?,
    }
    Ok(DONE)
}
