//! Durations, instants and times of the week, as they are typed and as they are shown.

use std::time::Duration;

use ttl_index::{
    ClosedWindow,
    bson::{Bson, DateTime},
};

use super::json;

/// `90`, `90s`, `36h`, `30d`. What is too long to be counted becomes the longest there is, which is refused where it
/// matters.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.starts_with('-') {
        return Err("a duration cannot be negative".to_owned());
    }
    let bare = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let with_unit = if bare { format!("{text}s") } else { text.to_owned() };
    match humantime::parse_duration(&with_unit) {
        Err(humantime::DurationError::NumberOverflow) if !text.contains('.') => Ok(Duration::MAX),
        other => other.map_err(|error| format!("{error}; a duration is written 90, 90s, 36h or 30d")),
    }
}

/// As [`duration`] reads it, in the largest unit that leaves no rest.
pub(crate) fn in_words(duration: Duration) -> String {
    if duration.subsec_nanos() > 0 {
        return format!("{}s", duration.as_secs_f64());
    }
    let seconds = duration.as_secs();
    let units = [(86_400, "d"), (3600, "h"), (60, "m")];
    match units.iter().find(|(unit, _)| seconds != 0 && seconds.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", seconds / unit),
        None => format!("{seconds}s"),
    }
}

/// `2013-07-01T00:00:00Z`, or a date in Extended JSON as the reports have it.
pub(crate) fn instant(text: &str) -> Result<DateTime, String> {
    if text.trim_start().starts_with('{') {
        return match json::value(text.as_bytes())? {
            Bson::DateTime(date) => Ok(date),
            _ => Err("it is no date".to_owned()),
        };
    }
    DateTime::parse_rfc3339_str(text).map_err(|_| "an instant is written 2013-07-01T00:00:00Z".to_owned())
}

/// As [`instant`] reads it, where the calendar reaches that far.
pub(crate) fn show(date: DateTime) -> String {
    date.try_to_rfc3339_string().unwrap_or_else(|_| date.to_string())
}

/// `Mon-Fri 09:00-17:00 Europe/Berlin`.
pub(crate) fn window(text: &str) -> Result<ClosedWindow, String> {
    text.parse().map_err(|refusal: ttl_index::Refusal| refusal.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_and_without_a_unit() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("36h", 129_600), ("30d", 2_592_000), ("1h 30m", 5400)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("99999999999999999999999"), Ok(Duration::MAX));
        for text in ["", "-1", "-1s", "s", "1x", "1e3", ".", "1..5s", "∞", "NaN"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        for (seconds, text) in [(0, "0s"), (90, "90s"), (120, "2m"), (129_600, "36h"), (2_592_000, "30d")] {
            assert_eq!(in_words(Duration::from_secs(seconds)), text);
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
        }
        assert_eq!(duration(&in_words(Duration::from_millis(90_500))), Ok(Duration::from_millis(90_500)));
        let date = DateTime::from_millis(1_372_636_800_000);
        assert_eq!(show(date), "2013-07-01T00:00:00Z");
        assert_eq!(instant(&show(date)), Ok(date));
        assert_eq!(instant(r#"{"$date":"2013-07-01T00:00:00Z"}"#), Ok(date));
        for text in ["", "yesterday", "2013-07-01", "{}", "{"] {
            assert!(instant(text).is_err(), "{text}");
        }
    }
}
