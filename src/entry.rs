//! A TTL index as the registry stores it.

mod pace;

pub(crate) use pace::{
    MAX_RATE, TARGET_LAG, check_max_rate, check_target_lag, read_max_rate, read_number, read_target_lag,
};

use std::time::Duration;

use mongodb::bson::{Binary, Bson, DateTime, Document, doc, oid::ObjectId};

use crate::{
    error::{Code, Refusal},
    expiry::Rule,
    guard::Guards,
    index::{Definition, TtlIndex},
};

/// The state of a TTL index, with Firestore's names and meanings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IndexState {
    /// Being made. Documents expire already.
    Creating,
    /// In force.
    Active,
    /// Not swept, because it cannot be understood, or because it needs to be repaired.
    NeedsRepair,
}

impl IndexState {
    /// Firestore's name: `CREATING`, `ACTIVE` or `NEEDS_REPAIR`.
    pub const fn as_str(self) -> &'static str {
        match self {
            IndexState::Creating => "CREATING",
            IndexState::Active => "ACTIVE",
            IndexState::NeedsRepair => "NEEDS_REPAIR",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [IndexState::Creating, IndexState::Active, IndexState::NeedsRepair].into_iter().find(|s| s.as_str() == name)
    }
}

/// The ordinary index that sweeps walk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SupportingIndex {
    /// Its name in the database.
    pub name: String,
    /// Whether it was made for the TTL index, and is dropped with it.
    pub created: bool,
}

/// An entry of the registry that was understood.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: ObjectId,
    pub(crate) definition: Definition,
    pub(crate) rule: Rule,
    /// What keeps documents that are due.
    pub(crate) guards: Guards,
    pub(crate) state: IndexState,
    pub(crate) supporting: Option<SupportingIndex>,
    /// The identity of the collection, once the backend has told one.
    pub(crate) uuid: Option<Binary>,
    pub(crate) created_at: DateTime,
    /// When the rule came into force as it is now.
    pub(crate) rule_since: DateTime,
    /// Within which a document shall be gone that is due, if not as everywhere in the database.
    pub(crate) target_lag: Option<Duration>,
    /// The most documents a second of this index, if it has a limit of its own.
    pub(crate) max_rate: Option<f64>,
    /// Why it needs repair; beside `ACTIVE`, a warning.
    pub(crate) problem: Option<String>,
}

/// An entry of the registry that was not: nothing is deleted by it.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) id: Option<ObjectId>,
    pub(crate) collection: String,
    pub(crate) name: String,
    pub(crate) key: Document,
    pub(crate) created_at: Option<DateTime>,
    pub(crate) why: String,
}

impl Broken {
    /// What is known of it.
    pub(crate) fn to_document(&self) -> Document {
        doc! { "id": self.id, "collection": &self.collection, "name": &self.name, "key": &self.key }
    }
}

impl Entry {
    /// Of its collection and its own.
    pub(crate) fn names(&self) -> (&str, &str) {
        (self.definition.collection.as_str(), &self.definition.name)
    }

    /// Whether both delete the same documents.
    pub(crate) fn deletes_same_as(&self, other: &Entry) -> bool {
        let same_collection = self.definition.collection == other.definition.collection;
        same_collection && self.rule.same_as(&other.rule) && self.guards.same_as(&other.guards)
    }

