//! What applications do with the documents of an embedded store.

use std::sync::Arc;

use mongodb::bson::{Bson, Document, RawDocumentBuf};

use super::{
    blocking,
    keys::{ensure_id, id_key},
    tables::Tables,
};
use crate::{
    error::{Code, Error, Refusal, Result},
    namespace::CollectionName,
    store::Change,
};

/// A collection of an [`EmbeddedStore`](crate::EmbeddedStore).
///
/// # Errors
///
/// Every call refuses a name that MongoDB would refuse, and fails if the file cannot be read or written.
#[derive(Clone)]
pub struct EmbeddedCollection {
    tables: Arc<Tables>,
    name: String,
}

impl std::fmt::Debug for EmbeddedCollection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedCollection").field("name", &self.name).finish_non_exhaustive()
    }
}

impl EmbeddedCollection {
    pub(super) fn new(tables: Arc<Tables>, name: String) -> Self {
        Self { tables, name }
    }

    /// Inserts a document and returns its `_id`, which is made up if it has none.
    ///
    /// # Errors
    ///
    /// Refused with [`Code::DuplicateKey`] if the `_id` is taken, even by an expired document that is not swept yet.
    pub async fn insert_one(&self, document: Document) -> Result<Bson> {
        let mut ids = self.insert_many([document]).await?;
        Ok(ids.pop().unwrap_or(Bson::Null))
    }

    /// Inserts documents in one transaction, all or none, and returns their `_id`s.
    ///
    /// # Errors
    ///
    /// As for [`insert_one`](Self::insert_one); then nothing was inserted.
    pub async fn insert_many(&self, documents: impl IntoIterator<Item = Document>) -> Result<Vec<Bson>> {
        let name = self.checked_name()?;
        let prepared = documents.into_iter().map(prepare).collect::<Result<Vec<_>>>()?;
        blocking(&self.tables, move |tables| {
            tables.write(|writing| {
                let mut ids = Vec::with_capacity(prepared.len());
                for (id, key, document) in prepared {
                    if writing.put(&name, &key, Some(&document))?.is_some() {
                        return Err(duplicate(&name, &id));
                    }
                    ids.push(id);
                }
                Ok(ids)
            })
        })
        .await
    }

    /// Puts a document in the place of the one with this `_id`, and says whether there was one.
    ///
    /// # Errors
    ///
    /// Refused if the document has another `_id`.
    pub async fn replace_one(&self, id: impl Into<Bson>, mut document: Document) -> Result<bool> {
        let (name, id) = (self.checked_name()?, id.into());
        let key = id_key(&id)?;
        match document.get("_id") {
            None => {
                let rest = std::mem::take(&mut document);
                document.insert("_id", id);
                document.extend(rest);
            }
            Some(own) if id_key(own)? == key => {}
            Some(own) => {
                return Err(Refusal::new(Code::BadValue, format!("the '_id' {id} cannot be replaced by {own}")).into());
            }
        }
        let document = to_raw(&document)?;
        blocking(&self.tables, move |tables| {
            tables.write(|writing| {
                let there = writing.get(&name, &key)?.is_some();
                if there {
                    writing.put(&name, &key, Some(&document))?;
                }
                Ok(there)
            })
        })
        .await
    }

    /// Sets the fields of `{$set: {…}}` and removes those of `{$unset: {…}}` in the document with this `_id`, and says
    /// whether there was one.
    ///
    /// # Errors
    ///
    /// Refused if the update holds anything else, a dotted path, or the `_id`.
    pub async fn update_one(&self, id: impl Into<Bson>, update: Document) -> Result<bool> {
        let (name, key) = (self.checked_name()?, id_key(&id.into())?);
        let (set, unset) = parse_update(update)?;
        blocking(&self.tables, move |tables| {
            tables.write(|writing| {
                let Some(old) = writing.get(&name, &key)? else { return Ok(false) };
                let mut document = Document::from_reader(old.as_bytes())
                    .map_err(Error::embedded("reading a document of the embedded store"))?;
                for field in unset.keys() {
                    document.remove(field);
                }
                document.extend(set);
                writing.put(&name, &key, Some(&to_raw(&document)?))?;
                Ok(true)
            })
        })
        .await
    }

    /// The document with this `_id`.
    pub async fn find_one(&self, id: impl Into<Bson>) -> Result<Option<Document>> {
        let (name, key) = (self.checked_name()?, id_key(&id.into())?);
        let found = blocking(&self.tables, move |tables| tables.get(&name, &key)).await?;
        found.map(|raw| to_document(&raw)).transpose()
    }

