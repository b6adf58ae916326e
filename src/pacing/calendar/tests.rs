use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn calendar(windows: &[&str]) -> Calendar {
    Calendar::from(windows.iter().map(|window| window.parse().unwrap()).collect::<Vec<ClosedWindow>>())
}

fn at(text: &str) -> DateTime {
    DateTime::parse_rfc3339_str(text).unwrap()
}

/// When the windows are closed, in UTC.
fn closed(windows: &[&str], from: &str, until: &str) -> Vec<String> {
    let show = |at: DateTime| at.try_to_rfc3339_string().unwrap()[5..16].replace('T', " ");
    let spans = calendar(windows).closed_between(at(from), at(until));
    spans.into_iter().map(|(start, end)| format!("{} to {}", show(start), show(end))).collect()
}

#[test]
fn a_window_holds_by_the_clock_of_its_zone() {
    let week = ("2026-01-05T00:00:00Z", "2026-01-12T00:00:00Z");
    assert_eq!(
        closed(&["Mon-Wed,Fri 09:00-17:00 Europe/Berlin"], week.0, week.1),
        [
            "01-05 08:00 to 01-05 16:00",
            "01-06 08:00 to 01-06 16:00",
            "01-07 08:00 to 01-07 16:00",
            "01-09 08:00 to 01-09 16:00"
        ]
    );
    assert_eq!(closed(&["Sat 22:00-06:00"], week.0, week.1), ["01-10 22:00 to 01-11 06:00"]);
    // From the evening before, and up to the end of what is looked at.
    assert_eq!(
        closed(&["Sun 22:00-06:00"], week.0, week.1),
        ["01-05 00:00 to 01-05 06:00", "01-11 22:00 to 01-12 00:00"]
    );
    assert_eq!(closed(&["Sat,Sun 00:00-24:00"], week.0, week.1), ["01-10 00:00 to 01-12 00:00"]);
    // Five and a half hours ahead of UTC.
    assert_eq!(
        closed(&["Mon 00:00-12:00 Asia/Kolkata"], week.0, week.1),
        ["01-05 00:00 to 01-05 06:30", "01-11 18:30 to 01-12 00:00"]
    );
}

#[test]
fn windows_that_touch_or_overlap_are_one() {
    let closed = closed(
        &["Mon 00:00-06:00", "Mon 05:00-08:00", "Mon 08:00-09:00", "Mon 10:00-11:00"],
        "2026-01-05T00:00:00Z",
        "2026-01-06T00:00:00Z",
    );
    assert_eq!(closed, ["01-05 00:00 to 01-05 09:00", "01-05 10:00 to 01-05 11:00"]);
}

/// In Berlin 02:00 to 03:00 is left out on 29 March 2026, at 01:00 UTC, and comes twice on 25 October, until 01:00 UTC; in New
/// York on 8 March, at 07:00 UTC, and on 1 November, 01:00 to 02:00, until 06:00 UTC. On Lord Howe the clock goes forward by
/// half an hour, from 02:00 on 4 October, at 15:30 UTC, and back from 02:00 to 01:30 on 5 April, at 15:00 UTC.
#[test]
fn hours_left_out_are_not_there_and_hours_shown_twice_are_closed_both_times() {
    for (window, date, expected) in [
        ("01:00-04:00 Europe/Berlin", "2026-03-29", &["03-29 00:00 to 03-29 02:00"][..]),
        ("02:15-02:45 Europe/Berlin", "2026-03-29", &[]),
        ("02:00-03:00 Europe/Berlin", "2026-03-29", &[]),
        ("02:30-04:00 Europe/Berlin", "2026-03-29", &["03-29 01:00 to 03-29 02:00"]),
        ("01:30-02:30 Europe/Berlin", "2026-03-29", &["03-29 00:30 to 03-29 01:00"]),
        ("03:00-04:00 Europe/Berlin", "2026-03-29", &["03-29 01:00 to 03-29 02:00"]),
        ("01:00-04:00 Europe/Berlin", "2026-10-25", &["10-25 00:00 to 10-25 03:00"]),
        ("02:30-04:00 Europe/Berlin", "2026-10-25", &["10-25 00:30 to 10-25 03:00"]),
        ("02:00-02:30 Europe/Berlin", "2026-10-25", &["10-25 00:00 to 10-25 01:30"]),
        ("01:00-02:00 Europe/Berlin", "2026-10-25", &[]),
        ("03:00-04:00 Europe/Berlin", "2026-10-25", &["10-25 02:00 to 10-25 03:00"]),
        ("01:30-03:30 America/New_York", "2026-03-08", &["03-08 06:30 to 03-08 07:30"]),
        ("01:30-03:30 America/New_York", "2026-11-01", &["11-01 05:30 to 11-01 08:30"]),
        ("01:00-03:00 Australia/Lord_Howe", "2026-10-03", &["10-03 14:30 to 10-03 16:00"]),
        ("01:00-03:00 Australia/Lord_Howe", "2026-04-04", &["04-04 14:00 to 04-04 16:30"]),
    ] {
        let (from, until) = (format!("{date}T00:00:00Z"), format!("{date}T22:00:00Z"));
        assert_eq!(closed(&[window], &from, &until), expected, "{window} on {date}");
    }
}

