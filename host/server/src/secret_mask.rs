//! Masks secrets in steps, events and waiting calls before the API returns them. It applies to runs that hide secrets from
//! their model; keys with `admin` get events and waiting calls without a mask.

use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use toolhold_policy::pii::{Kind, find};
use toolhold_policy::redaction::{self, Masking};
use toolhold_protocol::privacy::Privacy;

/// Most secrets of a run that are known again where nothing around them says what they are.
const MAX_KNOWN: usize = 1_000;
/// Bytes of the shortest of them.
const MIN_KNOWN: usize = 8;

/// The kinds of secrets that a run hides, and those that were seen so far. `<api_key>` takes the place of one.
#[derive(Debug, Clone, Default)]
pub struct SecretMask {
    hidden: BTreeSet<Kind>,
    /// With what takes its place.
    known: BTreeMap<String, String>,
}

impl SecretMask {
    pub fn of(privacy: &Privacy) -> Self {
        let hidden = privacy.hide.iter().copied();
        Self {
            hidden: hidden.filter(|kind| kind.is_secret()).collect(),
            known: BTreeMap::new(),
        }
    }

    pub fn is_off(&self) -> bool {
        self.hidden.is_empty()
    }

    /// Whether these bytes are a text with secrets that are hidden.
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        !self.is_off()
            && std::str::from_utf8(bytes)
                .is_ok_and(|text| !find(text, |kind| self.hidden.contains(&kind)).is_empty())
    }

    /// `value` without secrets, also those that only the name beside them tells, as in `{"Authorization": "Basic …"}`: in
    /// the JSON text that the model is shown, the two stand together.
    pub fn value(&mut self, value: Value) -> Value {
        if self.is_off() {
            return value;
        }
        let text = value.to_string();
        for finding in find(&text, |kind| self.hidden.contains(&kind)) {
            let secret = text.get(finding.start..finding.end).unwrap_or_default();
            if secret.len() >= MIN_KNOWN && self.known.len() < MAX_KNOWN {
                let name = format!("<{}>", finding.kind.name());
                self.known.insert(secret.to_owned(), name);
            }
        }
        self.masked_value(value)
    }

    pub fn text(&mut self, text: &str) -> String {
        if self.is_off() {
            return text.to_owned();
        }
        self.masked(text).into_owned()
    }
}

impl Masking for SecretMask {
    /// Far above every module's `json_depth`.
    const DEEPEST: usize = 256;

    fn masked<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut masked = redaction::without(text, |kind| self.hidden.contains(&kind));
        for (secret, name) in &self.known {
            if masked.contains(secret.as_str()) {
                masked = Cow::Owned(masked.replace(secret.as_str(), name));
            }
        }
        masked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_secret_is_found_in_bytes_that_are_a_text() {
        let mask = SecretMask::of(&Privacy {
            hide: [Kind::ApiKey, Kind::Email].into(),
            ..Privacy::default()
        });
        let key = b"the key AKIAIOSFODNN7EXAMPLE of ann@example.org";
        assert!(mask.is_in(key));
        assert!(!mask.is_in(b"mail to ann@example.org"));
        assert!(!mask.is_in(&[&b"\xff"[..], &key[..]].concat()));
        assert!(!SecretMask::default().is_in(key));
    }

    #[test]
    fn a_secret_is_known_by_the_name_beside_it_and_again_without_it() {
        let mut mask = SecretMask::of(&Privacy {
            hide: [Kind::ApiKey, Kind::Authorization, Kind::Email].into(),
            ..Privacy::default()
        });
        let header = json!({"Authorization": "Basic dXNlcjpwYXNzd29yZA=="});
        let masked = mask.value(header).to_string();
        assert!(!masked.contains("dXNlcjpwYXNzd29yZA"), "{masked}");
        let alone = mask.text("again dXNlcjpwYXNzd29yZA== here");
        assert!(!alone.contains("dXNlcjpwYXNzd29yZA"), "{alone}");
        // What is no secret is shown.
        assert_eq!(mask.text("ann@example.com"), "ann@example.com");
        let open = json!({"Authorization": "Basic dXNlcjpwYXNzd29yZA=="});
        assert_eq!(SecretMask::default().value(open.clone()), open);
    }
}
