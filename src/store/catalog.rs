//! Collections and their indexes, as the database sees them.

use mongodb::bson::{Binary, Bson, Document, doc};

use crate::{
    error::{Code, Refusal},
    namespace::CollectionName,
};

/// A collection, as the database sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collection {
    pub(crate) kind: Kind,
    /// Its identity, where the backend gives one: a collection re-created under the same name has another.
    pub(crate) uuid: Option<Binary>,
    /// Whether strings in it are compared by a collation unless a query says otherwise.
    pub(crate) default_collation: bool,
    pub(crate) indexes: Vec<PhysicalIndex>,
}

/// What stands under a collection's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Missing,
    Ordinary,
    Capped,
    View,
    TimeSeries,
}

impl Kind {
    /// Refuses what cannot have a TTL index.
    pub(crate) fn check(self, collection: &CollectionName) -> Result<(), Refusal> {
        match self {
            Kind::Missing | Kind::Ordinary => Ok(()),
            Kind::Capped => Err(Refusal::new(
                Code::CannotCreateIndex,
                format!("Cannot create TTL index on a capped collection: {collection}"),
            )),
            Kind::View => Err(Refusal::new(
                Code::CommandNotSupportedOnView,
                format!("{collection} is a view, not a collection; make the TTL index on the collection behind it"),
            )),
            Kind::TimeSeries => Err(Refusal::new(
                Code::InvalidOptions,
                format!(
                    "TTL indexes are not supported on time-series collections: {collection}; \
                     use the collection's own 'expireAfterSeconds'"
                ),
            )),
        }
    }
}

/// An ordinary index of the database.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PhysicalIndex {
    pub(crate) name: String,
    pub(crate) key: Document,
    pub(crate) partial_filter: Option<Document>,
    pub(crate) hidden: bool,
    /// The server's own TTL option.
    pub(crate) native_ttl: bool,
}

impl PhysicalIndex {
    /// Reads what `listIndexes` tells of an index.
    pub(crate) fn of_spec(spec: &Document) -> Option<Self> {
        Some(Self {
            name: spec.get_str("name").ok()?.to_owned(),
            key: spec.get_document("key").ok()?.clone(),
            partial_filter: spec.get_document("partialFilterExpression").ok().cloned(),
            hidden: matches!(spec.get("hidden"), Some(Bson::Boolean(true))),
            native_ttl: spec.contains_key("expireAfterSeconds"),
        })
    }

    /// The other way round, for a store whose indexes have no options of its own.
    #[cfg_attr(not(feature = "embedded"), allow(dead_code))]
    pub(crate) fn to_spec(&self) -> Document {
        let mut spec = doc! { "name": &self.name, "key": &self.key };
        spec.extend(self.partial_filter.clone().map(|it| ("partialFilterExpression".to_owned(), it.into())));
        spec
    }
}
