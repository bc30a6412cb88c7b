//! `toolhold modules call`.

use super::profile::{RequestedProfile, WrittenProfile};
use super::{built_on_first_use, load, module};
use crate::commands::build::until_stopped;
use crate::commands::revocations;
use crate::config::Loaded;
use crate::exit::Exit;
use crate::terminal::decider::Terminal;
use crate::terminal::output::NoteMark;
use crate::terminal::style::plain;
use crate::terminal::{input, output, view};
use anyhow::{Context as _, Result, bail};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use toolhold_agent::calls::{
    CallDecider, CallPipeline, CallRequest, CallRules, CallableTool, NoDecision, NotCalled,
    OpenJobs, Unlimited,
};
use toolhold_agent::{ToolCall, ToolRunner, Toolbox, module_tool};
use toolhold_mcp::serve::{CallRecords as _, RecordedCaller};
use toolhold_policy::{CallUsage, Captured, Denials, JobQuestion, LogLine, Output, ProfileSlot};
use toolhold_protocol::decision::{Decision, Pending, Verdict};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::result::ToolResult;
use toolhold_runtime::components::Components;
use toolhold_runtime::host;
use toolhold_runtime::models::Models;
use toolhold_runtime::recorded::{AuditMode, Recorder};
use toolhold_runtime::shields::shields;
use toolhold_runtime::tools::{self, SandboxTools};
use toolhold_runtime::watch::ConfigDigests;
use uuid::Uuid;

/// Flags of the call.
#[derive(Debug, Clone, Copy)]
pub struct CallFlags<'a> {
    /// The session whose scratch files the call sees.
    pub session: &'a str,
    /// True if calls that need a decision may run without a question.
    pub is_yes: bool,
    /// Where its profile is written.
    pub profile: Option<&'a Path>,
    pub is_json: bool,
}

/// Calls `tool`. Builds its module first if only the component is missing.
pub async fn call(
    loaded: &Loaded,
    tool: &str,
    arguments: &str,
    said: CallFlags<'_>,
) -> Result<Exit> {
    let Some(parts) = tool.rsplit_once('.') else {
        bail!("{tool:?}: expected MODULE.TOOL; see `toolhold modules list`");
    };
    let arguments: Value = serde_json::from_str(&input::text(arguments, "the arguments")?)
        .context("the arguments are not JSON")?;
    let profile = said.profile.map(RequestedProfile::new).transpose()?;
    // Not before: what reads the arguments from the terminal hears of no signal.
    let progress = Arc::new(TerminalCall::default());
    let called = called(loaded, tool, parts, arguments, said, profile, &progress);
    let exit = until_stopped(Box::pin(called)).await;
    // Of a call that was stopped: nothing asks about its job any more.
    progress.jobs.cancel_all().await;
    if let Some(recorder) = progress.recorder.get() {
        // Waits for the row of a call that was stopped, too.
        recorder.close().await;
    }
    if let Ok(Exit::Interrupted) = exit {
        output::note(NoteMark::Bad("interrupted:"), &progress.interruption(tool));
    }
    exit
}

/// The parts of a call that outlast it where it is stopped.
#[derive(Debug)]
struct TerminalCall {
    jobs: OpenJobs,
    /// Absent until the call is about to be recorded.
    recorder: OnceLock<Recorder>,
    /// True once the tool is called.
    is_made: AtomicBool,
    /// True once the call has ended, with a result or an error.
    is_over: AtomicBool,
}

