//! Documents are in the archive, as they were, before they are deleted.

mod files;
mod killed;
mod odd;
mod restore;
mod versions;

use std::{collections::HashMap, path::Path};

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, DateTime, RawDocumentBuf, doc};
use ttl_index::{Archive, JsonLine};

use crate::support::place::Place;

const OLD: DateTime = DateTime::from_millis(1_000);
const LATER: DateTime = DateTime::from_millis(4_000_000_000_000);

/// Where a pass of these tests archives to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sink {
    Plain,
    Gzip,
    Collection,
}

impl Sink {
    const ALL: [Sink; 3] = [Sink::Plain, Sink::Gzip, Sink::Collection];

    fn archive(self, directory: &Path) -> Archive {
        match self {
            Sink::Plain => Archive::json_lines(directory.join("archive")),
            Sink::Gzip => Archive::json_lines(directory.join("archive")).gzip(),
            Sink::Collection => Archive::collection("archive"),
        }
    }

    /// What is archived, in the order in which it was.
    async fn documents(self, place: &Place, directory: &Path) -> Vec<RawDocumentBuf> {
        match self {
            Sink::Plain | Sink::Gzip => lines(&directory.join("archive")),
            Sink::Collection => {
                let mut wrapped = raw_documents(place, "archive").await;
                wrapped.sort_by_key(|it| (it.get_datetime("archivedAt").unwrap(), it.get_object_id("_id").unwrap()));
                wrapped.iter().map(|it| it.get_document("document").unwrap().to_owned()).collect()
            }
        }
    }
}

/// The documents in a file of JSON Lines, compressed or not.
fn lines(path: &Path) -> Vec<RawDocumentBuf> {
    let bytes = std::fs::read(path).unwrap();
    let text = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(&bytes[..]), &mut text).unwrap();
        text
    } else {
        bytes
    };
    text.split_inclusive(|byte| *byte == b'\n').map(|line| JsonLine::parse(line).unwrap()).collect()
}

/// A collection, by the byte.
async fn raw_documents(place: &Place, collection: &str) -> Vec<RawDocumentBuf> {
    match place {
        Place::Mongo(it) => {
            let found = it.db.collection::<RawDocumentBuf>(collection).find(doc! {}).await.unwrap();
            found.try_collect().await.unwrap()
        }
        Place::Embedded(store) => {
            let mut pages = store.collection(collection).documents();
            let mut all = Vec::new();
            while let Some(page) = pages.next_page(1000).await.unwrap() {
                all.extend(page);
            }
            all
        }
    }
}

fn id(document: &RawDocumentBuf) -> String {
    let id = Bson::try_from(document.get("_id").unwrap().unwrap()).unwrap();
    id.to_string()
}

/// By `_id`; of several the last.
fn by_id(documents: impl IntoIterator<Item = RawDocumentBuf>) -> HashMap<String, RawDocumentBuf> {
    documents.into_iter().map(|document| (id(&document), document)).collect()
}
