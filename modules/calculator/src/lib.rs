//! Exact arithmetic on expressions: `lexer` → `parser` → `evaluate`, and `decimal` for what a
//! fraction looks like written out. Nothing is rounded on the way, however large the numbers; sizes
//! and depth are bounded instead.

mod decimal;
mod evaluate;
mod fault;
mod functions;
mod lexer;
mod parser;

use num_rational::BigRational;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_guest::{Annotations, Error, Tool, json};

use fault::Fault;

toolhold_guest::export!(tools);

fn tools() -> Vec<Tool> {
    vec![
        Tool::new(
            "evaluate",
            "Evaluates an arithmetic expression exactly, with integers and fractions of any size. \
             Use it for every calculation instead of computing in your head. \
             Operators: + - * / % ^ ! and parentheses; % is the remainder, with the sign of the \
             divisor. Functions: abs, binomial, ceil, div, factorial, floor, gcd, isqrt, lcm, max, \
             mean, min, mod, powmod, round, sign, sqrt, sum, trunc. No variables.",
            evaluate,
        )
        .title("Calculate")
        .annotations(Annotations::READ_ONLY | Annotations::IDEMPOTENT)
        .example(
            "What is 2 to the power of 200, modulo 97?",
            json!({ "expression": "2^200 % 97" }),
            json!({ "value": "62" }),
            "2^200 mod 97 is 62.",
        )
        .example(
            "Three items cost 19.99 each, with 7 percent tax. What is the total?",
            json!({ "expression": "round(3 * 19.99 * 1.07, 2)" }),
            json!({ "value": "6417/100", "decimal": "64.17" }),
            "The total is 64.17.",
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Evaluate {
    /// The expression, for example `(1.25 + 3/4) * 2^10` or `gcd(84, 36)`. Digits without thousands
    /// separators; decimals are exact.
    expression: String,
}

#[derive(Serialize, JsonSchema)]
struct Evaluated {
    /// The exact value: an integer, or a fraction in lowest terms such as `22/7`.
    value: String,
    /// For a fraction: its decimal expansion, rounded to 20 significant digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    decimal: Option<String>,
}

fn evaluate(arguments: Evaluate) -> Result<Evaluated, Error> {
    let value = exact(&arguments.expression).map_err(Fault::into_error)?;
    Ok(Evaluated {
        decimal: (!value.is_integer()).then(|| decimal::rounded(&value)),
        value: value.to_string(),
    })
}

fn exact(expression: &str) -> Result<BigRational, Fault> {
    evaluate::value(&parser::parse(expression)?)
}

#[cfg(test)]
mod tests;
