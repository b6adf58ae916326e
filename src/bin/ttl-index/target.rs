//! Which database a URI means, and the documents in it.

use std::path::Path;

use anyhow::{Context, bail};
use futures_util::TryStreamExt;
use mongodb::{
    Client, Cursor, Database,
    error::ErrorKind,
    options::{ClientOptions, ConnectionString},
};
use ttl_index::{
    Documents, EmbeddedStore, MongoStore, TtlRegistry,
    bson::{Document, RawDocumentBuf},
};

use super::failure::Usage;

/// Documents in a page, in and out.
pub(crate) const PAGE: u32 = 200;

/// A database.
pub(crate) enum Target {
    Mongo(Database),
    Embedded(EmbeddedStore),
}

/// The documents of a collection, page by page.
pub(crate) enum Pages {
    Mongo(Box<Cursor<RawDocumentBuf>>),
    Embedded(Documents),
}

/// A page that was not inserted as a whole.
pub(crate) struct Interrupted {
    /// How many of its documents certainly were.
    pub(crate) inserted: usize,
    pub(crate) error: anyhow::Error,
}

impl Target {
    /// Opens an embedded file that must be there, so that a mistyped path is not taken for an empty store; of a server
    /// nothing is asked yet.
    pub(crate) async fn open(uri: Option<&str>) -> anyhow::Result<Self> {
        if let Some(path) = uri.and_then(|uri| uri.strip_prefix("embedded:"))
            && path != ":memory:"
            && !path.is_empty()
            && !Path::new(path).exists()
        {
            bail!("{path} does not exist; `create` and `import` make an embedded store");
        }
        Self::open_or_make(uri).await
    }

    /// Opens an embedded file, or makes it.
    pub(crate) async fn open_or_make(uri: Option<&str>) -> anyhow::Result<Self> {
        let uri = uri.unwrap_or_default();
        match uri.split_once(':') {
            Some(("embedded", ":memory:")) => Ok(Target::Embedded(EmbeddedStore::in_memory()?)),
            Some(("embedded", "")) => bail!(Usage("the URI embedded: lacks the path of a file".to_owned())),
            Some(("embedded", path)) => Ok(Target::Embedded(EmbeddedStore::open(path)?)),
            Some(("mongodb" | "mongodb+srv", _)) => Ok(Target::Mongo(connect(uri).await?)),
            None if uri.is_empty() => {
                bail!(Usage("no database is given; use --uri, or set TTL_INDEX_URI".to_owned()))
            }
            // It is not repeated: it may hold a password.
            _ => bail!(Usage(
                "a URI is mongodb://…/DB, mongodb+srv://…/DB, embedded:PATH or embedded::memory:".to_owned()
            )),
        }
    }

    pub(crate) async fn registry(&self) -> anyhow::Result<TtlRegistry> {
        Ok(match self {
            Target::Mongo(database) => TtlRegistry::open(MongoStore::new(database.clone())).await?,
            Target::Embedded(store) => TtlRegistry::open(store.clone()).await?,
        })
    }

    pub(crate) async fn insert(&self, collection: &str, page: Vec<Document>) -> Result<(), Interrupted> {
        match self {
            Target::Mongo(database) => {
                let inserting = database.collection::<Document>(collection).insert_many(page).await;
                inserting.map(drop).map_err(|error| {
                    // In order: what is before the first that failed is there.
                    let inserted = match error.kind.as_ref() {
                        ErrorKind::InsertMany(insert) => {
                            insert.write_errors.iter().flatten().map(|failed| failed.index).min()
                        }
                        _ => None,
                    };
                    let error = anyhow::Error::new(error).context(format!("inserting into {collection}"));
                    Interrupted { inserted: inserted.unwrap_or(0), error }
                })
            }
            Target::Embedded(store) => {
                let inserting = store.collection(collection).insert_many(page).await;
                inserting.map(drop).map_err(|error| Interrupted { inserted: 0, error: error.into() })
            }
        }
    }

    /// Of a server only the documents that match the filter; an embedded store knows no queries, and gives all.
    pub(crate) async fn documents(&self, collection: &str, filter: Document) -> anyhow::Result<Pages> {
        Ok(match self {
            Target::Mongo(database) => {
                let documents = database.collection::<RawDocumentBuf>(collection);
                let found = documents.find(filter).batch_size(PAGE).await;
                Pages::Mongo(Box::new(found.with_context(|| format!("reading {collection}"))?))
            }
            Target::Embedded(store) => Pages::Embedded(store.collection(collection).documents()),
        })
    }
}

