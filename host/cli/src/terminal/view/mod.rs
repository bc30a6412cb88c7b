//! What a person sees of a run, from its events alone. Progress goes to stderr, the answer to
//! stdout, so that a pipe gets the answer. Each call is a line, and the model's prose is text; `-v` shows what the
//! model writes as it writes it, and each step.

mod calls;
mod detail;
mod knowledge;
mod prose;
mod screen;
mod words;

pub use words::{answer, cost, name};

use crate::terminal::output;
use crate::terminal::rows::Rows;
use crate::terminal::style::{bad, block, bold, count, dim, duration, line, plain, plural, warn};
use calls::OpenCalls;
use prose::Prose;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::time::Duration;
use toolhold_protocol::bound::BoundTools;
use toolhold_protocol::completion::{Delta, ReplyCut};
use toolhold_protocol::contract::Contract;
use toolhold_protocol::cost::Amount;
use toolhold_protocol::decision::{Pending, Verdict};
use toolhold_protocol::event::RunFailure;
use toolhold_protocol::event::{Event, EventKind, StopReason};
use toolhold_protocol::routing::Routing;
use toolhold_protocol::settings::RunRequest;
use words::{budget, cut, plain_json, ruling, said_by, shown, side, tokens, took};

/// Most lines shown of a guest's output.
const MAX_GUEST_LINES: usize = 10;

/// Time without an event after which a person wants to know what runs.
pub const QUIET_PERIOD: Duration = Duration::from_secs(2);

/// How a run is shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct OutputOptions {
    /// One JSON event per line.
    pub json: bool,
    /// Replies as they are written, and what each step and call took.
    pub verbose: bool,
    /// What each part of a request takes.
    pub budget: bool,
}

/// Prints events as they come.
#[derive(Debug, Default)]
pub struct EventPrinter {
    /// Where model text that is shown while it is written ends on the screen.
    model_rows: Rows,
    /// Present where a person may be asked about a call: the begin of a line of model text. Such lines are shown whole,
    /// because a question must not stand behind what a model wrote.
    begun_line: Option<String>,
    /// Calls that a person is asked about, by id. Model text waits meanwhile, so that it does not stand below the
    /// question. The run bounds their number.
    asked: BTreeSet<String>,
    /// Whole lines of model text that wait for the decisions. The bounds of the reply are theirs.
    waiting_lines: Vec<String>,
    /// Whether events are printed as JSON, and not for people.
    is_json: bool,
    /// Only this view was asked for: it goes to stdout.
    is_all: bool,
    /// Whether replies are shown as the model writes them, and steps and calls with what they took.
    has_detail: bool,
    /// Without detail: the replies' prose, and the calls that run.
    prose: Prose,
    calls: OpenCalls,
    /// Without detail: the begin of a reply, which is shown if it cannot be used.
    reply: String,
    /// Whether the answer is data and not text.
    is_typed: bool,
    /// Currency of the run's costs.
    currency: String,
    /// Whether the size of each part of a request is shown.
    has_budget: bool,
    /// The failure of the last Request, as it was shown.
    failure: Option<String>,
    /// True once it was said that the model is not shown the images, which each Request repeats.
    has_told_images: bool,
    /// True if an answer is the text of a reply, and not a part of its JSON.
    has_text_replies: bool,
    /// Why the text of the last reply is not whole.
    cut: Option<ReplyCut>,
}

impl EventPrinter {
    /// For ended runs: everything goes to stdout.
    pub fn of_record() -> Self {
        Self {
            is_all: true,
            has_detail: true,
            ..Self::default()
        }
    }

    /// For runs that go on.
    pub fn of_run(shown: OutputOptions) -> Self {
        Self {
            is_json: shown.json,
            has_detail: shown.verbose,
            has_budget: shown.budget,
            ..Self::default()
        }
    }

    /// What the events to come are about. A run's first event says it; a run that is resumed has no first event.
    pub fn is_about(&mut self, request: &RunRequest, tools: &BoundTools) {
        let schema = request.output_schema.as_ref();
        let is_plan = request.plan.is_some() || request.settings.dry_run;
        let is_text = |schema: &Value| schema.get("type").is_some_and(|ty| ty == "string");
        self.is_typed = is_plan || schema.is_some_and(|schema| !is_text(schema));
        self.currency.clone_from(&request.settings.currency);
        self.has_text_replies = request.settings.contract == Contract::Tools;
        self.prose = Prose::of(request, tools, self.is_typed);
        let may_ask = !request.settings.decisions.asks_nobody();
        self.begun_line = may_ask.then(String::new);
    }

