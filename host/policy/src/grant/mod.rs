//! The approved capabilities of a module. Deny by default.
//!
//! A grant comes from the operator (configuration, `toolhold modules grant`, the command line) and
//! never from a module or a model: a `module.toml` can only request. [`Grant`] is the decision;
//! [`Share`] is the part of it that an agent leaves to a module.

mod describe;
mod knowledge;
mod scratch;
mod share;

use crate::egress::HttpGrant;
use crate::log::LogLevel;
use crate::secret::SecretGrant;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

pub use knowledge::{
    CollectionGrant, CollectionRight, KnowledgeGrant, MemoryGrant, MemoryRight, MemoryScope,
};
pub use scratch::{Keep, ScratchGrant};
pub use share::{Capability, SameDirectory, Share};

/// Everything one module may reach. Its JSON form is part of the module's pin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Grant {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<DirectoryGrant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratch: Option<ScratchGrant>,
    /// Variables the guest sees. The host's own environment never is.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Requests it may send.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub http: Vec<HttpGrant>,
    /// Secrets that the host puts into them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretGrant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_value: Option<KeyValueGrant>,
    /// Documents and facts of its callers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knowledge: Option<KnowledgeGrant>,
    /// Tools of other modules that this one may call, by full name, or by module for all of its.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    #[serde(skip_serializing_if = "Clocks::is_default")]
    pub clocks: Clocks,
    #[serde(skip_serializing_if = "Randomness::is_default")]
    pub randomness: Randomness,
    /// The least important lines that are kept of what the module logs.
    #[serde(skip_serializing_if = "is_info")]
    pub log_level: LogLevel,
}

/// A host directory that a guest sees under a name of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectoryGrant {
    /// The directory on the host.
    pub host: PathBuf,
    /// The path the guest sees, such as `/data`.
    pub guest: String,
    #[serde(default)]
    pub access: Access,
    /// Quota of the directory in bytes; everything in it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    #[default]
    Read,
    ReadWrite,
}

/// A place for values that outlive a call. Tenants never see each other's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeyValueGrant {
    /// Modules with the same namespace share it. Empty: the module's own name.
    pub namespace: String,
    /// Bytes of all keys and values.
    pub quota_bytes: u64,
}

impl Default for KeyValueGrant {
    fn default() -> Self {
        Self {
            namespace: String::new(),
            quota_bytes: 1 << 20,
        }
    }
}

/// How finely a guest can tell the time. Coarse clocks blunt attacks that measure what else the
/// machine does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Clocks {
    pub precision_us: u64,
}

impl Default for Clocks {
    fn default() -> Self {
        // A tool that tells the time or measures its own work needs no more.
        Self {
            precision_us: 1_000,
        }
    }
}

impl Clocks {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde's skip_serializing_if gives a reference"
    )]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Where a guest's random numbers come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Randomness {
    /// From the operating system, fresh for every call.
    #[default]
    System,
    /// The same sequence in every call, for results that can be reproduced. Nothing secret can be
    /// made from it.
    Seed(u64),
}

impl Randomness {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if gives a reference"
)]
fn is_info(level: &LogLevel) -> bool {
    *level == LogLevel::Info
}

impl Grant {
    /// Whether the module reaches anything beyond its own computation.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether `other` gives the same, the values of its secrets included.
    pub fn is_same(&self, other: &Self) -> bool {
        let mut secrets = self.secrets.iter().zip(&other.secrets);
        self == other && secrets.all(|(one, other)| one.is_same(other))
    }
}
