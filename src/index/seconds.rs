//! `expireAfterSeconds`: whole seconds from 0 to 2,147,483,647, and nothing that would have to be guessed.

use std::time::Duration;

use mongodb::bson::{Bson, RawBson};

use crate::{
    error::{Code, Refusal},
    number::Number,
};

/// How long after its date a document expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpireAfter(i32);

impl ExpireAfter {
    /// Reads a number of any BSON type.
    ///
    /// MongoDB stores a fraction and truncates it when it deletes, takes NaN for "never" on creation and for 0 on
    /// modification, and clamps what is too large on modification. Each of these is refused here: a period that was not
    /// meant is data lost, or kept, without anybody having said so.
    pub(crate) fn parse(value: &Bson) -> Result<Self, Refusal> {
        let refuse = |why: String| Err(Refusal::new(Code::CannotCreateIndex, why));
        let number = RawBson::try_from(value.clone()).ok().and_then(|raw| Number::from_raw(raw.as_raw_bson_ref()));
        let Some(number) = number else {
            return refuse(format!(
                "TTL index 'expireAfterSeconds' option must be numeric, but received a type of '{}'",
                type_alias(value)
            ));
        };
        if number.is_nan() {
            return refuse(
                "TTL index 'expireAfterSeconds' option cannot be NaN; give a whole number of seconds".to_owned(),
            );
        }
        if number.compare(&Number::Int(0)).is_lt() {
            return refuse("TTL index 'expireAfterSeconds' option cannot be less than 0".to_owned());
        }
        if number.compare(&Number::Int(i32::MAX.into())).is_gt() {
            return refuse(format!(
                "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a lower number; \
                 the largest is {}",
                i32::MAX
            ));
        }
        match number.as_i64().and_then(|seconds| i32::try_from(seconds).ok()) {
            Some(seconds) => Ok(Self(seconds)),
            None => refuse(format!(
                "TTL index 'expireAfterSeconds' option must be a whole number of seconds, but received {value}"
            )),
        }
    }

    pub(crate) fn from_duration(period: Duration) -> Result<Self, Refusal> {
        Self::parse(&self::period(period))
    }

    pub(crate) fn seconds(self) -> i32 {
        self.0
    }

    pub(crate) fn millis(self) -> i64 {
        i64::from(self.0) * 1000
    }

    pub(crate) fn duration(self) -> Duration {
        Duration::from_secs(self.0.unsigned_abs().into())
    }
}

/// Seconds as they are written. A fraction stays one, to be refused by whoever checks.
pub(crate) fn period(period: Duration) -> Bson {
    match (i64::try_from(period.as_secs()), period.subsec_nanos()) {
        (Ok(seconds), 0) => Bson::Int64(seconds),
        _ => Bson::Double(period.as_secs_f64()),
    }
}

/// MongoDB's alias of a value's type, as its messages print it.
pub(crate) fn type_alias(value: &Bson) -> &'static str {
    match value {
        Bson::Double(_) => "double",
        Bson::String(_) => "string",
        Bson::Array(_) => "array",
        Bson::Document(_) => "object",
        Bson::Boolean(_) => "bool",
        Bson::Null => "null",
        Bson::RegularExpression(_) => "regex",
        Bson::JavaScriptCode(_) => "javascript",
        Bson::JavaScriptCodeWithScope(_) => "javascriptWithScope",
        Bson::Int32(_) => "int",
        Bson::Int64(_) => "long",
        Bson::Timestamp(_) => "timestamp",
        Bson::Binary(_) => "binData",
        Bson::ObjectId(_) => "objectId",
        Bson::DateTime(_) => "date",
        Bson::Symbol(_) => "symbol",
        Bson::Decimal128(_) => "decimal",
        Bson::Undefined => "undefined",
        Bson::MaxKey => "maxKey",
        Bson::MinKey => "minKey",
        Bson::DbPointer(_) => "dbPointer",
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{DateTime, Decimal128, doc};

    use super::*;

    fn decimal(text: &str) -> Bson {
        Bson::Decimal128(text.parse::<Decimal128>().unwrap())
    }

    #[test]
    fn whole_numbers_in_range_are_taken_from_every_numeric_type() {
        for (value, want) in [
            (Bson::Int32(0), 0),
            (Bson::Int64(2_147_483_647), i32::MAX),
            (Bson::Double(7200.0), 7200),
            (Bson::Double(-0.0), 0),
            (decimal("7.2E+3"), 7200),
        ] {
            assert_eq!(ExpireAfter::parse(&value).unwrap().seconds(), want, "{value}");
        }
    }

    #[test]
    fn whatever_would_have_to_be_guessed_is_refused() {
        for value in [
            Bson::Double(f64::NAN),
            decimal("NaN"),
            Bson::Double(f64::INFINITY),
            Bson::Double(f64::NEG_INFINITY),
            decimal("Infinity"),
            Bson::Int32(-1),
            Bson::Int64(i64::MIN),
            Bson::Int64(2_147_483_648),
            Bson::Int64(4_294_967_297),
            Bson::Double(1.9),
            Bson::Double(-0.5),
            Bson::Double(2_147_483_647.5),
            decimal("0.5"),
            Bson::String("7d".to_owned()),
            Bson::Boolean(true),
            Bson::Null,
            Bson::Undefined,
            Bson::DateTime(DateTime::MIN),
            Bson::Document(doc! { "a": 1 }),
        ] {
            assert_eq!(ExpireAfter::parse(&value).unwrap_err().code(), Code::CannotCreateIndex, "{value}");
        }
        assert!(ExpireAfter::from_duration(Duration::from_millis(1500)).is_err());
        assert!(ExpireAfter::from_duration(Duration::MAX).is_err());
    }
}
