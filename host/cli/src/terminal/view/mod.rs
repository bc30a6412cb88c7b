//! What a person sees of a run, from its events alone. Progress goes to stderr, the answer to
//! stdout, so that a pipe gets the answer.

mod words;

pub use words::{answer, cost, name};

use crate::terminal::style::{bad, bold, count, dim, duration, good, line, plain, plural, warn};
use serde_json::Value;
use std::io::{IsTerminal as _, Write as _};
use toolhold_protocol::advisor::{Council, VoteOutcome};
use toolhold_protocol::approval::{Pending, Verdict};
use toolhold_protocol::completion::Delta;
use toolhold_protocol::cost::Amount;
use toolhold_protocol::event::{Event, EventKind, StopReason};
use toolhold_protocol::event::{RunFailure, ToolOutcome};
use toolhold_protocol::reference::Path;
use toolhold_protocol::routing::Routing;
use toolhold_protocol::shield::{Judgement, Ruling};
use toolhold_protocol::solution::Call;
use words::{budget, cut, plain_json, shown, side, tokens};

/// Most lines shown of a guest's output.
const MAX_GUEST_LINES: usize = 10;

/// Prints events as they come.
#[derive(Debug, Default)]
pub struct EventPrinter {
    /// Whether the last line on the screen is model text without a line break.
    open_line: bool,
    /// Only this view was asked for: it goes to stdout.
    is_all: bool,
    /// Whether the answer is data and not text.
    is_typed: bool,
    /// Currency of the run's costs.
    currency: String,
    /// Whether the size of each part of a request is shown.
    has_budget: bool,
    /// The failure of the last Request, as it was shown.
    failure: Option<String>,
}

impl EventPrinter {
    /// For ended runs: everything goes to stdout.
    pub fn of_record() -> Self {
        Self {
            is_all: true,
            ..Self::default()
        }
    }

