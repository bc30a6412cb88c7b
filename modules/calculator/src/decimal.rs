//! What a fraction looks like written out.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Pow, Signed, Zero};

/// More than a double has, few enough to read.
const SIGNIFICANT_DIGITS: i32 = 20;

/// Numbers whose first digit stands elsewhere are written with an exponent.
const PLAIN_EXPONENTS: std::ops::Range<i32> = -7..SIGNIFICANT_DIGITS;

/// The value in decimal, rounded (half away from zero) to [`SIGNIFICANT_DIGITS`]; exact where the
/// expansion ends before.
pub fn rounded(value: &BigRational) -> String {
    if value.is_zero() {
        return "0".to_owned();
    }
    // The lengths give the place of the first digit, or one above it: then there is a digit too few.
    let mut exponent = length(value.numer()) - length(value.denom());
    let mut digits = integer_at(value, exponent);
    if length(&digits) < SIGNIFICANT_DIGITS {
        exponent -= 1;
        digits = integer_at(value, exponent);
    }
    // 9.99…95 rounds up to a digit more.
    exponent += length(&digits) - SIGNIFICANT_DIGITS;
    let mut digits = digits.to_string();
    digits.truncate(digits.trim_end_matches('0').len());

    let sign = if value.is_negative() { "-" } else { "" };
    format!("{sign}{}", layout(digits, exponent))
}

/// The value, without its sign, as the integer of [`SIGNIFICANT_DIGITS`] digits that it has if its
/// first digit stands at `10 ^ exponent`.
fn integer_at(value: &BigRational, exponent: i32) -> BigInt {
    let shift = BigRational::from(BigInt::from(10)).pow(SIGNIFICANT_DIGITS - 1 - exponent);
    (value.abs() * shift).round().to_integer()
}

fn length(integer: &BigInt) -> i32 {
    // Numbers are bounded far below what an `i32` counts.
    i32::try_from(integer.magnitude().to_string().len()).unwrap_or(i32::MAX)
}

/// `digits` with the point behind the first one, times `10 ^ exponent`.
fn layout(digits: String, exponent: i32) -> String {
    if !PLAIN_EXPONENTS.contains(&exponent) {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        return format!("{first}{point}{rest}e{exponent}");
    }
    let Ok(whole) = usize::try_from(exponent + 1) else {
        let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
        return format!("0.{zeros}{digits}");
    };
    if digits.len() <= whole {
        return format!("{digits:0<whole$}");
    }
    let (whole, fraction) = digits.split_at(whole);
    if whole.is_empty() {
        format!("0.{fraction}")
    } else {
        format!("{whole}.{fraction}")
    }
}
