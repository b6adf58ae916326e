//! Where a pass has got to, so that documents which stay behind do not hold up those after them.

use mongodb::bson::{Bson, DateTime};

use super::Found;

/// How many documents that stayed behind a pass remembers before it steps over them.
const MAX_LEFT_BEHIND: usize = 10_000;

/// The place in the order of dates from which to look on, and the documents there that were looked at already.
#[derive(Clone, Debug, Default)]
pub(crate) struct Position {
    from: Option<DateTime>,
    left_behind: Vec<(Bson, DateTime)>,
}

/// More documents stay behind than a pass can step over.
#[derive(Debug)]
pub(crate) struct Stuck;

impl Position {
    /// Look behind this date: everything up to it was looked at.
    pub(crate) fn behind(date: DateTime) -> Self {
        Self { from: Some(DateTime::from_millis(date.timestamp_millis().saturating_add(1))), left_behind: Vec::new() }
    }

    /// Look from this date on; documents before it were looked at.
    pub(crate) fn from(&self) -> Option<DateTime> {
        self.from
    }

    /// Documents that were looked at and would be found again.
    pub(crate) fn except(&self) -> Vec<Bson> {
        self.left_behind.iter().map(|(id, _)| id.clone()).collect()
    }

    /// Goes on behind a batch that reached this date, and of which `left` were not deleted.
    ///
    /// Without an order of dates none is reached: there is no place to go on from, and every document that stayed is
    /// remembered.
    pub(crate) fn advance(&mut self, reached: Option<DateTime>, left: Vec<Found>) -> Result<(), Stuck> {
        // A document without dates is one that the rule keeps and the backend found all the same. What the backend takes
        // for its date is unknown: remember it to the end.
        let latest = |found: &Found| found.dates.map_or(DateTime::MAX, |dates| dates.latest);
        self.left_behind.extend(left.into_iter().map(|found| (found.id.clone(), latest(&found))));
        if reached.is_some() {
            self.from = self.from.max(reached);
            self.forget_passed();
            if self.left_behind.len() > MAX_LEFT_BEHIND
                && let Some(from) = self.from
            {
                self.from = Some(DateTime::from_millis(from.timestamp_millis().saturating_add(1)));
                self.forget_passed();
            }
        }
        if self.left_behind.len() > MAX_LEFT_BEHIND { Err(Stuck) } else { Ok(()) }
    }

    fn forget_passed(&mut self) {
        let from = self.from;
        // The latest date decides: an array's later elements make a query find the document again.
        self.left_behind.retain(|(_, latest)| from.is_none_or(|from| *latest >= from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expiry::Dates;

    fn date(millis: i64) -> DateTime {
        DateTime::from_millis(millis)
    }

    fn found(id: i32, earliest: i64, latest: i64) -> Found {
        Found {
            id: Bson::Int32(id),
            dates: Some(Dates { earliest: date(earliest), latest: date(latest) }),
            whole: None,
        }
    }

    #[test]
    fn documents_left_at_the_same_instant_are_stepped_over_one_by_one() {
        let mut position = Position::default();
        position.advance(Some(date(7)), vec![found(1, 5, 5), found(2, 7, 7), found(3, 7, 7)]).unwrap();
        assert_eq!(position.from(), Some(date(7)));
        assert_eq!(position.except(), [Bson::Int32(2), Bson::Int32(3)]);
        // An array is found again by its later element, so it is remembered, and the position never goes back.
        position.advance(Some(date(3)), vec![found(4, 3, 9)]).unwrap();
        assert_eq!(position.from(), Some(date(7)));
        assert_eq!(position.except().len(), 3);
    }

    #[test]
    fn without_an_order_every_document_left_is_remembered() {
        let mut position = Position::default();
        position.advance(None, vec![found(1, 5, 5)]).unwrap();
        assert_eq!((position.from(), position.except()), (None, vec![Bson::Int32(1)]));
    }

    #[test]
    fn too_many_at_one_instant_are_stepped_over_together() {
        let mut position = Position::default();
        let left: Vec<_> = (0..10_001).map(|id| found(id, 5, 5)).collect();
        position.advance(Some(date(5)), left.clone()).unwrap();
        assert_eq!((position.from(), position.except().len()), (Some(date(6)), 0));
        assert!(Position::default().advance(None, left).is_err());
    }
}