    /// Deletes the document with this `_id`, and says whether there was one.
    pub async fn delete_one(&self, id: impl Into<Bson>) -> Result<bool> {
        let (name, key) = (self.checked_name()?, id_key(&id.into())?);
        blocking(&self.tables, move |tables| tables.write(|writing| Ok(writing.put(&name, &key, None)?.is_some())))
            .await
    }

    /// All documents, page by page, in no promised order.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ttl_index::Error> {
    /// # use ttl_index::{EmbeddedStore, bson::doc};
    /// let letters = EmbeddedStore::in_memory()?.collection("letters");
    /// letters.insert_many([doc! { "_id": "a" }, doc! { "_id": "b" }]).await?;
    /// let mut documents = letters.documents();
    /// let mut count = 0;
    /// while let Some(page) = documents.next_page(200).await? {
    ///     count += page.len();
    /// }
    /// assert_eq!(count, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn documents(&self) -> Documents {
        Documents { collection: self.clone(), after: None }
    }

    /// How many documents there are; counted one by one.
    pub async fn count(&self) -> Result<u64> {
        let name = self.checked_name()?;
        blocking(&self.tables, move |tables| tables.count(&name)).await
    }

    /// Drops the collection, and its TTL index with it, as MongoDB does; returns how many documents there were.
    pub async fn drop(&self) -> Result<u64> {
        let name = self.checked_name()?;
        blocking(&self.tables, move |tables| {
            tables.write(|writing| {
                let of_it = |(id, entry): (_, &super::rules::CompiledEntry)| (entry.collection == name).then_some(id);
                let entries: Vec<_> = writing.rules().iter().filter_map(|(id, e)| of_it((*id, e))).collect();
                for entry in entries {
                    writing.change_registry(Change::Remove { entry })?;
                }
                writing.clear(&name)
            })
        })
        .await
    }

    fn checked_name(&self) -> Result<String> {
        Ok(CollectionName::parse(&self.name)?.as_str().to_owned())
    }
}

/// The documents of a collection, page by page; see [`EmbeddedCollection::documents`].
///
/// A document written meanwhile is seen or not; one that stays is seen exactly once.
#[derive(Clone, Debug)]
pub struct Documents {
    collection: EmbeddedCollection,
    after: Option<Vec<u8>>,
}

impl Documents {
    /// At most `size` documents, or none at the end.
    pub async fn next_page(&mut self, size: u32) -> Result<Option<Vec<RawDocumentBuf>>> {
        let (name, after) = (self.collection.checked_name()?, self.after.clone());
        let page = blocking(&self.collection.tables, move |tables| {
            tables.scan(&name, after.as_deref(), size.max(1) as usize, |_, _| true)
        })
        .await?;
        let Some((last, _)) = page.last() else { return Ok(None) };
        self.after = Some(last.clone());
        Ok(Some(page.into_iter().map(|(_, document)| document).collect()))
    }
}

fn prepare(mut document: Document) -> Result<(Bson, Vec<u8>, RawDocumentBuf)> {
    let id = ensure_id(&mut document);
    let key = id_key(&id)?;
    Ok((id, key, to_raw(&document)?))
}

fn to_raw(document: &Document) -> Result<RawDocumentBuf> {
    RawDocumentBuf::try_from(document)
        .map_err(|error| Refusal::new(Code::BadValue, format!("the document cannot be stored: {error}")).into())
}

fn to_document(raw: &RawDocumentBuf) -> Result<Document> {
    Document::from_reader(raw.as_bytes()).map_err(Error::embedded("reading a document of the embedded store"))
}

fn parse_update(update: Document) -> Result<(Document, Document)> {
    let refuse = |why: String| Err(Refusal::new(Code::BadValue, why).into());
    let (mut set, mut unset) = (Document::new(), Document::new());
    for (operator, fields) in update {
        match (operator.as_str(), fields) {
            ("$set", Bson::Document(fields)) => set = fields,
            ("$unset", Bson::Document(fields)) => unset = fields,
            _ => return refuse(format!("an update is {{$set: {{…}}, $unset: {{…}}}}, but got {operator}")),
        }
    }
    if let Some(field) = set.keys().chain(unset.keys()).find(|f| f.contains('.') || f.starts_with('$')) {
        return refuse(format!("\"{field}\": an update of an embedded store names whole fields; replace the document"));
    }
    if set.contains_key("_id") || unset.contains_key("_id") {
        return refuse("the '_id' of a document cannot be changed".to_owned());
    }
    Ok((set, unset))
}

/// The `_id` is taken.
fn duplicate(collection: &str, id: &Bson) -> Error {
    Refusal::new(Code::DuplicateKey, format!("E11000 duplicate key error collection: {collection} dup key: _id: {id}"))
        .into()
}
