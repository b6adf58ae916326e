//! BSON numbers compared by value across their four types, as MongoDB compares them.

use std::cmp::Ordering;

use mongodb::bson::{Decimal128, RawBsonRef};

/// A BSON number.
#[derive(Clone, Debug)]
pub(crate) enum Number {
    Int(i64),
    Double(f64),
    Decimal(Decimal),
}

/// A decimal number: `(-1)^negative * coefficient * 10^exponent`, or one of the special values.
#[derive(Clone, Debug)]
pub(crate) enum Decimal {
    NaN,
    Infinite { negative: bool },
    Finite { negative: bool, coefficient: u128, exponent: i32 },
}

/// The significant digits of a Decimal128.
const DIGITS: u32 = 34;

impl Number {
    /// `None` if the value is not a number, or a decimal that cannot be read.
    pub(crate) fn from_raw(value: RawBsonRef<'_>) -> Option<Self> {
        match value {
            RawBsonRef::Int32(n) => Some(Number::Int(n.into())),
            RawBsonRef::Int64(n) => Some(Number::Int(n)),
            RawBsonRef::Double(n) => Some(Number::Double(n)),
            RawBsonRef::Decimal128(n) => Decimal::from_bson(n).map(Number::Decimal),
            _ => None,
        }
    }

    pub(crate) fn is_nan(&self) -> bool {
        match self {
            Number::Int(_) => false,
            Number::Double(n) => n.is_nan(),
            Number::Decimal(n) => matches!(n, Decimal::NaN),
        }
    }

    /// By value; NaN equals NaN and comes before every other number.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        match (self.is_nan(), other.is_nan()) {
            (true, true) => return Ordering::Equal,
            (true, false) => return Ordering::Less,
            (false, true) => return Ordering::Greater,
            (false, false) => {}
        }
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => a.cmp(b),
            (Number::Double(a), Number::Double(b)) => a.partial_cmp(b).unwrap_or(Ordering::Equal),
            (Number::Int(a), Number::Double(b)) => compare_int_to_double(*a, *b),
            (Number::Double(a), Number::Int(b)) => compare_int_to_double(*b, *a).reverse(),
            (a, b) => a.to_decimal().compare(&b.to_decimal()),
        }
    }

    /// The value as a whole number, if it is one that fits.
    pub(crate) fn as_i64(&self) -> Option<i64> {
        match self {
            Number::Int(n) => Some(*n),
            #[allow(clippy::cast_possible_truncation)] // the range is checked
            Number::Double(n) => (n.fract() == 0.0 && *n >= -TWO_63 && *n < TWO_63).then_some(*n as i64),
            Number::Decimal(n) => n.as_i64(),
        }
    }

    /// Text that two numbers share exactly if they are equal.
    pub(crate) fn canonical(&self) -> String {
        if let Some(n) = self.as_i64() {
            return n.to_string();
        }
        match self.to_decimal() {
            Decimal::NaN => "NaN".to_owned(),
            Decimal::Infinite { negative } => format!("{}Infinity", if negative { "-" } else { "" }),
            Decimal::Finite { negative, mut coefficient, mut exponent } => {
                while coefficient != 0 && coefficient.is_multiple_of(10) {
                    coefficient /= 10;
                    exponent += 1;
                }
                format!("{}{coefficient}e{exponent}", if negative { "-" } else { "" })
            }
        }
    }

    fn to_decimal(&self) -> Decimal {
        match self {
            Number::Int(n) => Decimal::Finite { negative: *n < 0, coefficient: n.unsigned_abs().into(), exponent: 0 },
            // MongoDB rounds the double to 34 significant digits before it compares it with a decimal.
            Number::Double(n) => Decimal::parse(&format!("{n:.33e}")).unwrap_or(Decimal::NaN),
            Number::Decimal(n) => n.clone(),
        }
    }
}

const TWO_63: f64 = 9_223_372_036_854_775_808.0;

fn compare_int_to_double(int: i64, double: f64) -> Ordering {
    if double >= TWO_63 {
        return Ordering::Less;
    }
    if double < -TWO_63 {
        return Ordering::Greater;
    }
    #[allow(clippy::cast_possible_truncation)] // the range is checked
    let whole = double.trunc() as i64;
    int.cmp(&whole).then_with(|| 0.0_f64.partial_cmp(&double.fract()).unwrap_or(Ordering::Equal))
}

impl Decimal {
    fn from_bson(value: Decimal128) -> Option<Self> {
        Self::parse(&value.to_string())
    }