    /// Names the calls that run, when nothing happened for [`QUIET_PERIOD`].
    pub fn quiet(&mut self) {
        for text in self.calls.slow() {
            self.dim(&format!("  {text}"));
        }
    }

    pub fn is_json(&self) -> bool {
        self.is_json
    }

    /// As it was asked for: as JSON or for people.
    pub fn print(&mut self, event: &Event) -> anyhow::Result<()> {
        if self.is_json {
            return output::json_line(event);
        }
        self.show(event);
        Ok(())
    }

    pub fn show(&mut self, event: &Event) {
        self.show_kind(&event.kind);
    }

    fn show_kind(&mut self, event: &EventKind) {
        if !self.has_detail {
            self.show_prose(event);
        }
        match event {
            EventKind::Run {
                model,
                request,
                tools,
                ..
            } => {
                self.is_about(request, tools);
                let who = match &request.plan {
                    Some(plan) => format!("a saved plan of {}", plural(plan.len() as u64, "step")),
                    None => format!("{model} ({} contract)", request.settings.contract.name()),
                };
                let tools = plural(tools.len() as u64, "tool");
                self.dim(&line(&format!("{who}, {tools}")));
            }
            EventKind::Request { step, .. } => {
                self.failure = None;
                self.reply.clear();
                if self.has_detail {
                    self.line(&bold(&format!("step {step}")));
                }
            }
            EventKind::Delta {
                delta: Delta::Content(_),
                ..
            }
            | EventKind::ToolWaits { .. }
            | EventKind::Tokens { .. }
                if !self.has_detail => {}
            EventKind::Delta {
                delta: Delta::Content(text) | Delta::Reasoning(text),
                ..
            } => self.model_text(text),
            // Shown elsewhere: a native call when it is made, text piece by piece, each shield's verdict by itself, a
            // given-up endpoint by its caller, and what is no completion by the next attempt.
            EventKind::Delta { .. }
            | EventKind::Written { .. }
            | EventKind::Screened { .. }
            | EventKind::Counted { .. }
            | EventKind::SummaryWritten { .. }
            | EventKind::Routing(Routing::GaveUp { .. } | Routing::NoCompletion { .. }) => {}
            EventKind::Budget {
                window,
                reply,
                parts,
                exact,
                ..
            } => {
                if self.has_budget {
                    self.dim(&budget(*window, *reply, parts, exact));
                }
            }
            EventKind::Reply { completion, .. } => {
                self.end_reasoning();
                self.reply = cut(&line(completion.content.trim()));
                self.cut = completion.text_cut();
            }
            EventKind::Plan { .. } => {
                self.end_line();
                let prose = self.prose.beside_calls();
                if !prose.trim().is_empty() {
                    self.whole_lines(prose.trim());
                }
            }
            EventKind::ModelFailed { failure, .. } => {
                self.marked(&bad("✗"), &block(&failure.message));
                self.failure = Some(failure.message.clone());
            }
            EventKind::Council { council, held, .. } => {
                for text in said_by(council) {
                    self.dim(&format!("  ◦ {text}"));
                }
                if *held {
                    self.dim("  ◦ held: the model is told the sums, and chooses again");
                }
            }
            EventKind::Meta { meta, .. } => self.dim(&format!("  version {}", meta.version)),
            EventKind::ToolWaits { call, .. } => {
                let tool = line(&call.tool);
                self.dim(&format!("  … {tool} waits for what it reads"));
            }
            EventKind::Approval { pending, .. } => {
                let (before, command) = waiting(pending);
                self.command(&format!("  {}", warn("?")), &before, &command);
                if let Some(why) = &pending.why {
                    self.dim(&format!("    because {}", line(why)));
                }
                self.asked.insert(pending.call.id.clone());
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
                let by = decision.by.as_deref();
                let by = by.map_or(String::new(), |by| format!(" ({})", line(by)));
                self.dim(&format!("  {} {verdict}{by}", line(id)));
                self.decided(id);
            }
            EventKind::Resumed { notes, .. } => {
                self.dim("resumed");
                for note in notes {
                    self.marked(&warn("!"), &line(note));
                }
            }
            EventKind::Sub { what, .. } => self.sub(what),
            EventKind::ToolStart { call, filled, .. } if !self.has_detail => {
                self.calls.begin(call, filled.as_ref());
            }
            EventKind::ToolResult {
                id,
                tool,
                outcome,
                written,
                usage,
                by_host,
                cached,
                ..
            } if !self.has_detail => {
                self.decided(id);
                let took = took(usage, *by_host, cached.as_ref());
                let text = self.calls.end(id, tool, outcome, written, &took);
                self.line(&format!("  {text}"));
            }
            EventKind::ToolStart { call, filled, .. } => self.started(call, filled.as_ref()),
            EventKind::ToolResult {
                id,
                tool,
                outcome,
                written,
                usage,
                printed,
                by_host,
                cached,
                ..
            } => {
                self.decided(id);
                let cost = if *by_host || cached.is_some() || usage.duration_us == 0 {
                    took(usage, *by_host, cached.as_ref())
                } else {
                    cost(usage)
                };
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
                let took = tokens(*prompt, *completion, *first_token_ms, *duration_ms);
                self.dim(&format!("  {took}{}", self.priced(*cost_nano)));
            }
            EventKind::Repaired { tool, repairs, .. } => {
                let what = match tool {
                    Some(tool) => format!("the arguments of {tool} were put right"),
                    None => "the reply was mended".to_owned(),
                };
                let repairs: Vec<_> = repairs.iter().map(ToString::to_string).collect();
                let text = format!("{what}: {}", repairs.join(", "));
                self.marked(&warn("!"), &line(&text));
            }
            EventKind::UnusableReply(reply) => {
                self.marked(&warn("!"), &line(&reply.to_string()));
                let wrote = std::mem::take(&mut self.reply);
                if !self.has_detail && !wrote.is_empty() && !self.prose.is_shown() {
                    self.dim(&format!("    it wrote {wrote}"));
                }
            }
            EventKind::ToolRetry { retry, .. } => {
                self.marked(&warn("↻"), &line(&retry.to_string()));
            }
            EventKind::Job { job, .. } => {
                self.dim(&format!("  {}", line(&job.to_string())));
            }
            EventKind::RequestFetched(fetch) => match fetch.error {
                Some(_) => self.marked(&warn("!"), &line(&fetch.to_string())),
                None => self.dim(&format!("  {}", line(&fetch.to_string()))),
            },
            EventKind::Retrieved {
                passages, notes, ..
            } => {
                self.dim(&format!("  {}", knowledge::retrieved(passages)));
                if self.has_detail {
                    for passage in passages {
                        self.dim(&format!("    {}", knowledge::passage(passage)));
                    }
                }
                for note in notes {
                    self.marked(&warn("!"), &line(note));
                }
            }
            EventKind::Cited { citations, .. } => {
                if let Some(text) = knowledge::cited(citations) {
                    self.line(&format!("  {text}"));
                }
            }
            EventKind::Notice { message, .. } => self.marked(&warn("!"), &line(message)),
            EventKind::Shield(judgement) => {
                if let Some(text) = ruling(judgement) {
                    self.marked(&warn("⛨"), &cut(&line(&text)));
                }
            }
            EventKind::Hidden { counts, .. } => {
                let counts: Vec<String> = counts
                    .iter()
                    .map(|(kind, count)| format!("{count} {}", kind.name()))
                    .collect();
                self.dim(&format!("  hidden from the model: {}", counts.join(", ")));
            }
            EventKind::Fallback { tool, stage, .. } => {
                let what = tool.as_deref().unwrap_or("replies");
                self.marked(&warn("↻"), &line(&format!("{what}: {stage}")));
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
                self.marked(&warn("!"), &text);
            }
            EventKind::ConversationSummarized {
                messages,
                tokens_before,
                tokens_after,
                ..
            } => {
                let text = format!(
                    "the window is nearly full: {messages} messages of the conversation are summed up, {} → {} tokens",
                    count(*tokens_before),
                    count(*tokens_after)
                );
                self.marked(&warn("!"), &text);
            }
            EventKind::SideRequest(request) => {
                let (text, cost) = (line(&side(request)), self.priced(request.cost_nano));
                self.dim(&format!("  {text}{cost}"));
            }
            EventKind::Routing(Routing::ImagesLeftOut { .. }) if self.has_told_images => {}
            EventKind::Routing(routing) => {
                self.has_told_images |= matches!(routing, Routing::ImagesLeftOut { .. });
                let text = line(&routing.to_string());
                if routing.is_trouble() {
                    self.marked(&warn("!"), &text);
                } else {
                    self.line(&format!("  {}", dim(&text)));
                }
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
                self.asked.clear();
                self.end_reasoning();
                let summary = format!(
                    "{}, {}, {} tokens{}, {}",
                    plural(*steps, "step"),
                    plural(*calls, "call"),
                    count(*tokens),
                    self.priced(*cost_nano),
                    duration(duration_ms.saturating_mul(1_000))
                );
                self.done(*reason, output, error.as_ref(), &summary);
                let is_answered = *reason == StopReason::Output && self.has_text_replies;
                if let Some(cut) = self.cut.filter(|_| is_answered) {
                    self.marked(&warn("!"), &line(&cut.to_string()));
                }
            }
        }
    }

