//! `toolhold modules test`: what a module says of itself, held against what it does.
//!
//! A test gives a module none of the operator's grants, so that a changed module can be tested before it is approved,
//! and no example touches a file of the person who tests it. Each example gets instead, for each directory that
//! `module.toml` asks for, a temporary copy of the folder `testdata` beside it, and the scratch files and keys and
//! values that it asks for; they are removed when it has run. Variables, HTTP, secrets and other modules' tools cannot
//! be made up: an example whose tool says that it failed is told as not run if the module asks for some of them. An
//! example that traps, or that the host stops, has failed.

mod testdata;

use crate::eval::expect::same_json;
use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use toolhold_admission::own_work;
use toolhold_agent::calls::{CallableTool, call_to_end};
use toolhold_agent::{ToolCall, ToolRunner, module_tool};
use toolhold_policy::manifest::Requests;
use toolhold_policy::tool::{Example, ToolSpec};
use toolhold_policy::{DirectoryGrant, Grant, KeyValueGrant, ScratchGrant};
use toolhold_protocol::job::JobPolicy;
use toolhold_protocol::result::ToolUsage;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::tools::SandboxTools;
use toolhold_sandbox::{Module, ModuleKind, Pinning, Policy, Registry, Storage};
use toolhold_text::cut;

/// Maximum bytes of the directories that a test gives a module together, of its scratch files, and of its keys and
/// values.
const MAX_PLACE_BYTES: u64 = 64 << 20;
/// Maximum directories that a test gives a module.
const MAX_DIRECTORIES: usize = 16;
/// Kinds of failures that can come of what a test does not give. What the host stops a module for is never among them.
const NOT_GIVEN: [&str; 2] = ["tool", "denied"];
/// Maximum characters of a value in a detail.
const MAX_VALUE_CHARS: usize = 400;
/// An example whose call continues as a job is asked about often, because a person waits for the test.
const EXAMPLE_JOBS: JobPolicy = JobPolicy {
    timeout: Duration::from_mins(1),
    backoff: Duration::from_millis(10),
    max_backoff: Duration::from_secs(1),
    questions: 1_000,
};
/// The part of a limit, in percent, from which an example takes too much of it: a slightly larger input is stopped.
const FULL_PERCENT: u64 = 80;

/// One thing that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModuleCheck {
    pub check: CheckSubject,
    /// The tool's name in its module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    pub outcome: CheckOutcome,
    pub detail: String,
}

/// What is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckSubject {
    /// What the module says of its tools can be used whole: schemas, worked examples, docs.
    Description,
    /// It says the same of its tools each time that it is asked.
    ListTools,
    /// A worked example returns what it claims, and that fits the output schema.
    Example,
    /// The examples stay well within the module's limits.
    Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckOutcome {
    Passed,
    Failed,
    /// There was nothing to check, or a test cannot give what it needs.
    NotRun,
}

/// A registry in which modules are tested.
#[derive(Debug)]
pub struct ModuleTester {
    registry: Registry,
    /// Without any grant.
    policy: Policy,
    folder: TempDir,
}

/// The most that an example took of the module's limits.
#[derive(Debug, Default)]
struct Peak {
    calls: u32,
    fuel: u64,
    memory_bytes: u64,
    duration_us: u64,
}

impl ModuleTester {
    /// # Errors
    /// The engine cannot be started, or there is no place for temporary files.
    pub fn new(config: &Configuration) -> Result<Self> {
        let folder = tempfile::tempdir().context("no temporary folder could be made")?;
        let mut policy = Policy {
            // Nothing is granted that a pin would be about.
            pinning: Pinning::Off,
            storage: Storage {
                scratch: Some(folder.path().join("scratch")),
                key_value: Some(folder.path().join("key-value")),
            },
            ..config.policy()
        };
        for own in policy.modules.values_mut() {
            own.grant = Grant::default();
            own.fault = None;
        }
        let registry = Registry::new(host::engine(config)?, host::cache(config), policy.clone());
        Ok(Self {
            registry,
            policy,
            folder,
        })
    }

    /// Where the module to test is to be loaded.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// # Errors
    /// The files of the examples cannot be copied.
    pub async fn test(&self, module: &Arc<Module>) -> Result<Vec<ModuleCheck>> {
        let mut checks = described(module);
        checks.push(listed_again(module).await);
        let mut peak = Peak::default();
        for tool in &module.tools {
            let local = local_name(module, tool);
            if tool.examples.is_empty() {
                let detail = "it has no worked example";
                checks.push(not_run(CheckSubject::Example, Some(local), detail));
                continue;
            }
            for example in &tool.examples {
                let places = self.govern(module).await?;
                let (outcome, detail) = self.run(module, tool, example, &mut peak).await;
                own_work(|| drop(places)).await?;
                checks.push(ModuleCheck {
                    check: CheckSubject::Example,
                    tool: Some(local.clone()),
                    outcome,
                    detail,
                });
            }
        }
        checks.push(peak.within(module));
        Ok(checks)
    }

