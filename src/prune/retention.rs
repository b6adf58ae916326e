//! How long documents are kept, as an application's setting says it: pure.

use std::{fmt, ops::RangeInclusive, time::Duration};

/// The days that a setting may ask for: up to ten years.
const DAYS: RangeInclusive<u32> = 1..=3650;

/// Without a setting that can be understood.
const DEFAULT_DAYS: u32 = 180;

/// How many days the documents of a collection are kept, and who says so.
///
/// Hand it to [`SweepIfDue::retention`](crate::SweepIfDue::retention).
///
/// # Guarantees
///
/// A setting that is missing or invalid gives the default of 180 days, which is then a *fallback*: it never shortens a
/// lifetime that is in force, so that a mistyped setting deletes nothing.
///
/// ```
/// use ttl_index::{Retention, RetentionSource};
///
/// let setting = std::env::var("NEWS_RETENTION_DAYS").ok();
/// let retention = Retention::from_days(setting.as_deref());
/// # assert_eq!((retention.days(), retention.source()), (180, &RetentionSource::Missing));
///
/// let typed = Retention::from_days(Some("36O0"));
/// assert_eq!(typed.days(), 180);
/// assert_eq!(typed.source(), &RetentionSource::Invalid("36O0".to_owned()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    days: u32,
    source: RetentionSource,
}

/// Who says how long documents are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetentionSource {
    /// The setting.
    Setting,
    /// The default, as there is no setting.
    Missing,
    /// The default, as the setting is this, which is no whole number of days from 1 to 3,650.
    Invalid(String),
}

impl Retention {
    /// As a setting says it: a whole number of days from 1 to 3,650, in ASCII digits, with or without blanks around it.
    /// Anything else, or no setting, is the default of 180 days.
    pub fn from_days(setting: Option<&str>) -> Self {
        let fallback = |source| Self { days: DEFAULT_DAYS, source };
        let Some(setting) = setting else { return fallback(RetentionSource::Missing) };
        let text = setting.trim();
        // The parser would take a sign.
        let days = text.parse().ok().filter(|days| DAYS.contains(days) && text.bytes().all(|c| c.is_ascii_digit()));
        match days {
            Some(days) => Self { days, source: RetentionSource::Setting },
            None => fallback(RetentionSource::Invalid(setting.to_owned())),
        }
    }

    /// How many days documents are kept.
    pub fn days(&self) -> u32 {
        self.days
    }

    /// The same, as a TTL index has it.
    pub fn period(&self) -> Duration {
        Duration::from_secs(u64::from(self.days) * 86_400)
    }

    /// Who says so.
    pub fn source(&self) -> &RetentionSource {
        &self.source
    }

    /// What is to be done about a lifetime that is in force; none if it cannot be understood.
    pub(super) fn step(&self, in_force: Option<Duration>) -> Step {
        let may_shorten = self.source == RetentionSource::Setting;
        match in_force {
            Some(in_force) if in_force == self.period() => Step::Leave,
            Some(in_force) if may_shorten || in_force < self.period() => Step::Modify,
            None if may_shorten => Step::Modify,
            _ => Step::Refuse,
        }
    }
}

/// What a retention does to the lifetime in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Leave,
    Modify,
    /// A fallback would shorten it.
    Refuse,
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            RetentionSource::Setting => write!(f, "{} days, as the setting says", self.days),
            RetentionSource::Missing => write!(f, "{} days by default, as there is no setting", self.days),
            RetentionSource::Invalid(setting) => write!(
                f,
                "{} days by default, as the setting {setting:?} is no whole number of days from {} to {}",
                self.days,
                DAYS.start(),
                DAYS.end()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_whole_days_up_to_ten_years_and_nothing_else() {
        for (setting, days) in [("1", 1), ("3650", 3650), (" 30 ", 30), ("\t7\n", 7), ("007", 7)] {
            let retention = Retention::from_days(Some(setting));
            assert_eq!((retention.days(), retention.source()), (days, &RetentionSource::Setting), "{setting:?}");
        }
        for setting in [
            "0",
            "3651",
            "30d",
            "",
            " ",
            "-1",
            "+30",
            "1e2",
            "1.0",
            "30,5",
            "0x1e",
            "٣",
            "３０",
            "1 0",
            "NaN",
            "inf",
            "4294967326",
            "99999999999999999999",
        ] {
            let retention = Retention::from_days(Some(setting));
            assert_eq!(retention.days(), 180, "{setting:?}");
            assert_eq!(retention.source(), &RetentionSource::Invalid(setting.to_owned()));
            assert!(retention.to_string().contains(&format!("{setting:?}")), "{retention}");
        }
        let missing = Retention::from_days(None);
        assert_eq!((missing.days(), missing.source()), (180, &RetentionSource::Missing));
        assert_eq!(missing.to_string(), "180 days by default, as there is no setting");
        assert_eq!(Retention::from_days(Some("30")).to_string(), "30 days, as the setting says");
    }

    #[test]
    fn only_a_setting_shortens_a_lifetime() {
        let days = |days: u64| Some(Duration::from_secs(days * 86_400));
        let (setting, fallback) = (Retention::from_days(Some("180")), Retention::from_days(Some("18O")));
        for (in_force, by_setting, by_fallback) in [
            (days(180), Step::Leave, Step::Leave),
            (days(179), Step::Modify, Step::Modify),
            (days(0), Step::Modify, Step::Modify),
            (days(181), Step::Modify, Step::Refuse),
            (days(3650), Step::Modify, Step::Refuse),
            // Nothing is deleted by it so far.
            (None, Step::Modify, Step::Refuse),
        ] {
            assert_eq!((setting.step(in_force), fallback.step(in_force)), (by_setting, by_fallback), "{in_force:?}");
        }
    }
}
