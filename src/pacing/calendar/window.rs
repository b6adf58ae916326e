//! A closed window, as it is written and when it holds.

use std::{fmt, str::FromStr, sync::LazyLock};

use jiff::{
    Timestamp,
    civil::Date,
    tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase},
};
use mongodb::bson::DateTime;

use crate::error::{Code, Refusal};

/// What a day has, and where the last one ends.
const MINUTES: i16 = 24 * 60;

const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// The zones are those of the build, so that every process and every container knows the same.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A time of day at which nothing is deleted in the background, on all days of the week or on some.
///
/// Written `[WEEKDAYS] HH:MM-HH:MM [ZONE]`: weekdays such as `Mon-Fri` or `Sat,Sun`, all by default, and a time zone of
/// IANA such as `Europe/Berlin`, `UTC` by default. The end is not part of it and may be `24:00`. A window that ends before
/// it begins goes over midnight; its weekdays are those on which it begins.
///
/// # Guarantees
///
/// The clock on the wall decides: the window holds from the first instant at which that clock shows the beginning up to the
/// last at which it shows the end. Where the clock goes back, hours that it shows twice are closed both times, and between.
/// Hours that are left out when it goes forward are not there: what would begin or end in them does at the jump.
///
/// # Errors
///
/// Refused ([`Code::BadValue`]) with what is wrong and what is expected: a time that is none, a window without length, an
/// unknown weekday or zone. Zones are those that were known when this library was built.
///
/// ```
/// use ttl_index::ClosedWindow;
///
/// let office: ClosedWindow = "Mon-Fri 09:00-17:00 Europe/Berlin".parse()?;
/// assert_eq!(office.to_string(), "Mon-Fri 09:00-17:00 Europe/Berlin");
/// assert_eq!("22:00-6:00".parse::<ClosedWindow>()?.to_string(), "22:00-06:00 UTC");
/// assert!("25:00-26:00".parse::<ClosedWindow>().unwrap_err().message().starts_with("25:00 is no time of day"));
/// # Ok::<(), ttl_index::Refusal>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedWindow {
    /// On which days it begins, from Monday.
    days: [bool; 7],
    /// Minutes after midnight, 0 to 1439.
    from: i16,
    /// The same, 1 to 1440.
    until: i16,
    zone: TimeZone,
}

impl FromStr for ClosedWindow {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let at = words.iter().position(|word| word.contains(':'));
        let Some((at, (from, until))) = at.and_then(|at| Some((at, words[at].split_once('-')?))) else {
            return Err(malformed(text));
        };
        let zone = match &words[at + 1..] {
            [] => "UTC",
            [zone] => zone,
            _ => return Err(malformed(text)),
        };
        let (from, until) = (minute(from)?, minute(until)?);
        if from == until || from == MINUTES {
            return Err(refusal(format!(
                "the closed window {} has no length; one of a whole day is written 00:00-24:00",
                words[at]
            )));
        }
        let zone = ZONES.get(zone).map_err(|_| {
            refusal(format!("{zone} is no time zone that is known; one is written Europe/Berlin, as IANA names it"))
        })?;
        let days = if at == 0 { [true; 7] } else { weekdays(&words[..at].concat())? };
        Ok(Self { days, from, until: if until == 0 { MINUTES } else { until }, zone })
    }
}

fn refusal(message: String) -> Refusal {
    Refusal::new(Code::BadValue, message)
}

fn malformed(text: &str) -> Refusal {
    refusal(format!(
        "{text:?} is no closed window; one is written [WEEKDAYS] HH:MM-HH:MM [ZONE], such as Mon-Fri 09:00-17:00 \
         Europe/Berlin"
    ))
}

/// Minutes after midnight.
fn minute(text: &str) -> Result<i16, Refusal> {
    let number = |digits: &str, lengths: &[usize]| {
        let plain = lengths.contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse::<i16>().ok()).flatten()
    };
    let parsed = text.split_once(':').and_then(|(hours, minutes)| {
        let (hours, minutes) = (number(hours, &[1, 2])?, number(minutes, &[2])?);
        (minutes < 60).then_some(hours * 60 + minutes).filter(|minute| *minute <= MINUTES)
    });
    parsed.ok_or_else(|| refusal(format!("{text} is no time of day; one is written HH:MM, from 00:00 to 24:00")))
}

