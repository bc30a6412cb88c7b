//! Files that a client sent with a request. The model is shown their text. A record of the run has their digests and sizes,
//! and their bytes are kept beside it, as those of images are.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use toolhold_policy::Digest;

/// A file of a request.
#[derive(Clone, Serialize, Deserialize)]
pub struct SentFile {
    pub name: String,
    /// Absent where neither its bytes nor its sender tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// `sha256:` and the digest of its bytes.
    pub digest: String,
    pub bytes: u64,
    /// Its bytes as base64, until they are kept.
    #[serde(skip)]
    data: Option<Arc<str>>,
}

impl SentFile {
    pub fn new(name: impl Into<String>, media_type: Option<String>, bytes: &[u8]) -> Self {
        Self {
            name: name.into(),
            media_type,
            digest: format!("{:?}", Digest::of(bytes)),
            bytes: bytes.len() as u64,
            data: Some(BASE64_STANDARD.encode(bytes).into()),
        }
    }

    /// Its bytes as base64. Absent in a record, and in a run that has begun.
    pub fn data(&self) -> Option<&Arc<str>> {
        self.data.as_ref()
    }

    /// Drops the bytes: the run itself has no use for them.
    pub fn forget(&mut self) {
        self.data = None;
    }
}

/// Without the bytes.
impl std::fmt::Debug for SentFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SentFile")
            .field("name", &self.name)
            .field("digest", &self.digest)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_digest_and_no_bytes() {
        let file = SentFile::new("a.txt", Some("text/plain".into()), b"abc");
        assert_eq!(file.data().map(|data| &**data), Some("YWJj"));
        let recorded = serde_json::to_value(&file).unwrap();
        let digest = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let expected = serde_json::json!({
            "name": "a.txt", "media_type": "text/plain", "digest": digest, "bytes": 3,
        });
        assert_eq!(recorded, expected);
        let mut read: SentFile = serde_json::from_value(recorded).unwrap();
        assert!(read.data().is_none());
        read.clone_from(&file);
        read.forget();
        assert!(read.data().is_none());
    }
}
