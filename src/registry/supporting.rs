//! Which ordinary index the sweeps of a TTL index walk: one that is there, or one to be built. Pure.

use mongodb::bson::Bson;

use crate::{
    entry::SupportingIndex,
    error::{Code, Refusal},
    index::{Definition, same_filter},
    store::{Collection, PhysicalIndex},
};

/// What is to be done about the supporting index.
#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    /// None is wanted.
    None,
    /// This one is there and does.
    Reuse(SupportingIndex),
    /// This one is to be built.
    Build(PhysicalIndex),
}

impl Plan {
    /// What the registry notes of it.
    pub(super) fn noted(&self) -> Option<SupportingIndex> {
        match self {
            Plan::None => None,
            Plan::Reuse(index) => Some(index.clone()),
            Plan::Build(index) => Some(SupportingIndex { name: index.name.clone(), created: true }),
        }
    }
}

/// Decides for a TTL index whose entry notes `noted`, if it has one.
pub(super) fn plan(
    definition: &Definition,
    noted: Option<&SupportingIndex>,
    collection: &Collection,
) -> Result<Plan, Refusal> {
    if !definition.supporting_index {
        return Ok(Plan::None);
    }
    if let Some(noted) = noted
        && collection.indexes.iter().any(|index| index.name == noted.name && walkable(definition, index))
    {
        return Ok(Plan::Reuse(noted.clone()));
    }
    let same = |index: &&PhysicalIndex| lists_same(definition, index);
    if let Some(index) = collection.indexes.iter().filter(same).find(|index| walkable(definition, index)) {
        return Ok(Plan::Reuse(SupportingIndex { name: index.name.clone(), created: false }));
    }
    if let Some(hidden) =
        collection.indexes.iter().filter(same).find(|index| index.hidden && on_field(definition, index))
    {
        return Err(Refusal::new(
            Code::IndexOptionsConflict,
            format!(
                "the index {} of {} is hidden, so that sweeps cannot walk it; unhide it, or turn the supporting index off",
                hidden.name, definition.collection
            ),
        ));
    }
    let taken = |name: &str| collection.indexes.iter().any(|index| index.name == name);
    // An index of the same name for other documents: both can be, under different names.
    let names = [definition.name.clone(), format!("{}_ttl_index", definition.name)];
    match names.into_iter().find(|name| !taken(name)) {
        Some(name) => Ok(Plan::Build(PhysicalIndex {
            name,
            key: definition.key(),
            partial_filter: definition.partial_filter.clone(),
            hidden: false,
            native_ttl: false,
        })),
        None => Err(Refusal::new(
            Code::IndexKeySpecsConflict,
            format!(
                "An existing index has the same name as the requested index: {} of {}; give the TTL index another name",
                definition.name, definition.collection
            ),
        )),
    }
}

/// Whether an index lists every document that the TTL index may delete.
pub(crate) fn walkable(definition: &Definition, index: &PhysicalIndex) -> bool {
    let lists_all = index.partial_filter.is_none() || lists_same(definition, index);
    on_field(definition, index) && !index.hidden && lists_all
}

fn lists_same(definition: &Definition, index: &PhysicalIndex) -> bool {
    same_filter(definition.partial_filter.as_ref(), index.partial_filter.as_ref())
}

fn on_field(definition: &Definition, index: &PhysicalIndex) -> bool {
    let mut fields = index.key.iter();
    let (Some((field, direction)), None) = (fields.next(), fields.next()) else { return false };
    let plain = match direction {
        Bson::Int32(n) => n.abs() == 1,
        Bson::Int64(n) => n.abs() == 1,
        Bson::Double(n) => n.abs().to_bits() == 1.0_f64.to_bits(),
        _ => false,
    };
    field == definition.field.as_str() && plain
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mongodb::bson::{Document, doc};

    use super::*;
    use crate::index::TtlIndex;

    fn definition(filter: Option<Document>) -> Definition {
        let mut index = TtlIndex::on("t").expire_after(Duration::ZERO);
        if let Some(filter) = filter {
            index = index.partial_filter(filter);
        }
        Definition::parse("c", &index).unwrap()
    }

    fn index(name: &str, key: Document) -> PhysicalIndex {
        PhysicalIndex { name: name.to_owned(), key, partial_filter: None, hidden: false, native_ttl: false }
    }

    fn decide(definition: &Definition, indexes: Vec<PhysicalIndex>) -> Result<Plan, Refusal> {
        plan(definition, None, &Collection { indexes, ..Collection::default() })
    }

    #[test]
    fn a_plain_index_on_the_field_is_reused_in_either_direction() {
        for key in [doc! { "t": 1 }, doc! { "t": -1 }, doc! { "t": 1.0 }] {
            let reused = Plan::Reuse(SupportingIndex { name: "mine".to_owned(), created: false });
            assert_eq!(decide(&definition(None), vec![index("mine", key)]).unwrap(), reused);
        }
    }

    #[test]
    fn an_index_that_lists_other_documents_is_not_reused() {
        for key in [doc! { "t": 1, "x": 1 }, doc! { "t": "hashed" }, doc! { "t.x": 1 }] {
            let Plan::Build(built) = decide(&definition(None), vec![index("mine", key)]).unwrap() else { panic!() };
            assert_eq!(built.name, "t_1");
        }
        let partial = PhysicalIndex { partial_filter: Some(doc! { "s": 1 }), ..index("t_1", doc! { "t": 1 }) };
        let Plan::Build(built) = decide(&definition(None), vec![partial.clone()]).unwrap() else { panic!() };
        assert_eq!(built.name, "t_1_ttl_index");
        assert!(!walkable(&definition(None), &partial));
        assert!(walkable(&definition(Some(doc! { "s": 1 })), &partial));
    }

    #[test]
    fn a_hidden_index_is_refused_with_the_way_out() {
        let hidden = PhysicalIndex { hidden: true, ..index("mine", doc! { "t": 1 }) };
        assert_eq!(decide(&definition(None), vec![hidden]).unwrap_err().code(), Code::IndexOptionsConflict);
    }

    #[test]
    fn an_index_made_for_the_ttl_index_stays_noted_as_such() {
        let noted = SupportingIndex { name: "t_1".to_owned(), created: true };
        let collection = Collection { indexes: vec![index("t_1", doc! { "t": 1 })], ..Collection::default() };
        assert_eq!(plan(&definition(None), Some(&noted), &collection).unwrap(), Plan::Reuse(noted));
    }
}
