//! The seal of an event, which ties it to the one before.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use toolhold_json::hex::hex;

/// Sixteen hex digits over the JSON text of an event and the seal of the one before it: a record in which
/// anything was changed, lost or put somewhere else does not fit together. It reveals damage and careless
/// edits, but not an attacker who seals every event anew.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seal(pub(super) String);

/// How the JSON text of an event ends, around its seal.
pub(super) const SEAL: (&str, &str) = (r#","seal":""#, r#""}"#);

impl Seal {
    pub(super) fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The seal of the event whose JSON text is `line`; a seal in the text does not count. `None` if it is not the text of
    /// an event.
    pub fn of(line: &str, before: &Self) -> Option<Self> {
        let (open, close) = SEAL;
        let (event, _) = line.strip_suffix(close)?.rsplit_once(open)?;
        let mut digest = Sha256::new();
        digest.update(&before.0);
        digest.update(event);
        let digest = digest.finalize();
        Some(Self(hex(digest.first_chunk::<8>()?)))
    }
}
