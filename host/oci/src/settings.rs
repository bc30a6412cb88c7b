//! What an operator decides about pulls.

use crate::auth::Credentials;
use crate::reference::is_loopback;
use std::path::PathBuf;
use std::time::Duration;

/// Limits, cache folder and network settings of a [`Fetcher`](crate::Fetcher).
#[derive(Debug, Clone)]
pub struct Settings {
    /// Use only the cache: no network request.
    pub offline: bool,
    /// Bound of one pull, from the first request to the written cache.
    pub timeout: Duration,
    /// How to talk to registries.
    pub network: Network,
    /// Folder of the cache; created when the first component is kept.
    pub folder: PathBuf,
}

impl Settings {
    /// The defaults of Toolhold's embedded configuration: online, 5 minutes for a pull, 30 seconds of
    /// silence, HTTPS for every registry but loopback.
    pub fn new(folder: PathBuf, credentials: Option<Credentials>) -> Self {
        Self {
            offline: false,
            timeout: Duration::from_mins(5),
            network: Network {
                insecure: Vec::new(),
                idle_timeout: Duration::from_secs(30),
                credentials,
            },
            folder,
        }
    }
}

/// How the client talks to registries.
#[derive(Debug, Clone)]
pub struct Network {
    /// Registries, as `HOST` or `HOST:PORT`, to use plain HTTP for. Loopback always uses plain HTTP.
    pub insecure: Vec<String>,
    /// Longest wait for the next bytes of an answer.
    pub idle_timeout: Duration,
    /// Who pulls; absent: without an account.
    pub credentials: Option<Credentials>,
}

impl Network {
    /// Whether `HOST[:PORT]` uses plain HTTP: it is loopback, or the operator listed it.
    pub(crate) fn is_insecure(&self, authority: &str) -> bool {
        let host = match authority.rfind(':') {
            Some(colon) if !authority[colon..].contains(']') => &authority[..colon],
            _ => authority,
        };
        let named =
            |entry: &String| [authority, host].contains(&entry.to_ascii_lowercase().as_str());
        is_loopback(host) || self.insecure.iter().any(named)
    }
}
