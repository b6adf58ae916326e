//! `operations` and `repair`.

use anyhow::bail;
use comfy_table::{Table, presets};
use ttl_index::{Operation, bson::Bson};

use super::{failure::DONE, output, target::Target, time};

pub(crate) async fn list(id: Option<String>, uri: Option<&str>, json: bool) -> anyhow::Result<u8> {
    let registry = Target::open(uri).await?.registry().await?;
    let mut list = registry.operations();
    if let Some(id) = &id {
        list = list.id(id);
    }
    let operations = list.await?;
    if let Some(id) = id.filter(|_| operations.is_empty()) {
        bail!("there is no operation {id}; the last 100 are kept");
    }
    if json {
        let line = |operation: &Operation| output::line(Bson::Document(operation.to_document()).into_relaxed_extjson());
        operations.iter().try_for_each(line)?;
    } else if !operations.is_empty() {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["ID", "CHANGE", "COLLECTION", "INDEX", "STATE", "STARTED", "ENDED", "DOCUMENTS", "ERROR"]);
        table.add_rows(operations.iter().map(row));
        output::line(table.trim_fmt())?;
    }
    Ok(DONE)
}

pub(crate) async fn repair(collection: &str, uri: Option<&str>, json: bool) -> anyhow::Result<u8> {
    let registry = Target::open(uri).await?.registry().await?;
    output::indexes(&[registry.repair(collection).await?], json)?;
    Ok(DONE)
}

fn row(operation: &Operation) -> [String; 9] {
    let documents = operation.progress_documents.map(|it| format!("{}/{}", it.completed_work, it.estimated_work));
    [
        operation.id.clone(),
        operation.change_type.as_str().to_owned(),
        operation.collection.clone(),
        operation.index.clone(),
        operation.state.as_str().to_owned(),
        time::show(operation.start_time),
        operation.end_time.map_or_else(|| "-".to_owned(), time::show),
        documents.unwrap_or_else(|| "-".to_owned()),
        operation.error.as_ref().map(|error| error.message.clone()).unwrap_or_default(),
    ]
}
