//! Which field keeps a document out of a partial filter.

use mongodb::bson::RawDocument;

use super::{Condition, PartialFilter};

impl PartialFilter {
    /// The field of the first condition that does not hold; none if it is several alternatives that do not.
    pub(crate) fn differing_field(&self, document: &RawDocument) -> Option<&str> {
        differing(&self.condition, document)
    }
}

fn differing<'a>(condition: &'a Condition, document: &RawDocument) -> Option<&'a str> {
    match condition {
        Condition::All(all) => differing(all.iter().find(|c| matches!(c.matches(document), Ok(false)))?, document),
        Condition::Any(_) => {
            let mut fields = Vec::new();
            condition.collect_fields(&mut fields);
            fields.dedup();
            // `$in` is several alternatives on one field.
            if let [field] = fields[..] { Some(field) } else { None }
        }
        Condition::At(path, _) => Some(path.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{RawDocumentBuf, doc};

    use super::*;

    #[test]
    fn the_field_that_differs_is_named_where_it_is_one() {
        let document = RawDocumentBuf::try_from(&doc! { "a": 1, "b": { "c": 2 } }).unwrap();
        for (filter, field) in [
            (doc! { "a": 1, "b.c": 3 }, Some("b.c")),
            (doc! { "$and": [{ "a": { "$gt": 0 } }, { "a": { "$lt": 1 } }] }, Some("a")),
            (doc! { "a": { "$in": [2, 3] } }, Some("a")),
            (doc! { "$or": [{ "a": 2 }, { "b.c": 3 }] }, None),
            (doc! { "a": 1 }, None),
        ] {
            let text = filter.to_string();
            assert_eq!(PartialFilter::parse(filter).unwrap().differing_field(&document), field, "{text}");
        }
    }
}
