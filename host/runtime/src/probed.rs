//! What probes found out about endpoints: one file for each model and base URL.

use crate::stats::{date_text, now_ms};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::io;
use std::path::{Path, PathBuf};
use toolhold_files::{FileReaders, FolderLock, Links, UnfinishedFile};
use toolhold_model::Dialect;

/// The probed dialect of a model at an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// Without credentials and query.
    pub base_url: String,
    /// The model's name.
    pub model: String,
    /// Seconds since 1970.
    pub found_at_s: u64,
    /// What the endpoint understands.
    pub dialect: Dialect,
}

impl Probed {
    /// A dialect that was found now.
    pub fn now(base_url: &str, model: &str, dialect: Dialect) -> Self {
        Self {
            base_url: base_url.to_owned(),
            model: model.to_owned(),
            found_at_s: now_ms() / 1_000,
            dialect,
        }
    }

    /// The time of the probe as text.
    pub fn date(&self) -> String {
        date_text(self.found_at_s.saturating_mul(1_000))
    }
}

/// Maximum bytes of a stored dialect. One has a few hundred.
const MAX_BYTES: u64 = 1 << 20;

/// The files `dialects/KEY.json` of the state folder.
#[derive(Debug, Clone)]
pub struct Dialects {
    folder: PathBuf,
}

impl Dialects {
    /// Does no I/O yet.
    pub fn new(state: &Path) -> Self {
        Self {
            folder: state.join("dialects"),
        }
    }

    /// Writes the result of a probe in place of an earlier one, and returns the file's path.
    pub fn keep(&self, probed: &Probed) -> io::Result<PathBuf> {
        let path = self.file(&probed.base_url, &probed.model);
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let mut text = serde_json::to_vec_pretty(probed)?;
        text.push(b'\n');
        let lock = FolderLock::take(&self.folder)?;
        let unfinished = UnfinishedFile::write(&self.folder, &text, FileReaders::Owner)?;
        lock.put_in_place(unfinished, name)?;
        Ok(path)
    }

    /// The stored dialect of a model at an endpoint. A file that cannot be decoded counts as absent.
    pub fn find(&self, base_url: &str, model: &str) -> Option<Probed> {
        let file = self.file(base_url, model);
        let text = toolhold_files::read(&file, MAX_BYTES, Links::Refuse).ok()?;
        let probed: Probed = serde_json::from_slice(&text).ok()?;
        (probed.base_url == base_url && probed.model == model).then_some(probed)
    }

    fn file(&self, base_url: &str, model: &str) -> PathBuf {
        let digest = Sha256::digest(format!("{base_url}\n{model}"));
        // Half of the digest is enough to tell endpoints apart.
        let key = digest
            .iter()
            .take(16)
            .fold(0_u128, |key, byte| key << 8 | u128::from(*byte));
        self.folder.join(format!("{key:032x}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_model::dialect::ToolCalling;
    use toolhold_model::{Delivery, ProbeVerdict, ServerInfo};

    fn dialect() -> Dialect {
        Dialect {
            server: ServerInfo::default(),
            delivery: Delivery::Stream,
            usage: true,
            reasoning: false,
            schema: ProbeVerdict::Works,
            tools: ToolCalling {
                auto: ProbeVerdict::Works,
                required: ProbeVerdict::Works,
                named: ProbeVerdict::Works,
                parallel: ProbeVerdict::Works,
            },
            tokenizer: None,
        }
    }

    #[test]
    fn a_dialect_is_found_for_its_model_and_url_alone() {
        let state = tempfile::tempdir().unwrap();
        let dialects = Dialects::new(state.path());
        assert_eq!(dialects.find("http://h/v1", "m"), None);
        let probed = Probed::now("http://h/v1", "m", dialect());
        let path = dialects.keep(&probed).unwrap();
        assert_eq!(dialects.find("http://h/v1", "m"), Some(probed.clone()));
        assert_eq!(dialects.find("http://h/v1", "other"), None);
        assert_eq!(dialects.find("http://other/v1", "m"), None);
        std::fs::write(path, "{\"dialect\": 7}").unwrap();
        assert_eq!(dialects.find("http://h/v1", "m"), None);
    }
}
