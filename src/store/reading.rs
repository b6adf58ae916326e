//! How much of a document a pass reads, and what that means for its delete.

/// How much of a document a pass reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reading {
    /// What the rule needs.
    #[default]
    Needed,
    /// All of it.
    Whole,
    /// All of it, and a document is deleted only as it was read, where the database can compare it.
    Seen,
    /// All of it, and a document is deleted only as it was read, to the last byte.
    Exact,
}

impl Reading {
    pub(crate) fn reads_whole(self) -> bool {
        self != Reading::Needed
    }

    /// Whether it matters which version is deleted.
    pub(crate) fn compares(self) -> bool {
        self >= Reading::Seen
    }
}
