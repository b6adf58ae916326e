//! A curve over time, drawn with characters: the same in a terminal of 80 columns and in a file.

use std::{fmt::Write, time::Duration};

use super::time;

/// Each is an eighth higher than the one before.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How many columns a curve has at most.
const WIDTH: usize = 70;

/// How many columns there are between two marks of the axis, at least.
const APART: u64 = 8;

/// Times that are easily counted, in minutes; beyond them, whole days.
const ROUND: [u64; 14] = [1, 2, 5, 10, 15, 30, 60, 90, 120, 180, 240, 360, 480, 720];
const DAY: u64 = 1440;

/// A value for each minute, drawn as columns over an axis.
pub(crate) struct Plot<'a> {
    pub(crate) title: &'a str,
    pub(crate) values: Vec<f64>,
    /// Lines.
    pub(crate) height: usize,
}

impl Plot<'_> {
    /// A title, the curve with its scale at the left, and the time below it.
    pub(crate) fn draw(&self) -> String {
        let minutes = round_time(self.values.len().div_ceil(WIDTH) as u64, 1);
        let each = usize::try_from(minutes).unwrap_or(usize::MAX);
        // A column shows the highest of its values: no peak gets lost.
        let columns: Vec<f64> = self.values.chunks(each).map(highest).collect();
        let top = round_value(highest(&columns));
        let labels = [amount(top), amount(top / 2.0), amount(0.0)];
        let margin = labels.iter().map(String::len).max().unwrap_or_default();
        let mut text = format!("{}\n", self.title);
        for line in (0..self.height).rev() {
            // Where a label stands is where its value ends.
            let marks = [self.height - 1, self.height / 2 - 1, usize::MAX];
            let label = marks.iter().position(|mark| *mark == line).map_or("", |mark| &labels[mark]);
            let curve: String = columns.iter().map(|value| block(value / top, line, self.height)).collect();
            let _ = writeln!(text, "{label:>margin$} │{}", curve.trim_end());
        }
        text + &axis(&labels[2], margin, columns.len(), minutes)
    }
}

fn highest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// What a column that is filled to this share has in a line, counted from below.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
fn block(share: f64, line: usize, height: usize) -> char {
    let eighths = (share * (height * 8) as f64).round() as usize;
    // Little is not nothing.
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    BLOCKS[eighths.saturating_sub(line * 8).min(8)]
}

/// The line below, and the times that its marks stand for.
fn axis(zero: &str, margin: usize, columns: usize, minutes: u64) -> String {
    let apart = round_time(minutes * APART, minutes) / minutes;
    let (mut line, mut labels) = (String::new(), String::new());
    for column in 0..columns as u64 {
        if !column.is_multiple_of(apart) {
            line.push('─');
            continue;
        }
        line.push('┴');
        let label = time::in_words(Duration::from_secs(column * minutes * 60));
        let width = usize::try_from(apart).unwrap_or_default();
        let _ = write!(labels, "{label:<width$}");
    }
    format!("{zero:>margin$} └{line}\n{:margin$}  {}", "", labels.trim_end())
}

/// The first time that is easily counted and no shorter than this, in multiples of `of`.
fn round_time(least: u64, of: u64) -> u64 {
    let round = ROUND.into_iter().find(|minutes| *minutes >= least && minutes.is_multiple_of(of));
    let step = if of.is_multiple_of(DAY) { of } else { DAY };
    round.unwrap_or_else(|| least.div_ceil(step).max(1) * step)
}

/// The first value that is easily read and no smaller.
fn round_value(value: f64) -> f64 {
    if !(value.is_finite() && value > 0.0) {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let round = [1.0, 1.2, 1.6, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0].map(|digit| digit * power);
    round.into_iter().find(|round| *round >= value).unwrap_or(value)
}

/// In three digits or so: `0.25`, `120`, `12k`, `1.6M`.
pub(crate) fn amount(value: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")];
    let (value, unit) = match units.into_iter().find(|(least, _)| value >= *least) {
        Some((_, "k")) => (value / 1e3, "k"),
        Some((least, unit)) => (value / least, unit),
        None => (value, ""),
    };
    let digits = match value {
        _ if value >= 100.0 => 0,
        _ if value >= 10.0 => 1,
        _ => 2,
    };
    let number = format!("{value:.digits$}");
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { &number };
    format!("{number}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_has_its_scale_and_its_time() {
        let values = (0..240).map(|minute| f64::from(minute) / 2.0).collect();
        let drawn = Plot { title: "a ramp", values, height: 4 }.draw();
        let expected = "\
a ramp
120 │                                    ▁▁▂▃▃▄▅▅▆▇▇█
    │                        ▁▁▂▃▃▄▅▅▆▇▇█████████████
 60 │            ▁▁▂▃▃▄▅▅▆▇▇█████████████████████████
    │▁▁▂▃▃▄▅▅▆▇▇█████████████████████████████████████
  0 └┴───────────┴───────────┴───────────┴───────────
     0s          1h          2h          3h";
        assert_eq!(drawn, expected);
    }

    #[test]
    fn nothing_and_endless_things_can_be_drawn() {
        for values in [vec![], vec![0.0], vec![f64::NAN; 3], vec![f64::INFINITY], vec![f64::MIN_POSITIVE, f64::MAX]] {
            let drawn = Plot { title: "", values, height: 5 }.draw();
            assert_eq!(drawn.lines().count(), 8, "{drawn}");
        }
        let long = Plot { title: "", values: vec![1.0; 1_000_000], height: 2 }.draw();
        assert!(long.lines().all(|line| line.chars().count() <= 80), "{long}");
    }

    #[test]
    fn amounts_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (1.0, "1"),
            (62.5, "62.5"),
            (120.0, "120"),
            (9_999.0, "9999"),
            (12_000.0, "12k"),
            (800_000.0, "800k"),
            (1_600_000.0, "1.6M"),
            (4e9, "4G"),
        ] {
            assert_eq!(amount(value), text);
        }
    }
}
