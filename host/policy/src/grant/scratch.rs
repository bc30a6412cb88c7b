//! The grant of a scratch directory: a place for a call's own files.

use serde::{Deserialize, Serialize};

/// A directory that the host makes for a call or for a session, and removes again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScratchGrant {
    /// The path the guest sees.
    pub guest: String,
    /// Quota in bytes.
    pub quota_bytes: u64,
    pub keep: Keep,
}

/// How long scratch files stay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// Until the call ends.
    #[default]
    Call,
    /// For the calls of one session. A call without a session has a directory of its own.
    Session,
}

impl Default for ScratchGrant {
    fn default() -> Self {
        Self {
            guest: "/scratch".into(),
            quota_bytes: 16 << 20,
            keep: Keep::Call,
        }
    }
}
