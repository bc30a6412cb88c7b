//! Why a pull failed, and what the operator can do.

use crate::digest::Digest;
use crate::reference::ReferenceError;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A failed pull. It may quote the registry, cut short: escape the text before a terminal shows it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    #[error("{text:?} is not a reference: {source}")]
    Reference {
        text: String,
        #[source]
        source: ReferenceError,
    },
    #[error("{reason}")]
    Credentials { reason: String },

    #[error(
        "offline, and {reference} is not in the cache; fetch it once without --offline (oci.offline)"
    )]
    Offline { reference: String },
    #[error(
        "the registry {host} cannot be reached: {reason}; check its name and the network, or use what was fetched before with --offline"
    )]
    Connect { host: String, reason: String },
    #[error(
        "fetching took longer than {} ms; raise oci.timeout_ms if the registry is only slow", limit.as_millis()
    )]
    Deadline { limit: Duration },
    #[error(
        "{host} sent nothing for {} ms; try again later", limit.as_millis()
    )]
    Idle { host: String, limit: Duration },
    #[error("the connection to {host} broke: {reason}; try again")]
    Broken { host: String, reason: String },

    #[error(
        "{host} does not have {what}, or does not show it to everybody{said}; check the name, or set TOOLHOLD_OCI_HOST, TOOLHOLD_OCI_USERNAME and TOOLHOLD_OCI_PASSWORD"
    )]
    NotFound {
        host: String,
        what: String,
        said: String,
    },
    #[error("{host} wants to know who asks{said}; {advice}")]
    Unauthorized {
        host: String,
        said: String,
        advice: String,
    },
    #[error(
        "{host} wants the password sent to {token_host}, which it was not given for; if that host issues its tokens, set TOOLHOLD_OCI_TOKEN_HOST={token_host}"
    )]
    TokenHost { host: String, token_host: String },
    #[error("{host} asks for tokens in a way that cannot be followed: {reason}")]
    Challenge { host: String, reason: String },
    #[error("{host} asks to be left alone{wait}; try again later, or use --offline")]
    Busy { host: String, wait: String },
    #[error(
        "{host} answered {status} for {what}{said}; try again later if it is the registry's fault"
    )]
    Status {
        host: String,
        what: String,
        status: u16,
        said: String,
    },
    #[error("{host} sent us to {target}: {reason}")]
    Redirect {
        host: String,
        target: String,
        reason: String,
    },

    #[error("{what} has {size} bytes, more than the {limit} that are allowed{advice}")]
    TooLarge {
        what: String,
        /// `10737418240` or `more than 100`.
        size: String,
        limit: u64,
        advice: &'static str,
    },
    #[error("{what} has {size} bytes where its manifest promises {promised}; try again")]
    Size {
        what: String,
        size: u64,
        promised: u64,
    },
    #[error(
        "{what} is not what it should be: expected {expected}, got {actual}; do not use it, and tell the operator of the registry"
    )]
    Digest {
        what: String,
        expected: Digest,
        actual: Digest,
    },
    #[error("its manifest cannot be used: {reason}")]
    Manifest { reason: String },
    #[error("it is not a WebAssembly component: {reason}")]
    NotAComponent { reason: String },

    #[error("cannot {action} {}: {source}; is paths.cache a folder that you may write to?", path.display())]
    Store {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl FetchError {
    /// For `map_err`: the action that failed and its path.
    pub(super) fn store(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Store {
            action,
            path,
            source,
        }
    }

    pub(super) fn manifest(reason: impl Into<String>) -> Self {
        Self::Manifest {
            reason: reason.into(),
        }
    }
}