impl Pages {
    /// At most `size` documents; none at the end.
    pub(crate) async fn next(&mut self, size: u32) -> anyhow::Result<Vec<RawDocumentBuf>> {
        match self {
            Pages::Mongo(cursor) => {
                let mut page = Vec::new();
                while page.len() < size as usize {
                    match cursor.try_next().await.context("reading the next documents")? {
                        Some(document) => page.push(document),
                        None => break,
                    }
                }
                Ok(page)
            }
            Pages::Embedded(documents) => Ok(documents.next_page(size).await?.unwrap_or_default()),
        }
    }
}

async fn connect(uri: &str) -> anyhow::Result<Database> {
    // The driver would take the end of such a password for options, its beginning for a host, and name them.
    if uri.split_once('?').is_some_and(|(_, options)| options.contains('@')) {
        bail!(Usage(
            "an @ or a ? within a MongoDB URI's user name, password or options is written %40 or %3F".to_owned()
        ));
    }
    let usage = |error: mongodb::error::Error| usage(&error, uri);
    let parsed = ConnectionString::parse(uri).map_err(usage)?;
    let Some(database) = parsed.default_database.clone() else {
        bail!(Usage("the MongoDB URI names no database: end it in /DB, as in mongodb://host/DB?options".to_owned()))
    };
    let mut options = ClientOptions::parse(parsed).await.map_err(|error| match error.kind.as_ref() {
        ErrorKind::InvalidArgument { .. } => usage(error),
        _ => anyhow::Error::new(error).context("understanding the URI"),
    })?;
    options.app_name.get_or_insert_with(|| "ttl-index".to_owned());
    Ok(Client::with_options(options).map_err(usage)?.database(&database))
}

fn usage(error: &mongodb::error::Error, uri: &str) -> anyhow::Error {
    let text = error.kind.to_string();
    let hide = |text: String, part: &str| text.replace(&decoded(part), "***").replace(part, "***");
    let text = odd_parts(uri).fold(text, hide);
    Usage(format!("the URI cannot be used: {text}")).into()
}

/// As the driver quotes it.
fn decoded(part: &str) -> String {
    let mut pieces = part.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        match piece.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => bytes.extend([&[byte], &piece.as_bytes()[2..]].concat()),
            None => bytes.extend([b"%", piece.as_bytes()].concat()),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What the driver may quote of a URI that may be a password in a wrong place: what stands for a port and is none, as where
/// the host was forgotten, and the values of options.
fn odd_parts(uri: &str) -> impl Iterator<Item = &str> {
    let (base, options) = uri.split_once('?').unwrap_or((uri, ""));
    let hosts = base.split_once("://").map_or(base, |(_, rest)| rest).split('/').next().unwrap_or_default();
    let ports = hosts.split(',').filter_map(|host| host.rsplit_once(':')).map(|(_, port)| port);
    let values = options.split('&').map(|option| option.split_once('=').map_or(option, |(_, value)| value));
    ports.filter(|port| port.parse::<u16>().is_err()).chain(values).filter(|part| !part.is_empty())
}

/// What a URI within a text may not be shown with: what stands between `://` and the last `@`.
pub(crate) fn secret(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let (secret, _) = rest.rsplit_once('@')?;
    Some(secret).filter(|secret| !secret.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{decoded, odd_parts, secret};

    #[test]
    fn what_is_written_in_percents_is_decoded_and_what_is_not_is_left() {
        for (text, plain) in [("a%21b%2F", "a!b/"), ("%zz%4", "%zz%4"), ("", ""), ("%C3%A4", "ä"), ("%ä", "%ä")] {
            assert_eq!(decoded(text), plain);
        }
    }

    #[test]
    fn what_stands_for_a_port_and_is_none_is_odd_and_every_value_of_an_option() {
        for (uri, odd) in [
            ("mongodb://h:1,h:2/db", &[][..]),
            ("mongodb://user:pass/db", &["pass"]),
            ("mongodb://user:pass,h:1", &["pass"]),
            ("mongodb://h/db?tls=maybe&word&x=", &["maybe", "word"]),
        ] {
            assert_eq!(odd_parts(uri).collect::<Vec<_>>(), odd, "{uri}");
        }
    }

    #[test]
    fn user_and_password_are_the_secret_of_a_uri() {
        for (uri, expected) in [
            ("--uri=mongodb://u:p@h/db", Some("u:p")),
            ("mongodb+srv://u:p@p/?@h", Some("u:p@p/?")),
            ("mongodb://@h", None),
            ("mongodb://h/db", None),
            ("user@host", None),
        ] {
            assert_eq!(secret(uri), expected);
        }
    }
}
