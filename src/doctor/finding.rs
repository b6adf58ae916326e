//! What can be found, how harmful it is, and what is said of it.

use std::fmt;

use mongodb::bson::Bson;

use super::mend::Mend;

/// How harmful a finding is; the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Harm {
    /// Documents go that were probably meant to stay.
    Deletes,
    /// Documents stay that were probably meant to go.
    Keeps,
    /// It costs: writes, or reads of every sweep.
    Costs,
    /// It may be just what is meant.
    Doubt,
}

impl Harm {
    /// In one word, which stays: `deletes`, `keeps`, `costs` or `doubt`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Harm::Deletes => "deletes",
            Harm::Keeps => "keeps",
            Harm::Costs => "costs",
            Harm::Doubt => "doubt",
        }
    }

    /// 1 for the worst to 4.
    pub const fn rank(self) -> u8 {
        self as u8 + 1
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal $harm:ident $meaning:literal;)*) => {
        /// What was found; each has a name that stays, and a section in `docs/doctor.md`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum FindingKind {
            $($(#[$doc])* $kind,)*
        }

        impl FindingKind {
            /// Every kind there is.
            pub const ALL: &[FindingKind] = &[$(FindingKind::$kind,)*];

            /// Its name, as in `iso_string`.
            pub const fn as_str(self) -> &'static str {
                match self { $(FindingKind::$kind => $name,)* }
            }

            /// How harmful it is, unless the whole sample has it: see [`Finding::harm`].
            pub const fn harm(self) -> Harm {
                match self { $(FindingKind::$kind => Harm::$harm,)* }
            }

            /// What it means, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(FindingKind::$kind => $meaning,)* }
            }
        }
    };
}

kinds! {
    /// A date of 1970 whose milliseconds were seconds.
    SecondsForMilliseconds "seconds_for_milliseconds" Deletes
        "seconds since 1970 were stored as milliseconds, so that the date is of early 1970 and the document expired at once";
    /// A date before 1971.
    ImplausiblyOld "implausibly_old" Deletes
        "a date before 1971, such as a zero or a default value, makes a document expire at once";
    /// The database's own TTL index beside one of this library's.
    NativeBesides "native_besides" Deletes
        "the database's own TTL index deletes from this collection besides, by its own rule";
    /// A native TTL index whose period is not a whole number of seconds in range.
    NativeOddPeriod "native_odd_period" Deletes
        "the period of the database's own TTL index is none that is understood alike everywhere";
    /// A field that holds text as ISO 8601 has it.
    IsoString "iso_string" Keeps "a date that is stored as text never expires";
    /// A field that holds text of another form that stands for a date.
    DateString "date_string" Keeps "a date that is stored as text never expires";
    /// A field that holds text of digits that count from 1970.
    EpochString "epoch_string" Keeps "a number since 1970 that is stored as text never expires";
    /// A number of seconds since 1970.
    EpochSeconds "epoch_seconds" Keeps "a number never expires; by its magnitude it counts seconds since 1970";
    /// A number of milliseconds since 1970.
    EpochMilliseconds "epoch_milliseconds" Keeps
        "a number never expires; by its magnitude it counts milliseconds since 1970";
    /// A number of microseconds since 1970.
    EpochMicroseconds "epoch_microseconds" Keeps
        "a number never expires; by its magnitude it counts microseconds since 1970";
    /// A number of nanoseconds since 1970.
    EpochNanoseconds "epoch_nanoseconds" Keeps
        "a number never expires; by its magnitude it counts nanoseconds since 1970";
    /// A BSON Timestamp.
    Timestamp "timestamp" Keeps "a BSON Timestamp, which is MongoDB's internal type, never expires";
    /// An `ObjectId`.
    ObjectId "object_id" Keeps "an ObjectId never expires, although it holds the instant of its making";
    /// A value of another type.
    OtherType "other_type" Keeps "a value that is no date never expires";
    /// An array within an array.
    NestedArray "nested_array" Keeps "a date in an array within an array is not looked at";
    /// An array of other values.
    ArrayWithoutDate "array_without_date" Keeps "an array without a date directly in it never expires";
    /// A field name with dots in it.
    LiteralDottedName "literal_dotted_name" Keeps
        "a field whose very name has the dots of the path is never seen by it";
    /// A date in a field of nearly the same name.
    SpeltDifferently "spelt_differently" Keeps "the date stands in a field that is spelt differently";
    /// A date one level below.
    DateDeeper "date_deeper" Keeps "the date stands one level deeper";
    /// A date one level above.
    DateShallower "date_shallower" Keeps "the date stands one level higher";
    /// A date whose seconds were milliseconds.
    MillisecondsForSeconds "milliseconds_for_seconds" Keeps
        "milliseconds since 1970 were taken for seconds, so that the date lies tens of thousands of years ahead";
    /// Due for more than a day.
    Overdue "overdue" Keeps "due for more than 24 hours and still there: nobody sweeps, or it does not keep up";
    /// A period without an end.
    NeverExpiringPeriod "never_expiring_period" Keeps
        "2147483647 seconds, 68 years, are as good as never, and what MongoDB makes of NaN";
    /// A native TTL index of a kind that MongoDB's monitor skips.
    NativeNeverDeletes "native_never_deletes" Keeps
        "MongoDB accepts this index and never deletes by it: a TTL index is on one field, ascending or descending";
    /// An index that sweeps do not go by.
    NeedsRepair "needs_repair" Keeps "the TTL index is not swept by until it is repaired";
    /// The collection of a guard's children is not there.
    GuardMissing "guard_missing" Keeps
        "the collection that a guard looks for references in is not there, and without an answer nothing is deleted";
    /// A collection under another name.
    Renamed "renamed" Keeps "the collection has another name now";
    /// Bytes that are no BSON.
    Unreadable "unreadable" Keeps "a document that cannot be read is kept";
    /// The TTL field in an index besides the one that sweeps walk.
    FieldInOtherIndex "field_in_other_index" Costs
        "the TTL field is part of another index, to one end of which all new documents go, and which every renewal rewrites";
    /// No index for sweeps to walk.
    NoSupportingIndex "no_supporting_index" Costs "without an index on the field every sweep reads the whole collection";
    /// No index by which a guard finds children.
    GuardWithoutIndex "guard_without_index" Costs
        "no index begins with the field of the guard, so that every batch reads the whole collection of the children";
    /// Dates at an offset of a time zone.
    TimeZoneSuspected "time_zone_suspected" Doubt
        "the dates look like local time that was stored as UTC, or were written by a wrong clock";
    /// A date in the future where the others are in the past.
    FutureDate "future_date" Doubt
        "the date lies ahead, in a field whose dates are mostly past and which documents outlive";
    /// A date further away than a lifetime.
    FarFuture "far_future" Doubt "the date is more than 50 years ahead: as good as never";
    /// The partial filter does not match.
    PartialFilter "partial_filter" Doubt
        "there is a date, but the partial filter does not match: right for documents that are to stay";
    /// An array that is empty.
    EmptyArray "empty_array" Doubt "an empty array never expires";
    /// `null`.
    NullField "null_field" Doubt "null never expires: right for documents that are to stay";
    /// Nothing at the field.
    MissingField "missing_field" Doubt "a document without the field never expires: right for documents that are to stay";
}

