//! Expression tree → value, with every size checked before the work is done.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Pow, Signed, ToPrimitive, Zero};

use crate::decimal;
use crate::fault::Fault;
use crate::lexer::power_of_ten;
use crate::parser::{Expression, Operator, Step};

/// 39 456 digits: 10 000! fits, and one operation stays in milliseconds.
pub const MAX_BITS: u64 = 131_072;

pub fn value(expression: &Expression) -> Result<BigRational, Fault> {
    match expression {
        Expression::Number(number) => Ok(number.clone()),
        Expression::Negate(inner) => Ok(-value(inner)?),
        Expression::Chain { first, rest } => chain(first, rest),
        Expression::Power {
            base,
            exponent,
            position,
        } => power(&value(base)?, &value(exponent)?, *position),
        Expression::Call {
            function,
            arguments,
            position,
        } => {
            let arguments = arguments.iter().map(value).collect::<Result<Vec<_>, _>>()?;
            function.apply(&arguments, *position)
        }
    }
}

/// `%` as Python has it: the remainder has the sign of the divisor.
pub fn remainder(
    left: &BigRational,
    right: &BigRational,
    position: usize,
) -> Result<BigRational, Fault> {
    not_zero(right, position)?;
    bounded(left - right * (left / right).floor(), position)
}

pub fn divide(
    left: &BigRational,
    right: &BigRational,
    position: usize,
) -> Result<BigRational, Fault> {
    not_zero(right, position)?;
    bounded(left / right, position)
}

/// `base ^ exponent % modulus` without the number in between, which may have more digits than there
/// are atoms.
pub fn power_modulo(
    base: &BigRational,
    exponent: &BigRational,
    modulus: &BigRational,
    position: usize,
) -> Result<BigRational, Fault> {
    not_zero(modulus, position)?;
    let (base, exponent, modulus) = (
        integer(base, position)?,
        integer(exponent, position)?,
        integer(modulus, position)?,
    );
    if exponent.is_negative() {
        let message = "a power with a negative exponent has no remainder here; use an exponent ≥ 0";
        return Err(Fault::new(position, message));
    }
    Ok(BigRational::from(base.modpow(exponent, modulus)))
}

/// The root of `value` if it is rational. If not, the fault says what it is about.
pub fn root(value: &BigRational, degree: u32, position: usize) -> Result<BigRational, Fault> {
    if value.is_negative() && degree.is_multiple_of(2) {
        return Err(Fault::new(
            position,
            "a negative number has no real root of even degree",
        ));
    }
    let parts = [value.numer(), value.denom()].map(|part| (part, part.nth_root(degree)));
    if parts.iter().all(|(part, root)| root.pow(degree) == **part) {
        let [(_, numerator), (_, denominator)] = parts;
        return Ok(BigRational::new(numerator, denominator));
    }
    // 40 digits behind the point, of which `rounded` shows the first 20 that count.
    let scaled = (value * power_of_ten(40 * degree))
        .to_integer()
        .nth_root(degree);
    let about = decimal::rounded(&BigRational::new(scaled, power_of_ten(40)));
    let message = format!(
        "this root is irrational, about {about}: use that number if an approximation will do, or \
         isqrt for the integer part of a square root"
    );
    Err(Fault::new(position, message))
}

pub fn integer(value: &BigRational, position: usize) -> Result<&BigInt, Fault> {
    if value.is_integer() {
        return Ok(value.numer());
    }
    let shown = decimal::rounded(value);
    Err(Fault::new(
        position,
        format!("needs an integer here, got {shown}; round it first"),
    ))
}

pub fn bounded(value: BigRational, position: usize) -> Result<BigRational, Fault> {
    if value.numer().bits().max(value.denom().bits()) <= MAX_BITS {
        return Ok(value);
    }
    Err(too_large(position))
}

pub fn too_large(position: usize) -> Fault {
    let digits = MAX_BITS * 30_103 / 100_000;
    Fault::new(
        position,
        format!(
            "the number here would have more than {digits} digits; use smaller operands, or \
             `a ^ b % m` if only a remainder is wanted"
        ),
    )
}

fn chain(first: &Expression, rest: &[Step]) -> Result<BigRational, Fault> {
    let (mut result, rest) = match (first, rest) {
        (
            Expression::Power { base, exponent, .. },
            [
                Step {
                    operator: Operator::Remainder,
                    operand,
                    position,
                },
                rest @ ..,
            ],
        ) => {
            let (base, exponent, modulus) = (value(base)?, value(exponent)?, value(operand)?);
            let whole = [&base, &exponent, &modulus]
                .iter()
                .all(|number| number.is_integer());
            if whole && !exponent.is_negative() {
                (power_modulo(&base, &exponent, &modulus, *position)?, rest)
            } else {
                let power = power(&base, &exponent, *position)?;
                (remainder(&power, &modulus, *position)?, rest)
            }
        }
        _ => (value(first)?, rest),
    };
    for Step {
        operator,
        operand,
        position,
    } in rest
    {
        let operand = value(operand)?;
        result = match operator {
            Operator::Add => bounded(result + operand, *position)?,
            Operator::Subtract => bounded(result - operand, *position)?,
            Operator::Multiply => bounded(result * operand, *position)?,
            Operator::Divide => divide(&result, &operand, *position)?,
            Operator::Remainder => remainder(&result, &operand, *position)?,
        };
    }
    Ok(result)
}

fn power(
    base: &BigRational,
    exponent: &BigRational,
    position: usize,
) -> Result<BigRational, Fault> {
    if !exponent.is_integer() {
        return fractional_power(base, exponent, position);
    }
    let exponent = exponent.numer();
    if base.is_zero() && exponent.is_negative() {
        return Err(Fault::new(
            position,
            "0 to a negative power divides by zero",
        ));
    }
    // 0, 1 and -1 stay small under any exponent.
    if base.is_zero() || base.abs().is_one() {
        let even = !exponent.bit(0);
        let value = if exponent.is_zero() || (base.is_negative() && even) {
            BigRational::one()
        } else {
            base.clone()
        };
        return Ok(value);
    }
    let bits = base.numer().bits().max(base.denom().bits());
    let size = exponent
        .abs()
        .to_u64()
        .filter(|size| bits.saturating_mul(*size) <= 2 * MAX_BITS);
    let Some(size) = size.and_then(|size| i32::try_from(size).ok()) else {
        return Err(too_large(position));
    };
    let size = if exponent.is_negative() { -size } else { size };
    bounded(Pow::pow(base, size), position)
}

/// `8 ^ (2/3)` is 4; what is not rational is a fault that says so.
fn fractional_power(
    base: &BigRational,
    exponent: &BigRational,
    position: usize,
) -> Result<BigRational, Fault> {
    /// Beyond this degree nobody means an exact root.
    const MAX_DEGREE: u32 = 64;

    let degree = exponent
        .denom()
        .to_u32()
        .filter(|degree| *degree <= MAX_DEGREE);
    let Some(degree) = degree else {
        let message = format!("a fractional exponent may have a denominator up to {MAX_DEGREE}");
        return Err(Fault::new(position, message));
    };
    let raised = power(base, &BigRational::from(exponent.numer().clone()), position)?;
    root(&raised, degree, position)
}

fn not_zero(divisor: &BigRational, position: usize) -> Result<(), Fault> {
    if divisor.is_zero() {
        return Err(Fault::new(position, "division by zero"));
    }
    Ok(())
}
