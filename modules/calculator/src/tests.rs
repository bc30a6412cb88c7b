use num_bigint::BigInt;
use num_rational::BigRational;
use proptest::prelude::*;
use toolhold_guest::check;

use crate::{decimal, exact, tools};

fn value(expression: &str) -> String {
    match exact(expression) {
        Ok(value) => value.to_string(),
        Err(fault) => fault.into_error().message().to_owned(),
    }
}

#[test]
fn examples_return_what_they_claim() {
    assert_eq!(check::examples(&tools()), Vec::<String>::new());
}

#[test]
fn precedence_and_associativity() {
    let cases = [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("10 - 4 - 3", "3"),
        ("100 / 10 / 5", "2"),
        ("2 ^ 3 ^ 2", "512"),
        ("2 ** 10", "1024"),
        ("-2 ^ 2", "-4"),
        ("2 ^ -2", "1/4"),
        ("3! ^ 2", "36"),
        ("-3!", "-6"),
        ("+-+5", "-5"),
        ("7 % 3 * 2", "2"),
        ("6 ÷ 4 × 2 − 1", "2"),
    ];
    for (expression, expected) in cases {
        assert_eq!(value(expression), expected, "{expression}");
    }
}

#[test]
fn numbers_are_exact() {
    let cases = [
        ("0.1 + 0.2", "3/10"),
        ("1.25 * 4", "5"),
        (".5 + 5.", "11/2"),
        ("1_000 * 1e3", "1000000"),
        ("1.5e-3", "3/2000"),
        ("1/3 + 1/6", "1/2"),
        ("2^200 % 97", "62"),
        ("(2^200) % 97", "62"),
        ("7 ^ 10^30 % 13", "9"),
        ("-7 % 3", "2"),
        ("7 % -3", "-2"),
        ("7.5 % 2", "3/2"),
        ("20!", "2432902008176640000"),
        ("8 ^ (2/3)", "4"),
        ("(1/4) ^ 0.5", "1/2"),
        ("(-8) ^ (1/3)", "-2"),
        ("(-1) ^ 1e100", "1"),
        ("0 ^ 0", "1"),
    ];
    for (expression, expected) in cases {
        assert_eq!(value(expression), expected, "{expression}");
    }
}

#[test]
fn functions() {
    let cases = [
        ("abs(-3/4)", "3/4"),
        ("gcd(84, 36, 24)", "12"),
        ("gcd(-4)", "4"),
        ("lcm(4, 6, 10)", "60"),
        ("sqrt(2.25)", "3/2"),
        ("isqrt(10^30)", "1000000000000000"),
        ("isqrt(99.9)", "9"),
        ("max(1/3, 0.3, -2)", "1/3"),
        ("MIN(1/3, 0.3)", "3/10"),
        ("floor(-1.5)", "-2"),
        ("ceil(-1.5)", "-1"),
        ("trunc(-1.5)", "-1"),
        ("round(2.5)", "3"),
        ("round(-2.5)", "-3"),
        ("round(1.005, 2)", "101/100"),
        ("round(1234, -2)", "1200"),
        ("binomial(52, 5)", "2598960"),
        ("binomial(3, 5)", "0"),
        (
            "binomial(10^40, 2)",
            &format!("4{}5{}", "9".repeat(39), "0".repeat(39)),
        ),
        ("div(-7, 2)", "-4"),
        ("mod(-7, 2)", "1"),
        ("powmod(3, 10^50, 7)", "4"),
        ("sum(1, 2, 3) + mean(1, 2)", "15/2"),
        ("sign(-9) + factorial(4)", "23"),
    ];
    for (expression, expected) in cases {
        assert_eq!(value(expression), expected, "{expression}");
    }
}