    /// Shows what an event adds to the prose of a reply.
    fn show_prose(&mut self, event: &EventKind) {
        match event {
            EventKind::Request { .. } => self.end_line(),
            EventKind::Delta {
                delta: Delta::Content(_),
                ..
            } => self.end_reasoning(),
            _ => {}
        }
        self.prose.take(event);
    }

    /// What it cost, as the next part of a list.
    fn priced(&self, cost: Option<Amount>) -> String {
        let text = |amount| format!(", {amount} {}", line(&self.currency));
        cost.map_or(String::new(), |amount| text(amount).trim_end().to_owned())
    }

    fn done(
        &mut self,
        reason: StopReason,
        output: &Value,
        error: Option<&RunFailure>,
        summary: &str,
    ) {
        let end = format!("{} after {summary}", name(reason));
        match (reason, error) {
            (StopReason::Output, _) if self.prose.completes(&answer(output)) => self.dim(summary),
            (StopReason::Output | StopReason::Planned, _) => {
                self.dim(summary);
                if !self.is_all && std::io::stdout().is_terminal() {
                    println!();
                }
                if self.is_typed {
                    println!("{}", plain_json(output));
                } else {
                    println!("{}", plain(&answer(output)));
                }
            }
            (StopReason::ToolCalls, _) => self.dim(&end),
            // Text that was written before some calls failed.
            (StopReason::Incomplete, Some(failure)) => {
                self.stopped(&failure.message);
                self.dim(&end);
                println!("{}", plain_json(output));
            }
            (_, failure) => {
                match failure {
                    Some(failure) if self.failure.as_ref() != Some(&failure.message) => {
                        self.stopped(&failure.message);
                        self.dim(&end);
                    }
                    // The reason was shown when it happened.
                    _ => self.stopped(&end),
                }
                // It is not an answer, so it does not go to stdout.
                if !output.is_null() {
                    self.dim(&format!("so far: {}", shown(output)));
                }
            }
        }
    }

