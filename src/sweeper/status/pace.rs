//! How fast a database is swept, and why.

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};

use crate::{
    meter::PaceCounters,
    pacing::{ClosedWindow, Shortfall},
};

/// How fast a database is swept, and why; part of [`SweeperStatus`](crate::SweeperStatus).
///
/// Rates are documents a second, over all TTL indexes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PaceStatus {
    /// What is allowed at this moment: as planned, unless something holds it back; 0 while sweeping is closed.
    pub rate: f64,
    /// What the plan wants now, within the limits.
    pub planned: f64,
    /// The highest rate that the plan will want, as far as it looks ahead: three target lags.
    pub peak: f64,
    /// Within which a document shall be gone that is due.
    pub target_lag: Duration,
    /// The most that is allowed.
    pub max_rate: f64,
    /// Below which it goes no slower while anything is due.
    pub min_rate: f64,
    /// When nothing is deleted.
    pub closed: Vec<ClosedWindow>,
    /// Documents that are due, as far as they were counted.
    pub backlog: u64,
    /// Whether all that was due was counted once.
    pub counted: bool,
    /// When what is due now will be gone, by the plan.
    pub finish: Option<DateTime>,
    /// How late documents will be; none if all will be on time.
    pub shortfall: Option<Shortfall>,
    /// Until when a closed window keeps it from sweeping.
    pub closed_until: Option<DateTime>,
    /// Whether it was asked to finish now, and has not yet.
    pub finishing: bool,
    /// Why less is done than planned.
    pub held_back: Option<HeldBack>,
    /// What somebody should mend, although nothing is held back because of it.
    pub warning: Option<String>,
}

/// Why less is deleted than is planned.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HeldBack {
    /// The share of the plan that the database can take, from 0 to 1. The more the plan presses, the less it is heeded.
    pub factor: f64,
    /// `latency`, `overload`, `signal`, or `recovery` while the rate rises again.
    pub cause: String,
    /// In a sentence, with numbers.
    pub why: String,
    /// Since when, by the database's clock.
    pub since: DateTime,
}

impl PaceStatus {
    pub(in crate::sweeper) fn to_document(&self) -> Document {
        let held_back = self.held_back.as_ref().map(|held| {
            doc! { "factor": held.factor, "cause": &held.cause, "why": &held.why, "since": held.since }
        });
        doc! {
            "rate": self.rate,
            "planned": self.planned,
            "peak": self.peak,
            "targetLagSeconds": self.target_lag.as_secs_f64(),
            "maxRate": self.max_rate,
            "minRate": self.min_rate,
            "closed": self.closed.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "backlog": i64::try_from(self.backlog).unwrap_or(i64::MAX),
            "counted": self.counted,
            "finish": self.finish,
            "shortfall": self.shortfall.map(shortfall_document),
            "closedUntil": self.closed_until,
            "finishing": self.finishing,
            "heldBack": held_back,
            "warning": self.warning.clone(),
        }
    }

    pub(in crate::sweeper) fn counters(&self) -> PaceCounters {
        PaceCounters {
            rate: self.rate,
            planned: self.planned,
            peak: self.peak,
            lateness: self.shortfall.map_or(Duration::ZERO, |short| short.late),
            health_factor: self.held_back.as_ref().map_or(1.0, |held| held.factor),
        }
    }

    /// None if it cannot be understood: then nothing is told.
    pub(super) fn parse(told: &Document) -> Option<Self> {
        let held_back = |told: &Document| {
            Some(HeldBack {
                factor: told.get_f64("factor").ok()?,
                cause: told.get_str("cause").ok()?.to_owned(),
                why: told.get_str("why").ok()?.to_owned(),
                since: *told.get_datetime("since").ok()?,
            })
        };
        Some(Self {
            rate: told.get_f64("rate").ok()?,
            planned: told.get_f64("planned").ok()?,
            peak: told.get_f64("peak").ok()?,
            target_lag: seconds(told, "targetLagSeconds")?,
            max_rate: told.get_f64("maxRate").ok()?,
            min_rate: told.get_f64("minRate").ok()?,
            closed: told.get_array("closed").ok()?.iter().map(window).collect::<Option<_>>()?,
            backlog: u64::try_from(told.get_i64("backlog").ok()?).ok()?,
            counted: told.get_bool("counted").ok()?,
            finish: told.get_datetime("finish").ok().copied(),
            shortfall: told.get_document("shortfall").ok().and_then(parse_shortfall),
            closed_until: told.get_datetime("closedUntil").ok().copied(),
            finishing: told.get_bool("finishing").ok()?,
            held_back: told.get_document("heldBack").ok().and_then(held_back),
            warning: told.get_str("warning").ok().map(str::to_owned),
        })
    }
}

fn window(told: &Bson) -> Option<ClosedWindow> {
    told.as_str()?.parse().ok()
}

pub(super) fn shortfall_document(short: Shortfall) -> Document {
    doc! { "allowed": short.allowed, "needed": short.needed, "lateSeconds": short.late.as_secs_f64() }
}

pub(super) fn parse_shortfall(told: &Document) -> Option<Shortfall> {
    Some(Shortfall {
        allowed: told.get_f64("allowed").ok()?,
        needed: told.get_f64("needed").ok()?,
        late: seconds(told, "lateSeconds")?,
    })
}

fn seconds(told: &Document, field: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(told.get_f64(field).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood_again() {
        let bare = PaceStatus {
            rate: 1.5,
            planned: 2.5,
            peak: 3.5,
            target_lag: Duration::from_secs(60),
            max_rate: 1000.0,
            min_rate: 0.0,
            closed: Vec::new(),
            backlog: 7,
            counted: false,
            finish: None,
            shortfall: None,
            closed_until: None,
            finishing: false,
            held_back: None,
            warning: None,
        };
        let at = DateTime::from_millis(5);
        let held_back = HeldBack { factor: 0.5, cause: "latency".to_owned(), why: "w".to_owned(), since: at };
        let full = PaceStatus {
            finish: Some(at),
            shortfall: Some(Shortfall { allowed: 1.0, needed: 2.0, late: Duration::from_millis(1500) }),
            closed: vec!["22:00-06:00".parse().unwrap(), "Sat,Sun 00:00-24:00 Europe/Berlin".parse().unwrap()],
            closed_until: Some(at),
            finishing: true,
            counted: true,
            held_back: Some(held_back),
            warning: Some("x".to_owned()),
            ..bare.clone()
        };
        for status in [bare, full] {
            assert_eq!(PaceStatus::parse(&status.to_document()), Some(status));
        }
        assert_eq!(PaceStatus::parse(&doc! { "rate": "fast" }), None);
    }
}
