//! JSON Schema validation with messages that a model can act on.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};

/// A compiled schema.
#[derive(Debug)]
pub struct Validator {
    inner: jsonschema::Validator,
}

/// Maximum faults shown to a model: it fixes the first ones, and more only cost tokens.
const MAX_FAULTS_FOR_MODEL: usize = 3;
/// Maximum faults shown to a person: as many as fit a screen.
const MAX_FAULTS_FOR_PERSON: usize = 16;
/// Maximum characters of one fault, which may quote the value.
const MAX_FAULT_CHARS: usize = 300;

/// One thing that is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer to what is wrong; empty means the whole value.
    pub pointer: String,
    pub reason: String,
}

impl Validator {
    /// # Errors
    /// The fault in the schema. References to other documents are errors: nothing is fetched.
    pub fn new(schema: &Value) -> Result<Self, String> {
        jsonschema::validator_for(schema)
            .map(|inner| Self { inner })
            .map_err(|error| error.to_string())
    }

    /// # Errors
    /// The first faults, each with its JSON path.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let faults = self.first(MAX_FAULTS_FOR_MODEL + 1, value, &BTreeSet::new());
        let mut faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        if faults.is_empty() {
            return Ok(());
        }
        if faults.len() > MAX_FAULTS_FOR_MODEL {
            faults.truncate(MAX_FAULTS_FOR_MODEL);
            faults.push("and more".into());
        }
        Err(faults.join("; "))
    }

    /// The faults of `value`. The parts at `open` (JSON pointers) stand for values that are not
    /// known yet: faults in them, or that depend on them, are left out.
    pub fn faults(&self, value: &Value, open: &[&str]) -> Vec<Violation> {
        self.first(
            MAX_FAULTS_FOR_PERSON,
            value,
            &open.iter().copied().collect(),
        )
    }

    fn first(&self, most: usize, value: &Value, open: &BTreeSet<&str>) -> Vec<Violation> {
        self.inner
            .iter_errors(value)
            .filter(|error| !depends_on(error, open))
            .take(most)
            .map(|error| Violation {
                pointer: error.instance_path().to_string(),
                reason: reason(&error),
            })
            .collect()
    }
}

/// The reason in words. A long value is not quoted: half of a cut secret could not be recognised and hidden.
fn reason(error: &ValidationError<'_>) -> String {
    let whole = error.to_string();
    if whole.chars().count() <= MAX_FAULT_CHARS {
        return whole;
    }
    cut(&error.masked().to_string(), MAX_FAULT_CHARS)
}

/// Whether `error` may vanish once the values at `open` are known.
fn depends_on(error: &ValidationError<'_>, open: &BTreeSet<&str>) -> bool {
    use ValidationErrorKind as Kind;
    if open.is_empty() {
        return false;
    }
    let place = error.instance_path().as_str();
    if open.contains(place) {
        return true;
    }
    match error.kind() {
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => context
            .iter()
            .any(|branch| branch.iter().all(|error| depends_on(error, open))),
        Kind::Constant { .. }
        | Kind::Contains
        | Kind::Enum { .. }
        | Kind::Not { .. }
        | Kind::OneOfMultipleValid { .. }
        | Kind::UnevaluatedItems { .. }
        | Kind::UnevaluatedProperties { .. }
        | Kind::UniqueItems => {
            let inside = format!("{place}/");
            let next = open.range(inside.as_str()..).next();
            next.is_some_and(|next| next.starts_with(&inside))
        }
        // The condition may depend on an open value.
        _ => {
            let mut keywords = error.schema_path().as_str().split('/');
            keywords.any(|keyword| matches!(keyword, "then" | "else"))
        }
    }
}

impl Display for Violation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.pointer.is_empty() {
            f.write_str(&self.reason)
        } else {
            write!(f, "{}: {}", self.pointer, self.reason)
        }
    }
}

/// At most `max` characters of `text`, with an ellipsis where something is missing.
pub fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn faults_name_the_place_and_the_expectation() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n", "m"]});
        let error = Validator::new(&schema)
            .unwrap()
            .check(&json!({"n": "x"}))
            .unwrap_err();
        assert!(
            error.contains("/n: \"x\" is not of type \"integer\""),
            "{error}"
        );
        assert!(error.contains("\"m\" is a required property"), "{error}");
    }

    #[test]
    fn open_values_are_no_violation_and_known_ones_are() {
        let schema = json!({
            "type": "object",
            "properties": {
                "n": {"type": "integer", "maximum": 9},
                "list": {"type": "array", "items": {"type": "number"}, "minItems": 2, "uniqueItems": true},
                "way": {"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"to": {"type": "integer"}, "by": {"type": "integer"}}, "required": ["to"]}]},
                "pair": {"const": {"a": 1, "b": 2}},
                "mode": {"enum": ["x", "y"]},
            },
            "if": {"properties": {"mode": {"not": {"const": "y"}}}, "required": ["mode"]},
            "then": {"required": ["n"]},
            "required": ["list"],
            "additionalProperties": false,
        });
        let validator = Validator::new(&schema).unwrap();
        for (value, open, expect) in [
            (json!({"list": "†l", "n": "†n"}), vec!["/list", "/n"], ""),
            (json!({"list": "†l", "n": "†n"}), vec!["/list"], "/n: "),
            (
                json!({"list": ["†a", "†a"]}),
                vec!["/list/0", "/list/1"],
                "",
            ),
            (json!({"list": ["†a", "x"]}), vec!["/list/0"], "/list/1: "),
            (json!({"list": ["†a"]}), vec!["/list/0"], "/list: "),
            (
                json!({"list": "†l", "way": {"to": "†t"}}),
                vec!["/list", "/way/to"],
                "",
            ),
            (
                json!({"list": "†l", "way": {"to": "†t", "by": "x"}}),
                vec!["/list", "/way/to"],
                "/way: ",
            ),
            (
                json!({"list": "†l", "way": "†w"}),
                vec!["/list", "/way"],
                "",
            ),
            (
                json!({"list": "†l", "pair": {"a": "†a", "b": 2}}),
                vec!["/list", "/pair/a"],
                "",
            ),
            (
                json!({"list": "†l", "pair": {"a": 1, "b": 3}}),
                vec!["/list"],
                "/pair: ",
            ),
            (
                json!({"list": "†l", "mode": "†m"}),
                vec!["/list", "/mode"],
                "",
            ),
            (json!({"list": "†l", "mode": "z"}), vec!["/list"], "/mode: "),
            (
                json!({"n": "†n"}),
                vec!["/n"],
                ": \"list\" is a required property",
            ),
            (
                json!({"list": "†l", "more": "†m"}),
                vec!["/list", "/more"],
                ": Additional properties",
            ),
        ] {
            let faults = validator.faults(&value, &open);
            let faults: Vec<_> = faults
                .iter()
                .map(|f| format!("{}: {}", f.pointer, f.reason))
                .collect();
            if expect.is_empty() {
                assert_eq!(faults, [""; 0], "{value}");
            } else {
                assert!(
                    faults.len() == 1 && faults[0].starts_with(expect),
                    "{value}: {faults:?}"
                );
            }
        }
    }

    #[test]
    fn nothing_is_fetched() {
        assert!(Validator::new(&json!({"$ref": "http://127.0.0.1:9/schema.json"})).is_err());
    }
}
