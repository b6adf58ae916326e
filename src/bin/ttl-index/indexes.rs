//! `create`, `list`, `modify`, `guard` and `drop`.

use std::time::Duration;

use serde_json::json;
use ttl_index::TtlIndex;

use super::{
    args::{Create, Guard},
    failure::DONE,
    output,
    target::Target,
};

pub(crate) async fn create(args: Create, uri: Option<&str>, json: bool) -> anyhow::Result<u8> {
    let registry = Target::open_or_make(uri).await?.registry().await?;
    let mut index = TtlIndex::on(args.field)
        .expire_after(args.expire_after.unwrap_or_default())
        .supporting_index(!args.no_supporting_index);
    if let Some(filter) = args.partial_filter {
        index = index.partial_filter(filter);
    }
    if let Some(name) = args.name {
        index = index.name(name);
    }
    index = args.keep.keep_while.into_iter().fold(index, TtlIndex::keep_while);
    let made = registry.create_index(args.collection, index).or_modify(args.or_modify).await?;
    output::indexes(&[made], json)?;
    Ok(DONE)
}

pub(crate) async fn list(collection: Option<String>, uri: Option<&str>, json: bool) -> anyhow::Result<u8> {
    let registry = Target::open(uri).await?.registry().await?;
    let mut list = registry.list_indexes();
    if let Some(collection) = collection {
        list = list.collection(collection);
    }
    output::indexes(&list.await?, json)?;
    Ok(DONE)
}

pub(crate) async fn modify(
    collection: &str,
    expire_after: Duration,
    uri: Option<&str>,
    json: bool,
) -> anyhow::Result<u8> {
    let registry = Target::open(uri).await?.registry().await?;
    output::indexes(&[registry.modify_index(collection, expire_after).await?], json)?;
    Ok(DONE)
}

pub(crate) async fn guard(args: Guard, uri: Option<&str>, json: bool) -> anyhow::Result<u8> {
    let registry = Target::open(uri).await?.registry().await?;
    output::indexes(&[registry.set_guards(args.collection, args.keep.keep_while).await?], json)?;
    Ok(DONE)
}

pub(crate) async fn drop(collection: &str, name: Option<String>, uri: Option<&str>, json: bool) -> anyhow::Result<u8> {
    let registry = Target::open(uri).await?.registry().await?;
    let name = if let Some(name) = name {
        name
    } else {
        let indexes = registry.list_indexes().collection(collection).await?;
        // If it has none, the refusal of the empty name says so.
        indexes.into_iter().next().map(|index| index.name).unwrap_or_default()
    };
    registry.drop_index(collection, name.as_str()).await?;
    if json {
        output::line(json!({ "collection": collection, "name": name, "dropped": true }))?;
    } else {
        output::line(format_args!("dropped the TTL index {name} of {collection}"))?;
    }
    Ok(DONE)
}
