//! The shield policy: which shields screen which places in which order, and the policy's hash.

use super::redaction::only_takes_away;
use super::{Screening, Shield, ShieldVerdict};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use toolhold_json::hex::sha256;
use toolhold_model::CompletionObserver;
use toolhold_protocol::settings::Settings;
use toolhold_protocol::shield::{Judgement, Policy, Ruling, ScreeningResult, ShieldPlace};

/// Maximum characters of a reason, which a shield writes and a model reads.
const MAX_REASON_CHARS: usize = 300;

/// A shield, and the calls and places that it screens.
#[derive(Debug, Clone)]
pub struct ShieldBinding {
    pub name: String,
    pub places: BTreeSet<ShieldPlace>,
    /// The tools whose calls it screens, or modules for all of their tools. Empty: all.
    pub tools: BTreeSet<String>,
    /// The most time for one answer.
    pub timeout: Duration,
    pub on_failure: OnFailure,
    /// Everything that decides what it says, for the policy's hash.
    pub terms: Value,
    pub shield: Arc<dyn Shield>,
}

/// What happens when a shield gives no verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    #[default]
    Block,
    Pass,
}

/// The shields of a host, in the order in which they screen.
#[derive(Debug, Clone, Default)]
pub struct Shields {
    pub posts: Vec<ShieldBinding>,
    /// What else the operator decided: which modules get what.
    pub grants: Value,
}

impl Shields {
    /// The policy of a run with these settings and instructions; absent for calls that belong to no run. The input of a
    /// sub-agent is a call's input, and its output a call's output: they are screened as such.
    pub fn policy(&self, settings: &Settings, instructions: Option<&str>, depth: u32) -> Policy {
        let stands =
            |place: ShieldPlace| self.posts.iter().any(|post| post.places.contains(&place));
        let screens = [ShieldPlace::Input, ShieldPlace::Output].into_iter();
        Policy {
            hash: self.hash(settings, instructions),
            screens: screens
                .filter(|place| depth == 0 && stands(*place))
                .collect(),
            tool_inputs: BTreeSet::new(),
            gates: None,
        }
    }

    /// Everything that decides what is screened, hidden, asked about and given, and the digest of what the model is
    /// instructed to do. No secret is in it.
    pub fn effective(&self, settings: &Settings, instructions: Option<&str>) -> Value {
        let shields: Vec<Value> = self.posts.iter().map(ShieldBinding::terms).collect();
        json!({
            "shields": shields,
            "privacy": settings.privacy,
            "approval": settings.decisions,
            "grants": self.grants,
            "instructions": instructions.map(sha256),
        })
    }

    fn hash(&self, settings: &Settings, instructions: Option<&str>) -> String {
        let mut effective = self.effective(settings, instructions);
        effective.sort_all_objects();
        sha256(effective.to_string())
    }

    /// Whether a shield screens `place` for calls of the tool.
    pub fn applies_to(&self, place: ShieldPlace, tool: Option<&str>) -> bool {
        self.posts.iter().any(|post| post.screens(place, tool))
    }

    /// Asks the shields of that place in order, each about what the previous one left; the first block ends
    /// the screening. `watch` receives the requests that shields make to models.
    pub async fn screen(
        &self,
        mut screening: Screening,
        watch: &mut dyn CompletionObserver,
    ) -> (ScreeningResult, Vec<Judgement>) {
        let mut judgements = Vec::new();
        let mut is_redacted = false;
        let tool = screening.tool.clone();
        let posts = self.posts.iter();
        for post in posts.filter(|post| post.screens(screening.place, tool.as_deref())) {
            let started = Instant::now();
            let verdict = post.ask(&screening, watch).await;
            let (ruling, reason) = match &verdict {
                Ok(ShieldVerdict::Pass) => (Ruling::Pass, ""),
                Ok(ShieldVerdict::Redact { reason, .. }) => (Ruling::Redact, reason.as_str()),
                Ok(ShieldVerdict::Block { reason }) => (Ruling::Block, reason.as_str()),
                Err(reason) if post.on_failure == OnFailure::Pass => {
                    (Ruling::FailedPass, reason.as_str())
                }
                Err(reason) => (Ruling::FailedBlock, reason.as_str()),
            };
            let reason = plain(reason);
            judgements.push(Judgement {
                shield: post.name.clone(),
                place: screening.place,
                tool: tool.clone(),
                call: screening.call.clone(),
                verdict: ruling,
                reason: reason.clone(),
                duration_us: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
            });
            let blocked = |reason: String| ScreeningResult::Blocked {
                shield: post.name.clone(),
                reason,
            };
            match (ruling, verdict) {
                (Ruling::Block, _) => return (blocked(reason), judgements),
                (Ruling::FailedBlock, _) => {
                    let reason = format!("it gave no verdict ({reason})");
                    return (blocked(reason), judgements);
                }
                (_, Ok(ShieldVerdict::Redact { value, .. })) => {
                    is_redacted = is_redacted || value != screening.value;
                    screening.value = value;
                }
                _ => {}
            }
        }
        let screened = if is_redacted {
            ScreeningResult::Redacted {
                value: screening.value,
            }
        } else {
            ScreeningResult::Pass
        };
        (screened, judgements)
    }
}

impl ShieldBinding {
    async fn ask(
        &self,
        screening: &Screening,
        watch: &mut dyn CompletionObserver,
    ) -> Result<ShieldVerdict, String> {
        let asked = tokio::time::timeout(self.timeout, self.shield.screen(screening, watch));
        let verdict = asked
            .await
            .map_err(|_| format!("no answer within {} ms", self.timeout.as_millis()))??;
        match &verdict {
            ShieldVerdict::Redact { value, .. } if !only_takes_away(&screening.value, value) => Err(
                "it changed more than it may: a redaction puts [redacted] in the place of pieces of texts"
                    .into(),
            ),
            _ => Ok(verdict),
        }
    }

    fn screens(&self, place: ShieldPlace, tool: Option<&str>) -> bool {
        let is_meant = tool.is_none_or(|tool| self.tools.is_empty() || is_named(&self.tools, tool));
        self.places.contains(&place) && is_meant
    }

    fn terms(&self) -> Value {
        json!({
            "name": self.name,
            "places": self.places,
            "tools": self.tools,
            "timeout_ms": self.timeout.as_millis(),
            "on_failure": self.on_failure,
            "terms": self.terms,
        })
    }
}

/// Whether `names` has the tool, its module in whatever version, or its server.
fn is_named(names: &BTreeSet<String>, tool: &str) -> bool {
    let (module, own) = tool.rsplit_once('.').unwrap_or((tool, ""));
    let module = module.split('@').next().unwrap_or_default();
    let server = tool.split_once('/').map_or(tool, |(server, _)| server);
    names.contains(tool)
        || names.contains(module)
        || names.contains(server)
        || names.contains(&format!("{module}.{own}"))
}

/// A foreign text as one line.
fn plain(reason: &str) -> String {
    let shown = reason.chars().map(|c| if c.is_control() { ' ' } else { c });
    shown.take(MAX_REASON_CHARS).collect()
}
