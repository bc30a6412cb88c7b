//! What a module was given: approved capabilities, turned into a WASI context. Deny by default.
//!
//! A grant comes from the operator (configuration or command line) and never from a module or a
//! model: a `module.toml` can only request.

use crate::egress::HttpGrant;
use crate::error::LoadError;
use crate::secret::SecretGrant;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

/// Everything one module may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Grant {
    pub directories: Vec<DirectoryGrant>,
    /// Variables the guest sees. The host's own environment never is.
    pub environment: Vec<(String, String)>,
    /// Requests it may send.
    pub http: Vec<HttpGrant>,
    /// Secrets that the host puts into them.
    pub secrets: Vec<SecretGrant>,
}

/// A host directory that a guest sees under a name of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DirectoryGrant {
    /// The directory on the host.
    pub host: PathBuf,
    /// The path the guest sees, such as `/data`.
    pub guest: String,
    pub access: Access,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    #[default]
    Read,
    ReadWrite,
}

impl Grant {
    pub fn is_empty(&self) -> bool {
        self.directories.is_empty()
            && self.environment.is_empty()
            && self.http.is_empty()
            && self.secrets.is_empty()
    }

    /// Checks that every granted directory is there and can be opened, so that a wrong path is
    /// reported when the module is loaded and not in the middle of a run.
    pub fn check(&self) -> Result<(), LoadError> {
        for directory in &self.directories {
            Dir::open_ambient_dir(&directory.host, ambient_authority()).map_err(|error| {
                LoadError::Grant {
                    reason: format!(
                        "the directory {} cannot be opened: {error}",
                        directory.host.display()
                    ),
                }
            })?;
        }
        Ok(())
    }

    pub(crate) fn apply(&self, wasi: &mut WasiCtxBuilder) -> wasmtime::Result<()> {
        for (name, value) in &self.environment {
            wasi.env(name, value);
        }
        for directory in &self.directories {
            let permissions = match directory.access {
                Access::Read => FsPerms::ReadOnly,
                Access::ReadWrite => FsPerms::ReadWrite,
            };
            wasi.preopened_dir(&directory.host, &directory.guest, permissions)?;
        }
        Ok(())
    }
}
