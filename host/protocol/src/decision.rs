//! Calls that wait for a person (docs/protocol.md, 7.7).
//!
//! A decision is bound to the digest of exactly what was shown: arguments that change afterwards
//! need another decision.

use crate::solution::Call;
use crate::tool::Annotations;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Debug;
use strum::IntoStaticStr;
use toolhold_json::hex::sha256;

/// When a tool's calls wait.
///
/// In the order of strictness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecisionMode {
    #[default]
    Never,
    /// Unless the tool declares that it only reads.
    OnWrite,
    Always,
}

/// Which calls wait for a person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DecisionRules {
    /// For tools without a rule of their own.
    pub default: DecisionMode,
    /// By tool, or by module for all of its tools.
    pub tools: BTreeMap<String, DecisionMode>,
    /// Whether a lazy plan waits, as a whole.
    pub plans: bool,
    /// Whether calls that are read out of prose are made as others are, where the run has text of others and they have
    /// an effect. Without it they wait, also if their tools' calls never do.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub calls_in_prose: bool,
}

impl DecisionRules {
    /// Whether no call and no plan waits for a person by these rules.
    pub fn asks_nobody(&self) -> bool {
        let mut modes = self.tools.values().chain([&self.default]);
        modes.all(|mode| *mode == DecisionMode::Never) && !self.plans
    }
}

/// A call that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    pub call: Call,
    /// The arguments with their references replaced: what would be run.
    pub arguments: Value,
    /// SHA-256 over tool, instance and arguments, in hex.
    pub digest: String,
    pub annotations: Annotations,
    /// The tools whose calls it is nested in, the outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<String>,
    /// Why it waits, where no rule for its tool says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Where a sub-agent asks: the tools whose calls the sub-agents answer, the outermost first and its own last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
}

/// A person's decision about a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// [`Pending::digest`] of what was decided about.
    pub digest: String,
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The person who decided, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl Decision {
    /// Returns the decision in words, such as `refused by key ann: too much`.
    pub fn in_words(&self) -> String {
        let (verdict, reason) = match &self.verdict {
            Verdict::Approve => ("approved", None),
            Verdict::Edit { .. } => ("approved with other arguments", None),
            Verdict::Replace { .. } => ("replaced by a result", None),
            Verdict::Refuse { reason } => ("refused", Some(reason)),
        };
        let by = self.by.as_ref().map(|by| format!(" by {by}"));
        let reason = reason.map(|reason| format!(": {reason}"));
        [Some(verdict.to_owned()), by, reason]
            .into_iter()
            .flatten()
            .collect()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IntoStaticStr)]
#[serde(tag = "verdict", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Verdict {
    Approve,
    /// Run it with these arguments.
    Edit {
        arguments: Value,
    },
    /// Do not run it; this is its result.
    Replace {
        result: Value,
    },
    Refuse {
        reason: String,
    },
}

impl DecisionRules {
    /// Whether a call of `tool` waits for a person.
    pub fn apply_to(&self, tool: &str, annotations: Annotations) -> bool {
        self.apply_to_any(&[tool], annotations)
    }

    /// The same for a tool of several names: its own, and that of the module's tool which runs it. A rule for
    /// any of its names applies; of two rules the stricter one.
    pub fn apply_to_any(&self, names: &[&str], annotations: Annotations) -> bool {
        let rules = names.iter().filter_map(|name| self.rule(name));
        match rules.max().unwrap_or(self.default) {
            DecisionMode::Always => true,
            DecisionMode::Never => false,
            DecisionMode::OnWrite => !annotations.read_only,
        }
    }

    fn rule(&self, tool: &str) -> Option<DecisionMode> {
        let (module, own) = tool.rsplit_once('.').unwrap_or((tool, ""));
        // A rule is about every version of a module.
        let module = module.split('@').next().unwrap_or_default();
        self.tools
            .get(&format!("{module}.{own}"))
            .or_else(|| self.tools.get(tool))
            .or_else(|| self.tools.get(module))
            .copied()
    }
}

impl Pending {
    pub fn new(call: Call, arguments: Value, annotations: Annotations) -> Self {
        let digest = digest(&call, &arguments);
        Self {
            call,
            arguments,
            digest,
            annotations,
            callers: Vec::new(),
            why: None,
            agents: Vec::new(),
        }
    }
}

/// Keys sorted: the order in which a model writes them does not matter.
fn digest(call: &Call, arguments: &Value) -> String {
    let mut what = serde_json::json!([call.id, call.tool, call.instance, arguments]);
    what.sort_all_objects();
    sha256(what.to_string())
}
