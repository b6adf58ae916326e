//! How much may be counted, over all indexes.

use mongodb::bson::DateTime;

use super::Want;

/// Lets through so many statements and keys a minute; what is not used is saved up for twenty minutes, and the keys of
/// these are there to begin with: what is due is counted once, at a small part of the cost of deleting it.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    statements: Tokens,
    keys: Tokens,
    /// So that what is saved up does not go at once.
    pace: Tokens,
}

const STATEMENTS_A_MINUTE: f64 = 60.0;
const KEYS_A_MINUTE: f64 = 1_000_000.0;
const STATEMENTS_A_SECOND: f64 = 2.0;
const SAVED_MINUTES: f64 = 20.0;

impl Budget {
    /// One with the statements of a minute and all the keys that can be saved up.
    pub(crate) fn new(now: DateTime) -> Self {
        let saved = |level: f64, a_minute: f64| Tokens::new(level, a_minute * SAVED_MINUTES, a_minute / 60_000.0, now);
        Self {
            statements: saved(STATEMENTS_A_MINUTE, STATEMENTS_A_MINUTE),
            keys: saved(KEYS_A_MINUTE * SAVED_MINUTES, KEYS_A_MINUTE),
            pace: Tokens::new(STATEMENTS_A_SECOND, STATEMENTS_A_SECOND, STATEMENTS_A_SECOND / 1000.0, now),
        }
    }

    /// Takes out the want that tells most, if there are the means for it now. Nothing that tells less goes before it.
    #[allow(clippy::cast_precision_loss)] // a number of keys
    pub(crate) fn pick<T>(&mut self, wants: &mut Vec<(T, Want)>, now: DateTime) -> Option<(T, Want)> {
        let all = wants.iter().enumerate();
        let (at, (_, want)) = all.max_by(|(_, (_, a)), (_, (_, b))| a.weight.total_cmp(&b.weight))?;
        let keys = want.range.limit as f64;
        let tokens = [(&mut self.statements, 1.0), (&mut self.pace, 1.0), (&mut self.keys, keys)];
        let mut enough = true;
        for (tokens, amount) in tokens {
            tokens.refill(now);
            enough &= tokens.level >= amount;
        }
        if !enough {
            return None;
        }
        self.statements.level -= 1.0;
        self.pace.level -= 1.0;
        self.keys.level -= keys;
        Some(wants.swap_remove(at))
    }

    /// Gives back what a count did not need.
    #[allow(clippy::cast_precision_loss)] // a number of keys
    pub(crate) fn settle(&mut self, want: &Want, keys: u64) {
        self.keys.give((want.range.limit.saturating_sub(keys)) as f64);
    }
}

#[derive(Clone, Debug)]
struct Tokens {
    level: f64,
    most: f64,
    per_milli: f64,
    at: i64,
}

impl Tokens {
    fn new(level: f64, most: f64, per_milli: f64, now: DateTime) -> Self {
        Self { level, most, per_milli, at: now.timestamp_millis() }
    }

    #[allow(clippy::cast_precision_loss)] // a time
    fn refill(&mut self, now: DateTime) {
        let now = now.timestamp_millis();
        // A clock that was set back gives nothing.
        let passed = now.saturating_sub(self.at).max(0) as f64;
        self.at = now;
        self.give(passed * self.per_milli);
    }

    fn give(&mut self, amount: f64) {
        self.level = (self.level + amount).min(self.most);
    }
}
