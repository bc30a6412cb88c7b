//! What a person sees of a run, from its events alone. Progress goes to stderr, the answer to
//! stdout, so that a pipe gets the answer.

use crate::cli::style::{self, bad, bold, bytes, count, dim, duration, good, plain, warn};
use serde_json::{Value, json};
use std::io::{IsTerminal as _, Write as _};
use toolhold_agent::event::{RunFailure, ToolOutcome};
use toolhold_agent::model::Delta;
use toolhold_agent::protocol::advisor::Council;
use toolhold_agent::run::approval::Verdict;
use toolhold_agent::{Event, EventKind, StopReason, ToolUsage};

/// Longer results are cut on the screen; the journal has them whole.
const MAX_SHOWN: usize = 600;

/// Prints events as they come.
#[derive(Debug, Default)]
pub struct View {
    /// Whether the line on the screen is model text without an end.
    open_line: bool,
}

impl View {
    pub fn show(&mut self, event: &Event) {
        self.show_kind(&event.kind);
    }

    fn show_kind(&mut self, event: &EventKind) {
        match event {
            EventKind::Run {
                model,
                request,
                tools,
                ..
            } => {
                let who = match &request.plan {
                    Some(plan) => format!("a saved plan of {} steps", plan.len()),
                    None => format!("{model} ({} contract)", request.settings.contract.name()),
                };
                self.line(&dim(&plain(&format!("{who}, {} tools", tools.len()))));
            }
            EventKind::Request { step, .. } => self.line(&bold(&format!("step {step}"))),
            EventKind::Delta {
                delta: Delta::Content(text) | Delta::Reasoning(text),
                ..
            } => self.model_text(text),
            // A native call is shown when it is made.
            EventKind::Delta { .. } => {}
            EventKind::Reply { .. } | EventKind::Plan { .. } => self.end_line(),
            EventKind::ModelFailed { failure, .. } => {
                self.line(&format!("  {} {}", bad("✗"), plain(&failure.message)));
            }
            EventKind::Council { council, .. } => self.council(council),
            EventKind::Meta { meta, .. } => {
                self.line(&dim(&format!("  version {}", meta.version)));
            }
            EventKind::ToolWaits { call, .. } => {
                self.line(&dim(&format!(
                    "  … {} waits for what it reads",
                    plain(&call.tool)
                )));
            }
            EventKind::Approval { pending, .. } => {
                self.line(&format!(
                    "  {} {} {} waits for a person: toolhold approvals approve {}",
                    warn("?"),
                    bold(&plain(&pending.call.tool)),
                    shown(&pending.arguments),
                    pending.call.id
                ));
            }
            EventKind::Decided { id, decision, .. } => {
                let verdict = match &decision.verdict {
                    Verdict::Approve => "approved",
                    Verdict::Edit { .. } => "approved with other arguments",
                    Verdict::Replace { .. } => "replaced by a result",
                    Verdict::Refuse { .. } => "refused",
                };
                self.line(&dim(&format!("  {} {verdict}", plain(id))));
            }
            EventKind::Resumed { .. } => self.line(&dim("resumed")),
            EventKind::Sub { what, .. } => self.sub(what),
            EventKind::ToolStart { call, .. } => {
                let reason = call
                    .reason
                    .as_deref()
                    .map_or(String::new(), |r| dim(&format!("  {}", plain(r))));
                self.line(&format!(
                    "  → {} {}{reason}",
                    bold(&plain(&call.tool)),
                    shown(&call.arguments)
                ));
            }
            EventKind::ToolResult {
                tool,
                outcome,
                usage,
                printed,
                ..
            } => self.result(tool, outcome, usage, printed),
            EventKind::Tokens {
                prompt,
                completion,
                first_token_ms,
                duration_ms,
                ..
            } => {
                self.line(&dim(&format!(
                    "  {}",
                    tokens(*prompt, *completion, *first_token_ms, *duration_ms)
                )));
            }
            EventKind::Notice { message, .. } => {
                self.line(&format!("  {} {}", warn("!"), plain(message)));
            }
            EventKind::Done {
                reason,
                output,
                error,
                steps,
                calls,
                tokens,
                duration_ms,
            } => {
                self.end_line();
                let summary = format!(
                    "{steps} steps, {calls} calls, {} tokens, {}",
                    count(*tokens),
                    duration(duration_ms * 1_000)
                );
                self.done(*reason, output, error.as_ref(), &summary);
            }
        }
    }

    /// What happens in a sub-agent, one level further in.
    fn sub(&mut self, event: &EventKind) {
        match event {
            EventKind::ToolStart { call, .. } => {
                self.line(&dim(&format!(
                    "    → {} {}",
                    plain(&call.tool),
                    shown(&call.arguments)
                )));
            }
            EventKind::ToolResult { tool, outcome, .. } => {
                let text = match outcome {
                    ToolOutcome::Output(output) => shown(output),
                    ToolOutcome::Error(failure) => plain(&failure.message),
                };
                self.line(&dim(&format!("    ← {} {text}", plain(tool))));
            }
            EventKind::Approval { .. } => self.show_kind(event),
            EventKind::Sub { what, .. } => self.sub(what),
            _ => {}
        }
    }