    fn stopped(&mut self, why: &str) {
        self.line(&format!("{} {}", bad("stopped:"), block(why)));
    }
}

/// The words about a call that waits for a person, and the command to go on with. One that is not shown to its end is to
/// be read before it is approved.
fn waiting(pending: &Pending) -> (String, String) {
    let call = bound_call(pending);
    let shown = cut(&call);
    let does = if shown == call { "approve" } else { "show" };
    let command = format!("toolhold approvals {does} {}", pending.call.id);
    (format!("{shown} waits for a person: "), command)
}

/// Returns on one line the data that a decision is bound to: the tool, its instance and its arguments; and who makes
/// the call.
pub fn bound_call(pending: &Pending) -> String {
    let instance = pending.call.instance.as_ref();
    let instance = instance.map_or(String::new(), |it| format!(" for {it}"));
    let caller = pending.callers.last();
    let caller = caller.map_or(String::new(), |it| format!(" (called by {it})"));
    let agent = match pending.agents.as_slice() {
        [] => String::new(),
        agents => format!(" (asked by the sub-agent {})", agents.join(" > ")),
    };
    let (tool, arguments) = (&pending.call.tool, &pending.arguments);
    line(&format!("{tool}{instance} {arguments}{caller}{agent}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolhold_protocol::solution::Call;
    use toolhold_protocol::tool::Annotations;

    #[test]
    fn no_command_approves_what_is_not_shown_to_its_end() {
        let of = |text: String| {
            let arguments = json!({"text": text});
            let call = Call {
                id: "call_1".into(),
                tool: "text.count".into(),
                arguments: arguments.clone(),
                ..Call::default()
            };
            waiting(&Pending::new(call, arguments, Annotations::default()))
        };
        let (before, command) = of("a b".into());
        assert_eq!(before, "text.count {\"text\":\"a b\"} waits for a person: ");
        assert_eq!(command, "toolhold approvals approve call_1");
        let (before, command) = of("a".repeat(1_000));
        assert!(before.contains("more characters"), "{before}");
        assert_eq!(command, "toolhold approvals show call_1");
    }
}
