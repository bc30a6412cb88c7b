//! Secrets that the host puts into a guest's requests. Each is bound to one origin and one place in its
//! requests; [`crate::redact`] takes it out of every response. The guest never holds one.

use crate::egress::{GrantError, Origin};
use crate::redact::Redactor;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use std::fmt;
use url::Url;

/// Minimum bytes of a secret. A shorter one would be found in texts that have nothing to do with it.
pub const MIN_SECRET_BYTES: usize = 8;
/// Maximum bytes of a secret: what servers accept in a header, less some room.
const MAX_SECRET_BYTES: usize = 4096;
/// Where the secret stands in a header's format.
const PLACEHOLDER: &str = "{secret}";

/// Where a secret goes: this, and no other request, carries it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretSlot {
    /// Its name in markers, logs and configuration. Letters, digits, `_` and `-`.
    pub name: String,
    /// The one origin whose requests carry it.
    pub origin: Origin,
    pub place: SecretPlace,
}

/// The part of a request that carries a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SecretPlace {
    Header {
        name: String,
        /// With `{secret}` where the secret goes. Default: `Bearer {secret}` for `Authorization`,
        /// else the secret alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<String>,
    },
    Query {
        name: String,
    },
}

/// What is done with a response that holds the secret, in any form in which it is found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reflect {
    /// A marker takes the secret's place.
    #[default]
    Redact,
    /// The response is refused.
    Deny,
}

/// A secret with its slot, checked. Serialised and printed without its value; two are equal if their
/// slots are, because a pin is about where a secret goes.
#[derive(Clone, Serialize)]
#[serde(transparent)]
pub struct SecretGrant {
    slot: SecretSlot,
    /// The operator's decision alone: a manifest has no word for it.
    #[serde(skip)]
    reflect: Reflect,
    #[serde(skip)]
    value: SecretString,
    #[serde(skip)]
    carrier: Carrier,
}

/// The text that is put into a request.
#[derive(Clone)]
enum Carrier {
    Header(HeaderName, HeaderValue),
    Query(String),
}

impl SecretGrant {
    /// # Errors
    /// [`GrantError::Secret`] if the value is no text that a request can carry or that could be
    /// found again, if the place cannot carry it, or if it would travel unencrypted.
    pub fn new(slot: SecretSlot, value: SecretString) -> Result<Self, GrantError> {
        let wrong = |reason: &str| GrantError::Secret {
            name: slot.name.clone(),
            reason: reason.into(),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if slot.name.is_empty() || slot.name.len() > 64 || !slot.name.chars().all(is_name) {
            return Err(wrong(
                "must be called something of letters, digits, _ and -",
            ));
        }
        if slot.origin.is_wildcard() {
            return Err(wrong("must go to one host, not to all under one"));
        }
        if !slot.origin.is_https() && !slot.origin.is_loopback() {
            return Err(wrong(
                "would travel unencrypted: use https (http goes to this machine only)",
            ));
        }
        let text = value.expose_secret();
        if text.len() < MIN_SECRET_BYTES {
            return Err(wrong(
                "has fewer than 8 bytes, and would be found in texts that have nothing to do with it",
            ));
        }
        if text.len() > MAX_SECRET_BYTES {
            return Err(wrong("has more than 4096 bytes, more than servers accept"));
        }
        if !text.bytes().all(|b| (b' '..=b'~').contains(&b)) || text.trim() != text {
            return Err(wrong(
                "must be printable ASCII without spaces around it (is there a line break at its end?)",
            ));
        }
        let carrier = match &slot.place {
            SecretPlace::Header { name, format } => {
                header_carrier(name, format.as_deref(), text).map_err(wrong)?
            }
            SecretPlace::Query { name } if name.is_empty() => {
                return Err(wrong("needs the name of a query parameter"));
            }
            SecretPlace::Query { name } => Carrier::Query(name.clone()),
        };
        Ok(Self {
            slot,
            reflect: Reflect::default(),
            value,
            carrier,
        })
    }

    /// The secret's name, origin and place.
    pub fn slot(&self) -> &SecretSlot {
        &self.slot
    }

    /// With this decision about responses that hold the secret.
    #[must_use]
    pub fn reflecting(mut self, reflect: Reflect) -> Self {
        self.reflect = reflect;
        self
    }

    /// Whether a response that holds it is refused.
    pub fn is_refused(&self) -> bool {
        self.reflect == Reflect::Deny
    }

    /// Whether `other` has the same slot, the same value, and the same is done with responses that hold it.
    pub fn is_same(&self, other: &Self) -> bool {
        self == other
            && self.reflect == other.reflect
            && self.value.expose_secret() == other.value.expose_secret()
    }

    /// A redactor for all of `secrets`.
    pub fn redactor<'a>(
        secrets: impl IntoIterator<Item = &'a Self>,
    ) -> Result<Redactor, GrantError> {
        let secrets: Vec<&Self> = secrets.into_iter().collect();
        let pairs = secrets
            .iter()
            .map(|secret| (secret.slot.name.as_str(), secret.value.expose_secret()));
        Redactor::new(pairs).map_err(|error| GrantError::Secret {
            name: secrets
                .iter()
                .map(|s| s.slot.name.as_str())
                .collect::<Vec<_>>()
                .join(", "),
            reason: error.to_string(),
        })
    }