    fn council(&mut self, council: &Council) {
        for opinion in &council.opinions {
            self.line(&dim(&format!("  ◦ {}", plain(&json!(opinion).to_string()))));
        }
        for tally in council.tallies() {
            self.line(&dim(&format!(
                "  ◦ {}",
                plain(&json!(tally.outcome).to_string())
            )));
        }
    }

    fn result(&mut self, tool: &str, outcome: &ToolOutcome, usage: &ToolUsage, printed: &[String]) {
        let cost = cost(usage);
        match outcome {
            ToolOutcome::Output(output) => {
                self.line(&format!(
                    "  {} {} {}  {}",
                    good("←"),
                    plain(tool),
                    shown(output),
                    dim(&cost)
                ));
            }
            ToolOutcome::Error(failure) => {
                let text = plain(&format!("{tool} {}: {}", failure.kind, failure.message));
                self.line(&format!("  {} {text}  {}", bad("✗"), dim(&cost)));
            }
        }
        for line in printed.iter().take(10) {
            self.line(&dim(&format!("    {}", plain(line))));
        }
        if printed.len() > 10 {
            self.line(&dim(&format!("    … {} more lines", printed.len() - 10)));
        }
    }

    fn done(
        &mut self,
        reason: StopReason,
        output: &Value,
        error: Option<&RunFailure>,
        summary: &str,
    ) {
        match (reason, error) {
            (StopReason::Output, _) => {
                self.line(&dim(summary));
                if std::io::stdout().is_terminal() {
                    println!();
                }
                println!("{}", plain(&answer(output)));
            }
            (StopReason::Planned, _) => {
                self.line(&dim(&format!("planned after {summary}; nothing was run")));
                println!("{}", plain(&answer(output)));
            }
            // What was written before some calls failed.
            (StopReason::Incomplete, Some(failure)) => {
                self.line(&format!("{} {}", bad("stopped:"), plain(&failure.message)));
                self.line(&dim(&format!("{} after {summary}", name(reason))));
                println!("{}", plain(&answer(output)));
            }
            (reason, Some(failure)) => {
                self.line(&format!("{} {}", bad("stopped:"), plain(&failure.message)));
                self.line(&dim(&format!("{} after {summary}", name(reason))));
            }
            (reason, None) => self.line(&format!(
                "{} {} after {summary}",
                bad("stopped:"),
                name(reason)
            )),
        }
    }

    fn model_text(&mut self, text: &str) {
        if !self.open_line {
            eprint!("  ");
        }
        self.open_line = true;
        eprint!("{}", dim(&plain(text).replace('\n', "\n  ")));
        let _ = std::io::stderr().flush();
    }

    fn line(&mut self, text: &str) {
        self.end_line();
        eprintln!("{text}");
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.open_line) {
            eprintln!();
        }
    }
}

/// A plain string as it is, anything else as JSON.
pub fn answer(output: &Value) -> String {
    match output {
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).unwrap_or_default(),
    }
}

/// 1.2 ms · fuel 35.1 k · 1.1 MiB.
pub fn cost(usage: &ToolUsage) -> String {
    format!(
        "{} · fuel {} · memory {}",
        duration(usage.duration_us),
        count(usage.fuel),
        bytes(usage.memory_bytes)
    )
}

pub fn name(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Output => "output",
        StopReason::Planned => "planned",
        StopReason::Incomplete => "not all of the plan",
        StopReason::MaxSteps => "step limit",
        StopReason::TokenBudget => "token budget",
        StopReason::Timeout => "timeout",
        StopReason::Cancelled => "cancelled",
        StopReason::Model => "endpoint failure",
        StopReason::Unusable => "unusable replies",
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    let cut: String = text.chars().take(MAX_SHOWN).collect();
    let missing = text.chars().count().saturating_sub(MAX_SHOWN);
    let rest = if missing > 0 {
        style::dim(&format!(" … {missing} more characters"))
    } else {
        String::new()
    };
    format!("{}{rest}", plain(&cut))
}

fn tokens(
    prompt: Option<u64>,
    completion: Option<u64>,
    first_token_ms: Option<u64>,
    duration_ms: u64,
) -> String {
    let counted = match (prompt, completion) {
        (Some(prompt), Some(completion)) => {
            format!("{} → {} tokens", count(prompt), count(completion))
        }
        _ => "tokens not counted by the endpoint".into(),
    };
    let first = first_token_ms.map_or(String::new(), |ms| {
        format!(", first after {}", duration(ms * 1_000))
    });
    format!("{counted}, {}{first}", duration(duration_ms * 1_000))
}
