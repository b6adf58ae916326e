//! How many documents make a batch.

use std::time::Duration;

/// How long a batch shall take: long enough that a round trip hardly counts, short enough that nobody waits for its end.
const TARGET: Duration = Duration::from_millis(75);

/// Before it is known how long a document takes.
const START: u32 = 100;

/// By which factors one batch changes the size of the next.
const SHRINK: f64 = 0.5;
const GROW: f64 = 1.2;

/// The size of a batch of one index: as many documents as take a certain time, and never more than a cap.
#[derive(Clone, Debug)]
pub(crate) struct Size {
    documents: f64,
    cap: u32,
    /// Somebody wants this size, and not what would be found out.
    asked: bool,
    /// How many seconds' worth of the rate a batch may be: more would be a burst.
    seconds: f64,
}

impl Size {
    /// Found out batch by batch.
    pub(crate) fn up_to(cap: u32) -> Self {
        Self { documents: START.min(cap).max(1).into(), cap, asked: false, seconds: 0.5 }
    }

    /// As somebody asked for it, unless the database is overloaded.
    pub(crate) fn asked(documents: u32) -> Self {
        Self { documents: documents.max(1).into(), cap: documents, asked: true, seconds: 0.5 }
    }

    /// For a pass by itself, which somebody waits for: up to a whole second's worth of the rate.
    pub(crate) fn in_seconds(self) -> Self {
        Self { seconds: 1.0, ..self }
    }

    /// Documents in a batch at this rate.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // the casts saturate
    pub(crate) fn at_rate(&self, rate: f64) -> u32 {
        let worth = (rate * self.seconds).ceil() as u32;
        (self.documents as u32).min(worth).max(1)
    }

    /// Learns from a batch of so many documents.
    pub(crate) fn learn(&mut self, documents: u32, took: Duration) {
        if documents == 0 || self.asked {
            return;
        }
        let documents = f64::from(documents);
        let factor = TARGET.as_secs_f64() / took.as_secs_f64().max(1e-6);
        // A smaller batch than was wished for says that a larger one would take too long, but not that it would not.
        if factor < 1.0 {
            self.set(documents.min(self.documents) * factor.max(SHRINK));
        } else if documents >= self.documents.floor() {
            self.set(self.documents * factor.min(GROW));
        }
    }

    /// The last batch was too much for the database.
    pub(crate) fn halve(&mut self) {
        self.set(self.documents * SHRINK);
    }

    /// The last batch was not deleted in time, as a whole. Somebody's transaction may have held it up.
    pub(crate) fn gave_up(&mut self) {
        if !self.asked {
            self.halve();
        }
    }

    fn set(&mut self, documents: f64) {
        self.documents = documents.clamp(1.0, f64::from(self.cap.max(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY_RATE: f64 = f64::INFINITY;

    /// Where batches end up that take so long each, and so long for each document.
    fn settled(mut size: Size, each: Duration, a_document: Duration) -> u32 {
        for _ in 0..200 {
            let documents = size.at_rate(ANY_RATE);
            size.learn(documents, each + a_document * documents);
        }
        size.at_rate(ANY_RATE)
    }

    #[test]
    fn a_batch_comes_to_take_its_target() {
        let millis = Duration::from_millis;
        for (each, a_document, expected) in [
            (millis(5), Duration::from_micros(35), 2_000),
            (millis(25), millis(1), 50),
            (millis(0), millis(30), 2),
            (millis(500), millis(500), 1),
            (millis(0), Duration::ZERO, 10_000),
        ] {
            let size = settled(Size::up_to(10_000), each, a_document);
            assert!(size.abs_diff(expected) <= expected / 20, "{size} instead of {expected}");
        }
    }

    #[test]
    fn a_size_that_was_asked_for_stays_unless_the_database_is_overloaded() {
        let mut size = Size::asked(500);
        size.learn(500, Duration::from_secs(10));
        size.gave_up();
        assert_eq!(size.at_rate(ANY_RATE), 500);
        size.halve();
        assert_eq!(size.at_rate(ANY_RATE), 250);
    }

    #[test]
    fn a_batch_is_no_burst_and_never_empty() {
        let size = Size::up_to(10_000);
        for (rate, expected) in [(50.0, 25), (1.0, 1), (0.1, 1), (0.0, 1), (f64::NAN, 1), (1e18, 100), (ANY_RATE, 100)]
        {
            assert_eq!(size.at_rate(rate), expected, "at {rate}/s");
        }
        assert_eq!(Size::up_to(100).in_seconds().at_rate(50.0), 50);
        assert_eq!(Size::up_to(7).at_rate(ANY_RATE), 7);
        assert_eq!(Size::up_to(0).at_rate(ANY_RATE), 1);
    }

    #[test]
    fn overload_halves_it_and_a_remainder_does_not_let_it_grow() {
        let mut size = Size::up_to(10_000);
        size.halve();
        assert_eq!(size.at_rate(ANY_RATE), 50);
        size.learn(3, Duration::from_millis(1));
        size.learn(0, Duration::ZERO);
        assert_eq!(size.at_rate(ANY_RATE), 50);
        size.learn(50, Duration::ZERO);
        assert_eq!(size.at_rate(ANY_RATE), 60);
        for _ in 0..100 {
            size.gave_up();
        }
        assert_eq!(size.at_rate(ANY_RATE), 1);
    }
}