#[test]
fn faults_say_where_and_what() {
    let deep = format!("{}1{}", "(".repeat(200), ")".repeat(200));
    let minus = format!("{}1", "-".repeat(5_000));
    let long = "1+".repeat(15_000);
    let cases = [
        (
            "",
            "at character 1: expected a number, a function or `(`, found the end of the expression",
        ),
        ("1 +", "at character 4: expected a number"),
        ("1,000 + 1", "at character 2: a comma only separates"),
        (
            "(1 + 2",
            "at character 7: expected an operator or `)` for the `(` at character 1",
        ),
        ("1)", "at character 2: this `)` closes nothing"),
        (
            "2(3)",
            "at character 2: expected an operator; multiplication needs a `*`",
        ),
        ("2 x 3", "at character 3: expected an operator"),
        ("1 = 1", "at character 3: `=` has no meaning here"),
        ("3!!", "at character 3: `!!` is ambiguous"),
        ("sin(1)", "at character 1: there is no `sin`"),
        ("pi * 2", "at character 1: `pi` is irrational"),
        (
            "sqrt 4",
            "at character 6: expected `(` after the function sqrt",
        ),
        (
            "gcd()",
            "at character 1: gcd takes at least 1 argument(s), not 0",
        ),
        (
            "round(1, 2, 3)",
            "at character 1: round takes 1 to 2 argument(s), not 3",
        ),
        ("1 / (2 - 2)", "at character 3: division by zero"),
        ("5 % 0", "at character 3: division by zero"),
        ("0 ^ -1", "at character 3: 0 to a negative power"),
        (
            "sqrt(2)",
            "at character 1: this root is irrational, about 1.4142135623730950488:",
        ),
        (
            "sqrt(-1)",
            "at character 1: a negative number has no real root",
        ),
        (
            "gcd(1.5, 2)",
            "at character 1: needs an integer here, got 1.5",
        ),
        (
            "9^9^9^9",
            "at character 4: the number here would have more than 39456 digits",
        ),
        (
            "2^-10^9",
            "at character 2: the number here would have more than",
        ),
        ("10001!", "at character 6: factorials go up to 10000!"),
        (
            "(-1)!",
            "at character 5: a negative number has no factorial",
        ),
        (
            "binomial(10^9, 10^8)",
            "at character 1: the number here would have more than",
        ),
        (
            "1e999999999",
            "at character 1: the exponent of this number is above 10000",
        ),
        (
            "10000! * 10000!",
            "at character 8: the number here would have more than",
        ),
        (&deep, "at character 101: nested more than 100 deep"),
        (&minus, "at character 101: nested more than 100 deep"),
        (
            &long,
            "at character 20000: the expression is longer than 20000 characters",
        ),
    ];
    for (expression, expected) in cases {
        let message = value(expression);
        assert!(message.starts_with(expected), "{expression}: {message}");
    }
}

#[test]
fn long_chains_do_not_recurse() {
    assert_eq!(value(&format!("0{}", "+1".repeat(9_000))), "9000");
}

#[test]
fn decimals_round_to_twenty_digits() {
    let cases = [
        ("1/3", "0.33333333333333333333"),
        ("2/3", "0.66666666666666666667"),
        ("5997/100", "59.97"),
        ("-1/8", "-0.125"),
        ("1/1000", "0.001"),
        ("10^19 + 1/2", "10000000000000000001"),
        ("1 - 1/10^30", "1"),
        ("1/3/10^9", "3.3333333333333333333e-10"),
        ("10^40 + 1/2", "1e40"),
        ("1/2^100", "7.8886090522101180541e-31"),
    ];
    for (expression, expected) in cases {
        let shown = exact(expression).map(|value| decimal::rounded(&value));
        assert_eq!(shown.as_deref(), Ok(expected), "{expression}");
    }
}

proptest! {
    #[test]
    fn integers_agree_with_the_machine(a in -10_000_i64..10_000, b in 1_i64..10_000, c: i32) {
        let expected = (a + i64::from(c)) * b - a.rem_euclid(b);
        prop_assert_eq!(value(&format!("({a} + {c}) * {b} - {a} % {b}")), expected.to_string());
    }

    #[test]
    fn a_value_reads_back_as_itself(numerator: i64, denominator in 1_u64..) {
        let number = BigRational::new(BigInt::from(numerator), BigInt::from(denominator));
        prop_assert_eq!(exact(&number.to_string()), Ok(number));
    }

    #[test]
    fn decimals_are_within_half_a_unit(numerator in 1_i64.., denominator in 1_u64..) {
        let number = BigRational::new(BigInt::from(numerator), BigInt::from(denominator));
        let shown = exact(&decimal::rounded(&number)).map(|read| (read - &number) / &number);
        let tolerance = BigRational::new(1.into(), BigInt::from(10).pow(19));
        prop_assert!(shown.is_ok_and(|error| error < tolerance && -error < tolerance));
    }

    #[test]
    fn no_text_panics(text in "[0-9a-z+*/%^!(),. -]{0,40}") {
        // Bounded in time too: an exponent or a factorial must not run away.
        let _ = exact(&text);
    }
}
