//! `plan --trace`: the planner played on loads, and held to what it promises.

#![allow(clippy::float_cmp)] // nothing is exactly nothing

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use ttl_index::{Simulation, Trace};

use crate::support::program::{Program, Run};

/// Nothing is gained by going slower than this.
const FLOOR: f64 = 50.0;
const DAY: u64 = 86_400;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/traces").join(name).with_extension("csv")
}

fn trace(name: &str) -> Trace {
    let text = std::fs::File::open(file(name)).unwrap();
    Trace::parse(std::io::BufReader::new(text)).unwrap()
}

/// As a shell would run it.
fn plan(trace: &str, options: &[&str]) -> Run {
    Program::alone().run_with_input(&[&["plan", "--trace", "-"], options].concat(), trace)
}

/// Its lines, the last one apart.
fn planned(trace: &str, options: &[&str]) -> (Vec<Value>, Value) {
    let run = plan(trace, &[options, &["--json"]].concat());
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    let mut lines = run.lines();
    let summary = lines.pop().unwrap();
    (lines, summary)
}

/// Everything is gone, as the minutes say too, and nothing late.
#[track_caller]
fn assert_on_time(trace: &Trace, simulation: &Simulation) {
    let summary = &simulation.summary;
    assert_eq!((summary.late, summary.documents, summary.impossible), (0, trace.documents(), None));
    assert!(summary.max_age <= DAY && summary.finished.is_some(), "{summary:?}");
    let last = simulation.minutes.last().unwrap();
    assert_eq!((last.deleted, last.backlog, last.oldest_age), (trace.documents(), 0, 0));
    let mut before = 0;
    for (minute, t) in simulation.minutes.iter().zip((60..).step_by(60)) {
        #[allow(clippy::cast_precision_loss)]
        let rate = (minute.deleted - before) as f64 / 60.0;
        assert!(minute.t == t && minute.oldest_age <= DAY, "{minute:?}");
        assert!((minute.rate - rate).abs() < 1e-9 && rate <= summary.peak * 1.001, "{minute:?} of {summary:?}");
        before = minute.deleted;
    }
}

/// The peak is at most so many times as high as it must be; nothing is late.
#[track_caller]
fn assert_peak(name: &str, forecast_scale: f64, most: f64) {
    let trace = trace(name);
    let simulation = trace.simulate().forecast_scale(forecast_scale).run().unwrap();
    assert_on_time(&trace, &simulation);
    let summary = &simulation.summary;
    let least = summary.optimum_peak.unwrap().max(FLOOR);
    println!(
        "{name}, forecast times {forecast_scale}: {:.1}/s, {:.3} of the least",
        summary.peak,
        summary.peak / least
    );
    assert!(summary.peak <= most * least, "{:.1}/s, and {least:.1}/s is possible", summary.peak);
}

/// A test of each trace.
macro_rules! traces {
    ($($name:ident)*) => { $(
        mod $name {
            #[test]
            fn the_peak_is_the_lowest_that_is_possible() {
                super::assert_peak(stringify!($name), 1.0, 1.02);
            }

            #[test]
            fn with_half_of_it_foreseen_nothing_is_late_and_the_peak_is_little_higher() {
                super::assert_peak(stringify!($name), 0.5, 1.25);
            }

            #[test]
            fn with_twice_of_it_foreseen_nothing_is_late_and_the_peak_is_bounded() {
                super::assert_peak(stringify!($name), 2.0, 1.6);
            }
        }
    )* };
}

traces! { burst two_bursts uniform diurnal heavy_tailed ramp first_activation }

#[test]
fn every_trace_is_tested() {
    let folder = file("x");
    let files = folder.parent().unwrap().read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<String> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "csv"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["burst", "diurnal", "first_activation", "heavy_tailed", "ramp", "two_bursts", "uniform"]);
}

#[test]
fn nothing_is_deleted_while_it_is_closed_and_nothing_is_late_for_it() {
    for name in ["diurnal", "first_activation"] {
        let trace = trace(name);
        let closed = "08:00-18:00 UTC".parse().unwrap();
        let simulation = trace.simulate().closed(closed).run().unwrap();
        assert_on_time(&trace, &simulation);
        let hour = |t: u64| (t - 1) % DAY / 3600;
        for minute in simulation.minutes.iter().filter(|minute| (8..18).contains(&hour(minute.t))) {
            assert_eq!(minute.rate, 0.0, "{minute:?}");
        }
        let summary = &simulation.summary;
        let least = summary.optimum_peak.unwrap();
        assert!(summary.peak <= 1.02 * least, "{name}: {:.1}/s, and {least:.1}/s is possible", summary.peak);
    }
}