#[test]
fn a_day_that_a_zone_leaves_out_closes_nothing_twice() {
    // Samoa went from Thursday, 29 December 2011, to Saturday.
    let closed = closed(&["12:00-13:00 Pacific/Apia"], "2011-12-29T00:00:00Z", "2012-01-01T00:00:00Z");
    assert_eq!(closed, ["12-29 22:00 to 12-29 23:00", "12-30 22:00 to 12-30 23:00", "12-31 22:00 to 12-31 23:00"]);
}

#[test]
fn it_is_known_until_when_it_is_closed() {
    let calendar = calendar(&["Mon-Fri 09:00-17:00", "Sat,Sun 00:00-24:00", "Mon 00:00-09:00"]);
    assert_eq!(calendar.closed_until(at("2026-01-09T12:00:00Z")), Some(at("2026-01-09T17:00:00Z")));
    assert_eq!(calendar.closed_until(at("2026-01-09T17:00:00Z")), None);
    assert_eq!(calendar.closed_until(at("2026-01-10T00:00:00Z")), Some(at("2026-01-12T17:00:00Z")));
    assert_eq!(Calendar::default().closed_until(DateTime::from_millis(0)), None);
}

#[test]
fn what_is_written_is_read_and_shown_in_one_way() {
    for (text, shown) in [
        ("09:00-17:00", "09:00-17:00 UTC"),
        ("mon-FRI 9:00-17:30 europe/berlin", "Mon-Fri 09:00-17:30 Europe/Berlin"),
        ("Sun,Sat 00:00-24:00 UTC", "Sat,Sun 00:00-24:00 UTC"),
        ("Fri-Mon 22:00-00:00", "Mon,Fri-Sun 22:00-24:00 UTC"),
        ("Mon, Wed,Thu, Fri-Fri 22:00-06:00", "Mon,Wed-Fri 22:00-06:00 UTC"),
        ("Mon-Sun  01:00-02:00   Asia/Kathmandu", "01:00-02:00 Asia/Kathmandu"),
        ("Tue-Mon 01:00-02:00", "01:00-02:00 UTC"),
    ] {
        let window: ClosedWindow = text.parse().unwrap();
        assert_eq!(window.to_string(), shown);
        assert_eq!(shown.parse::<ClosedWindow>().unwrap(), window);
    }
}

#[test]
fn what_cannot_be_read_says_what_is_wrong_and_what_is_expected() {
    for (text, words) in [
        ("", "Mon-Fri 09:00-17:00 Europe/Berlin"),
        ("Mon-Fri", "is no closed window"),
        ("09:00", "is no closed window"),
        ("09:00-17:00 Europe Berlin", "is no closed window"),
        ("25:00-26:00", "25:00 is no time of day; one is written HH:MM"),
        ("24:01-02:00", "24:01 is no time of day"),
        ("09:60-10:00", "09:60 is no time of day"),
        ("09:00-10", "10 is no time of day"),
        ("9:0-10:00", "9:0 is no time of day"),
        ("+9:00-10:00", "+9:00 is no time of day"),
        ("09:00:00-10:00:00", "09:00:00 is no time of day"),
        ("09:00-10:00-11:00", "10:00-11:00 is no time of day"),
        ("99999:00-10:00", "99999:00 is no time of day"),
        ("09:00-09:00", "has no length; one of a whole day is written 00:00-24:00"),
        ("24:00-06:00", "has no length"),
        ("Mon-Fry 09:00-10:00", "\"Fry\" is no weekday; weekdays are written Mon-Fri or Sat,Sun"),
        ("Mon,,Tue 09:00-10:00", "\"\" is no weekday"),
        ("Monday 09:00-10:00", "\"Monday\" is no weekday"),
        ("09:00-10:00 Europe/Bärlin", "Europe/Bärlin is no time zone that is known"),
        ("09:00-10:00 +02:00", "+02:00 is no time zone"),
    ] {
        let refusal = text.parse::<ClosedWindow>().unwrap_err();
        assert_eq!(refusal.code(), Code::BadValue);
        assert!(refusal.message().contains(words), "{text}: {refusal}");
    }
}

