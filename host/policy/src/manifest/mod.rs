//! `module.toml`: what a module says of itself. All of it is a claim or a request.

mod missing;

pub use missing::UnfulfilledRequest;

use crate::egress::{HttpGrant, Origin};
use crate::grant::{
    Access, Clocks, CollectionGrant, Keep, KeyValueGrant, KnowledgeGrant, MemoryGrant, Randomness,
    ScratchGrant,
};
use crate::limits::LimitsRequest;
use crate::secret::SecretPlace;
use crate::text::{self, UntrustedText};
use crate::tool::Claims;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;

/// Why a `module.toml` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("its module.toml is wrong: {reason}")]
pub struct ManifestError {
    /// The line and the key at fault, and what to do.
    pub reason: String,
}

/// A parsed `module.toml`. Unknown keys are errors: a misspelt limit must not silently be none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Manifest {
    /// The first part of every tool's name. Default: the folder's or file's name.
    pub name: Option<String>,
    pub version: Option<UntrustedText>,
    pub description: Option<UntrustedText>,
    /// The component, relative to the folder. Default: `NAME.wasm`.
    pub component: Option<String>,
    /// How `toolhold build` makes the component. Loading a module never runs it.
    pub build: Option<Build>,
    /// Limits this module asks for.
    pub limits: LimitsRequest,
    /// Capabilities this module asks for.
    pub grants: Requests,
    /// What is said of tools that come from exported functions, by their names without the module's.
    /// Docs in the component or in `.wit` files beside it come first.
    pub tools: BTreeMap<String, ToolTexts>,
}

/// `[tools.NAME]`: what the author says of one tool. Claims that are left out are not made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolTexts {
    pub title: Option<UntrustedText>,
    pub description: Option<UntrustedText>,
    pub read_only: Option<bool>,
    pub idempotent: Option<bool>,
    pub destructive: Option<bool>,
    pub open_world: Option<bool>,
}

impl ToolTexts {
    /// The claims that the author makes.
    pub fn claims(&self) -> Claims {
        Claims {
            read_only: self.read_only,
            idempotent: self.idempotent,
            destructive: self.destructive,
            open_world: self.open_world,
        }
    }
}

/// The recipe of a module that comes with its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// The language, as `toolhold new-module --lang` names it.
    pub language: String,
    /// The world it implements, if it brings a `wit/` folder of its own.
    pub world: Option<String>,
}

