//! What a value that is no date was probably meant as. Never decides what expires: it is only told.

use mongodb::bson::{DateTime, RawBsonRef};

use crate::number::Number;

/// A value that stands for an instant in another form than a BSON Date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lookalike {
    /// Text as ISO 8601 has it: `2026-01-31`, perhaps with a time and a zone.
    Iso,
    /// Text that names a month or begins with the year.
    DateText,
    /// Text of which nobody can say whether the day or the month comes first.
    AmbiguousText,
    /// A number since 1970.
    Epoch(Unit),
    /// The same, as text.
    EpochText(Unit),
}

/// What a number since 1970 counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unit {
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
}

/// From 1980 to 2200 the four units' numbers do not overlap: the magnitude tells them apart.
pub(crate) const PLAUSIBLE_SECONDS: std::ops::Range<i64> = 315_532_800..7_258_118_400;

/// The longest text that is looked at.
const LONGEST_TEXT: usize = 64;

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

impl Unit {
    const ALL: [Unit; 4] = [Unit::Seconds, Unit::Milliseconds, Unit::Microseconds, Unit::Nanoseconds];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Unit::Seconds => "seconds",
            Unit::Milliseconds => "milliseconds",
            Unit::Microseconds => "microseconds",
            Unit::Nanoseconds => "nanoseconds",
        }
    }

    pub(crate) const fn per_second(self) -> i64 {
        match self {
            Unit::Seconds => 1,
            Unit::Milliseconds => 1_000,
            Unit::Microseconds => 1_000_000,
            Unit::Nanoseconds => 1_000_000_000,
        }
    }

    fn of(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| PLAUSIBLE_SECONDS.contains(&number.div_euclid(unit.per_second())))
    }

    fn instant(self, number: i64) -> DateTime {
        DateTime::from_millis(match self {
            Unit::Seconds => number * 1_000,
            finer => number.div_euclid(finer.per_second() / 1_000),
        })
    }
}

impl Lookalike {
    /// None for a date, and for what stands for no instant between 1980 and 2200.
    pub(crate) fn of(value: RawBsonRef<'_>) -> Option<Self> {
        match value {
            RawBsonRef::String(text) => of_text(text.trim()),
            number => Unit::of(whole(number)?).map(Lookalike::Epoch),
        }
    }
}

/// What a number would be as an instant, in words; none for what is no such number.
pub(super) fn number_in_words(value: RawBsonRef<'_>) -> Option<String> {
    let number = whole(value)?;
    let unit = Unit::of(number)?;
    Some(format!("as {} since 1970 it is {}", unit.name(), super::instant(unit.instant(number))))
}

fn whole(value: RawBsonRef<'_>) -> Option<i64> {
    match Number::from_raw(value)? {
        Number::Double(number) => Number::Double(number.trunc()).as_i64(),
        number => number.as_i64(),
    }
}

fn of_text(text: &str) -> Option<Lookalike> {
    if text.len() > LONGEST_TEXT || !text.is_ascii() {
        return None;
    }
    if is_iso(text.as_bytes()) {
        return Some(Lookalike::Iso);
    }
    if let Ok(number) = text.parse::<i64>()
        && let Some(unit) = Unit::of(number)
    {
        return Some(Lookalike::EpochText(unit));
    }
    other_date(text)
}

/// `2026-01-31`, and then nothing or a time of day that begins as one.
fn is_iso(text: &[u8]) -> bool {
    let shaped = |text: &[u8], shape: &[u8]| {
        text.len() >= shape.len()
            && text.iter().zip(shape).all(|(c, s)| if *s == b'0' { c.is_ascii_digit() } else { c == s })
    };
    let Some((date, time)) = text.split_at_checked(10) else { return false };
    shaped(date, b"0000-00-00")
        && (time.is_empty() || shaped(time, b"T00:00") || shaped(time, b" 00:00") || shaped(time, b"t00:00"))
}

/// `Sat, 31 Jan 2026 10:00:00 GMT`, `2026/01/31`, `20260131`, `31.01.2026`.
fn other_date(text: &str) -> Option<Lookalike> {
    let words = || text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let is_number = |word: &&str| word.bytes().all(|b| b.is_ascii_digit());
    let is_year = |word: &str| word.len() == 4 && (word.starts_with("19") || word.starts_with("20"));
    let is_month = |word: &str| {
        let word = word.to_ascii_lowercase();
        MONTHS.iter().any(|month| word.starts_with(month))
    };
    let compact = |word: &str| {
        word.len() >= 8
            && word.as_bytes()[..8].iter().all(u8::is_ascii_digit)
            && is_year(&word[..4])
            && (1..=12).contains(&word[4..6].parse().unwrap_or(0))
            && (1..=31).contains(&word[6..8].parse().unwrap_or(0))
    };
    let first = words().next()?;
    let numbers = words().filter(is_number).count();
    let year = words().filter(is_number).any(is_year);
    match () {
        () if compact(first) && (first.len() == 8 || first[8..].starts_with('T')) => Some(Lookalike::DateText),
        () if year && numbers >= 2 && words().any(is_month) => Some(Lookalike::DateText),
        () if is_year(first) && is_number(&first) && numbers >= 3 => Some(Lookalike::DateText),
        () if year && numbers >= 3 => Some(Lookalike::AmbiguousText),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{Bson, RawBson};

    use super::*;

    fn of(value: impl Into<Bson>) -> Option<Lookalike> {
        Lookalike::of(RawBson::try_from(value.into()).unwrap().as_raw_bson_ref())
    }

    #[test]
    fn numbers_are_told_apart_by_their_magnitude() {
        for (number, unit) in [
            (1_527_206_400, Unit::Seconds),
            (1_527_206_400_000, Unit::Milliseconds),
            (1_527_206_400_000_000, Unit::Microseconds),
            (1_527_206_400_000_000_000, Unit::Nanoseconds),
        ] {
            assert_eq!(of(number), Some(Lookalike::Epoch(unit)));
            assert_eq!(of(number.to_string()), Some(Lookalike::EpochText(unit)));
            assert_eq!(unit.instant(number), DateTime::from_millis(1_527_206_400_000));
        }
        assert_eq!(of(1_527_206_400), Some(Lookalike::Epoch(Unit::Seconds)));
        assert_eq!(of(1_527_206_400_123.75), Some(Lookalike::Epoch(Unit::Milliseconds)));
        for number in [0_i64, -1, 3600, 86_400, 2_592_000, 20_000_000_000, i64::MAX, i64::MIN] {
            assert_eq!(of(number), None, "{number}");
        }
        assert_eq!(of(f64::NAN), None);
        assert_eq!(of(f64::INFINITY), None);
    }

    #[test]
    fn text_that_is_a_date_is_told_from_text_that_is_none() {
        for text in ["2020-01-01", "2020-01-01T00:00:00.000Z", "2020-01-01 10:00:00", "2020-01-01T10:00+02:00"] {
            assert_eq!(of(text), Some(Lookalike::Iso), "{text}");
        }
        for text in ["Wed, 01 Jan 2020 00:00:00 GMT", "January 5, 2020", "2020/01/02", "20200102", "20200102T030405Z"] {
            assert_eq!(of(text), Some(Lookalike::DateText), "{text}");
        }
        for text in ["01/02/2020", "31.12.2019 10:00"] {
            assert_eq!(of(text), Some(Lookalike::AmbiguousText), "{text}");
        }
        for text in ["", "soon", "2020", "2020-01", "1.2.3", "30d", "deadbeef00", "ä2020-01-01", "99999999"] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(of("2020-01-01".repeat(9)), None);
    }
}