    /// Gives the module what its next example gets: places in which nothing was written yet, and which are there as long
    /// as what is returned.
    async fn govern(&self, module: &Arc<Module>) -> Result<TempDir> {
        let requests = &module.manifest.grants;
        let wishes = &requests.directories;
        if wishes.len() > MAX_DIRECTORIES {
            bail!(
                "module.toml asks for {} directories, and an example gets at most {MAX_DIRECTORIES}",
                wishes.len()
            );
        }
        let places = tempfile::tempdir_in(self.folder.path())
            .context("no temporary folder could be made")?;
        let root = places.path();
        let directories = wishes
            .iter()
            .enumerate()
            .map(|(index, wish)| DirectoryGrant {
                host: root.join(index.to_string()),
                guest: wish.guest.clone(),
                access: wish.access,
                quota_bytes: Some(MAX_PLACE_BYTES / wishes.len() as u64),
            });
        let directories: Vec<_> = directories.collect();
        let to: Vec<_> = directories.iter().map(|it| it.host.clone()).collect();
        let from = folder(module);
        own_work(move || testdata::copy(from.as_deref(), &to))
            .await?
            .context("the examples cannot get copies of the folder testdata")?;
        let mut policy = self.policy.clone();
        policy.storage = Storage {
            scratch: Some(root.join("scratch")),
            key_value: Some(root.join("key-value")),
        };
        let own = policy.modules.entry(module.name.clone()).or_default();
        own.grant = Grant {
            directories,
            scratch: requests.scratch.as_ref().map(|wish| ScratchGrant {
                guest: wish.guest.clone(),
                quota_bytes: wish.quota_bytes.min(MAX_PLACE_BYTES),
                keep: wish.keep,
            }),
            key_value: requests.key_value.as_ref().map(|wish| KeyValueGrant {
                quota_bytes: wish.quota_bytes.min(MAX_PLACE_BYTES),
                ..KeyValueGrant::default()
            }),
            ..Grant::default()
        };
        // A grant that is the same keeps the places that it had, which are gone.
        self.registry.govern(self.policy.clone()).await;
        self.registry.govern(policy).await;
        Ok(places)
    }

    async fn run(
        &self,
        module: &Arc<Module>,
        tool: &ToolSpec,
        example: &Example,
        peak: &mut Peak,
    ) -> (CheckOutcome, String) {
        let task = cut(&example.task, MAX_VALUE_CHARS);
        let failed = |why: String| (CheckOutcome::Failed, format!("{task}: {why}"));
        let callable = match CallableTool::new(module_tool(tool)) {
            Ok(callable) => callable,
            Err(error) => return failed(error.to_string()),
        };
        let name = match &module.version {
            // Another version may be loaded beside it.
            Some(version) => format!("{}@{version}.{}", module.name, local_name(module, tool)),
            None => tool.name.clone(),
        };
        let call = ToolCall {
            timeout: Duration::MAX,
            ..ToolCall::new("example", name, example.arguments.clone())
        };
        let runner: Arc<dyn ToolRunner> = Arc::new(SandboxTools::new(self.registry.clone()));
        let result = call_to_end(&runner, &call, EXAMPLE_JOBS).await;
        peak.add(&result.usage);
        let output = match result.outcome {
            Ok(output) => output.value,
            Err(failure) => {
                let missing = not_given(&module.manifest.grants);
                let why = format!("{}: {}", failure.kind, failure.message);
                if missing.is_empty() || !NOT_GIVEN.contains(&failure.kind.as_str()) {
                    return failed(why);
                }
                let missing = missing.join(", ");
                let detail =
                    format!("{task}: it asks for {missing}, which a test does not give; {why}");
                return (CheckOutcome::NotRun, detail);
            }
        };
        if let Err(failure) = callable.check.result(&output) {
            return failed(failure.message);
        }
        if !same_json(&output, &example.output) {
            return failed(format!(
                "it returns {}, the example says {}",
                shown(&output),
                shown(&example.output)
            ));
        }
        (CheckOutcome::Passed, task)
    }
}

impl Peak {
    fn add(&mut self, usage: &ToolUsage) {
        self.calls = self.calls.saturating_add(1);
        self.fuel = self.fuel.max(usage.fuel);
        self.memory_bytes = self.memory_bytes.max(usage.memory_bytes);
        self.duration_us = self.duration_us.max(usage.duration_us);
    }