impl Default for TerminalCall {
    fn default() -> Self {
        Self {
            jobs: OpenJobs::held(),
            recorder: OnceLock::new(),
            is_made: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }
}

impl TerminalCall {
    /// Returns the words about a call whose command was stopped by a signal. To be asked once the recorder is closed.
    fn interruption(&self, tool: &str) -> String {
        if self.is_over.load(Ordering::Relaxed) {
            return format!("{tool} had ended; its result was not shown");
        }
        if !self.is_made.load(Ordering::Relaxed) {
            return format!("{tool} was not called");
        }
        // Of the call, and of the calls that it made.
        let (unwritten, failed) = self
            .recorder
            .get()
            .map_or((0, 0), |recorder| (recorder.unwritten(), recorder.failed()));
        let logged = if failed > 0 {
            "its end is not in the audit log, which could not be written"
        } else if unwritten > 0 {
            "its end is not in the audit log yet, and is written by the next command that reads the log"
        } else {
            "the audit log has its end"
        };
        format!("{tool} was stopped, and it is not known whether it took effect; {logged}")
    }
}

async fn called(
    loaded: &Loaded,
    tool: &str,
    (name, own): (&str, &str),
    arguments: Value,
    said: CallFlags<'_>,
    profile: Option<RequestedProfile>,
    progress: &Arc<TerminalCall>,
) -> Result<Exit> {
    let config = &loaded.configuration;
    let seen = ConfigDigests::now(&loaded.files());
    let mut registry = load(config, Some(name)).await?;
    if built_on_first_use(config, &registry).await? {
        registry = load(config, Some(name)).await?;
    }
    host::load_callees(&registry, config, &|_| ()).await?;
    revocations::heed(loaded, &registry, seen);
    let module = module(config, &registry, name)?;
    for note in &module.notes {
        output::note(NoteMark::Warn("note:"), &format!("{name}: {note}"));
    }
    let full = format!("{}.{own}", module.name);
    let Some(spec) = module.tools.iter().find(|spec| spec.name == full) else {
        let names: Vec<_> = module.tools.iter().map(|spec| spec.name.as_str()).collect();
        bail!(
            "module {name} has no tool {tool:?}; it has {}",
            names.join(", ")
        );
    };
    let callable = CallableTool::new(module_tool(spec))?;
    let recorder = host::recorder(config, AuditMode::Durable)
        .await
        .context("the call would not be in the audit log, and is not made")?;
    let recorder = progress.recorder.get_or_init(|| recorder);
    let settings = config.settings();
    let components = Components::new(registry.clone(), host::sources(config));
    let mut guards = Models::new(config, settings.timeout, None)?;
    let guards = Box::pin(guards.guards()).await?;
    let shields = Box::pin(shields(config, &components, None, &guards)).await?;
    let id = Uuid::now_v7().to_string();
    let source = Arc::new(SandboxTools::new(registry).on_behalf_of("", said.session));
    let tools = Arc::new(ReportingTools {
        tools: source.clone(),
        id: id.clone(),
        profile: profile.as_ref().map(RequestedProfile::slot),
        progress: progress.clone(),
        reported: Mutex::default(),
        nested_denials: AtomicUsize::new(0),
    });
    let pipeline = CallPipeline {
        recorder: recorder.of(RecordedCaller {
            policy: shields.policy(&settings, None, 0).hash.into(),
            way: Map::from_iter([("via".to_owned(), "cli".into())]),
            ..RecordedCaller::default()
        }),
        toolbox: Toolbox {
            source,
            runner: tools.clone(),
        },
        tools: Arc::default(),
        rules: Arc::new(CallRules::direct(&settings, shields)),
        decider: Arc::new(TerminalCallDecider {
            is_yes: said.is_yes,
            terminal: Arc::new(Terminal::open()),
        }),
        budget: Arc::new(Unlimited),
        jobs: progress.jobs.clone(),
        // The guest's output is shown to the person at the terminal.
        hiding: None,
        call_depth: 0,
    };
    let request = CallRequest {
        asked_as: id.clone(),
        id,
        tool: Arc::new(callable),
        name: tool.to_owned(),
        arguments,
        callers: Vec::new(),
        timeout: None,
        restrictions: None,
        begin: None,
        listener: None,
    };
    let called = pipeline.call(request).await;
    progress.is_over.store(true, Ordering::Relaxed);
    let end = match called {
        Ok(end) => end,
        Err(NotCalled::NotRecorded(failure)) => bail!(failure.message),
        Err(NotCalled::Lost { was_made: true }) => {
            bail!("the call was made, and could not be written into the audit log")
        }
        Err(NotCalled::Lost { was_made: false }) => {
            bail!("nothing was called, and that could not be written into the audit log")
        }
        Err(NotCalled::Busy(message)) => bail!(message),
        Err(NotCalled::HandedBack) => bail!("no person was asked whether the call may be made"),
    };
    let profiled = match profile {
        Some(profile) => Some(profile.write().await?),
        None => None,
    };
    let reported = tools
        .reported
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let profiled = profiled.as_ref();
    show(&end.result, reported.as_ref(), profiled, said.is_json)
}

/// A registry's tools that also keep details of one call besides its result.
#[derive(Debug)]
struct ReportingTools {
    tools: Arc<SandboxTools>,
    /// Id of the call; nested calls have other ids.
    id: String,
    /// Takes the profile of the call.
    profile: Option<Arc<ProfileSlot>>,
    progress: Arc<TerminalCall>,
    reported: Mutex<Option<Reported>>,
    /// Denials of nested calls that were told.
    nested_denials: AtomicUsize,
}

/// Most denials of nested calls that are printed: a guest makes as many calls as its time allows.
const MAX_NESTED_DENIALS: usize = 16;

#[derive(Debug, Default)]
struct Reported {
    usage: CallUsage,
    stdout: Captured,
    stderr: Captured,
    logs: Vec<LogLine>,
    denials: Denials,
    /// The whole message, if the tool returned one.
    message: Option<Value>,
}

impl ToolRunner for ReportingTools {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let is_call = call.id == self.id && call.job.is_none();
            if is_call {
                self.progress.is_made.store(true, Ordering::Relaxed);
            }
            let profile = self.profile.clone().filter(|_| is_call);
            let report = match self.tools.report(call, profile).await {
                Ok(report) => report,
                Err(failure) => return ToolResult::failed(failure),
            };
            if matches!(call.job, Some(JobQuestion::Cancel(_))) {
                return tools::result(report);
            }
            if call.id == self.id {
                let reported = Reported {
                    usage: report.usage,
                    stdout: report.stdout.clone(),
                    stderr: report.stderr.clone(),
                    logs: report.logs.clone(),
                    denials: report.denials.clone(),
                    message: match &report.result {
                        Ok(Output::Message(message)) => Some(message.clone()),
                        _ => None,
                    },
                };
                let mut last = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
                *last = Some(reported);
            } else {
                // The report that is shown is the outer call's.
                for line in tools::denied(&report.denials) {
                    match self.nested_denials.fetch_add(1, Ordering::Relaxed) {
                        ..MAX_NESTED_DENIALS => output::remark(&format!("{}: {line}", call.tool)),
                        MAX_NESTED_DENIALS => {
                            output::remark("more denials of calls that it made are not shown");
                        }
                        _ => (),
                    }
                }
            }
            tools::result(report)
        })
    }
}