/// Capabilities that a module asks for. None of them is given by asking.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Requests {
    pub directories: Vec<DirectoryRequest>,
    pub scratch: Option<ScratchRequest>,
    pub environment: Vec<EnvironmentRequest>,
    pub http: Vec<HttpGrant>,
    pub secrets: Vec<SecretRequest>,
    pub key_value: Option<KeyValueRequest>,
    pub knowledge: Option<KnowledgeRequest>,
    pub tools: Vec<ToolRequest>,
    pub clocks: Option<Clocks>,
    pub randomness: Option<Randomness>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectoryRequest {
    /// Where the module wants to see it, such as `/data`.
    pub guest: String,
    #[serde(default)]
    pub access: Access,
    /// Whether a call has the directory to itself: calls of all modules that say so wait for each other, over all
    /// processes of the machine. It adds nothing to what the module may do, so it needs no grant.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// Why, in the author's words.
    #[serde(default)]
    pub reason: UntrustedText,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScratchRequest {
    pub guest: String,
    pub quota_bytes: u64,
    pub keep: Keep,
    pub reason: UntrustedText,
}

impl Default for ScratchRequest {
    fn default() -> Self {
        let grant = ScratchGrant::default();
        Self {
            guest: grant.guest,
            quota_bytes: grant.quota_bytes,
            keep: grant.keep,
            reason: UntrustedText::default(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentRequest {
    pub name: String,
    #[serde(default)]
    pub reason: UntrustedText,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretRequest {
    /// What it is, where it goes; the value is the operator's.
    pub name: String,
    pub origin: Origin,
    pub place: SecretPlace,
    #[serde(default)]
    pub reason: UntrustedText,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeyValueRequest {
    pub quota_bytes: u64,
    pub reason: UntrustedText,
}

impl Default for KeyValueRequest {
    fn default() -> Self {
        Self {
            quota_bytes: KeyValueGrant::default().quota_bytes,
            reason: UntrustedText::default(),
        }
    }
}

/// Documents and facts that a module would like to reach.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KnowledgeRequest {
    pub collections: Vec<CollectionGrant>,
    pub memory: MemoryGrant,
    pub reason: UntrustedText,
}

impl KnowledgeRequest {
    /// The grant that fulfils it.
    pub fn grant(&self) -> KnowledgeGrant {
        KnowledgeGrant {
            collections: self.collections.clone(),
            memory: self.memory.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolRequest {
    /// `module.tool`, or a module's name for all of its tools.
    pub name: String,
    #[serde(default)]
    pub reason: UntrustedText,
}

/// One thing that a module asks for, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RequestedCapability {
    /// Completes "it would like to".
    pub to: UntrustedText,
    /// Why, in the author's words.
    pub reason: UntrustedText,
}

impl Requests {
    /// Everything that is asked for.
    pub fn wishes(&self) -> Vec<RequestedCapability> {
        let mut wishes = Vec::new();
        let mut add = |to: String, reason: &str| {
            let reason = if reason.is_empty() {
                "no reason given".to_owned()
            } else {
                text::visible(reason, 500)
            };
            wishes.push(RequestedCapability {
                to: to.into(),
                reason: reason.into(),
            });
        };
        for wish in &self.directories {
            let verb = match wish.access {
                Access::Read => "read",
                Access::ReadWrite => "read and write",
            };
            let alone = if wish.exclusive {
                ", one call at a time"
            } else {
                ""
            };
            add(
                format!("{verb} a directory as {}{alone}", wish.guest),
                wish.reason.raw(),
            );
        }
        if let Some(wish) = &self.scratch {
            let kept = match wish.keep {
                Keep::Call => "for a call",
                Keep::Session => "for a session",
            };
            let what = format!("keep scratch files in {} {kept}", wish.guest);
            add(what, wish.reason.raw());
        }
        for wish in &self.environment {
            add(format!("see the variable {}", wish.name), wish.reason.raw());
        }
        for wish in &self.http {
            let sentence = wish.to_string();
            let to = sentence.strip_prefix("may ").unwrap_or(&sentence);
            add(to.to_owned(), wish.reason().unwrap_or_default());
        }
        for wish in &self.secrets {
            let what = format!("have the secret {} sent to {}", wish.name, wish.origin);
            add(what, wish.reason.raw());
        }
        if let Some(wish) = &self.key_value {
            let what = format!("remember {} bytes between calls", wish.quota_bytes);
            add(what, wish.reason.raw());
        }
        if let Some(wish) = &self.knowledge {
            for sentence in wish.grant().sentences() {
                add(sentence, wish.reason.raw());
            }
        }
        for wish in &self.tools {
            add(format!("call the tool {}", wish.name), wish.reason.raw());
        }
        if let Some(wish) = &self.clocks {
            let what = format!("tell the time to {} microseconds", wish.precision_us);
            add(what, "");
        }
        if let Some(Randomness::Seed(seed)) = &self.randomness {
            add(
                format!("draw the same random numbers in every call (seed {seed})"),
                "",
            );
        }
        wishes
    }
}

impl Manifest {
    /// Maximum bytes of a manifest: more than any that a person would write.
    pub const MAX_BYTES: u64 = 64 << 10;

    /// # Errors
    /// [`ManifestError`] with the line and the key at fault.
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        let manifest: Self = toml::from_str(text).map_err(|error| ManifestError {
            reason: error.to_string().trim_end().to_owned(),
        })?;
        if let Some(name) = &manifest.name
            && !text::is_name(name)
        {
            return Err(ManifestError {
                reason: format!(
                    "name = {name:?} must be lower case letters, digits and _, starting with a letter"
                ),
            });
        }
        if let Some(component) = &manifest.component
            && !std::path::Path::new(component)
                .extension()
                .is_some_and(|e| e.eq_ignore_ascii_case("wasm"))
        {
            return Err(ManifestError {
                reason: format!("component = {component:?} must name a .wasm file in this folder"),
            });
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_manifest_parses() {
        let manifest = Manifest::parse(
            r#"
            name = "files"
            version = "0.1.0"
            component = "files.wasm"
            [build]
            language = "rust"
            [limits]
            fuel = 50_000_000_000
            [[grants.directories]]
            guest = "/data"
            access = "read-write"
            reason = "to keep notes"
            [[grants.environment]]
            name = "TZ"
            [tools.read]
            description = "Reads one file"
            read_only = true
            "#,
        )
        .unwrap();
        assert_eq!(manifest.limits.fuel, Some(50_000_000_000));
        assert_eq!(manifest.grants.directories[0].access, Access::ReadWrite);
        assert_eq!(manifest.tools["read"].read_only, Some(true));
    }

    #[test]
    fn a_wrong_manifest_says_where() {
        for (text, expect) in [
            ("[limits]\nfule = 1", "fule"),
            ("[tools.read]\ndescribtion = \"\"", "describtion"),
            ("name = \"A b\"", "lower case"),
            ("component = \"x.cwasm\"", ".wasm"),
            ("name = ", "line 1"),
            (
                "[[grants.directories]]\nguest = \"/x\"\naccess = \"all\"",
                "all",
            ),
        ] {
            let error = Manifest::parse(text).unwrap_err().to_string();
            assert!(error.contains(expect), "{text} gave {error}");
        }
    }
}
