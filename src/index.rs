//! A TTL index as its maker writes it ([`TtlIndex`]) and as it is in force once checked ([`Definition`]).

mod definition;
mod seconds;

pub(crate) use definition::{Definition, FieldPath, check_field, default_name, same_filter};
pub(crate) use seconds::{ExpireAfter, period};

use std::time::Duration;

use mongodb::{
    IndexModel,
    bson::{Bson, Document, doc},
};

/// What `create_index` takes: the field, the period, and options.
///
/// A document expires when the earliest BSON Date at the field is `expire_after` or longer ago. A document without a
/// Date there never expires.
///
/// # Guarantees
///
/// Nothing is checked or changed until the index is handed to [`create_index`](crate::TtlRegistry::create_index), which
/// refuses what it cannot honour and never guesses.
///
/// # Other ways to write one
///
/// - the driver's [`IndexModel`];
/// - a specification as `createIndexes` takes it: `{key: {ts: 1}, expireAfterSeconds: 3600}`;
/// - the key form that the manual of Firestore with MongoDB compatibility prints:
///   `{"ts": 1, "expireAfterSeconds": 3600}`, understood as a TTL index on `ts` named `ts_1`.
///
/// The options `sparse`, `hidden`, `background`, `v` and `storageEngine` do not change what expires; they are accepted
/// and not kept. `unique` is refused: a TTL index here does not guard uniqueness, an index of your own on the field
/// does, and is reused.
///
/// ```
/// use std::time::Duration;
/// use ttl_index::{TtlIndex, bson::doc};
///
/// let sessions = TtlIndex::on("expireAt").expire_after(Duration::ZERO);
/// let drafts = TtlIndex::on("meta.savedAt")
///     .expire_after(Duration::from_secs(30 * 86_400))
///     .partial_filter(doc! { "state": "draft" })
///     .name("drafts");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a TTL index is made by handing this to create_index"]
pub struct TtlIndex {
    /// An index specification as `createIndexes` takes it: one shape to check, whoever wrote it.
    spec: Document,
    supporting_index: bool,
}

impl TtlIndex {
    /// A TTL index on `field`, ascending; the path may be dotted.
    pub fn on(field: impl Into<String>) -> Self {
        let mut key = Document::new();
        key.insert(field, 1);
        Self { spec: doc! { "key": key }, supporting_index: true }
    }

    /// How long after the date in the field a document expires: whole seconds, 0 to 2,147,483,647; required.
    pub fn expire_after(mut self, period: Duration) -> Self {
        self.spec.insert("expireAfterSeconds", seconds::period(period));
        self
    }

    /// The name; by default the field and its direction, as in `expireAt_1`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.spec.insert("name", name.into());
        self
    }

    /// Only documents matching this filter expire; by default all with a date.
    ///
    /// Allowed are equality, `$eq`, `$gt`, `$gte`, `$lt`, `$lte`, `$in`, `$all`, `$exists: true`, `$type`, `$and` and
    /// `$or`, as in MongoDB's `partialFilterExpression`.
    pub fn partial_filter(mut self, filter: Document) -> Self {
        self.spec.insert("partialFilterExpression", filter);
        self
    }

    /// Keeps a document that is due as long as this holds: a [`Reference`](crate::Reference), or what is stored of one; several
    /// may be given, of which any one is enough. None by default.
    ///
    /// From the first moment on: no document is deleted before its guards are in force.
    pub fn keep_while(mut self, guard: impl Into<Document>) -> Self {
        let guards = self.spec.entry("guards".to_owned()).or_insert_with(|| Bson::Array(Vec::new()));
        if let Bson::Array(guards) = guards {
            guards.push(guard.into().into());
        }
        self
    }

    /// The name it has, or would get, to speak of it by: whether it may have that name is not checked.
    pub(crate) fn presumed_name(&self) -> String {
        match (self.spec.get("name"), self.spec.get("key")) {
            (Some(Bson::String(name)), _) => name.clone(),
            (_, Some(Bson::Document(key))) => default_name(key),
            _ => String::new(),
        }
    }

    /// Whether the field has, or gets, an ordinary index that the sweeps walk; on by default.
    ///
    /// Off, every pass reads the whole collection. Turn it off where the field must not be indexed, such as on Firestore
    /// with MongoDB compatibility, where an ordinary index makes writes of arrays fail.
    pub fn supporting_index(mut self, wanted: bool) -> Self {
        self.supporting_index = wanted;
        self
    }
}

/// Takes an index specification, or a bare key document.
impl From<Document> for TtlIndex {
    fn from(document: Document) -> Self {
        let is_spec = matches!(document.get("key"), Some(Bson::Document(_)));
        let spec = if is_spec {
            document
        } else {
            doc! { "key": document }
        };
        Self { spec, supporting_index: true }
    }
}

impl From<IndexModel> for TtlIndex {
    fn from(model: IndexModel) -> Self {
        let mut index = Self { spec: doc! { "key": model.keys }, supporting_index: true };
        let Some(options) = model.options else { return index };
        if let Some(period) = options.expire_after {
            index = index.expire_after(period);
        }
        let flags = [("unique", options.unique), ("sparse", options.sparse), ("hidden", options.hidden)];
        let spec = &mut index.spec;
        spec.extend(options.name.map(|name| ("name".to_owned(), name.into())));
        spec.extend(options.partial_filter_expression.map(|f| ("partialFilterExpression".to_owned(), f.into())));
        spec.extend(flags.into_iter().filter_map(|(name, flag)| Some((name.to_owned(), flag?.into()))));
        // Whether it matters depends on the filter; the collation's details never do.
        spec.extend(options.collation.map(|c| ("collation".to_owned(), doc! { "locale": c.locale }.into())));
        index
    }
}