impl FindingKind {
    /// The kind of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something found in a collection, or in its indexes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Finding {
    /// What.
    pub kind: FindingKind,
    /// How harmful it is. What may be meant for some documents is not for nearly all: from 95 % of the sample on `doubt`
    /// is [`Harm::Keeps`] for the kinds that keep documents.
    pub harm: Harm,
    /// What it is about: the other field, the index, or what is wrong with it.
    pub detail: Option<String>,
    /// How many documents of the sample; none if it is about the index.
    pub documents: Option<u64>,
    /// The share of the sample in percent; none if it is about the index.
    pub percent: Option<f64>,
    /// Up to three documents.
    pub examples: Vec<Example>,
    /// What would mend it, where that can be said.
    pub mend: Option<Mend>,
}

/// A document that shows a finding.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Example {
    /// Its `_id`; null if that cannot be read.
    pub id: Bson,
    /// What stands there, or what follows from it.
    pub found: String,
}

impl Finding {
    /// About an index rather than documents.
    pub(super) fn of_index(kind: FindingKind, detail: impl Into<String>) -> Self {
        let detail = Some(detail.into());
        Self { kind, harm: kind.harm(), detail, documents: None, percent: None, examples: Vec::new(), mend: None }
    }
}

/// The worst first, and among equals what concerns most documents.
pub(super) fn rank(findings: &mut [Finding]) {
    findings.sort_by(|a, b| {
        let documents = |finding: &Finding| finding.documents.unwrap_or(u64::MAX);
        (a.harm, std::cmp::Reverse(documents(a)), a.kind, &a.detail).cmp(&(
            b.harm,
            std::cmp::Reverse(documents(b)),
            b.kind,
            &b.detail,
        ))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_of_its_own_and_a_place_in_the_manual() {
        let manual = include_str!("../../docs/doctor.md");
        for kind in FindingKind::ALL {
            assert_eq!(FindingKind::parse(kind.as_str()), Some(*kind));
            assert_eq!(manual.matches(&format!("| `{kind}` |")).count(), 1, "{kind}");
        }
        assert_eq!(FindingKind::parse("no_such_thing"), None);
    }

    #[test]
    fn the_worst_comes_first_and_then_what_concerns_most() {
        let of = |kind: FindingKind, documents| Finding { documents: Some(documents), ..Finding::of_index(kind, "") };
        let mut findings = vec![
            of(FindingKind::NullField, 900),
            of(FindingKind::IsoString, 5),
            of(FindingKind::EpochSeconds, 7),
            Finding::of_index(FindingKind::FieldInOtherIndex, ""),
            of(FindingKind::ImplausiblyOld, 1),
        ];
        rank(&mut findings);
        let kinds: Vec<&str> = findings.iter().map(|finding| finding.kind.as_str()).collect();
        assert_eq!(kinds, ["implausibly_old", "epoch_seconds", "iso_string", "field_in_other_index", "null_field"]);
    }
}
