//! Guards on the embedded store: the children read through, and dates moved in one transaction.

use mongodb::bson::{Bson, DateTime};

use super::{
    keys::id_key,
    tables::{Tables, Writing},
};
use crate::{
    error::{Error, Result},
    expiry::{Raised, Rule},
    guard::{Ids, ReferenceGuard},
    store::Touched,
};

/// Reads the children through once.
pub(super) fn referenced(tables: &Tables, guard: &ReferenceGuard, mut ids: Ids, now: DateTime) -> Result<Ids> {
    let mut trouble: Option<Error> = None;
    tables.scan(guard.collection.as_str(), None, usize::MAX, |_, child| {
        if guard.counts(child, now)
            && let Err(error) = ids.mark_those_of(guard, child)
        {
            trouble.get_or_insert(error);
        }
        false
    })?;
    trouble.map_or(Ok(ids), Err)
}

pub(super) fn touch(
    writing: &mut Writing,
    collection: &str,
    rule: &Rule,
    ids: Vec<Bson>,
    until: DateTime,
) -> Result<Touched> {
    let mut touched = Touched::default();
    for id in ids {
        let key = id_key(&id)?;
        let Some(document) = writing.get(collection, &key)? else {
            touched.missing += 1;
            continue;
        };
        match rule.raised(&document, until)? {
            Raised::Never => touched.never += 1,
            Raised::Already => touched.later += 1,
            Raised::To(document) => {
                writing.put(collection, &key, Some(&document))?;
                touched.moved += 1;
            }
        }
    }
    Ok(touched)
}
