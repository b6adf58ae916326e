//! `export`.

use anyhow::{Context, bail};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use ttl_index::{
    CsvColumns, CsvFields, JsonLine, Rule,
    bson::{DateTime, RawDocument, RawDocumentBuf, doc},
};

use super::{
    args,
    failure::{DONE, REFUSED},
    json, output, signal,
    sink::Sink,
    target::{PAGE, Pages, Target},
};

/// How many findings are told; the others are counted.
const TOLD: u64 = 10;

pub(crate) async fn run(args: args::Export, uri: Option<&str>, json: bool) -> anyhow::Result<u8> {
    let chosen = args.fields.map(CsvFields::new).transpose()?;
    let target = Target::open(uri).await?;
    let due = if args.due {
        let registry = target.registry().await?;
        Some((registry.rule(&args.collection).await?, registry.now().await?))
    } else {
        None
    };
    let collection = args.collection.as_str();
    // Before there is a file to tidy up. Standard output needs none: there a signal ends the program as it ends any.
    let stop = if args.output.is_some() { signal::stop_on_signal()? } else { CancellationToken::new() };
    let mut sink = Sink::open(args.output.as_deref())?;
    let source = Source { target: &target, collection, due, stop };
    let mut format = match chosen {
        _ if !args.csv => Format::JsonLines,
        Some(fields) => Format::Csv { fields, found: None },
        None => source.columns().await?,
    };

    let bar = output::progress(format!("exporting {collection}"));
    let (mut exported, mut findings) = (0_u64, Findings { collection, count: 0 });
    if let Format::Csv { fields, .. } = &format {
        sink.write(&fields.header()?)?;
    }
    let mut documents = source.documents().await?;
    while let Some(page) = documents.next_page().await? {
        for document in &page {
            let (bytes, finding) = format.text(document).with_context(|| source.named(document))?;
            sink.write(&bytes)?;
            if let Some(finding) = finding {
                findings.tell(document, &finding);
            }
        }
        exported += page.len() as u64;
        bar.set_position(exported);
    }
    sink.finish()?;
    bar.finish_and_clear();
    findings.sum_up();
    match args.output {
        None => {}
        Some(_) if json => {
            output::line(json!({ "collection": collection, "exported": exported, "inexact": findings.count }))?;
        }
        Some(file) => {
            output::line(format_args!("exported {exported} documents of {collection} to {}", file.display()))?;
        }
    }
    Ok(if findings.count == 0 { DONE } else { REFUSED })
}

/// The documents to be exported, which can be gone through more than once.
struct Source<'a> {
    target: &'a Target,
    collection: &'a str,
    due: Option<(Rule, DateTime)>,
    stop: CancellationToken,
}

impl Source<'_> {
    async fn documents(&self) -> anyhow::Result<Documents<'_>> {
        let filter = self.due.as_ref().map_or_else(|| doc! {}, |(rule, now)| rule.due_filter(*now));
        Ok(Documents { source: self, pages: self.target.documents(self.collection, filter).await? })
    }

    async fn columns(&self) -> anyhow::Result<Format> {
        let bar = output::progress(format!("finding the columns of {}", self.collection));
        let mut columns = CsvColumns::default();
        let mut documents = self.documents().await?;
        while let Some(page) = documents.next_page().await? {
            for document in &page {
                columns.add(document).with_context(|| self.named(document))?;
            }
            bar.inc(page.len() as u64);
        }
        bar.finish_and_clear();
        Ok(Format::Csv { fields: columns.fields()?, found: Some(columns) })
    }

    fn named(&self, document: &RawDocument) -> String {
        format!("the document of {} with the _id {} cannot be exported", self.collection, json::id(document))
    }
}

/// One time through them.
struct Documents<'a> {
    source: &'a Source<'a>,
    pages: Pages,
}

impl Documents<'_> {
    /// None at the end. A page may be empty: what a backend finds is judged once more.
    async fn next_page(&mut self) -> anyhow::Result<Option<Vec<RawDocumentBuf>>> {
        if self.source.stop.is_cancelled() {
            bail!("the export was stopped");
        }
        let mut page = self.pages.next(PAGE).await?;
        if page.is_empty() {
            return Ok(None);
        }
        if let Some((rule, now)) = &self.source.due {
            page.retain(|document| rule.judge(document, *now).due);
        }
        Ok(Some(page))
    }
}

enum Format {
    JsonLines,
    Csv {
        fields: CsvFields,
        /// The columns that were found, if none were given.
        found: Option<CsvColumns>,
    },
}

impl Format {
    /// A document's line or row, and what it does not hold of it.
    fn text(&mut self, document: &RawDocument) -> ttl_index::Result<(Vec<u8>, Option<String>)> {
        match self {
            Format::JsonLines => {
                let line = JsonLine::of(document)?;
                let loss = line.loss().map(|loss| format!("the line does not hold it exactly: {loss}"));
                Ok((format!("{}\n", line.as_str()).into_bytes(), loss))
            }
            Format::Csv { fields, found } => {
                let new = found.as_mut().map(|columns| columns.add(document)).transpose()?.flatten();
                let lacking = new.map(|column| format!("the field \"{column}\" is new, and has no column"));
                Ok((fields.row(document)?, lacking))
            }
        }
    }
}

/// What an export does not hold, told on stderr.
struct Findings<'a> {
    collection: &'a str,
    count: u64,
}

impl Findings<'_> {
    fn tell(&mut self, document: &RawDocument, what: &str) {
        self.count += 1;
        if self.count <= TOLD {
            output::note(&format!("warning: {}, _id {}: {what}", self.collection, json::id(document)));
        }
    }

    fn sum_up(&self) {
        if self.count > TOLD {
            output::note(&format!("warning: {} documents more are not held exactly", self.count - TOLD));
        }
    }
}
