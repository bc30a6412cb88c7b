//! Secrets in what a run did, for those who are told of it over an API: where the run hides secrets from its model, they
//! leave the run nowhere. The operator alone, who has the record, sees them.

use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;
use toolhold_policy::pii::Kind;
use toolhold_policy::redaction::{self, Masking};
use toolhold_protocol::privacy::Privacy;

/// The kinds of secrets that a run hides. `<api_key>` takes the place of one.
#[derive(Debug, Clone, Default)]
pub struct SecretMask {
    hidden: BTreeSet<Kind>,
}

impl SecretMask {
    pub fn of(privacy: &Privacy) -> Self {
        let hidden = privacy.hide.iter().copied();
        Self {
            hidden: hidden.filter(|kind| kind.is_secret()).collect(),
        }
    }

    pub fn is_off(&self) -> bool {
        self.hidden.is_empty()
    }

    pub fn value(&self, value: Value) -> Value {
        if self.is_off() {
            return value;
        }
        self.masked_value(value)
    }

    pub fn text(&self, text: &str) -> String {
        self.masked(text).into_owned()
    }
}

impl Masking for SecretMask {
    /// Far above every module's `json_depth`.
    const DEEPEST: usize = 256;

    fn masked<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.is_off() {
            return Cow::Borrowed(text);
        }
        redaction::without(text, |kind| self.hidden.contains(&kind))
    }
}
