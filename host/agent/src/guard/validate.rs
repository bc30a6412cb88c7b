//! JSON Schema validation with messages that a model can act on.

use serde_json::Value;

/// A compiled schema.
#[derive(Debug)]
pub struct Validator {
    inner: jsonschema::Validator,
}

/// A model fixes the first faults it is shown; a page of them only costs tokens.
const SHOWN: usize = 3;

impl Validator {
    /// # Errors
    /// What is wrong with the schema. References to other documents are errors: nothing is fetched.
    pub fn new(schema: &Value) -> Result<Self, String> {
        jsonschema::validator_for(schema)
            .map(|inner| Self { inner })
            .map_err(|error| error.to_string())
    }

    /// # Errors
    /// The first faults, each with its JSON path.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let mut faults: Vec<String> = self
            .inner
            .iter_errors(value)
            .take(SHOWN + 1)
            .map(|error| {
                let path = error.instance_path().to_string();
                let place = if path.is_empty() {
                    String::new()
                } else {
                    format!("{path}: ")
                };
                cut(&format!("{place}{error}"), 300)
            })
            .collect();
        if faults.is_empty() {
            return Ok(());
        }
        if faults.len() > SHOWN {
            faults.truncate(SHOWN);
            faults.push("and more".into());
        }
        Err(faults.join("; "))
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
    fn nothing_is_fetched() {
        assert!(Validator::new(&json!({"$ref": "http://127.0.0.1:9/schema.json"})).is_err());
    }
}