/// `Mon-Fri`, `Sat,Sun`, `Fri-Mon,Wed`.
fn weekdays(text: &str) -> Result<[bool; 7], Refusal> {
    let day = |name: &str| {
        WEEKDAYS.iter().position(|day| day.eq_ignore_ascii_case(name)).ok_or_else(|| {
            refusal(format!("{name:?} is no weekday; weekdays are written Mon-Fri or Sat,Sun, from Mon to Sun"))
        })
    };
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (mut at, last) = (day(first)?, day(last)?);
        days[at] = true;
        while at != last {
            at = (at + 1) % 7;
            days[at] = true;
        }
    }
    Ok(days)
}

impl fmt::Display for ClosedWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        let mut at = if self.days == [true; 7] { 7 } else { 0 };
        while at < 7 {
            let run = self.days[at..].iter().take_while(|day| **day).count();
            if run > 0 {
                write!(f, "{comma}{}", WEEKDAYS[at])?;
                comma = ",";
            }
            if run > 1 {
                write!(f, "{}{}", if run > 2 { "-" } else { "," }, WEEKDAYS[at + run - 1])?;
            }
            at += run.max(1);
        }
        let space = if comma.is_empty() { "" } else { " " };
        let (from, until) = (self.from, self.until);
        write!(f, "{space}{:02}:{:02}-{:02}:{:02} ", from / 60, from % 60, until / 60, until % 60)?;
        f.write_str(self.zone.iana_name().unwrap_or("UTC"))
    }
}

impl ClosedWindow {
    /// When it holds within `[from, until)`, in milliseconds; a little before and after may be there as well.
    pub(super) fn spans(&self, from: DateTime, until: DateTime) -> impl Iterator<Item = (i64, i64)> + '_ {
        // A window is over by the end of the day after; the day more is for zones that left one out.
        let first = self.date(from);
        let first = first.yesterday().and_then(Date::yesterday).unwrap_or(first);
        let last = self.date(until);
        let dates =
            std::iter::successors(Some(first), |date| date.tomorrow().ok()).take_while(move |date| *date <= last);
        dates.filter_map(|date| {
            let day = usize::try_from(date.weekday().to_monday_zero_offset()).unwrap_or_default();
            self.days[day].then(|| self.span(date)).flatten().filter(|(start, end)| start < end)
        })
    }

    fn date(&self, at: DateTime) -> Date {
        let millis = at.timestamp_millis();
        let (first, last) = (Timestamp::MIN.as_millisecond(), Timestamp::MAX.as_millisecond());
        self.zone.to_datetime(Timestamp::from_millisecond(millis.clamp(first, last)).unwrap_or_default()).date()
    }

    /// That which begins on this date; none where the calendar ends.
    fn span(&self, date: Date) -> Option<(i64, i64)> {
        let ends_on = if self.until > self.from { date } else { date.tomorrow().ok()? };
        let (start, _) = self.shown(date, self.from)?;
        let (_, end) = self.shown(ends_on, self.until - 1)?;
        Some((start, end))
    }

    /// From when to when the clock shows this minute; where it is left out, the instant of the jump twice.
    fn shown(&self, date: Date, minute: i16) -> Option<(i64, i64)> {
        let (hour, minute) = (i8::try_from(minute / 60).ok()?, i8::try_from(minute % 60).ok()?);
        let at = self.zone.to_ambiguous_timestamp(date.at(hour, minute, 0, 0));
        if let AmbiguousOffset::Gap { .. } = at.offset() {
            let jump = self.zone.following(at.earlier().ok()?).next()?.timestamp().as_millisecond();
            return Some((jump, jump));
        }
        let (first, last) = (at.earlier().ok()?, at.later().ok()?);
        Some((first.as_millisecond(), last.as_millisecond() + 60_000))
    }
}
