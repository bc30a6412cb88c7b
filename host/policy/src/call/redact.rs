//! The last check: secrets leave what a call returns, prints or fails with.
//!
//! A secret should not be here: it is taken out of responses before the guest sees them. This finds
//! one that came by an unforeseen way, and counts it, so that the audit shows it.

use super::{AllowingRule, CallReport, Denial, Output};
use crate::error::CallError;
use crate::redact::Redactor;
use crate::text::UntrustedText;
use serde_json::{Map, Value};

impl CallReport {
    /// Takes secrets out of everything that the call gave back, and counts them in `redactions`.
    pub fn redact(&mut self, redactor: &Redactor) {
        if redactor.is_empty() {
            return;
        }
        let mut cleaning = ReportRedaction { redactor, count: 0 };
        match &mut self.result {
            Ok(Output::Value(value) | Output::Message(value)) => cleaning.clean_value(value),
            Err(error) => cleaning.clean_error(error),
        }
        if let Some(job) = &mut self.job {
            cleaning.clean_string(&mut job.id);
            cleaning.clean_string(&mut job.note);
        }
        cleaning.clean_string(&mut self.stdout.text);
        cleaning.clean_string(&mut self.stderr.text);
        for line in &mut self.logs {
            cleaning.clean_string(&mut line.message);
        }
        for denial in &mut self.denials.kept {
            cleaning.clean_denial(denial);
        }
        self.redactions += cleaning.count;
    }
}

/// One pass over a report.
struct ReportRedaction<'a> {
    redactor: &'a Redactor,
    /// Secrets found so far.
    count: u64,
}

impl ReportRedaction<'_> {
    fn clean_string(&mut self, text: &mut String) {
        if let Some(cleaned) = self.redactor.clean(text.as_bytes()) {
            self.count += cleaned.redactions;
            // A match is never a part of a character: secrets are ASCII.
            *text = String::from_utf8_lossy(&cleaned.bytes).into_owned();
        }
    }

    fn clean_untrusted(&mut self, text: &mut UntrustedText) {
        let mut cleaned = text.raw().to_owned();
        self.clean_string(&mut cleaned);
        *text = cleaned.into();
    }

    fn clean_denial(&mut self, denial: &mut Denial) {
        self.clean_untrusted(&mut denial.asked);
        self.clean_rule(&mut denial.rule);
    }

    fn clean_rule(&mut self, rule: &mut AllowingRule) {
        match rule {
            AllowingRule::Grant { flags, .. } => self.clean_untrusted(flags),
            AllowingRule::Withheld { by, otherwise } => {
                self.clean_untrusted(by);
                if let Some(rule) = otherwise {
                    self.clean_rule(rule);
                }
            }
            AllowingRule::None(_) => {}
        }
    }

    fn clean_value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => self.clean_string(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.clean_value(item)),
            Value::Object(fields) => {
                let cleaned: Map<_, _> = std::mem::take(fields)
                    .into_iter()
                    .map(|(mut name, mut value)| {
                        self.clean_string(&mut name);
                        self.clean_value(&mut value);
                        (name, value)
                    })
                    .collect();
                *fields = cleaned;
            }
            Value::Number(number) => {
                // A secret of digits alone is a number to JSON.
                let mut text = number.to_string();
                let before = self.count;
                self.clean_string(&mut text);
                if self.count > before {
                    *value = Value::String(text);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn clean_error(&mut self, error: &mut CallError) {
        match error {
            CallError::Arguments { reason }
            | CallError::Encoding { reason }
            | CallError::Trap { reason }
            | CallError::Grant { reason }
            | CallError::Host { reason } => self.clean_string(reason),
            CallError::Tool { message, data, .. } => {
                self.clean_string(message);
                if let Some(data) = data {
                    self.clean_value(data);
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
        report.denials.push(Denial {
            asked: format!("GET https://a.example/{SECRET}").into(),
            rule: AllowingRule::Grant {
                module: "m".into(),
                flags: format!("--with-http https://a.example/{SECRET}").into(),
            },
            is_refused: true,
            capability: None,
        });
        report.redact(&redactor);
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
        assert_eq!(report.redactions, 6);
        assert_eq!(
            report.result.unwrap(),
            Output::Value(
                json!({"a": ["[secret pin]", 1, null], "[secret pin]": "[secret pin]", "b": true})
            )
        );
        let report = cleaned(Err(CallError::Trap {
            reason: format!("it died of {SECRET}"),
        }));
        assert_eq!(report.redactions, 4);
        let report = cleaned(Err(CallError::Tool {
            class: ErrorClass::Fatal,
            message: SECRET.into(),
            data: Some(json!([SECRET])),
        }));
        assert_eq!(report.redactions, 5);
    }
}
