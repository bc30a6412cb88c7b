//! Which calls are given the result of an earlier, equal call (docs/protocol.md, 7.8).

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Whose results a call may be given, of which tools, and how old.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResultCaching {
    pub scope: CacheScope,
    /// Tools whose results are kept, `module.tool`, or modules for all of theirs. Empty: every tool that says of itself
    /// that it only reads. One that does not say so is never among them.
    pub tools: Vec<String>,
    /// The longest time for which a result is given again.
    pub max_age: Duration,
}

/// The calls whose results a call may be given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheScope {
    /// None: every call is made.
    #[default]
    Off,
    /// Calls of the same run and of its sub-agents.
    Run,
    /// Calls of all runs of the same client, which is an API key, or the user of the terminal.
    Client,
}

impl Default for ResultCaching {
    fn default() -> Self {
        Self {
            scope: CacheScope::Off,
            tools: Vec::new(),
            max_age: Duration::from_mins(1),
        }
    }
}

impl ResultCaching {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
