//! Archives: `sweep --archive`, and `restore`.

use std::path::Path;

use anyhow::bail;
use serde_json::json;
use ttl_index::{Archive, CsvFields, Restored};

use super::{
    args,
    failure::{self, DONE, REFUSED, Usage},
    output,
    target::Target,
};

/// The archive that the arguments of `sweep` name, if they name one.
pub(crate) fn named(args: &args::Sweep) -> anyhow::Result<Option<Archive>> {
    let Some(path) = &args.archive else { return Ok(None) };
    if args.collections.len() != 1 {
        bail!(Usage("an archive takes the documents of one collection; name that".to_owned()));
    }
    let archive = match (ending(path), args.fields.is_empty()) {
        (Some("jsonl" | "jsonl.gz"), true) => Archive::json_lines(path),
        (Some("jsonl" | "jsonl.gz"), false) => {
            bail!(Usage("--fields goes with .csv; JSON Lines hold whole documents".to_owned()))
        }
        (Some("csv" | "csv.gz"), false) => Archive::csv(path, CsvFields::new(args.fields.clone())?),
        (Some("csv" | "csv.gz"), true) => bail!(Usage("an archive in CSV needs --fields, such as _id,user".to_owned())),
        _ => bail!(Usage(format!("{} ends in none of .jsonl, .jsonl.gz, .csv, .csv.gz", path.display()))),
    };
    Ok(Some(if path.extension().is_some_and(|last| last == "gz") { archive.gzip() } else { archive }))
}

fn ending(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    ["jsonl.gz", "csv.gz", "jsonl", "csv"].into_iter().find(|ending| {
        name.strip_suffix(ending).and_then(|name| name.strip_suffix('.')).is_some_and(|name| !name.is_empty())
    })
}

pub(crate) async fn restore(args: args::Restore, uri: Option<&str>, json: bool) -> anyhow::Result<u8> {
    let registry = Target::open(uri).await?.registry().await?;
    let mut restore = registry.restore(&args.file).extend(args.extend);
    if let Some(collection) = args.into {
        restore = restore.into_collection(collection);
    }
    let restored = restore.await?;
    let Restored { collection, inserted, there, skipped, refused, beyond, refusal, .. } = &restored;
    if json {
        output::line(json!({
            "collection": collection,
            "inserted": inserted,
            "there": there,
            "skipped": skipped,
            "refused": refused,
            "beyond": beyond,
        }))?;
    } else {
        let mut parts = vec![format!("{inserted} documents were put back into {collection}")];
        for (count, what) in [
            (beyond, "of them stand beyond what the manifest tells of, and may never have been deleted"),
            (there, "were there and are left as they are"),
            (skipped, "had not been deleted, or were older versions"),
            (refused, "were not taken"),
        ] {
            if *count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        output::line(parts.join("; "))?;
    }
    let Some(refusal) = refusal else { return Ok(DONE) };
    failure::print(&format!("{collection} does not take {refused} of the documents, the first because of: {refusal}"));
    Ok(REFUSED)
}