    /// Reads `[-]digits[.digits][e[±]digits]`, `[-]inf…`, `NaN`, in any case.
    fn parse(text: &str) -> Option<Self> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let lower = text.to_ascii_lowercase();
        if lower == "nan" {
            return Some(Decimal::NaN);
        }
        if lower.starts_with("inf") {
            return Some(Decimal::Infinite { negative });
        }
        let (mantissa, exponent) = match lower.split_once('e') {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (lower.as_str(), 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let coefficient = format!("{whole}{fraction}").parse::<u128>().ok()?;
        let exponent = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
        if coefficient >= 10_u128.pow(DIGITS) {
            return None;
        }
        Some(Decimal::Finite { negative, coefficient, exponent })
    }

    fn compare(&self, other: &Self) -> Ordering {
        let sign = |d: &Self| match d {
            Decimal::NaN | Decimal::Finite { coefficient: 0, .. } => 0,
            Decimal::Infinite { negative } | Decimal::Finite { negative, .. } => {
                if *negative {
                    -1
                } else {
                    1
                }
            }
        };
        let by_sign = sign(self).cmp(&sign(other));
        if by_sign.is_ne() || sign(self) == 0 {
            return by_sign;
        }
        let by_magnitude = match (self, other) {
            (Decimal::Infinite { .. }, Decimal::Infinite { .. }) => Ordering::Equal,
            (Decimal::Infinite { .. }, _) => Ordering::Greater,
            (_, Decimal::Infinite { .. }) => Ordering::Less,
            (
                Decimal::Finite { coefficient: a, exponent: ea, .. },
                Decimal::Finite { coefficient: b, exponent: eb, .. },
            ) => compare_magnitudes((*a, *ea), (*b, *eb)),
            _ => Ordering::Equal,
        };
        if sign(self) < 0 { by_magnitude.reverse() } else { by_magnitude }
    }

    fn as_i64(&self) -> Option<i64> {
        let Decimal::Finite { negative, coefficient, exponent } = *self else { return None };
        if coefficient == 0 {
            return Some(0);
        }
        let scale = 10_u128.checked_pow(exponent.unsigned_abs());
        let magnitude = if exponent >= 0 {
            coefficient.checked_mul(scale?)?
        } else {
            let scale = scale?;
            coefficient.is_multiple_of(scale).then_some(coefficient / scale)?
        };
        let magnitude = i128::try_from(magnitude).ok()?;
        i64::try_from(if negative { -magnitude } else { magnitude }).ok()
    }
}

/// Both coefficients are below 10^34 and not zero.
fn compare_magnitudes((a, ea): (u128, i32), (b, eb): (u128, i32)) -> Ordering {
    let leading = |n: u128, e: i32| i64::from(e) + i64::from(n.ilog10());
    let scaled = |n: u128| n * 10_u128.pow(DIGITS - 1 - n.ilog10());
    leading(a, ea).cmp(&leading(b, eb)).then_with(|| scaled(a).cmp(&scaled(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Number {
        Number::Decimal(Decimal::parse(text).unwrap())
    }

    #[test]
    fn numbers_compare_by_value_across_types() {
        let ascending = [
            Number::Double(f64::NEG_INFINITY),
            decimal("-1E+6000"),
            Number::Double(-1e300),
            Number::Int(i64::MIN),
            decimal("-1.5"),
            Number::Int(-1),
            Number::Double(0.0),
            decimal("1E-6000"),
            Number::Double(0.1),
            decimal("0.11"),
            Number::Int(1),
            decimal("1.000000000000000000000000000000001"),
            Number::Int(9_007_199_254_740_993),
            Number::Double(9_007_199_254_740_994.0),
            Number::Int(i64::MAX),
            Number::Double(TWO_63),
            decimal("1E+6000"),
            decimal("Infinity"),
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(a.compare(b), i.cmp(&j), "{a:?} {b:?}");
            }
        }
        for zero in [decimal("0"), decimal("-0E+10"), Number::Double(-0.0)] {
            assert!(zero.compare(&Number::Int(0)).is_eq(), "{zero:?}");
        }
        assert!(Number::Double(f64::NAN).compare(&decimal("NaN")).is_eq());
        assert!(Number::Double(f64::NAN).compare(&decimal("-Infinity")).is_lt());
    }

    #[test]
    fn whole_numbers_are_recognised_in_every_type() {
        assert_eq!(decimal("1E+3").as_i64(), Some(1000));
        assert_eq!(decimal("10.0").as_i64(), Some(10));
        assert_eq!(decimal("10.5").as_i64(), None);
        assert_eq!(decimal("1E+40").as_i64(), None);
        assert_eq!(Number::Double(-0.0).as_i64(), Some(0));
        assert_eq!(Number::Double(TWO_63).as_i64(), None);
    }

    #[test]
    fn equal_numbers_share_their_canonical_text() {
        assert_eq!(decimal("0.50").canonical(), Number::Double(0.5).canonical());
        assert_eq!(decimal("1E+2").canonical(), Number::Int(100).canonical());
        assert_ne!(decimal("0.1").canonical(), Number::Double(0.1).canonical());
    }
}