    /// Refuses a collection that is not the one the index was made for.
    pub(crate) fn check_identity(&self, found: Option<&Binary>) -> Result<(), Refusal> {
        match (&self.uuid, found) {
            (Some(expected), Some(found)) if expected != found => Err(Refusal::new(
                Code::CollectionUuidMismatch,
                format!(
                    "{0} is not the collection that the TTL index {1} was made for: it was dropped and made again, or \
                     another was renamed to {0}. Nothing is deleted; make the TTL index again if it shall hold here",
                    self.definition.collection, self.definition.name
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Refuses to go by an index that needs repair.
    pub(crate) fn check_state(&self) -> Result<(), Refusal> {
        if self.state != IndexState::NeedsRepair {
            return Ok(());
        }
        Err(Refusal::new(
            Code::InvalidOptions,
            format!(
                "the TTL index {} of {} needs repair and deletes nothing: {}; repair it, or drop it",
                self.definition.name,
                self.definition.collection,
                self.problem.as_deref().unwrap_or("the registry does not say why")
            ),
        ))
    }

    pub(crate) fn to_document(&self) -> Document {
        let mut document = doc! { "id": self.id, "collection": self.definition.collection.as_str() };
        document.extend(self.definition.to_spec());
        document.insert("state", self.state.as_str());
        document.insert("createdAt", self.created_at);
        document.insert("ruleSince", self.rule_since);
        document.insert("supportingIndex", self.supporting_document());
        document.extend(self.uuid.clone().map(|uuid| ("collectionUUID".to_owned(), uuid.into())));
        document.extend(self.target_lag.map(|lag| (TARGET_LAG.to_owned(), lag.as_secs_f64().into())));
        document.extend(self.max_rate.map(|rate| (MAX_RATE.to_owned(), rate.into())));
        document.extend(self.problem.clone().map(|problem| ("problem".to_owned(), problem.into())));
        document
    }

    /// What is stored of the supporting index.
    pub(crate) fn supporting_document(&self) -> Document {
        let mut document = doc! { "wanted": self.definition.supporting_index };
        if let Some(index) = &self.supporting {
            document.extend(doc! { "name": &index.name, "created": index.created });
        }
        document
    }

    pub(crate) fn parse(document: &Document) -> Result<Self, Box<Broken>> {
        let broken = |why: String| {
            Box::new(Broken {
                id: document.get_object_id("id").ok(),
                collection: document.get_str("collection").unwrap_or("?").to_owned(),
                name: document.get_str("name").unwrap_or("?").to_owned(),
                key: document.get_document("key").cloned().unwrap_or_default(),
                created_at: document.get_datetime("createdAt").ok().copied(),
                why,
            })
        };
        let id = document.get_object_id("id").map_err(|e| broken(format!("it has no identity: {e}")))?;
        let mut spec = Document::new();
        for field in ["key", "name", "expireAfterSeconds", "partialFilterExpression", "guards"] {
            spec.extend(document.get(field).map(|value| (field.to_owned(), value.clone())));
        }
        let supporting = document.get_document("supportingIndex").ok();
        let wanted = supporting.is_none_or(|index| index.get_bool("wanted").unwrap_or(true));
        let collection = document.get_str("collection").map_err(|e| broken(format!("it names no collection: {e}")))?;
        let definition = Definition::parse(collection, &TtlIndex::from(spec).supporting_index(wanted))
            .map_err(|refusal| broken(refusal.message().to_owned()))?;
        let rule = Rule::of(&definition).map_err(|refusal| broken(refusal.message().to_owned()))?;
        let guards = Guards::parse(&definition.guards).map_err(|refusal| broken(refusal.message().to_owned()))?;
        let supporting = supporting.and_then(|index| {
            let name = index.get_str("name").ok()?.to_owned();
            Some(SupportingIndex { name, created: index.get_bool("created").unwrap_or(false) })
        });
        let state = document.get_str("state").ok().and_then(IndexState::parse);
        let state = state
            .ok_or_else(|| broken(format!("its state is unknown: {}", document.get("state").unwrap_or(&Bson::Null))))?;
        let uuid = match document.get("collectionUUID") {
            Some(Bson::Binary(uuid)) => Some(uuid.clone()),
            None | Some(Bson::Null) => None,
            Some(other) => return Err(broken(format!("its collection's identity is unreadable: {other}"))),
        };
        let created_at = *document
            .get_datetime("createdAt")
            .map_err(|e| broken(format!("it does not say when it was made: {e}")))?;
        let rule_since = match document.get("ruleSince") {
            Some(Bson::DateTime(since)) => *since,
            None => created_at,
            Some(other) => return Err(broken(format!("it is unreadable since when its rule is in force: {other}"))),
        };
        let unreadable = |refusal: Refusal| broken(refusal.message().to_owned());
        let target_lag = read_target_lag(document).map_err(unreadable)?;
        let max_rate = read_max_rate(document).map_err(unreadable)?;
        // Only ever shown.
        let problem = document.get_str("problem").ok().map(str::to_owned);
        Ok(Self {
            id,
            definition,
            rule,
            guards,
            state,
            supporting,
            uuid,
            created_at,
            rule_since,
            target_lag,
            max_rate,
            problem,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Reference;

    #[test]
    fn an_entry_comes_back_as_it_was_stored() {
        let index = TtlIndex::on("a.b")
            .expire_after(Duration::from_secs(5))
            .partial_filter(doc! { "s": 1 })
            .supporting_index(false)
            .keep_while(Reference::by("reads", "x").newer_than("at", Duration::from_secs(60)))
            .keep_while(Reference::by("likes", "x"));
        let definition = Definition::parse("c", &index).unwrap();
        let entry = Entry {
            id: ObjectId::new(),
            rule: Rule::of(&definition).unwrap(),
            guards: Guards::parse(&definition.guards).unwrap(),
            definition,
            state: IndexState::Active,
            supporting: Some(SupportingIndex { name: "i".to_owned(), created: true }),
            uuid: None,
            created_at: DateTime::from_millis(5),
            rule_since: DateTime::from_millis(6),
            target_lag: Some(Duration::from_millis(3_600_500)),
            max_rate: Some(12.5),
            problem: Some("p".to_owned()),
        };
        let back = Entry::parse(&entry.to_document()).unwrap();
        assert_eq!(back.definition, entry.definition);
        assert!(back.guards.same_as(&entry.guards) && !back.guards.is_empty());
        assert_eq!((back.id, back.state, back.supporting), (entry.id, entry.state, entry.supporting));
        assert_eq!((back.created_at, back.rule_since), (entry.created_at, entry.rule_since));
        assert_eq!((back.target_lag, back.max_rate), (entry.target_lag, entry.max_rate));
        assert_eq!(back.problem, entry.problem);
    }

    #[test]
    fn an_entry_of_before_there_were_repairs_is_understood() {
        let old = doc! {
            "id": ObjectId::new(), "collection": "c", "name": "t_1", "key": { "t": 1 }, "expireAfterSeconds": 60,
            "state": "ACTIVE", "createdAt": DateTime::from_millis(5), "supportingIndex": { "wanted": true },
        };
        let entry = Entry::parse(&old).unwrap();
        assert_eq!((entry.rule_since, entry.problem), (DateTime::from_millis(5), None));
        assert_eq!((entry.target_lag, entry.max_rate), (None, None));
    }

    #[test]
    fn an_entry_that_cannot_be_understood_is_broken_and_never_guessed() {
        let good = doc! {
            "id": ObjectId::new(), "collection": "c", "name": "t_1", "key": { "t": 1 }, "expireAfterSeconds": 60,
            "state": "ACTIVE", "createdAt": DateTime::MIN, "supportingIndex": { "wanted": true },
        };
        assert!(Entry::parse(&good).is_ok());
        for (field, value) in [
            ("expireAfterSeconds", Bson::Double(f64::NAN)),
            ("expireAfterSeconds", Bson::String("NaN".to_owned())),
            ("expireAfterSeconds", Bson::Null),
            ("key", Bson::Null),
            ("state", Bson::String("SLEEPING".to_owned())),
            ("partialFilterExpression", Bson::Int32(1)),
            ("collectionUUID", Bson::Int32(1)),
            ("ruleSince", Bson::Int32(1)),
            ("targetLagSeconds", Bson::String("a day".to_owned())),
            ("targetLagSeconds", Bson::Double(f64::NAN)),
            ("targetLagSeconds", Bson::Double(1e300)),
            ("targetLagSeconds", Bson::Int64(i64::MIN)),
            ("maxRate", Bson::Int32(0)),
            ("maxRate", Bson::Double(f64::INFINITY)),
            ("maxRate", Bson::Boolean(true)),
            ("id", Bson::Int32(1)),
            ("guards", Bson::Null),
            ("guards", Bson::Array(vec![Bson::Null])),
            ("guards", Bson::Array(vec![doc! { "collection": "reads" }.into()])),
            ("guards", Bson::Array(vec![doc! { "collection": "reads", "field": "a", "newerThan": 1 }.into()])),
        ] {
            let mut document = good.clone();
            document.insert(field, value);
            assert!(Entry::parse(&document).is_err(), "{document}");
        }
    }
}
