//! Scratch directories: a place for a call's own files.

use crate::call::Caller;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A directory that the host makes for a call or for a session, and takes away again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScratchGrant {
    /// The path the guest sees.
    pub guest: String,
    /// What it may hold, in bytes.
    pub quota_bytes: u64,
    pub keep: Keep,
}

/// How long scratch files stay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// A scratch directory on the host; removed with everything in it when dropped, if it is a call's.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub path: PathBuf,
    temporary: bool,
}

impl Scratch {
    /// Makes the directory below `root`. Names are hashes: no module's, tenant's or session's name
    /// becomes a path.
    pub fn make(root: &Path, module: &str, caller: Caller<'_>, keep: Keep) -> io::Result<Self> {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let temporary = keep == Keep::Call || caller.session.is_empty();
        let name = if temporary {
            let call = CALLS.fetch_add(1, Ordering::Relaxed);
            format!("call-{}-{call}", std::process::id())
        } else {
            session_folder(module, caller)
        };
        let path = root.join(name);
        private(&path)?;
        Ok(Self { path, temporary })
    }
}

/// The folder of a session's scratch files of one module.
fn session_folder(module: &str, caller: Caller<'_>) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in [module, caller.tenant, caller.session] {
        // Lengths between the parts: no two different triples look the same.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    format!("session-{}", &hasher.finalize().to_hex()[..32])
}

fn private(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.temporary {
            return;
        }
        let path = std::mem::take(&mut self.path);
        let remove = move || {
            if let Err(error) = std::fs::remove_dir_all(&path) {
                tracing::warn!(path = %path.display(), %error, "a scratch directory stays behind");
            }
        };
        // A guest may have left thousands of files: not on an async thread.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_do_not_share() {
        let folder = |module, tenant, session| session_folder(module, Caller { tenant, session });
        assert_eq!(folder("m", "t", "s"), folder("m", "t", "s"));
        assert_ne!(folder("m", "t", "s"), folder("m", "ts", ""));
        assert_ne!(folder("m", "a", "s"), folder("m", "b", "s"));
    }

    #[test]
    fn a_calls_files_go_with_it() {
        let root = tempfile::tempdir().unwrap();
        let make = |keep, session| {
            Scratch::make(
                root.path(),
                "m",
                Caller {
                    tenant: "",
                    session,
                },
                keep,
            )
            .unwrap()
        };
        let scratch = make(Keep::Call, "s");
        let path = scratch.path.clone();
        std::fs::write(path.join("x"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
        let kept = make(Keep::Session, "s").path.clone();
        assert!(kept.exists());
    }
}
