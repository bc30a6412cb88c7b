//! The ways in which an endpoint can be asked for a Solution.

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// The ways to get a Solution out of an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Contract {
    /// Strict JSON Schema output: the composed schema. Works wherever the server constrains its
    /// output, down to models that were never trained to call tools.
    #[default]
    Schema,
    /// Native tool calling, for models that were trained to it.
    Tools,
    /// JSON in plain text, one call a reply, for endpoints that offer nothing better.
    Simple,
}

impl Contract {
    pub const ALL: [Self; 3] = [Self::Schema, Self::Tools, Self::Simple];

    pub fn name(self) -> &'static str {
        self.into()
    }
}