    /// The time is told and not judged: it depends on the machine, and a call that exceeds it is a failed example.
    fn within(&self, module: &Module) -> ModuleCheck {
        if self.calls == 0 {
            return not_run(CheckSubject::Limits, None, "no example was run");
        }
        let limits = module.limits();
        let judged = [
            ("fuel", self.fuel, limits.fuel),
            ("memory_bytes", self.memory_bytes, limits.memory_bytes),
        ];
        // Fuel without a limit is not counted, and has no share.
        let judged: Vec<(&str, u64)> = judged
            .into_iter()
            .filter(|(_, _, limit)| *limit > 0)
            .map(|(name, used, limit)| (name, percent(used, limit)))
            .collect();
        let time = percent(self.duration_us / 1_000, limits.timeout_ms);
        let shares = judged
            .iter()
            .chain([&("timeout_ms", time)])
            .map(|(name, share)| format!("{share} % of {name}"))
            .collect::<Vec<_>>()
            .join(", ");
        let full: Vec<&str> = judged
            .iter()
            .filter(|(_, share)| *share >= FULL_PERCENT)
            .map(|(name, _)| *name)
            .collect();
        let (outcome, detail) = if full.is_empty() {
            (
                CheckOutcome::Passed,
                format!("an example takes at most {shares}"),
            )
        } else {
            let full = full.join(" and ");
            let detail = format!(
                "an example takes {shares}: a slightly larger input would be stopped; ask for more {full} under [limits] \
                 in module.toml, or set it under [module.NAME.limits] in the configuration"
            );
            (CheckOutcome::Failed, detail)
        };
        ModuleCheck {
            check: CheckSubject::Limits,
            tool: None,
            outcome,
            detail,
        }
    }
}

/// What of the module's own description was usable.
fn described(module: &Module) -> Vec<ModuleCheck> {
    let check = |outcome, detail: String| ModuleCheck {
        check: CheckSubject::Description,
        tool: None,
        outcome,
        detail,
    };
    let notes = module.notes.iter();
    let mut checks: Vec<_> = notes
        .map(|note| check(CheckOutcome::Failed, note.to_string()))
        .collect();
    let refused = module.refused.iter();
    checks.extend(refused.map(|(export, reason)| {
        check(
            CheckOutcome::NotRun,
            format!("{export} is no tool: {reason}"),
        )
    }));
    if checks.is_empty() {
        let tools = module.tools.len();
        let promising = module.tools.iter();
        let promising = promising
            .filter(|tool| tool.output_schema.is_some())
            .count();
        let detail = match module.kind {
            ModuleKind::Shield => "it is a shield and has no tools".to_owned(),
            ModuleKind::Extractor => "it is an extractor and has no tools".to_owned(),
            _ => format!("tools: {tools}; with an output schema: {promising}"),
        };
        checks.push(check(CheckOutcome::Passed, detail));
    }
    checks
}

async fn listed_again(module: &Module) -> ModuleCheck {
    let started = Instant::now();
    let again = module.list_tools_again().await;
    let took = started.elapsed().as_millis();
    let (outcome, detail) = match again {
        Ok(None) => {
            let detail = "it has no list-tools; what it offers comes from its exports";
            return not_run(CheckSubject::ListTools, None, detail);
        }
        Ok(Some(tools)) if tools == module.tools => {
            let most = module.limits().list_tools_ms;
            let detail = format!("the same twice, in {took} ms of {most}");
            (CheckOutcome::Passed, detail)
        }
        Ok(Some(tools)) => (CheckOutcome::Failed, difference(&module.tools, &tools)),
        Err(error) => (CheckOutcome::Failed, format!("the second time, {error}")),
    };
    ModuleCheck {
        check: CheckSubject::ListTools,
        tool: None,
        outcome,
        detail,
    }
}

/// The first tool that is not as it was.
fn difference(first: &[ToolSpec], second: &[ToolSpec]) -> String {
    let changed = first.iter().zip(second).find(|(a, b)| a != b);
    let what = match changed {
        Some((a, b)) if a.name == b.name => format!("{} is described differently", a.name),
        Some((a, b)) => format!("{} stands where {} was", b.name, a.name),
        None => format!(
            "there are {} tools, and there were {}",
            second.len(),
            first.len()
        ),
    };
    format!(
        "asked a second time it says something else: {what}; a pin holds what it says, so it must not change"
    )
}

/// What the module asks for, and a test cannot give.
fn not_given(requests: &Requests) -> Vec<&'static str> {
    [
        ("variables", !requests.environment.is_empty()),
        ("HTTP", !requests.http.is_empty()),
        ("secrets", !requests.secrets.is_empty()),
        ("knowledge", requests.knowledge.is_some()),
        ("tools of other modules", !requests.tools.is_empty()),
    ]
    .into_iter()
    .filter_map(|(what, is_asked_for)| is_asked_for.then_some(what))
    .collect()
}

/// The folder of a module. A component without a `module.toml` has none.
fn folder(module: &Module) -> Option<PathBuf> {
    let origin = Path::new(module.origin.raw());
    let folder = if origin.is_dir() {
        origin
    } else {
        origin.parent()?
    };
    let is_module = folder.join("module.toml").is_file();
    is_module.then(|| folder.to_owned())
}

fn local_name(module: &Module, tool: &ToolSpec) -> String {
    let own = tool.name.strip_prefix(&module.name);
    let own = own.and_then(|own| own.strip_prefix('.'));
    own.unwrap_or(&tool.name).to_owned()
}

fn not_run(check: CheckSubject, tool: Option<String>, detail: &str) -> ModuleCheck {
    ModuleCheck {
        check,
        tool,
        outcome: CheckOutcome::NotRun,
        detail: detail.to_owned(),
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    // A limit of 0 is none.
    part.saturating_mul(100).checked_div(whole).unwrap_or(0)
}

fn shown(value: &Value) -> String {
    cut(&value.to_string(), MAX_VALUE_CHARS)
}
