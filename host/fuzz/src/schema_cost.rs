//! Any schema and any value: building, checking, coercing and reducing to the grammar subset end soon, and what is found is
//! what jsonschema finds without a budget.

use serde_json::Value;
use std::time::{Duration, Instant};
use toolhold_json::coerce::coerce;
use toolhold_json::grammar_subset::GrammarSubset;
use toolhold_schema::{CheckError, Validator};

/// Maximum time for one input: a budget takes well under a second; the rest is for slow machines and sanitizers.
const MOST: Duration = Duration::from_secs(20);

pub fn run(data: &[u8]) {
    // The schema, a line feed, the value; raw line feeds are in no JSON string.
    let text = String::from_utf8_lossy(data);
    let (schema, value) = text.split_once('\n').unwrap_or((&text, "null"));
    let (Ok(schema), Ok(value)) = (
        serde_json::from_str::<Value>(schema),
        serde_json::from_str::<Value>(value),
    ) else {
        return;
    };
    let start = Instant::now();
    let Ok(validator) = Validator::new(&schema) else {
        assert!(
            start.elapsed() < MOST,
            "refused after {:?}",
            start.elapsed()
        );
        return;
    };
    let found = validator.check(&value);
    let _ = coerce(&schema, &value);
    let _ = GrammarSubset::new(Some(100)).reduce(&schema, "t");
    assert!(start.elapsed() < MOST, "{:?}: {found:?}", start.elapsed());

    if let Err(CheckError::TooCostly(_)) = found {
        return;
    }
    let plain = jsonschema::options()
        .offline()
        .with_pattern_options(jsonschema::PatternOptions::regex())
        .build(&schema);
    let plain = plain.unwrap_or_else(|error| panic!("accepted, and none: {error}\n{schema}"));
    assert_eq!(
        found.is_ok(),
        plain.is_valid(&value),
        "{found:?}\n{schema}\n{value}"
    );
}
