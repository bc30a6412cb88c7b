//! Redaction of what leaves the records of runs: without personal data, and without secrets.

mod masking;
mod schema;

pub use masking::{Masking, without};

use crate::redact::Redactor;
use parking_lot::RwLock;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// Replaces secrets and personal data in texts and JSON: everything that [`pii::find`](crate::pii::find) finds, the
/// values of members with a name such as `password`, and the secrets that this host knows. Clones share the known
/// secrets.
#[derive(Clone, Default)]
pub struct Redaction {
    known: Arc<RwLock<Redactor>>,
}

/// Ends of names of members whose value is always a secret: lower case, singular, without `_`, `-`, `.` and spaces.
const SECRET_NAMES: [&str; 20] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "secret",
    "token",
    "jwt",
    "apikey",
    "secretkey",
    "accesskey",
    "privatekey",
    "signingkey",
    "encryptionkey",
    "sessionkey",
    "sharedkey",
    "credential",
    "authorization",
    "cookie",
    "connectionstring",
];

/// A number under a name with this end is a count, and no secret: `max_tokens`.
const COUNT_NAME_SUFFIX: &str = "tokens";

/// The replacement of such a value.
const REDACTED_VALUE: &str = "<secret>";

impl Redaction {
    /// For a host with these secrets, as pairs of name and value. Values of fewer than `MIN_BYTES` bytes are not looked
    /// for.
    pub fn new(secrets: impl IntoIterator<Item = (String, String)>) -> Self {
        let this = Self::default();
        this.renew(secrets);
        this
    }

    /// Replaces the known secrets. Calls that are running use the previous ones.
    pub fn renew(&self, secrets: impl IntoIterator<Item = (String, String)>) {
        let secrets: Vec<_> = secrets
            .into_iter()
            .filter(|(_, secret)| secret.len() >= MIN_BYTES)
            .collect();
        let pairs = secrets
            .iter()
            .map(|(name, secret)| (name.as_str(), secret.as_str()));
        let known = Redactor::new(pairs).unwrap_or_else(|error| {
            tracing::error!(%error, "the host's secrets cannot be looked for");
            Redactor::default()
        });
        *self.known.write() = known;
    }

    /// A redacted copy of `value`.
    pub fn value(&self, value: &Value) -> Value {
        self.masked_value(value.clone())
    }
}

impl Masking for Redaction {
    /// The depth to which JSON text is read.
    const DEEPEST: usize = 128;

    fn masked<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let known = self.known.read().clone();
        match known.clean(text.as_bytes()) {
            None => without(text, |_| true),
            Some(cleaned) => {
                let cleaned = String::from_utf8_lossy(&cleaned.bytes);
                Cow::Owned(without(&cleaned, |_| true).into_owned())
            }
        }
    }

    fn instead(&self, name: &str, value: &Value) -> Option<Value> {
        is_secret(name, value).then(|| REDACTED_VALUE.into())
    }
}

impl std::fmt::Debug for Redaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redaction").finish_non_exhaustive()
    }
}

/// Least bytes of a known secret: a shorter one would be found in ordinary text.
const MIN_BYTES: usize = 8;

fn is_secret(name: &str, value: &Value) -> bool {
    let plain: String = name
        .chars()
        .filter(|c| !matches!(c, '_' | '-' | '.' | ' '))
        .flat_map(char::to_lowercase)
        .collect();
    if value.is_null() || value.is_number() && plain.ends_with(COUNT_NAME_SUFFIX) {
        return false;
    }
    let one = plain.strip_suffix('s').unwrap_or(&plain);
    SECRET_NAMES.iter().any(|secret| one.ends_with(secret))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn personal_data_and_secrets_are_replaced_everywhere() {
        let redaction = Redaction::new([
            ("crm".to_owned(), "hunter2-hunter2".to_owned()),
            ("short".to_owned(), "the".to_owned()),
        ]);
        for (before, after) in [
            (
                json!("mail ada@example.org, the end"),
                json!("mail <email>, the end"),
            ),
            (
                json!({"ada@example.org": 1, "bob@example.org": 2}),
                json!({"<email>": 1, "<email> 2": 2}),
            ),
            (json!(["key hunter2-hunter2"]), json!(["key [secret crm]"])),
            (
                json!({"api_keys": ["a", "b"]}),
                json!({"api_keys": "<secret>"}),
            ),
            (
                json!({"Access-Token": 7}),
                json!({"Access-Token": "<secret>"}),
            ),
            (json!({"tokenizer": "bpe"}), json!({"tokenizer": "bpe"})),
            (json!({"token": null}), json!({"token": null})),
            (json!(4_111_111_111_111_111_u64), json!("<card>")),
            (json!([1.5, true, null]), json!([1.5, true, null])),
        ] {
            assert_eq!(redaction.value(&before), after);
        }
    }

    #[test]
    fn some_names_mark_secrets() {
        let redaction = Redaction::default();
        let is_masked = |name: &str, value: Value| {
            let before = json!({ name: value });
            let after = redaction.value(&before);
            assert!(
                after == before || after == json!({ name: REDACTED_VALUE }),
                "{after}"
            );
            after != before
        };
        for name in [
            "secret_access_key",
            "secretKey",
            "access_key",
            "AWS_ACCESS_KEYS",
            "signing_key",
            "encryptionKey",
            "db.pwd",
            "Cookie",
            "Set-Cookie",
            "cookies",
            "Proxy-Authorization",
            "connection string",
            "tokens",
        ] {
            assert!(is_masked(name, json!("x")), "{name}");
        }
        for name in [
            "key",
            "primary_key",
            "keyboard",
            "max_tokens_note",
            "author",
        ] {
            assert!(!is_masked(name, json!("x")), "{name}");
        }
        for name in ["tokens", "max_tokens", "completionTokens"] {
            assert!(!is_masked(name, json!(100)), "{name}");
            assert!(is_masked(name, json!(["x"])), "{name}");
        }
        assert!(is_masked("token", json!(100)));
    }

    #[test]
    fn too_deep_values_are_replaced() {
        let deep = (0..200).fold(json!("ada@example.org"), |inner, _| json!([inner]));
        let text = Redaction::default().value(&deep).to_string();
        assert!(text.contains("too deep") && !text.contains("ada"), "{text}");
    }
}
