//! What dates of creation or of last use tell of time zones and wrong clocks. Pure.
//!
//! Only a date that something is known about can be doubted: one that documents outlive (the period is above 0) and that is
//! not called a date of expiry should not lie ahead, and should not stand at the same quarter of an hour from the instant in
//! the document's `ObjectId` in nearly every document.

use std::collections::BTreeMap;

use mongodb::bson::{DateTime, oid::ObjectId};

use super::finding::FindingKind;
use crate::expiry::Rule;

/// The zones furthest from UTC, with a little for clocks.
const FURTHEST_MS: i64 = 14 * 3_600_000 + 300_000;

/// How far clocks differ in good order.
const CLOCKS_MS: i64 = 60_000;

/// Offsets of zones are multiples of this.
const QUARTER_MS: i64 = 900_000;

/// How near to a multiple a date has to be.
const NEAR_MS: i64 = 20_000;

/// Fewer documents tell nothing.
const FEWEST: u64 = 3;

/// Words in the name of a field that holds a date to come.
const EXPIRY_WORDS: [&str; 9] = ["expir", "until", "ttl", "end", "valid", "due", "deleteat", "purge", "remove"];

#[derive(Default)]
pub(super) struct Zone {
    looks: bool,
    /// Documents with a date, however odd.
    pub(super) dated: u64,
    /// Within a zone's reach of now.
    ahead: u64,
    /// Further.
    beyond: u64,
    with_object_id: u64,
    /// Quarters of an hour from the instant in the `ObjectId`, for dates near to one.
    quarters: BTreeMap<i64, u64>,
}

/// Where a date stands that should not lie ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ahead {
    No,
    WithinZones,
    Beyond,
}

impl Zone {
    pub(super) fn new(rule: &Rule) -> Self {
        let name = rule.field().parts().last().map(|name| name.replace(['_', '-'], "").to_lowercase());
        let expiry = name.is_some_and(|name| EXPIRY_WORDS.iter().any(|word| name.contains(word)));
        Self { looks: rule.period_millis() > 0 && !expiry, ..Self::default() }
    }

    pub(super) fn note(&mut self, date: DateTime, id: Option<ObjectId>, now: DateTime) -> Ahead {
        if !self.looks {
            return Ahead::No;
        }
        if let Some(id) = id {
            self.with_object_id += 1;
            let apart = i128::from(date.timestamp_millis()) - i128::from(id.timestamp().timestamp_millis());
            if let Ok(apart) = i64::try_from(apart)
                && apart.checked_abs().is_some_and(|apart| apart <= FURTHEST_MS)
            {
                let quarter = (apart + QUARTER_MS / 2).div_euclid(QUARTER_MS);
                if (apart - quarter * QUARTER_MS).abs() <= NEAR_MS {
                    *self.quarters.entry(quarter).or_insert(0) += 1;
                }
            }
        }
        match date.timestamp_millis().saturating_sub(now.timestamp_millis()) {
            i64::MIN..=CLOCKS_MS => Ahead::No,
            ahead if ahead <= FURTHEST_MS => {
                self.ahead += 1;
                Ahead::WithinZones
            }
            _ => {
                self.beyond += 1;
                Ahead::Beyond
            }
        }
    }

    /// The suspicion that all the dates together give.
    pub(super) fn suspicion(&self) -> Option<String> {
        let systematic = self
            .quarters
            .iter()
            .find(|(quarter, count)| **quarter != 0 && **count >= FEWEST && **count * 10 >= self.with_object_id * 9);
        if let Some((quarter, count)) = systematic {
            let (sign, minutes) = (if *quarter < 0 { "behind" } else { "ahead of" }, quarter.abs() * 15);
            return Some(format!(
                "{count} of {} dates stand {}:{:02} hours {sign} the instant in the document's ObjectId",
                self.with_object_id,
                minutes / 60,
                minutes % 60
            ));
        }
        (self.ahead > 0 && self.beyond == 0)
            .then(|| "dates ahead of the database's clock, none further than zones reach".to_owned())
    }