    /// Puts the secret into a request that goes to its origin, and says whether it did. What the
    /// guest put in that place is replaced: components written for other hosts send a placeholder,
    /// and a guest's own credential would let it write into another person's account.
    pub fn inject(&self, url: &mut Url, headers: &mut HeaderMap) -> bool {
        if !self.slot.origin.covers(url) {
            return false;
        }
        match &self.carrier {
            Carrier::Header(name, value) => {
                headers.insert(name, value.clone());
            }
            Carrier::Query(name) => {
                let kept = without_parameter(url.query().unwrap_or_default(), name);
                url.set_query((!kept.is_empty()).then_some(&kept));
                url.query_pairs_mut()
                    .append_pair(name, self.value.expose_secret());
            }
        }
        true
    }
}

fn header_carrier(name: &str, format: Option<&str>, secret: &str) -> Result<Carrier, &'static str> {
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| "needs the name of a header, such as Authorization or X-Api-Key")?;
    if crate::egress::is_forbidden_header(&name) || name == header::CONTENT_LENGTH {
        return Err("cannot go into a header that belongs to the connection");
    }
    let bearer = (name == header::AUTHORIZATION).then_some("Bearer {secret}");
    let format = format.or(bearer).unwrap_or(PLACEHOLDER);
    if format.matches(PLACEHOLDER).count() != 1 {
        return Err("needs a format with {secret} in it, once");
    }
    let mut value = HeaderValue::from_str(&format.replace(PLACEHOLDER, secret))
        .map_err(|_| "needs a format of printable ASCII")?;
    // Keeps it out of debug output and out of HTTP/2's compression tables.
    value.set_sensitive(true);
    Ok(Carrier::Header(name, value))
}

/// `query` without the parameters called `name`, in any spelling. The others stay as they are.
fn without_parameter(query: &str, name: &str) -> String {
    let called = |part: &str| {
        url::form_urlencoded::parse(part.as_bytes())
            .next()
            .is_some_and(|(key, _)| key.eq_ignore_ascii_case(name))
    };
    query
        .split('&')
        // Some servers split at semicolons too.
        .filter(|part| !part.split(';').any(called))
        .collect::<Vec<_>>()
        .join("&")
}

impl PartialEq for SecretGrant {
    fn eq(&self, other: &Self) -> bool {
        self.slot == other.slot
    }
}

impl Eq for SecretGrant {}

impl fmt::Debug for SecretGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretGrant")
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}

/// One sentence for the person who approves it.
impl fmt::Display for SecretGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SecretSlot {
            name,
            origin,
            place,
        } = &self.slot;
        match place {
            SecretPlace::Header { name: header, .. } => {
                write!(
                    f,
                    "the secret {name} goes into the header {header} of requests to {origin}"
                )
            }
            SecretPlace::Query { name: parameter } => {
                write!(
                    f,
                    "the secret {name} goes into the query parameter {parameter} of requests to {origin}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests;
