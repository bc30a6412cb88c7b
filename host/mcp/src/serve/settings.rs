//! Settings of serving MCP.

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer};
use sha2::{Digest as _, Sha256};
use std::time::Duration;
use toolhold_connections::{authority, web_origin};

/// Whether calls are in the audit log, and how durable the row must be before a result is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditMode {
    /// The row is on disk.
    Durable,
    /// The row is written: a killed process loses none; a failing machine may lose the last ones.
    Written,
    /// The row is queued. A killed process loses the queued rows.
    Behind,
    Off,
}

/// The saved Requests that are tools.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum OfferedRequests {
    /// All or none.
    All(bool),
    Named(Vec<String>),
}

/// `[mcp_server]`, fixed when the server starts.
#[derive(Debug, Clone, Deserialize)]
pub struct Settings {
    pub audit: AuditMode,
    /// Whether the client's user may decide about calls that wait.
    pub ask: bool,
    /// Time to answer a question.
    #[serde(rename = "answer_timeout_ms", deserialize_with = "milliseconds")]
    pub answer_timeout: Duration,
    pub requests: OfferedRequests,
    pub message_bytes: usize,
    /// Most calls of all clients in progress.
    pub calls: usize,
    pub connections: usize,
    pub sessions: usize,
    /// Accepted values of `Host` and `Origin`.
    pub hosts: Vec<String>,
    pub origins: Vec<String>,
    /// The variable that holds the bearer token, and the token.
    pub token_env: String,
    #[serde(skip)]
    pub token: Option<SecretString>,
}

impl Settings {
    /// The first key with a wrong value, and the reason.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        let zeros = [
            ("answer_timeout_ms", self.answer_timeout.is_zero()),
            ("message_bytes", self.message_bytes == 0),
            ("calls", self.calls == 0),
            ("connections", self.connections == 0),
            ("sessions", self.sessions == 0),
        ];
        if let Some((key, _)) = zeros.into_iter().find(|(_, is_zero)| *is_zero) {
            return Some((key, "must be at least 1".into()));
        }
        let hosts = authority::fault(&self.hosts).map(|reason| ("hosts", reason));
        hosts.or_else(|| web_origin::fault(&self.origins).map(|reason| ("origins", reason)))
    }
}

fn milliseconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_millis)
}

/// The bearer token that every request needs; only its digest is kept.
#[derive(Clone)]
pub struct Bearer([u8; 32]);

impl std::fmt::Debug for Bearer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bearer(…)")
    }
}

impl Bearer {
    /// Shorter tokens can be guessed.
    pub const MIN_CHARS: usize = 16;

    /// # Errors
    /// The token is too weak.
    pub fn new(token: &SecretString) -> Result<Self, String> {
        let token = token.expose_secret().trim();
        if token.len() < Self::MIN_CHARS {
            return Err(format!(
                "it holds fewer than {} characters; make one with: openssl rand -hex 32",
                Self::MIN_CHARS
            ));
        }
        Ok(Self(Sha256::digest(token).into()))
    }

    /// Compares `token` in constant time.
    pub fn is(&self, token: &str) -> bool {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let differing = self
            .0
            .iter()
            .zip(digest)
            .fold(0, |all, (a, b)| all | (a ^ b));
        differing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_shown_and_not_guessed() {
        let bearer = Bearer::new(&SecretString::from("0123456789abcdef\n")).unwrap();
        assert!(bearer.is("0123456789abcdef") && !bearer.is("0123456789abcdeg") && !bearer.is(""));
        assert_eq!(format!("{bearer:?}"), "Bearer(…)");
        assert!(Bearer::new(&SecretString::from("short")).is_err());
    }
}