/// Asks the person at the terminal about the call and its nested calls.
#[derive(Debug, Clone)]
struct TerminalCallDecider {
    /// `--yes` was given.
    is_yes: bool,
    terminal: Arc<Option<Terminal>>,
}

impl CallDecider for TerminalCallDecider {
    fn decide<'a>(&'a self, pending: &'a Pending) -> BoxFuture<'a, Result<Decision, NoDecision>> {
        Box::pin(async move {
            if self.is_yes {
                return Ok(Decision {
                    digest: pending.digest.clone(),
                    verdict: Verdict::Approve,
                    by: Some("--yes".into()),
                });
            }
            let asked = match self.terminal.as_ref() {
                Some(terminal) => terminal.ask(Uuid::nil(), pending).await.ok(),
                None => None,
            };
            asked.ok_or_else(|| {
                let message = format!(
                    "calls of {} wait for a person ([decisions]), and there is no terminal to ask at; say that they \
                     may be made with --yes",
                    pending.call.tool
                );
                NoDecision::Refused(ToolFailure::correctable("not_approved", message))
            })
        })
    }

    fn within(&self, _: &str) -> Arc<dyn CallDecider> {
        Arc::new(self.clone())
    }
}

fn show(
    result: &ToolResult,
    reported: Option<&Reported>,
    profiled: Option<&WrittenProfile>,
    json: bool,
) -> Result<Exit> {
    let exit = result.outcome.as_ref().map_or(Exit::Tool, |_| Exit::Ok);
    if json {
        let message = reported.and_then(|reported| reported.message.clone());
        let (key, outcome) = match (&result.outcome, message) {
            (Ok(output), Some(mut message)) => {
                // The result after the shields.
                message["data"] = output.value.clone();
                ("result", json!({"message": message}))
            }
            (Ok(output), None) => ("result", json!({"value": output.value})),
            (Err(failure), _) => (
                "error",
                json!({"kind": failure.kind, "class": failure.class, "message": failure.message}),
            ),
        };
        let nothing = Reported::default();
        let reported = reported.unwrap_or(&nothing);
        let mut whole = json!({
            key: outcome,
            "usage": reported.usage,
            "stdout": reported.stdout,
            "stderr": reported.stderr,
            "logs": reported.logs,
            "denials": reported.denials,
        });
        if let Some(profiled) = profiled {
            whole["profile"] = serde_json::to_value(profiled)?;
        }
        output::json(&whole)?;
        return Ok(exit);
    }
    for line in &result.printed {
        output::remark(line);
    }
    match &result.outcome {
        Ok(output) => println!("{}", plain(&view::answer(&output.value))),
        Err(failure) => output::note(
            NoteMark::Bad(&format!("{}:", failure.kind)),
            &failure.message,
        ),
    }
    if reported.is_some() {
        output::remark(&view::cost(&result.usage));
    }
    if let Some(profiled) = profiled {
        profiled.show();
    }
    Ok(exit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_says_whether_the_tool_was_called() {
        let call = TerminalCall::default();
        assert_eq!(call.interruption("m.t"), "m.t was not called");
        call.is_made.store(true, Ordering::Relaxed);
        let text = call.interruption("m.t");
        let unknown = "m.t was stopped, and it is not known whether it took effect";
        assert!(text.starts_with(unknown), "{text}");
        call.is_over.store(true, Ordering::Relaxed);
        let text = call.interruption("m.t");
        assert_eq!(text, "m.t had ended; its result was not shown");
    }
}