#[test]
fn a_rate_that_is_too_low_is_told_with_numbers_that_come_true() {
    let trace = trace("first_activation");
    let simulation = trace.simulate().max_rate(90.0).run().unwrap();
    let summary = &simulation.summary;
    let impossible = summary.impossible.unwrap();
    assert_eq!(impossible.allowed, 90.0);
    assert!(summary.peak <= 90.0 + 1e-6 && summary.finished.is_some() && summary.late > 0, "{summary:?}");
    // As late as was foreseen.
    let late = Duration::from_secs(summary.max_age - DAY).as_secs_f64() / impossible.late.as_secs_f64();
    assert!((0.98..1.02).contains(&late), "{summary:?}");
    // What is said to be needed is enough, and less is not.
    let enough = trace.simulate().max_rate(impossible.needed * 1.02).run().unwrap();
    assert_on_time(&trace, &enough);
    let less = trace.simulate().max_rate(impossible.needed * 0.97).run().unwrap();
    assert!(less.summary.late > 0 && less.summary.impossible.is_some(), "{:?}", less.summary);
}

#[test]
fn each_minute_is_a_line_and_the_last_line_sums_up() {
    let (minutes, summary) = planned("# a few\nexpires_at_seconds,count\n\n-5,100\n90,100\n", &["--target-lag", "1h"]);
    assert_eq!(
        minutes,
        [
            json!({ "t": 60, "rate": 100.0 / 60.0, "deleted": 100, "backlog": 0, "oldest_age": 0 }),
            json!({ "t": 120, "rate": 100.0 / 60.0, "deleted": 200, "backlog": 0, "oldest_age": 0 }),
        ]
    );
    assert_eq!(summary["late"], 0);
    assert!(summary["peak"].as_f64().unwrap() <= FLOOR + 1e-6, "{summary}");
    assert!((summary["optimum_peak"].as_f64().unwrap() - 200.0 / 3690.0).abs() < 1e-9, "{summary}");
    assert!(summary["max_age"].as_u64().unwrap() <= 60, "{summary}");

    let (minutes, summary) = planned("", &[]);
    assert_eq!((minutes, summary), (vec![], json!({ "peak": 0.0, "late": 0, "max_age": 0, "optimum_peak": 0.0 })));
}

#[test]
fn in_words_there_is_a_plot_and_a_verdict() {
    let run = Program::alone().run(&["plan", "--trace", file("first_activation").to_str().unwrap()]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    for words in [
        "Deleted documents a second",
        "Documents due",
        "│",
        "█",
        "└┴─",
        "  12h",
        "optimum   115.8/s",
        "verdict   on time",
    ] {
        assert!(run.stdout.contains(words), "no {words:?} in\n{}", run.stdout);
    }
    assert!(run.stdout.lines().all(|line| line.chars().count() <= 80), "{}", run.stdout);
    assert!(!run.stdout.contains('\u{1b}'));

    let run = plan("0,1000000\n", &["--target-lag", "1h", "--max-rate", "200"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    assert!(run.stdout.contains("impossible: 200.0/s allowed, 27"), "{}", run.stdout);
}

#[test]
fn what_cannot_be_planned_for_is_told() {
    for (trace, options, code, words) in [
        ("0,1\n1;2\n", &[][..], 2, "line 2 of standard input: expected expires_at_seconds,count, but got \"1;2\""),
        ("0,-1\n", &[], 2, "line 1 of standard input: expected a whole number of documents"),
        ("0,1\n", &["--max-rate", "0"], 3, "rate"),
        ("0,1\n", &["--max-rate", "nan"], 3, "rate"),
        ("0,1\n", &["--min-rate", "-1"], 3, "rate"),
        ("0,1\n", &["--target-lag", "0"], 3, "target lag"),
        ("0,1\n", &["--forecast-scale", "-1"], 3, "forecast"),
        ("0,1\n", &["--forecast-scale", "inf"], 3, "forecast"),
        ("0,1\n", &["--window", "25:00-26:00"], 2, "25:00 is no time of day"),
        ("0,1\n", &["--window", "00:00-24:00"], 3, "open"),
    ] {
        plan(trace, options).failed(code, words);
    }
    Program::alone().run(&["plan", "--trace", "no/such/file"]).failed(1, "opening no/such/file");
    Program::alone().run(&["plan"]).failed(2, "no database is given");
}
