//! One attempt at a task, with modules, folder and state of its own, so that attempts do not affect each
//! other.

use crate::eval::arm::Arm;
use crate::eval::seen::RunSummary;
use crate::eval::set::Task;
use anyhow::{Context as _, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use serde_json::Number;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use toolhold_agent::Driver;
use toolhold_policy::{Access, DirectoryGrant, Invocation, Output};
use toolhold_protocol::context::Message;
use toolhold_protocol::settings::RunRequest;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::module_report::disabled;
use toolhold_runtime::shields::shields;
use toolhold_runtime::tools::SandboxTools;
use toolhold_sandbox::compile::cache::Cache;
use toolhold_sandbox::{Engine, ModulePolicy, Registry, Storage};
use toolhold_storage::{Label, Store};

/// Where modules see a task's folder.
const GUEST: &str = "/data";

/// Shared by all attempts: engine and compiled code, which keep no state of calls, and the store of records.
#[derive(Debug)]
pub struct EvalResources {
    engine: Engine,
    cache: Option<Cache>,
    store: Store,
}

/// The result of an attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Attempt {
    pub configuration: String,
    pub task: String,
    /// 1, 2, 3…
    pub number: u32,
    pub passed: bool,
    /// Unmet expectations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    pub seen: RunSummary,
}

impl EvalResources {
    /// # Errors
    /// The engine cannot be created.
    pub async fn new(config: &Configuration) -> Result<Self> {
        Ok(Self {
            engine: host::engine(config)?,
            cache: host::cache(config),
            store: host::store(config).await?,
        })
    }

    /// Checks that every tool of `task` exists and may run.
    ///
    /// # Errors
    /// A tool is missing, with the remedy.
    pub async fn check(&self, config: &Configuration, task: &Task) -> Result<()> {
        let folder = Folder::new(task)?;
        let registry = self
            .registry(config, task, &folder, &task.may_write)
            .await?;
        let tools = SandboxTools::new(registry.clone()).allowing(&task.tools);
        if let Some(name) = tools.unknown().first() {
            bail!(
                "task {} needs {name}, and there is no such tool or module; see `toolhold modules list`",
                task.id
            );
        }
        for module in registry.modules() {
            if let Some(disabled) = disabled(&module) {
                bail!(
                    "task {} needs {}, which is {disabled}",
                    task.id,
                    module.slot
                );
            }
        }
        Ok(())
    }

    /// Makes the attempt `number` of `arm` at `task`. `None` if it was cancelled before its end.
    ///
    /// # Errors
    /// The attempt could not begin or be recorded: not a failure of the model.
    pub async fn attempt(
        &self,
        arm: &Arm,
        task: &Task,
        number: u32,
        cancel: &CancellationToken,
    ) -> Result<Option<Attempt>> {
        let folder = Folder::new(task)?;
        self.set_up(&arm.config, task, &folder).await?;
        let registry = self
            .registry(&arm.config, task, &folder, &task.may_write)
            .await?;
        let toolbox = SandboxTools::new(registry).allowing(&task.tools);
        let (components, tools) = (toolbox.components(), Some(task.tools.as_slice()));
        let shields = shields(&arm.config, components, tools, &arm.guards).await?;
        let driver = Driver {
            shields,
            candidates: arm.candidates.clone(),
            summarizer: arm.summarizer.clone(),
            ..Driver::new(arm.model.clone(), Arc::new(toolbox))
        };
        let request = request(arm, task, number)?;
        let journal = self.store.journal(request.id, Label::default());
        let mut seen = RunSummary {
            run: request.id,
            ..RunSummary::default()
        };
        let mut run = driver
            .start(request, Box::new(journal))
            .await
            .with_context(|| format!("task {} cannot be begun", task.id))?;
        let mut was_cancelled = false;
        loop {
            tokio::select! {
                event = run.events.recv() => match event {
                    Some(event) => seen.take(&event.kind),
                    None => break,
                },
                () = cancel.cancelled(), if !was_cancelled => {
                    was_cancelled = true;
                    run.cancel.cancel();
                }
            }
        }
        run.finished().await?;
        if was_cancelled {
            return Ok(None);
        }
        let faults = task.expect.faults(&seen, folder.data());
        Ok(Some(Attempt {
            configuration: arm.name.clone(),
            task: task.id.clone(),
            number,
            passed: faults.is_empty(),
            faults,
            seen,
        }))
    }

