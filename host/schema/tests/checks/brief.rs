//! Brief work: checks with few steps together, of which a caller learns whether these sufficed.

use serde_json::{Value, json};
use toolhold_schema::{CheckError, Validator, allowance, briefly, spend};

fn numbers(count: u64) -> Value {
    (0..count).map(Value::from).collect()
}

fn of_numbers() -> Validator {
    Validator::new(&json!({"items": {"type": "integer"}})).unwrap()
}

#[test]
fn brief_work_comes_to_the_same_or_to_nothing() {
    let validator = of_numbers();
    let (short, long) = (numbers(10), numbers(10_000));
    assert_eq!(briefly(1_000, || validator.check(&short)), Some(Ok(())));
    assert_eq!(briefly(1_000, || validator.check(&long)), None);
    let misfit = json!(["a"]);
    let found = briefly(100_000, || validator.check(&misfit)).unwrap();
    assert!(matches!(found, Err(CheckError::Misfit(_))), "{found:?}");
    assert_eq!(validator.check(&long), Ok(()), "the bound is over");
}

#[test]
fn checks_of_brief_work_share_its_steps() {
    let validator = of_numbers();
    let value = numbers(100);
    let times = |count: u32| {
        briefly(1_000, || {
            for _ in 0..count {
                let _ = validator.check(&value);
            }
        })
    };
    assert_eq!(times(1), Some(()));
    assert_eq!(times(100), None);
}

#[test]
fn work_within_brief_work_takes_no_more_than_is_left() {
    assert_eq!(allowance(), u64::MAX);
    let whole = briefly(100, || {
        spend(40);
        briefly(1_000, allowance)
    });
    assert_eq!(whole, Some(Some(60)));
    assert_eq!(briefly(100, || spend(100)), None);
    spend(5);
    assert_eq!(
        allowance(),
        u64::MAX,
        "outside of brief work there is no bound"
    );
}
