//! Answers of the database that there is too much to do.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::Concern;

/// What each answer leaves of the factor, and the least that is left.
const EACH: f64 = 0.5;
const LEAST: f64 = 0.02;

/// By how much the factor rises in a second.
const RISE: f64 = 0.05;

/// Without a word of the database on when to ask again: so long after the first answer in a row, twice as long after the
/// second, and so on.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// What it asks for is followed so far.
const LONGEST_ASKED: Duration = Duration::from_secs(300);

/// Answers are counted for so long.
const COUNTED: Duration = Duration::from_secs(60);

/// How many are counted at most.
const MOST: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Overload {
    factor: Option<(f64, Instant)>,
    last: String,
    answers: VecDeque<Instant>,
    wait: Duration,
    wait_until: Option<Instant>,
}

impl Overload {
    pub(super) fn answered(&mut self, answer: &str, retry_after: Option<Duration>, at: Instant) {
        let in_a_row = self.answers.back().is_some_and(|last| at.saturating_duration_since(*last) < LONGEST_WAIT * 2);
        self.wait = if in_a_row { (self.wait * 2).min(LONGEST_WAIT) } else { FIRST_WAIT };
        let wait = retry_after.map_or(self.wait, |asked| asked.min(LONGEST_ASKED));
        self.wait_until = self.wait_until.max(Some(at + wait));
        self.factor = Some(((self.factor(at) * EACH).max(LEAST), at));
        answer.clone_into(&mut self.last);
        self.answers.push_back(at);
        if self.answers.len() > MOST {
            self.answers.pop_front();
        }
    }

    pub(super) fn wait_until(&self) -> Option<Instant> {
        self.wait_until
    }

    fn factor(&self, at: Instant) -> f64 {
        self.factor
            .map_or(1.0, |(factor, since)| (factor + RISE * at.saturating_duration_since(since).as_secs_f64()).min(1.0))
    }

    pub(super) fn concern(&mut self, at: Instant) -> Option<Concern> {
        while self.answers.front().is_some_and(|answer| at.saturating_duration_since(*answer) > COUNTED) {
            self.answers.pop_front();
        }
        let factor = self.factor(at);
        (factor < 1.0).then(|| Concern {
            factor,
            stopped: false,
            name: "overload",
            why: format!("the database answered {} times in a minute: {}", self.answers.len(), self.last),
        })
    }
}
