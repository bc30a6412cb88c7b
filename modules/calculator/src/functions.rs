//! The functions an expression may call.

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

use crate::evaluate::{
    MAX_BITS, bounded, divide, integer, power_modulo, remainder, root, too_large,
};
use crate::fault::Fault;
use crate::lexer::power_of_ten;

/// 10 000! has 35 660 digits, just below the largest number.
const MAX_FACTORIAL: u32 = 10_000;

/// More places than anybody rounds to; bounds the power of ten.
const MAX_PLACES: u32 = 10_000;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Function {
    Abs,
    Binomial,
    Ceil,
    Div,
    Factorial,
    Floor,
    Gcd,
    Isqrt,
    Lcm,
    Max,
    Mean,
    Min,
    Mod,
    Powmod,
    Round,
    Sign,
    Sqrt,
    Sum,
    Trunc,
}

/// Name, function, fewest and most arguments; in the order an error lists them.
const FUNCTIONS: [(&str, Function, usize, usize); 19] = [
    ("abs", Function::Abs, 1, 1),
    ("binomial", Function::Binomial, 2, 2),
    ("ceil", Function::Ceil, 1, 1),
    ("div", Function::Div, 2, 2),
    ("factorial", Function::Factorial, 1, 1),
    ("floor", Function::Floor, 1, 1),
    ("gcd", Function::Gcd, 1, usize::MAX),
    ("isqrt", Function::Isqrt, 1, 1),
    ("lcm", Function::Lcm, 1, usize::MAX),
    ("max", Function::Max, 1, usize::MAX),
    ("mean", Function::Mean, 1, usize::MAX),
    ("min", Function::Min, 1, usize::MAX),
    ("mod", Function::Mod, 2, 2),
    ("powmod", Function::Powmod, 3, 3),
    ("round", Function::Round, 1, 2),
    ("sign", Function::Sign, 1, 1),
    ("sqrt", Function::Sqrt, 1, 1),
    ("sum", Function::Sum, 1, usize::MAX),
    ("trunc", Function::Trunc, 1, 1),
];

impl Function {
    pub fn named(name: &str, position: usize) -> Result<Self, Fault> {
        let lower = name.to_lowercase();
        if let Some((_, function, ..)) = FUNCTIONS.iter().find(|(known, ..)| *known == lower) {
            return Ok(*function);
        }
        if lower == "pi" || lower == "e" {
            let message = format!("`{name}` is irrational; write the digits you need");
            return Err(Fault::new(position, message));
        }
        let known = FUNCTIONS.map(|(known, ..)| known).join(", ");
        let message = format!("there is no `{name}`: no variables, only the functions {known}");
        Err(Fault::new(position, message))
    }

    pub fn check_count(self, count: usize, position: usize) -> Result<(), Fault> {
        let Some((name, _, fewest, most)) = FUNCTIONS.iter().find(|entry| entry.1 == self) else {
            return Ok(());
        };
        if (*fewest..=*most).contains(&count) {
            return Ok(());
        }
        let wanted = match (*fewest, *most) {
            (fewest, usize::MAX) => format!("at least {fewest}"),
            (fewest, most) if fewest == most => fewest.to_string(),
            (fewest, most) => format!("{fewest} to {most}"),
        };
        Err(Fault::new(
            position,
            format!("{name} takes {wanted} argument(s), not {count}"),
        ))
    }