#[test]
fn next_to_no_time_open_is_refused() {
    for windows in [
        &["00:00-24:00"][..],
        &["00:00-12:00", "12:00-24:00"],
        &["Mon-Sat 00:00-24:00", "Sun 08:00-24:00"],
        // Together with another zone.
        &["01:00-00:00", "00:00-12:00 America/New_York"],
    ] {
        let refusal = calendar(windows).check().unwrap_err();
        assert!(refusal.message().contains("hours of a week open"), "{refusal}");
    }
    assert!(
        calendar(&["Mon-Sat 00:00-24:00", "Sun 08:00-24:00"]).check().unwrap_err().message().contains("only 8.0 hours")
    );
    for windows in [&[][..], &["Mon-Sat 00:00-24:00", "Sun 09:00-24:00"], &["02:00-00:00"]] {
        calendar(windows).check().unwrap();
    }
    assert!(calendar(&["01:00-02:00"; 65]).check().unwrap_err().message().contains("at most 64"));
}

#[test]
fn the_ends_of_time_are_open_and_soon_reckoned() {
    let calendar = calendar(&["Mon-Fri 09:00-17:00 Europe/Berlin", "22:00-06:00 America/New_York"]);
    for (from, until) in [
        (DateTime::MIN, DateTime::MAX),
        (DateTime::MAX, DateTime::MIN),
        (DateTime::MIN, DateTime::from_millis(0)),
        (DateTime::from_millis(0), DateTime::MAX),
        (DateTime::MAX, DateTime::MAX),
        (DateTime::from_millis(253_402_207_200_000 - 86_400_000), DateTime::from_millis(253_402_207_200_000 + DAY)),
        (DateTime::from_millis(-377_705_023_201_000 - DAY), DateTime::from_millis(-377_705_023_201_000 + DAY)),
    ] {
        let open = calendar.open_between(from, until);
        assert_eq!(open.first().map(|span| span.0 >= from), (from < until).then_some(true));
        calendar.closed_until(from);
    }
    assert_eq!(calendar.closed_until(DateTime::MAX), None);
    assert_eq!(calendar.closed_until(DateTime::MIN), None);
}

fn window() -> impl Strategy<Value = ClosedWindow> {
    let zones = [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Asia/Kolkata",
        "Australia/Lord_Howe",
        "Pacific/Apia",
        "Africa/Cairo",
    ];
    (1_u8..128, 0_i16..1440, 1_i16..1440, 0..zones.len()).prop_map(move |(days, from, length, zone)| {
        let until = (from + length) % 1440;
        let names = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
        let days: Vec<&str> = (0..7).filter(|day| days & (1 << day) != 0).map(|day| names[day]).collect();
        let (days, zone) = (days.join(","), zones[zone]);
        format!("{days} {}:{:02}-{}:{:02} {zone}", from / 60, from % 60, until / 60, until % 60).parse().unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn what_is_shown_is_what_was_meant(window in window()) {
        prop_assert_eq!(window.to_string().parse::<ClosedWindow>(), Ok(window));
    }

    #[test]
    fn open_and_closed_make_up_the_time_and_never_meet(
        windows in prop::collection::vec(window(), 0..4),
        // Any week of 2025 to 2027, which has every change of clocks.
        from in 1_735_689_600_000_i64..1_830_297_600_000,
        length in 1..10 * DAY,
        odd in prop::collection::vec(0..10 * DAY, 20),
    ) {
        let calendar = Calendar::from(windows);
        let (from, until) = (DateTime::from_millis(from), later(DateTime::from_millis(from), length));
        let open = calendar.open_between(from, until);
        let closed = calendar.closed_between(from, until);

        // In turn, without a gap.
        let mut all: Vec<_> = open.iter().chain(&closed).copied().collect();
        all.sort_unstable();
        prop_assert_eq!((all[0].0, all[all.len() - 1].1), (from, until));
        prop_assert!(all.windows(2).all(|two| two[0].1 == two[1].0 && two[0].0 < two[0].1));
        prop_assert!(open.windows(2).all(|two| two[0].1 < two[1].0));

        // At each instant, those at the edges above all.
        let edges = all.iter().flat_map(|(start, end)| [-1, 0, 1].map(|by| [later(*start, by), later(*end, by)]));
        let mut instants: BTreeSet<DateTime> = edges.flatten().collect();
        instants.extend(odd.iter().map(|by| later(from, *by % length)));
        for at in instants.into_iter().filter(|at| (from..until).contains(at)) {
            let is_open = open.iter().any(|(start, end)| *start <= at && at < *end);
            prop_assert_eq!(calendar.closed_until(at).is_none(), is_open, "{}", at);
        }
        for (start, end) in closed.iter().filter(|(_, end)| *end < until) {
            prop_assert_eq!(calendar.closed_until(*start), Some(*end));
        }
    }
}
