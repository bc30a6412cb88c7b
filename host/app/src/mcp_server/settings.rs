//! What the operator says of serving MCP.

use crate::config::Audit;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::time::Duration;

/// Which saved Requests are tools.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Offer {
    /// All or none.
    All(bool),
    Named(Vec<String>),
}

/// `[mcp_server]`, as it was when the server began.
#[derive(Debug, Clone)]
pub struct Settings {
    pub audit: Audit,
    /// Whether the client's user may decide about calls that wait.
    pub ask: bool,
    /// How long a question waits for its answer.
    pub answer_timeout: Duration,
    pub requests: Offer,
    pub message_bytes: usize,
    /// Calls of all clients at the same time.
    pub calls: usize,
    pub connections: usize,
    pub sessions: usize,
    pub session_idle: Duration,
    /// Names by which this server is reached, and origins of pages that may reach it.
    pub hosts: Vec<String>,
    pub origins: Vec<String>,
    /// The variable that holds the bearer token.
    pub token_env: String,
}

/// The token that every request must bring; its digest is all that is kept.
#[derive(Clone)]
pub struct Bearer([u8; 32]);

impl std::fmt::Debug for Bearer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bearer(…)")
    }
}

impl Bearer {
    /// Shorter ones can be guessed.
    pub const LEAST: usize = 16;

    /// # Errors
    /// Why the token protects nothing.
    pub fn new(token: &SecretString) -> Result<Self, String> {
        let token = token.expose_secret().trim();
        if token.len() < Self::LEAST {
            return Err(format!(
                "it holds fewer than {} characters; make one with: openssl rand -hex 32",
                Self::LEAST
            ));
        }
        Ok(Self(Sha256::digest(token).into()))
    }

    /// Whether `token` is it, in the same time whatever it is.
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