    /// The value for as many arguments as [`check_count`](Self::check_count) let through.
    pub fn apply(self, arguments: &[BigRational], at: usize) -> Result<BigRational, Fault> {
        match (self, arguments) {
            (Self::Abs, [x]) => Ok(x.abs()),
            (Self::Ceil, [x]) => Ok(x.ceil()),
            (Self::Floor, [x]) => Ok(x.floor()),
            (Self::Round, [x]) => Ok(x.round()),
            (Self::Round, [x, places]) => round(x, places, at),
            (Self::Sign, [x]) => Ok(x.signum()),
            (Self::Trunc, [x]) => Ok(x.trunc()),
            (Self::Sqrt, [x]) => root(x, 2, at),
            (Self::Isqrt, [x]) => isqrt(x, at),
            (Self::Factorial, [n]) => factorial(n, at),
            (Self::Binomial, [n, k]) => binomial(integer(n, at)?, integer(k, at)?, at),
            (Self::Div, [x, y]) => Ok(divide(x, y, at)?.floor()),
            (Self::Mod, [x, y]) => remainder(x, y, at),
            (Self::Powmod, [base, exponent, modulus]) => power_modulo(base, exponent, modulus, at),
            (Self::Gcd, many) => fold_integers(many, at, Integer::gcd),
            (Self::Lcm, many) => fold_integers(many, at, Integer::lcm),
            (Self::Sum, many) => sum(many, at),
            (Self::Mean, many) => divide(
                &sum(many, at)?,
                &BigRational::from(BigInt::from(many.len())),
                at,
            ),
            (Self::Max, [first, rest @ ..]) => Ok(rest.iter().fold(first, Ord::max).clone()),
            (Self::Min, [first, rest @ ..]) => Ok(rest.iter().fold(first, Ord::min).clone()),
            _ => Err(Fault::new(at, "wrong number of arguments")),
        }
    }
}

/// Half away from zero, to a number of decimal places (negative: tens, hundreds, …).
fn round(x: &BigRational, places: &BigRational, at: usize) -> Result<BigRational, Fault> {
    let places = integer(places, at)?;
    let Some(size) = places.abs().to_u32().filter(|size| *size <= MAX_PLACES) else {
        return Err(Fault::new(
            at,
            format!("round takes at most {MAX_PLACES} places"),
        ));
    };
    let mut unit = BigRational::from(power_of_ten(size));
    if !places.is_negative() {
        unit = unit.recip();
    }
    bounded((x / &unit).round() * unit, at)
}

fn isqrt(x: &BigRational, at: usize) -> Result<BigRational, Fault> {
    if x.is_negative() {
        return Err(Fault::new(at, "a negative number has no real square root"));
    }
    Ok(BigRational::from(x.to_integer().sqrt()))
}

fn factorial(n: &BigRational, at: usize) -> Result<BigRational, Fault> {
    let n = integer(n, at)?;
    if n.is_negative() {
        return Err(Fault::new(at, "a negative number has no factorial"));
    }
    let Some(n) = n.to_u32().filter(|n| *n <= MAX_FACTORIAL) else {
        return Err(Fault::new(
            at,
            format!("factorials go up to {MAX_FACTORIAL}!"),
        ));
    };
    Ok(BigRational::from(
        (1..=n).fold(BigInt::one(), |product, factor| product * factor),
    ))
}

fn binomial(n: &BigInt, k: &BigInt, at: usize) -> Result<BigRational, Fault> {
    if n.is_negative() || k.is_negative() {
        return Err(Fault::new(at, "binomial takes integers ≥ 0"));
    }
    if k > n {
        return Ok(BigRational::zero());
    }
    let Some(steps) = k.min(&(n - k)).to_u64().filter(|steps| *steps <= MAX_BITS) else {
        return Err(too_large(at));
    };
    let mut result = BigInt::one();
    for step in 0..steps {
        // Exact: a product of `step + 1` neighbours is divisible by (step + 1)!.
        result = result * (n - step) / (step + 1);
        if result.bits() > MAX_BITS {
            return Err(too_large(at));
        }
    }
    Ok(BigRational::from(result))
}

fn sum(values: &[BigRational], at: usize) -> Result<BigRational, Fault> {
    values.iter().try_fold(BigRational::zero(), |total, value| {
        bounded(total + value, at)
    })
}

fn fold_integers(
    values: &[BigRational],
    at: usize,
    combine: fn(&BigInt, &BigInt) -> BigInt,
) -> Result<BigRational, Fault> {
    let Some((first, rest)) = values.split_first() else {
        return Err(Fault::new(at, "wrong number of arguments"));
    };
    let first = BigRational::from(integer(first, at)?.abs());
    rest.iter().try_fold(first, |result, value| {
        bounded(
            BigRational::from(combine(result.numer(), integer(value, at)?)),
            at,
        )
    })
}
