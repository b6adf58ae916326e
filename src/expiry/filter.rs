//! The two queries a rule means to a backend: find what is due, and delete what is still due.

use mongodb::bson::{Bson, DateTime, Document, doc};

use super::Rule;

/// Which dates a query asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Where the last batch ended, if the backend walks the index in order.
    pub(crate) from: Option<DateTime>,
    /// The latest date asked for.
    pub(crate) until: DateTime,
    /// Also demand the type, for a backend whose comparisons reach across types.
    pub(crate) demand_type: bool,
}

impl Rule {
    /// The query for the documents that are due at `now`, in MongoDB's language.
    ///
    /// # Guarantees
    ///
    /// MongoDB finds by it just what [`judge`](Self::judge) calls due.
    ///
    /// # Assumptions
    ///
    /// The backend compares as MongoDB does, without a collation. Elsewhere a query may find more: judge what it finds.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ttl_index::{Rule, TtlIndex, bson::{DateTime, doc}};
    ///
    /// let index = TtlIndex::on("at").expire_after(Duration::from_secs(60)).partial_filter(doc! { "state": "done" });
    /// let filter = Rule::new(&index)?.due_filter(DateTime::from_millis(100_000));
    /// let cutoff = DateTime::from_millis(40_000);
    /// assert_eq!(filter, doc! { "at": { "$lte": cutoff }, "$and": [{ "state": "done" }] });
    /// // collection.find(filter).await?
    /// # Ok::<(), ttl_index::Error>(())
    /// ```
    pub fn due_filter(&self, now: DateTime) -> Document {
        // No date can be so old that the cutoff is before the beginning of time.
        let Some(until) = self.cutoff(now) else { return doc! { "_id": { "$in": [] } } };
        self.find_filter(Bounds { from: None, until, demand_type: false }, &[])
    }

    /// The query for documents whose field holds a date within `bounds` and that match the partial filter.
    pub(crate) fn find_filter(&self, bounds: Bounds, except: &[Bson]) -> Document {
        let mut filter = Document::new();
        if !except.is_empty() {
            filter.insert("_id", doc! { "$nin": except });
        }
        self.add_condition(&mut filter, bounds);
        filter
    }

    /// The query for those of `ids` that still satisfy the same.
    pub(crate) fn delete_filter(&self, bounds: Bounds, ids: Vec<Bson>) -> Document {
        let mut filter = doc! { "_id": { "$in": ids } };
        self.add_condition(&mut filter, bounds);
        filter
    }

    /// What a query must return for the rule to judge a document: `_id`, the field, and the filter's fields.
    ///
    /// First components only: a projection of both `a` and `a.b` is refused by some backends. Empty, which stands for the
    /// whole document, if one of them is empty: no projection can name that.
    pub(crate) fn projection(&self) -> Document {
        let mut projection = doc! { "_id": 1 };
        let fields = self.partial().map(|partial| partial.fields()).unwrap_or_default();
        for field in std::iter::once(self.field().as_str()).chain(fields) {
            let first = field.split('.').next().unwrap_or(field);
            if first.is_empty() {
                return Document::new();
            }
            projection.insert(first, 1);
        }
        projection
    }

    fn add_condition(&self, filter: &mut Document, bounds: Bounds) {
        let mut date = doc! { "$lte": bounds.until };
        if let Some(from) = bounds.from {
            date.insert("$gte", from);
        }
        if bounds.demand_type {
            date.insert("$type", "date");
        }
        filter.insert(self.field().as_str(), date);
        if let Some(partial) = self.partial()
            && !partial.source().is_empty()
        {
            // Within $and, since the filter may speak of the same field.
            filter.insert("$and", vec![partial.source().clone()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::TtlIndex;

    #[test]
    fn the_delete_repeats_the_whole_condition() {
        let index = TtlIndex::on("a.b")
            .expire_after(std::time::Duration::from_secs(1))
            .partial_filter(doc! { "a.b": { "$exists": true }, "s": 1 });
        let rule = Rule::new(&index).unwrap();
        let until = DateTime::from_millis(5);
        let filter = rule.delete_filter(Bounds { from: None, until, demand_type: false }, vec![Bson::Int32(1)]);
        assert_eq!(
            filter,
            doc! {
                "_id": { "$in": [1] },
                "a.b": { "$lte": until },
                "$and": [{ "a.b": { "$exists": true }, "s": 1 }],
            }
        );
        assert_eq!(rule.projection(), doc! { "_id": 1, "a": 1, "s": 1 });
    }
}
