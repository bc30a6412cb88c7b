//! The last door: what a call returns, prints or dies of goes through the redactor too.
//!
//! A secret should not be here: it is taken out of responses before the guest sees them. This finds
//! one that came by a way nobody thought of, and counts it, so that the audit can tell.

use super::redact::Redactor;
use crate::call::{CallReport, Output};
use crate::error::CallError;
use serde_json::{Map, Value};

impl Redactor {
    /// Takes secrets out of everything a call gives back, and counts them in `redactions`.
    pub(crate) fn clean_report(&self, report: &mut CallReport) {
        if self.is_empty() {
            return;
        }
        let mut count = 0;
        match &mut report.result {
            Ok(Output::Value(value) | Output::Message(value)) => {
                self.clean_value(value, &mut count);
            }
            Err(error) => self.clean_error(error, &mut count),
        }
        self.clean_string(&mut report.stdout.text, &mut count);
        self.clean_string(&mut report.stderr.text, &mut count);
        for line in &mut report.logs {
            self.clean_string(&mut line.message, &mut count);
        }
        report.redactions += count;
    }

    fn clean_string(&self, text: &mut String, count: &mut u64) {
        if let Some(cleaned) = self.clean(text.as_bytes()) {
            *count += cleaned.redactions;
            // A match is never a part of a character: secrets are ASCII.
            *text = String::from_utf8_lossy(&cleaned.bytes).into_owned();
        }
    }

    fn clean_value(&self, value: &mut Value, count: &mut u64) {
        match value {
            Value::String(text) => self.clean_string(text, count),
            Value::Array(items) => items
                .iter_mut()
                .for_each(|item| self.clean_value(item, count)),
            Value::Object(fields) => {
                let cleaned: Map<_, _> = std::mem::take(fields)
                    .into_iter()
                    .map(|(mut name, mut value)| {
                        self.clean_string(&mut name, count);
                        self.clean_value(&mut value, count);
                        (name, value)
                    })
                    .collect();
                *fields = cleaned;
            }
            Value::Number(number) => {
                // A secret of digits alone is a number to JSON.
                let mut text = number.to_string();
                let before = *count;
                self.clean_string(&mut text, count);
                if *count > before {
                    *value = Value::String(text);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn clean_error(&self, error: &mut CallError, count: &mut u64) {
        match error {
            CallError::Arguments { reason }
            | CallError::Encoding { reason }
            | CallError::Trap { reason }
            | CallError::Grant { reason }
            | CallError::Host { reason } => self.clean_string(reason, count),
            CallError::Tool { message, data, .. } => {
                self.clean_string(message, count);
                if let Some(data) = data {
                    self.clean_value(data, count);
                }
            }
            // The rest is made of numbers and of names that the host gave.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorClass;
    use serde_json::json;

    const SECRET: &str = "4711471147114711";

    fn cleaned(result: Result<Output, CallError>) -> CallReport {
        let redactor = Redactor::new([("pin", SECRET)]).unwrap();
        let mut report = CallReport::refused(CallError::Host {
            reason: String::new(),
        });
        report.result = result;
        report.stdout.text = format!("out {SECRET}");
        redactor.clean_report(&mut report);
        assert!(
            !redactor.finds(format!("{report:?}").as_bytes()),
            "{report:?}"
        );
        report
    }

    #[test]
    fn a_secret_is_taken_out_wherever_it_stands() {
        let number: u64 = SECRET.parse().unwrap();
        let value = json!({"a": [SECRET, 1, null], SECRET: number, "b": true});
        let report = cleaned(Ok(Output::Value(value)));
        assert_eq!(report.redactions, 4);
        assert_eq!(
            report.result.unwrap(),
            Output::Value(
                json!({"a": ["[secret pin]", 1, null], "[secret pin]": "[secret pin]", "b": true})
            )
        );
        let report = cleaned(Err(CallError::Trap {
            reason: format!("it died of {SECRET}"),
        }));
        assert_eq!(report.redactions, 2);
        let report = cleaned(Err(CallError::Tool {
            class: ErrorClass::Fatal,
            message: SECRET.into(),
            data: Some(json!([SECRET])),
        }));
        assert_eq!(report.redactions, 3);
    }
}
