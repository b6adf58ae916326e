//! What is known to be due, by date.

/// Documents that are due, of one slice or of several that were merged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entry {
    /// The first and the last date that they may have.
    pub(super) from: i64,
    pub(super) to: i64,
    /// Not due before this instant, whatever their dates: then they were first seen.
    pub(super) seen: i64,
    pub(super) documents: f64,
    /// How many were forecast, until they are counted.
    pub(super) guess: Option<f64>,
    /// How many of them were deleted.
    pub(super) taken: f64,
}

impl Entry {
    pub(super) fn counted(from: i64, to: i64, documents: f64) -> Self {
        Self { from, to, seen: i64::MIN, documents, guess: None, taken: 0.0 }
    }

    /// What part of its dates is no later than this one.
    fn share_up_to(&self, date: i64) -> f64 {
        share(self.from, self.to, date)
    }
}

/// What part of the dates from one to another is no later than a third.
#[allow(clippy::cast_precision_loss)] // a share
pub(super) fn share(from: i64, to: i64, date: i64) -> f64 {
    if date >= to {
        return 1.0;
    }
    if date < from {
        return 0.0;
    }
    let width = |end: i64| (i128::from(end) - i128::from(from) + 1) as f64;
    width(date) / width(to)
}

/// Entries by their first dates, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    entries: Vec<Entry>,
}

/// More entries than this are merged: as many slices as are not late yet, and some.
const MOST: usize = 500;

impl Ledger {
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn add(&mut self, added: impl IntoIterator<Item = Entry>) {
        self.entries.extend(added);
        self.entries.sort_by_key(|entry| (entry.from, entry.to));
    }

    /// Documents with dates up to this one.
    pub(super) fn up_to(&self, date: i64) -> f64 {
        self.entries.iter().map(|entry| entry.documents * entry.share_up_to(date)).sum()
    }

    /// Takes off what was deleted, oldest dates first; what has a date before `before` is gone.
    pub(super) fn take(&mut self, mut deleted: f64, before: Option<i64>) {
        let mut last_guess = None;
        for (at, entry) in self.entries.iter_mut().enumerate() {
            if before.is_some_and(|before| entry.from > before) {
                break;
            }
            let take = deleted.min(entry.documents);
            entry.documents -= take;
            entry.taken += take;
            deleted -= take;
            if before.is_some_and(|before| entry.to < before) {
                entry.documents = 0.0;
            }
            if entry.guess.is_some() {
                last_guess = Some(at);
            }
            if deleted <= 0.0 && before.is_none() {
                break;
            }
        }
        // More than was expected: the forecast was too low.
        if let Some(at) = last_guess {
            self.entries[at].taken += deleted;
        }
        self.tidy();
    }

    /// Forgets everything up to a date.
    pub(super) fn forget(&mut self, date: i64) {
        self.entries.retain(|entry| entry.to > date);
        for entry in self.entries.iter_mut().filter(|entry| entry.from <= date) {
            let left = 1.0 - entry.share_up_to(date);
            // What was deleted of it had dates up to this one, and is not to be taken off twice.
            entry.documents = entry.documents.min((entry.documents + entry.taken) * left);
            entry.taken = 0.0;
            entry.guess = entry.guess.map(|guess| guess * left);
            entry.from = date.saturating_add(1);
        }
        self.tidy();
    }

    /// Removes the guesses of slices that are over by this date, and returns them.
    pub(super) fn remove_guesses(&mut self, after: i64, until: i64) -> Vec<Entry> {
        let counted = |entry: &Entry| entry.guess.is_some() && entry.to > after && entry.to <= until;
        let removed = self.entries.iter().copied().filter(counted).collect();
        self.entries.retain(|entry| !counted(entry));
        removed
    }

    /// Forgets what was never counted by its dates.
    pub(super) fn forget_assumed(&mut self) {
        self.entries.retain(|entry| entry.seen == i64::MIN);
    }

    pub(super) fn scale(&mut self, factor: f64) {
        for entry in self.entries.iter_mut().filter(|entry| entry.guess.is_none()) {
            entry.documents *= factor;
        }
        self.tidy();
    }

    fn tidy(&mut self) {
        self.entries.retain(|entry| entry.documents > 0.0 || entry.guess.is_some());
    }

    /// Merges neighbours that `alike` takes for the same, if there are too many; then more of them, the oldest first.
    pub(super) fn merge(&mut self, alike: impl Fn(&Entry, &Entry) -> bool) {
        if self.entries.len() <= MOST {
            return;
        }
        let mut merged: Vec<Entry> = Vec::new();
        let mut left = self.entries.len();
        for entry in self.entries.drain(..) {
            match merged.last_mut() {
                Some(last) if last.guess.is_none() && entry.guess.is_none() && (alike(last, &entry) || left > MOST) => {
                    last.to = last.to.max(entry.to);
                    last.seen = last.seen.min(entry.seen);
                    last.documents += entry.documents;
                    last.taken += entry.taken;
                    left -= 1;
                }
                _ => merged.push(entry),
            }
        }
        self.entries = merged;
    }
}
