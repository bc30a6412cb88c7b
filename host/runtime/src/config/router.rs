//! `[router]`: chooses the endpoint of a run by its task.

use crate::config::surroundings::ConfigFault;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;
use toolhold_agent::router::{RouterPolicy, Rules};

/// Chooses the endpoint of a run by its task.
#[derive(Debug, Clone, Deserialize)]
pub struct RouterTable {
    /// The endpoint or pool that decides if no rule matches; empty: none.
    pub model: String,
    pub(super) default: String,
    pub timeout_ms: u64,
    #[serde(default)]
    pub classes: BTreeMap<String, ClassTable>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ClassTable {
    pub description: String,
    /// An endpoint or a pool.
    pub to: String,
    keywords: Vec<String>,
    min_chars: Option<usize>,
    max_chars: Option<usize>,
}

/// The keys of `[router.classes.NAME]`.
pub const CLASS_KEYS: [&str; 5] = ["description", "to", "keywords", "min_chars", "max_chars"];

impl RouterTable {
    /// The router without its deciding model, which is built later.
    pub fn policy(&self) -> RouterPolicy {
        let place = self.classes.keys().position(|name| *name == self.default);
        RouterPolicy {
            picker: None,
            timeout: Duration::from_millis(self.timeout_ms),
            // Checked by `fault`.
            default: place.unwrap_or_default(),
        }
    }
}

impl ClassTable {
    pub fn rules(&self) -> Rules {
        Rules {
            keywords: self.keywords.clone(),
            min_chars: self.min_chars,
            max_chars: self.max_chars,
        }
    }

    pub(super) fn check(&self, is_asked: bool) -> Result<(), ConfigFault> {
        if self.keywords.iter().any(|word| word.trim().is_empty()) {
            let reason = "an empty word is in every task";
            return Err(ConfigFault::new("keywords", reason));
        }
        if let (Some(least), Some(most)) = (self.min_chars, self.max_chars)
            && least > most
        {
            let reason = format!("is more than max_chars ({most})");
            return Err(ConfigFault::new("min_chars", reason));
        }
        if is_asked && self.description.trim().is_empty() {
            let reason = "is what router.model decides by: say which tasks are of this class";
            return Err(ConfigFault::new("description", reason));
        }
        Ok(())
    }
}
