//! `explain`.

use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};
use ttl_index::{
    Rule, TtlIndex,
    bson::{DateTime, Document, RawDocument, RawDocumentBuf, doc},
};

use super::{
    args::Explain,
    failure::{DONE, Usage},
    json::{self, Lines},
    output,
    target::{PAGE, Target},
};

pub(crate) async fn run(args: Explain, uri: Option<&str>, json: bool) -> anyhow::Result<u8> {
    let mut words = args.words;
    let judge = if let (Some(field), Some(period)) = (args.field, args.expire_after) {
        let mut index = TtlIndex::on(field).expire_after(period);
        if let Some(filter) = args.partial_filter {
            index = index.partial_filter(filter);
        }
        if words.is_empty() {
            bail!(Usage("no document is given; - reads them from standard input".to_owned()));
        }
        Judge { rule: Rule::new(&index)?, now: args.now.unwrap_or_else(DateTime::now), json }
    } else {
        if words.is_empty() {
            bail!(Usage("give a collection, or --field and --expire-after".to_owned()));
        }
        let collection = words.remove(0);
        let target = Target::open(uri).await?;
        let registry = target.registry().await?;
        let rule = registry.rule(&collection).await?;
        let now = match args.now {
            Some(now) => now,
            None => registry.now().await?,
        };
        let judge = Judge { rule, now, json };
        if words.is_empty() {
            judge.first_of(&target, &collection, args.limit).await?;
        }
        judge
    };
    for (number, word) in (1..).zip(&words) {
        if word == "-" {
            let mut lines = Lines::open(Path::new("-"))?;
            while let Some(document) = lines.next()? {
                judge.given(&document)?;
            }
        } else {
            let document = json::document(word).map_err(|why| Usage(format!("document {number} is {why}")))?;
            judge.given(&document)?;
        }
    }
    Ok(DONE)
}

struct Judge {
    rule: Rule,
    now: DateTime,
    json: bool,
}

impl Judge {
    async fn first_of(&self, target: &Target, collection: &str, limit: u32) -> anyhow::Result<()> {
        let mut pages = target.documents(collection, doc! {}).await?;
        let mut left = limit;
        while left > 0 {
            let page = pages.next(left.min(PAGE)).await?;
            if page.is_empty() {
                break;
            }
            for document in &page {
                self.print(Some(json::id(document)), document)?;
            }
            left = left.saturating_sub(u32::try_from(page.len()).unwrap_or(u32::MAX));
        }
        Ok(())
    }

    fn given(&self, document: &Document) -> anyhow::Result<()> {
        let raw = RawDocumentBuf::try_from(document);
        self.print(None, &raw.context("turning the document into BSON")?)
    }

    fn print(&self, id: Option<Value>, document: &RawDocument) -> anyhow::Result<()> {
        let verdict = self.rule.judge(document, self.now);
        if !self.json {
            return match id {
                Some(id) => output::line(format_args!("{id}: {verdict}")),
                None => output::line(verdict),
            };
        }
        let mut report = Map::new();
        report.extend(id.map(|id| ("_id".to_owned(), id)));
        report.insert("due".to_owned(), json!(verdict.due));
        report.insert("expires_at".to_owned(), json::date(verdict.expires_at));
        report.insert("reason".to_owned(), json!(verdict.reason.to_string()));
        output::line(Value::Object(report))
    }
}