    pub fn show_budget(&mut self, is_wanted: bool) {
        self.has_budget = is_wanted;
    }

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
                let schema = request.output_schema.as_ref();
                self.currency.clone_from(&request.settings.currency);
                let is_plan = request.plan.is_some() || request.settings.dry_run;
                self.is_typed = is_plan
                    || schema
                        .is_some_and(|schema| schema.get("type").is_none_or(|ty| ty != "string"));
                let who = match &request.plan {
                    Some(plan) => format!("a saved plan of {}", plural(plan.len() as u64, "step")),
                    None => format!("{model} ({} contract)", request.settings.contract.name()),
                };
                self.line(&dim(&plain(&format!(
                    "{who}, {}",
                    plural(tools.len() as u64, "tool")
                ))));
            }
            EventKind::Request { step, .. } => {
                self.failure = None;
                self.line(&bold(&format!("step {step}")));
            }
            EventKind::Delta {
                delta: Delta::Content(text) | Delta::Reasoning(text),
                ..
            } => self.model_text(text),
            // Shown elsewhere: a native call when it is made, each shield's verdict by itself, and a given-up
            // endpoint by its caller.
            EventKind::Delta { .. }
            | EventKind::Screened { .. }
            | EventKind::Counted { .. }
            | EventKind::Routing(Routing::GaveUp { .. }) => {}
            EventKind::Budget {
                window,
                reply,
                parts,
                exact,
                ..
            } => {
                if self.has_budget {
                    self.line(&dim(&budget(*window, *reply, parts, exact)));
                }
            }
            EventKind::Reply { .. } | EventKind::Plan { .. } => self.end_line(),
            EventKind::ModelFailed { failure, .. } => {
                self.line(&format!("  {} {}", bad("✗"), plain(&failure.message)));
                self.failure = Some(failure.message.clone());
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
                    "  {} {} waits for a person: toolhold approvals approve {}",
                    warn("?"),
                    cut(&bound_call(pending)),
                    line(&pending.call.id)
                ));
            }
            EventKind::Decided { id, decision, .. } => {
                let verdict = match &decision.verdict {
                    Verdict::Approve => "approved".to_owned(),
                    Verdict::Edit { arguments } => {
                        format!("approved with other arguments: {}", shown(arguments))
                    }
                    Verdict::Replace { result } => {
                        format!("not made; its result is {}", shown(result))
                    }
                    Verdict::Refuse { reason } => format!("refused: {}", line(reason)),
                };
                let by = decision
                    .by
                    .as_deref()
                    .map_or(String::new(), |by| format!(" ({})", line(by)));
                self.line(&dim(&format!("  {} {verdict}{by}", line(id))));
            }
            EventKind::Resumed { .. } => self.line(&dim("resumed")),
            EventKind::Sub { what, .. } => self.sub(what),
            EventKind::ToolStart { call, filled, .. } => self.started(call, filled.as_ref()),
            EventKind::ToolResult {
                tool,
                outcome,
                written,
                usage,
                printed,
                by_host,
                ..
            } => {
                let cost = if *by_host { String::new() } else { cost(usage) };
                self.result(tool, outcome, written, &cost);
                self.printed(printed);
            }
            EventKind::Tokens {
                prompt,
                completion,
                first_token_ms,
                duration_ms,
                cost_nano,
                ..
            } => {
                let cost =
                    cost_nano.map_or(String::new(), |cost| format!(", {}", self.money(cost)));
                self.line(&dim(&format!(
                    "  {}{cost}",
                    tokens(*prompt, *completion, *first_token_ms, *duration_ms)
                )));
            }
            EventKind::Repaired { tool, repairs, .. } => {
                let what = match tool {
                    Some(tool) => format!("the arguments of {tool} were put right"),
                    None => "the reply was mended".to_owned(),
                };
                let repairs: Vec<_> = repairs.iter().map(ToString::to_string).collect();
                let text = line(&format!("{what}: {}", repairs.join(", ")));
                self.line(&format!("  {} {text}", warn("!")));
            }
            EventKind::UnusableReply(reply) => {
                self.line(&format!("  {} {}", warn("!"), line(&reply.to_string())));
            }
            EventKind::Notice { message, .. } => {
                self.line(&format!("  {} {}", warn("!"), line(message)));
            }
            EventKind::Shield(judgement) => self.judged(judgement),
            EventKind::Hidden { counts, .. } => {
                let counts: Vec<String> = counts
                    .iter()
                    .map(|(kind, count)| format!("{count} {}", kind.name()))
                    .collect();
                self.line(&dim(&format!(
                    "  hidden from the model: {}",
                    counts.join(", ")
                )));
            }
            EventKind::Fallback { tool, stage, .. } => {
                let text = line(&format!("{tool}: {stage}"));
                self.line(&format!("  {} {text}", warn("↻")));
            }
            EventKind::Summarized {
                turns,
                tokens_before,
                tokens_after,
                ..
            } => {
                let text = format!(
                    "the window is nearly full: {turns} turns are summed up, {} → {} tokens",
                    count(*tokens_before),
                    count(*tokens_after)
                );
                self.line(&format!("  {} {text}", warn("!")));
            }
            EventKind::SideRequest(request) => {
                let cost = request
                    .cost_nano
                    .map_or(String::new(), |cost| format!(", {}", self.money(cost)));
                let text = side(request);
                self.line(&dim(&format!("  {}{cost}", line(&text))));
            }
            EventKind::Routing(routing) => {
                let text = line(&routing.to_string());
                self.line(&if routing.is_trouble() {
                    format!("  {} {text}", warn("!"))
                } else {
                    format!("  {}", dim(&text))
                });
            }
            EventKind::Done {
                reason,
                output,
                error,
                steps,
                calls,
                tokens,
                cost_nano,
                duration_ms,
            } => {
                self.end_line();
                let cost =
                    cost_nano.map_or(String::new(), |cost| format!(", {}", self.money(cost)));
                let summary = format!(
                    "{}, {}, {} tokens{cost}, {}",
                    plural(*steps, "step"),
                    plural(*calls, "call"),
                    count(*tokens),
                    duration(duration_ms.saturating_mul(1_000))
                );
                self.done(*reason, output, error.as_ref(), &summary);
            }
        }
    }

    fn started(&mut self, call: &Call, filled: Option<&Value>) {
        let instance = call
            .instance
            .as_deref()
            .map_or(String::new(), |instance| format!(" for {}", line(instance)));
        let reason = call
            .reason
            .as_deref()
            .map_or(String::new(), |reason| dim(&format!("  {}", line(reason))));
        self.line(&format!(
            "  → {}{instance} {}{reason}",
            bold(&line(&call.tool)),
            shown(filled.unwrap_or(&call.arguments))
        ));
    }

    /// Events of a sub-agent, or of a nested call, one level further in.
    fn sub(&mut self, event: &EventKind) {
        match event {
            EventKind::ToolStart { call, filled, .. } => {
                self.line(&dim(&format!(
                    "    → {} {}",
                    plain(&call.tool),
                    shown(filled.as_ref().unwrap_or(&call.arguments))
                )));
            }
            EventKind::ToolResult { tool, outcome, .. } => {
                let text = match outcome {
                    ToolOutcome::Output(output) => shown(output),
                    ToolOutcome::Error(failure) => plain(&failure.message),
                };
                self.line(&dim(&format!("    ← {} {text}", plain(tool))));
            }
            EventKind::Approval { .. } | EventKind::Shield(_) => self.show_kind(event),
            EventKind::Sub { what, .. } => self.sub(what),
            _ => {}
        }
    }

    /// A shield that lets something pass is not shown.
    fn judged(&mut self, judgement: &Judgement) {
        let said = match judgement.verdict {
            Ruling::Pass => return,
            Ruling::Redact => "redacted",
            Ruling::Block => "blocked",
            Ruling::FailedPass => "gave no verdict and let pass",
            Ruling::FailedBlock => "gave no verdict and so blocked",
        };
        let place = judgement.place.name().replace('_', " ");
        let tool = judgement.tool.as_deref();
        let of = tool.map_or(String::new(), |tool| format!(" of {tool}"));
        let text = format!(
            "shield {} {said} the {place}{of}: {}",
            judgement.shield, judgement.reason
        );
        self.line(&format!("  {} {}", warn("⛨"), cut(&line(&text))));
    }

    /// Each advisor with its votes and its text, then the result.
    fn council(&mut self, council: &Council) {
        for opinion in &council.opinions {
            let of = opinion.instance.as_ref();
            let of = of.map_or(String::new(), |instance| format!(" ({instance})"));
            let votes: Vec<String> = opinion
                .votes
                .iter()
                .map(|vote| format!("{} {}", vote.tool, vote.weight))
                .collect();
            let words = opinion.fields.iter().filter(|(name, _)| *name != "calls");
            let words: Vec<String> = words
                .map(|(name, value)| format!("{name}: {}", answer(value)))
                .collect();
            let text = format!("{}{of}: {}", opinion.advisor, votes.join(", "));
            self.line(&dim(&format!(
                "  ◦ {}  {}",
                line(&text),
                line(&words.join("; "))
            )));
        }
        for tally in council.tallies() {
            let of = tally.instance.as_ref();
            let of = of.map_or(String::new(), |instance| format!(" ({instance})"));
            let outcome = match tally.outcome {
                VoteOutcome::Winner { tool, sum } => format!("{tool} with {sum}"),
                VoteOutcome::Tie { tools, sum } => {
                    format!("{} with {sum} each", tools.join(" and "))
                }
                VoteOutcome::Undecided => "nothing".into(),
            };
            self.line(&dim(&format!("  ◦ council{of}: {}", line(&outcome))));
        }
    }

    fn result(&mut self, tool: &str, outcome: &ToolOutcome, written: &[Path], cost: &str) {
        let places: Vec<_> = written.iter().map(|path| line(&path.to_string())).collect();
        let place = if places.is_empty() {
            String::new()
        } else {
            format!(" → {}", places.join(", "))
        };
        let (mark, text) = match outcome {
            ToolOutcome::Output(output) => (good("←"), shown(output)),
            ToolOutcome::Error(failure) => (
                bad("✗"),
                cut(&line(&format!("{}: {}", failure.kind, failure.message))),
            ),
        };
        self.line(format!("  {mark} {} {text}{place}  {}", line(tool), dim(cost)).trim_end());
    }

    fn printed(&mut self, printed: &[String]) {
        for text in printed.iter().take(MAX_GUEST_LINES) {
            self.line(&dim(&format!("    {}", cut(&line(text)))));
        }
        if printed.len() > MAX_GUEST_LINES {
            self.line(&dim(&format!(
                "    … {} more lines",
                printed.len() - MAX_GUEST_LINES
            )));
        }
    }

    fn money(&self, amount: Amount) -> String {
        let text = format!("{amount} {}", line(&self.currency));
        text.trim_end().to_owned()
    }

    fn done(
        &mut self,
        reason: StopReason,
        output: &Value,
        error: Option<&RunFailure>,
        summary: &str,
    ) {
        match (reason, error) {
            (StopReason::Output | StopReason::Planned, _) => {
                self.line(&dim(summary));
                if !self.is_all && std::io::stdout().is_terminal() {
                    println!();
                }
                if self.is_typed {
                    println!("{}", plain_json(output));
                } else {
                    println!("{}", plain(&answer(output)));
                }
            }
            (StopReason::ToolCalls, _) => {
                self.line(&dim(&format!("{} after {summary}", name(reason))));
            }
            // Text that was written before some calls failed.
            (StopReason::Incomplete, Some(failure)) => {
                self.line(&format!("{} {}", bad("stopped:"), plain(&failure.message)));
                self.line(&dim(&format!("{} after {summary}", name(reason))));
                println!("{}", plain_json(output));
            }
            // The reason was shown when it happened.
            (reason, Some(failure)) if self.failure.as_ref() == Some(&failure.message) => {
                self.line(&format!(
                    "{} {} after {summary}",
                    bad("stopped:"),
                    name(reason)
                ));
                self.so_far(output);
            }
            (reason, Some(failure)) => {
                self.line(&format!("{} {}", bad("stopped:"), plain(&failure.message)));
                self.line(&dim(&format!("{} after {summary}", name(reason))));
                self.so_far(output);
            }
            (reason, None) => {
                self.line(&format!(
                    "{} {} after {summary}",
                    bad("stopped:"),
                    name(reason)
                ));
                self.so_far(output);
            }
        }
    }

    /// It is not an answer, so it does not go to stdout.
    fn so_far(&mut self, output: &Value) {
        if !output.is_null() {
            self.line(&dim(&format!("so far: {}", shown(output))));
        }
    }

    fn model_text(&mut self, text: &str) {
        if !self.open_line {
            self.put("  ");
        }
        self.open_line = true;
        self.put(&dim(&plain(text).replace('\n', "\n  ")));
    }

    /// A closed pipe does not end a run.
    fn put(&self, text: &str) {
        let _ = if self.is_all {
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush())
        } else {
            std::io::stderr().lock().write_all(text.as_bytes())
        };
    }

    fn line(&mut self, text: &str) {
        self.end_line();
        self.put(&format!("{text}\n"));
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.open_line) {
            self.put("\n");
        }
    }
}
/// What an approval is bound to, on one line: the tool, its instance and its arguments.
pub fn bound_call(pending: &Pending) -> String {
    let instance = pending
        .call
        .instance
        .as_ref()
        .map_or(String::new(), |instance| format!(" for {instance}"));
    let caller = match pending.callers.last() {
        Some(caller) => format!(" (called by {caller})"),
        None => String::new(),
    };
    line(&format!(
        "{}{instance} {}{caller}",
        pending.call.tool, pending.arguments
    ))
}