    /// Which kind of finding a date that lies ahead belongs to.
    pub(super) fn kind(&self, ahead: Ahead) -> Option<FindingKind> {
        match ahead {
            Ahead::No => None,
            Ahead::WithinZones if self.beyond == 0 => Some(FindingKind::TimeZoneSuspected),
            // If most lie ahead, that is what the field is for.
            Ahead::WithinZones | Ahead::Beyond => {
                ((self.ahead + self.beyond) * 2 < self.dated).then_some(FindingKind::FutureDate)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::index::TtlIndex;

    const NOW: i64 = 1_767_225_600_000;
    const HOUR: i64 = 3_600_000;

    fn zone(field: &str, period: u64, dates: &[(i64, Option<i64>)]) -> Zone {
        let rule = Rule::new(&TtlIndex::on(field).expire_after(Duration::from_secs(period))).unwrap();
        let mut zone = Zone::new(&rule);
        for (date, made) in dates {
            let id = made.map(|made| {
                let seconds = u32::try_from((NOW + made) / 1000).unwrap();
                let mut bytes = [0; 12];
                bytes[..4].copy_from_slice(&seconds.to_be_bytes());
                ObjectId::from_bytes(bytes)
            });
            zone.dated += 1;
            zone.note(DateTime::from_millis(NOW + date), id, DateTime::from_millis(NOW));
        }
        zone
    }

    #[test]
    fn an_offset_that_nearly_all_dates_share_is_told_in_either_direction() {
        let dates = |offset: i64| [1, 2, 3, 4].map(|days| (offset - days * 24 * HOUR, Some(-days * 24 * HOUR)));
        for (offset, words) in [
            (2 * HOUR + 3_000, "4 of 4 dates stand 2:00 hours ahead of"),
            (-5 * HOUR, "4 of 4 dates stand 5:00 hours behind"),
            (HOUR * 11 / 2, "5:30 hours ahead of"),
        ] {
            let told = zone("createdAt", 3600, &dates(offset)).suspicion().unwrap();
            assert!(told.contains(words), "{told}");
        }
        for (offset, field, period) in [
            (0, "createdAt", 3600),
            (5_000, "createdAt", 3600),
            // Not near to a quarter of an hour; further than any zone; a date of expiry.
            (HOUR / 10, "createdAt", 3600),
            (-15 * HOUR, "createdAt", 3600),
            (2 * HOUR, "createdAt", 0),
            (2 * HOUR, "expires_at", 3600),
        ] {
            assert_eq!(zone(field, period, &dates(offset)).suspicion(), None, "{offset} {field} {period}");
        }
        // Dates of last use are anywhere, some of them on the hour.
        let mut scattered = dates(2 * HOUR).to_vec();
        scattered.push((-7 * HOUR, Some(-24 * HOUR)));
        assert_eq!(zone("seen", 3600, &scattered).suspicion(), None);
    }

    #[test]
    fn dates_ahead_are_a_zone_only_if_none_is_further_than_zones_reach() {
        let ahead = zone("createdAt", 3600, &[(2 * HOUR, None), (-HOUR, None), (-HOUR, None)]);
        assert_eq!(ahead.kind(Ahead::WithinZones), Some(FindingKind::TimeZoneSuspected));
        let events = zone("at", 3600, &[(2 * HOUR, None), (24 * HOUR, None), (-HOUR, None)]);
        assert_eq!((events.kind(Ahead::WithinZones), events.kind(Ahead::Beyond)), (None, None));
        let outlier = zone("at", 3600, &[(24 * HOUR, None), (-HOUR, None), (-HOUR, None)]);
        assert_eq!(outlier.kind(Ahead::Beyond), Some(FindingKind::FutureDate));
        assert_eq!(zone("createdAt", 3600, &[(CLOCKS_MS, None)]).suspicion(), None);
    }
}
