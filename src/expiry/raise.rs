//! Later dates in a document, so that it does not expire before an instant.

use mongodb::bson::{DateTime, RawBsonRef, RawDocument, RawDocumentBuf};

use super::{
    Rule,
    path::{self, Unreadable},
};
use crate::error::{Error, Result};

/// A document as it must be to expire no earlier than an instant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Raised {
    /// As it is: the rule lets it stay for ever.
    Never,
    /// As it is: it expires then or later.
    Already,
    /// This, in which nothing but dates differs.
    To(RawDocumentBuf),
}

impl Rule {
    /// Sets the dates at the field that make the document expire before `not_before` to the one that makes it expire then.
    ///
    /// No date becomes earlier, and every other byte stays. The partial filter may speak of the dates too: then the document
    /// may never expire afterwards.
    ///
    /// # Errors
    ///
    /// If the document cannot be read.
    pub(crate) fn raised(&self, document: &RawDocument, not_before: DateTime) -> Result<Raised> {
        let unreadable = |Unreadable(why)| Error::Unreadable(format!("a document cannot be read: {why}"));
        let Ok(dates) = self.dates(document).map_err(unreadable)? else { return Ok(Raised::Never) };
        let date = self.cutoff(not_before).filter(|date| dates.earliest < *date);
        let Some(date) = date else { return Ok(Raised::Already) };
        let mut bytes = document.as_bytes().to_vec();
        let start = document.as_bytes().as_ptr().addr();
        path::walk(document, self.field().parts(), &mut |place| {
            let Some(place) = place else { return };
            if matches!(place.value, RawBsonRef::DateTime(found) if found < date) {
                // A name ends in a zero, and the value follows it.
                let value = place.name.as_ptr().addr() - start + place.name.len() + 1;
                bytes[value..value + 8].copy_from_slice(&date.timestamp_millis().to_le_bytes());
            }
        })
        .map_err(unreadable)?;
        let raised = RawDocumentBuf::from_bytes(bytes).map_err(|error| unreadable(Unreadable(error.to_string())))?;
        Ok(Raised::To(raised))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mongodb::bson::{Bson, Document, doc, oid::ObjectId};
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::index::TtlIndex;

    fn rule(field: &str, period: u64) -> Rule {
        Rule::new(&TtlIndex::on(field).expire_after(Duration::from_secs(period))).unwrap()
    }

    fn raw(document: &Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(document).unwrap()
    }

    fn date(millis: i64) -> Bson {
        DateTime::from_millis(millis).into()
    }

    #[test]
    fn every_date_at_the_path_is_raised_and_nothing_else() {
        let before = doc! {
            "x": date(1),
            "a": [{ "t": date(1) }, { "t": [date(2), "s", [date(3)], date(50_000)] }, { "u": date(4) }, date(5)],
            "a.t": date(6),
        };
        let after = doc! {
            "x": date(1),
            "a": [{ "t": date(9_000) }, { "t": [date(9_000), "s", [date(3)], date(50_000)] }, { "u": date(4) }, date(5)],
            "a.t": date(6),
        };
        let raised = rule("a.t", 1).raised(&raw(&before), DateTime::from_millis(10_000)).unwrap();
        assert_eq!(raised, Raised::To(raw(&after)));
    }

    #[test]
    fn what_never_expires_or_expires_late_enough_stays_as_it_is() {
        let index = TtlIndex::on("t").expire_after(Duration::from_secs(1)).partial_filter(doc! { "s": 1 });
        let filtered = Rule::new(&index).unwrap();
        let now = DateTime::from_millis(5_000);
        for (document, stays) in [
            (doc! { "t": date(4_000), "s": 1 }, Raised::Already),
            (doc! { "t": [date(4_001), date(9_000)], "s": 1 }, Raised::Already),
            (doc! { "t": date(0), "s": 2 }, Raised::Never),
            (doc! { "t": "1970-01-01", "s": 1 }, Raised::Never),
            (doc! { "s": 1 }, Raised::Never),
        ] {
            assert_eq!(filtered.raised(&raw(&document), now).unwrap(), stays, "{document}");
        }
        let first = doc! { "t": DateTime::MIN };
        assert_eq!(rule("t", 1).raised(&raw(&first), DateTime::MIN).unwrap(), Raised::Already);
    }

    fn value() -> impl Strategy<Value = Bson> {
        let millis = prop_oneof![Just(i64::MIN), Just(i64::MAX), any::<i64>(), -100_000..100_000_i64];
        let scalar = prop_oneof![
            4 => millis.prop_map(date),
            1 => Just(Bson::Null),
            1 => any::<String>().prop_map(Bson::String),
            1 => Just(Bson::ObjectId(ObjectId::new())),
        ];
        scalar.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(Bson::Array),
                vec(("[ab01]", inner), 0..4).prop_map(|fields| Bson::Document(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_raised_document_expires_late_enough_and_has_no_earlier_date(
            fields in vec(("[ab01]", value()), 0..4),
            path in "[ab01](\\.[ab01]){0,2}",
            period in prop_oneof![Just(0_u64), Just(2_147_483_647), 0..200_u64],
            until in prop_oneof![Just(i64::MIN), Just(i64::MAX), any::<i64>(), -100_000..100_000_i64],
        ) {
            let (rule, until) = (rule(&path, period), DateTime::from_millis(until));
            let before = raw(&fields.into_iter().collect());
            let expires = |document: &RawDocumentBuf| rule.judge(document, until).expires_at;
            match rule.raised(&before, until).unwrap() {
                Raised::Never => prop_assert_eq!(expires(&before), None),
                Raised::Already => prop_assert!(expires(&before) >= Some(until)),
                Raised::To(after) => {
                    prop_assert!(expires(&before) < Some(until));
                    prop_assert_eq!(expires(&after), Some(until));
                    prop_assert_eq!(rule.raised(&after, until).unwrap(), Raised::Already);
                    let later = |a: &Bson, b: &Bson| no_earlier(a, b);
                    let parsed = |raw: &RawDocumentBuf| Bson::Document(Document::try_from(&**raw).unwrap());
                    prop_assert!(later(&parsed(&before), &parsed(&after)));
                }
            }
        }
    }

    /// Whether the second is the first with some dates later.
    fn no_earlier(a: &Bson, b: &Bson) -> bool {
        match (a, b) {
            (Bson::DateTime(a), Bson::DateTime(b)) => a <= b,
            (Bson::Array(a), Bson::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| no_earlier(a, b)),
            (Bson::Document(a), Bson::Document(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|((x, a), (y, b))| x == y && no_earlier(a, b))
            }
            (a, b) => a == b,
        }
    }
}
