//! A tool's specification, which a model reads and a pin holds.

use crate::text::UntrustedText;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum number of tools in one module. More would drown a model and the registry.
pub const MAX_TOOLS_PER_MODULE: usize = 256;

/// A tool as a model sees it. Names, texts and schemas come from the module: untrusted text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolSpec {
    /// `module.tool`.
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<UntrustedText>,
    pub description: UntrustedText,
    /// A JSON Schema of `"type": "object"`.
    pub input_schema: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    pub annotations: Annotations,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
    /// Where the description comes from.
    pub docs_source: DocsSource,
}

/// The author's claims about what a tool does to the world.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Annotations {
    pub read_only: bool,
    pub idempotent: bool,
    pub destructive: bool,
    pub open_world: bool,
}

/// A worked example of one call, from task to answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Example {
    pub task: String,
    pub arguments: Value,
    pub output: Value,
    pub answer: String,
}

/// The source of a tool's description, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DocsSource {
    /// The module itself: it implements the tool world.
    Module,
    /// The custom section that `toolhold build` appended to the component.
    Section,
    /// A `.wit` file beside the component.
    Wit,
    /// `[tools.NAME]` in `module.toml`.
    Manifest,
    /// The component's `package-docs` section.
    PackageDocs,
    /// No description exists; the text is generated from the function's types.
    Signature,
}

/// An author's claims about what a function does to the world. An absent claim is not a "no".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claims {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world: Option<bool>,
}

impl Claims {
    /// Whether nothing is claimed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These claims, with `other`'s where these are absent.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            read_only: self.read_only.or(other.read_only),
            idempotent: self.idempotent.or(other.idempotent),
            destructive: self.destructive.or(other.destructive),
            open_world: self.open_world.or(other.open_world),
        }
    }
}
