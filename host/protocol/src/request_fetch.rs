//! Saved Requests that the host fetched from addresses, or did not (docs/protocol.md, 6.1).

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// One fetch of a saved Request, as the record has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFetch {
    /// As the tool message names it, but for a user's name and password, and for a query.
    pub address: String,
    /// The call whose sub-agent has the tool. Absent: the run itself has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// SHA-256 of the document, in hex, if there was one as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Bytes of the document.
    pub bytes: u64,
    pub duration_ms: u64,
    /// Requests that were sent: none where the fetch was refused.
    pub attempts: u32,
    /// Why the document is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// For people, in one line.
impl Display for RequestFetch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            address,
            digest,
            bytes,
            duration_ms,
            error,
            ..
        } = self;
        match (error, digest) {
            (Some(error), _) => write!(f, "not fetched after {duration_ms} ms: {error}"),
            (None, digest) => {
                let digest = digest.as_deref().unwrap_or_default();
                write!(
                    f,
                    "fetched {address} ({bytes} bytes, {duration_ms} ms, sha256:{digest})"
                )
            }
        }
    }
}