    /// The modules of `task`, with the write access to its folder that it gives them.
    async fn registry(
        &self,
        config: &Configuration,
        task: &Task,
        folder: &Folder,
        may_write: &[String],
    ) -> Result<Registry> {
        let mut policy = config.policy();
        policy.storage = folder.storage();
        // The operator's grants of this machine are no part of a task.
        for own in policy.modules.values_mut() {
            own.one_off |= !own.grant.directories.is_empty();
            own.grant.directories.clear();
        }
        for name in task.may_read.iter().chain(may_write) {
            let access = if may_write.contains(name) {
                Access::ReadWrite
            } else {
                Access::Read
            };
            let own: &mut ModulePolicy = policy.modules.entry(name.clone()).or_default();
            own.one_off = true;
            own.grant.directories = vec![DirectoryGrant {
                host: folder.data().to_owned(),
                guest: GUEST.into(),
                access,
                quota_bytes: None,
            }];
        }
        let registry = Registry::new(self.engine.clone(), self.cache.clone(), policy);
        host::load(&registry, config, Some(&task.modules()), &|_| ()).await?;
        Ok(registry)
    }

    /// Makes the task's calls before the run.
    async fn set_up(&self, config: &Configuration, task: &Task, folder: &Folder) -> Result<()> {
        if task.setup.is_empty() {
            return Ok(());
        }
        let all: Vec<String> = task
            .may_read
            .iter()
            .chain(&task.may_write)
            .cloned()
            .collect();
        let registry = self.registry(config, task, folder, &all).await?;
        for (index, setup) in task.setup.iter().enumerate() {
            let id = format!("setup_{index}");
            let invocation = Invocation::new(&id, &setup.tool, &setup.arguments);
            match registry.call(&invocation).await.result {
                Ok(Output::Value(_) | Output::Message(_)) => {}
                Err(error) => bail!(
                    "task {}: its setup failed: {}: {error}",
                    task.id,
                    setup.tool
                ),
            }
        }
        Ok(())
    }
}

/// The run of an attempt.
fn request(arm: &Arm, task: &Task, number: u32) -> Result<RunRequest> {
    let mut request = RunRequest::new(uuid::Uuid::now_v7(), "");
    request.context = task
        .messages()
        .map_err(|reason| anyhow!("task {}: {reason}", task.id))?;
    request.context.push(Message::user(task.text.as_str()));
    if let Some(instructions) = &task.instructions {
        request.instructions.clone_from(instructions);
    }
    request.output_schema.clone_from(&task.output_schema);
    request.settings = arm.settings.clone();
    let settings = &mut request.settings;
    let most = task.max_steps.unwrap_or(settings.max_steps);
    settings.max_steps = settings.max_steps.min(most);
    if let Some(seconds) = task.timeout_s {
        settings.timeout = settings.timeout.min(Duration::from_secs_f64(seconds));
    }
    // The same for all configurations, different for each attempt.
    let seed = settings.seed.as_ref().and_then(Number::as_u64);
    settings.seed = seed.map(|seed| seed.saturating_add(u64::from(number - 1)).into());
    Ok(request)
}

/// The temporary folders of an attempt, removed when dropped.
#[derive(Debug)]
struct Folder {
    root: TempDir,
    data: std::path::PathBuf,
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Tools wrote there: first without recursion, then the rest by `TempDir`.
        for folder in ["data", "scratch"] {
            let _ = toolhold_sandbox::remove_tree(&self.root.path().join(folder));
        }
    }
}

impl Folder {
    fn new(task: &Task) -> Result<Self> {
        let root = tempfile::Builder::new()
            .prefix("toolhold-eval-")
            .tempdir()
            .context("there is no place for a task's files")?;
        let data = root.path().join("data");
        std::fs::create_dir(&data)?;
        for (path, text) in &task.files {
            let path = data.join(path);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        Ok(Self { root, data })
    }

    fn data(&self) -> &Path {
        &self.data
    }

    fn storage(&self) -> Storage {
        Storage {
            scratch: Some(self.root.path().join("scratch")),
            key_value: Some(self.root.path().join("key-value")),
        }
    }
}
