//! The window: what each Request takes of it, what is dropped when it is nearly full, and the tools by
//! which the model reads what it was not shown (docs/protocol.md, 7.11).

use super::budget::{Composed, Tokens};
use super::completion_limit::CompletionLimit;
use super::results::Ending;
use super::{Effects, Machine};
use crate::context::summary::CUT;
use crate::context::{Stored, Summary, TokenMeter, Toolbook, stored, toolbook};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use toolhold_json::validate::cut;
use toolhold_model::chat::ChatRequest;
use toolhold_protocol::completion::ContextOverflow;
use toolhold_protocol::context::Message;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::Annotations;
use toolhold_protocol::tool::{Execution, Tool};
use toolhold_protocol::turn::Turn;

/// The tools may take 1/3 of the window; beyond that only a part of them is shown.
const TOOLS_WINDOW_DIVISOR: u64 = 3;
/// The summary of dropped history may take 1/4 of the window that the tools leave.
const SUMMARY_WINDOW_DIVISOR: u64 = 4;
/// Results shorter than this are not worth a key, and may stand twice.
const MIN_STORED_RESULT_BYTES: usize = 400;
/// How often one Request is made smaller because the endpoint refused its length.
const MAX_REFUSALS: u32 = 3;
/// Percent of the window that is filled after history was dropped. Dropping changes the prompt's prefix, so
/// the server reads the whole prompt again: better once in many steps than in each.
const KEPT_WINDOW_PERCENT: u64 = 70;

/// The run's knowledge of the window, and the data kept outside of it.
#[derive(Debug, Default)]
pub(super) struct WindowState {
    pub(super) tokens: Option<u64>,
    pub(super) meter: TokenMeter,
    pub(super) tokens_of: Tokens,
    /// The history up to here is in the summary.
    dropped: usize,
    summary: Summary,
    /// The summary as it is shown until more is dropped. Made anew, it may differ in a byte, and all behind
    /// it would be read again.
    summed_up: String,
    stored: Stored,
    /// The tools that are shown, in the order in which they came to be; all of them if absent.
    shown: Option<Vec<Tool>>,
    book: Toolbook,
    refusals: u32,
    pub(super) reply: CompletionLimit,
}

impl Machine {
    /// Settles what the model is shown of the tools.
    pub(super) fn open_window(&mut self) {
        let settings = &self.request.settings.window;
        self.window.tokens = settings.tokens;
        let most = self
            .window
            .tokens
            .map(|tokens| tokens / TOOLS_WINDOW_DIVISOR);
        let fits = |tools: &[&Tool]| {
            let bytes: usize = tools.iter().map(|tool| size(tool)).sum();
            let tokens = self.window.meter.tokens(bytes);
            most.is_none_or(|most| tokens <= most) && tools.len() <= settings.max_tools.max(1)
        };
        let all: Vec<&Tool> = self.offered.iter().collect();
        if fits(&all)
            || self
                .offered
                .iter()
                .any(|tool| tool.name == toolbook::FIND_TOOLS)
        {
            return;
        }
        let book = Toolbook::new(&self.offered);
        let mut shown: Vec<&Tool> = Vec::new();
        let said: Vec<&str> = self
            .request
            .context
            .iter()
            .filter_map(|message| match message {
                Message::Text(text) => Some(text.text.as_str()),
                _ => None,
            })
            .collect();
        let found = book.find(&said.join("\n"));
        let spoken_of = found
            .iter()
            .filter_map(|name| self.offered.iter().find(|tool| tool.name == *name));
        let others = self
            .offered
            .iter()
            .filter(|tool| !found.contains(&tool.name.as_str()));
        for tool in spoken_of.chain(others) {
            shown.push(tool);
            if !fits(&shown) {
                shown.pop();
                break;
            }
        }
        let mut shown: Vec<Tool> = shown.into_iter().cloned().collect();
        shown.push(find_tools(self.offered.len()));
        self.window.shown = Some(shown);
        self.window.book = book;
    }

    /// The tools that a reply may call, as they are shown.
    pub(super) fn toolset(&self) -> &[Tool] {
        self.window.shown.as_deref().unwrap_or(&self.offered)
    }

    /// Whether a tool is one of the loop's own, and is shown.
    pub(super) fn is_own(&self, tool: &str) -> bool {
        [stored::READ_RESULT, toolbook::FIND_TOOLS].contains(&tool)
            && self.tool(tool).is_none()
            && self.toolset().iter().any(|own| own.name == tool)
    }

    /// Answers a call of one of the loop's own tools.
    pub(super) fn answer_own(
        &mut self,
        index: usize,
        call: Call,
        effects: &mut Effects,
    ) -> Result<(), ToolFailure> {
        let answer = if call.tool == stored::READ_RESULT {
            // Half of what is shown of a result: what is read is never cut again.
            let max = self.request.settings.result_chars / 2;
            // All of it as the model is shown it: half of something would not be known for what it is.
            let arguments = self.vault.hide_value(&call.arguments);
            let vault = &mut self.vault;
            let hide = |text: &str| vault.hide(text);
            let read = self.window.stored.read(&arguments, max, hide);
            read.map_err(|reason| ToolFailure::correctable("arguments", reason))?
        } else {
            let book = &self.window.book;
            let (answer, found) = book.answer(&call.arguments, &self.offered);
            let found: Vec<String> = found.into_iter().map(str::to_owned).collect();
            for name in found {
                self.show(&name);
            }
            answer
        };
        effects.events.push(EventKind::ToolStart {
            step: self.steps,
            call,
            filled: None,
        });
        self.settle(index, Ending::answered(answer), effects);
        Ok(())
    }

    /// From now on this tool is shown; behind the others, so that what was sent before stays a prefix.
    fn show(&mut self, name: &str) {
        let tool = self.offered.iter().find(|tool| tool.name == name).cloned();
        if let (Some(shown), Some(tool)) = (&mut self.window.shown, tool)
            && !shown.iter().any(|known| known.name == tool.name)
        {
            shown.push(tool);
        }
    }

    /// Keeps a result that is not shown whole, or that may leave the history.
    pub(super) fn store(&mut self, id: &str, text: &str, is_cut: bool) {
        let is_wanted =
            is_cut || (self.window.tokens.is_some() && text.len() > MIN_STORED_RESULT_BYTES);
        if !is_wanted || self.tool(stored::READ_RESULT).is_some() {
            return;
        }
        self.window.stored.keep(id, text.to_owned());
        if is_cut {
            self.offer_reading();
        }
    }

    /// At most `max` characters of a result, saying what is missing and how to get it. It ends where
    /// that leaves no half of something that is hidden.
    pub(super) fn shortened(&mut self, id: &str, text: &str, max: usize) -> String {
        let length = text.chars().count();
        if length <= max {
            return text.to_owned();
        }
        let max = max.min(self.vault.clear(text, max));
        let kept: String = text.chars().take(max).collect();
        let rest = if self.window.stored.contains(id) {
            let from = self.vault.hide(&kept).chars().count();
            format!("call read_result with \"key\": \"{id}\" and \"from\": {from} to see more")
        } else {
            "ask the tool for a smaller part to see the rest".to_owned()
        };
        format!("{kept}{CUT}{max} of {length} characters shown; {rest}]")
    }

    fn offer_reading(&mut self) {
        if self.window.stored.is_empty() || self.is_lazy() {
            return;
        }
        let shown = self
            .window
            .shown
            .get_or_insert_with(|| self.offered.clone());
        if !shown.iter().any(|tool| tool.name == stored::READ_RESULT) {
            shown.push(read_result());
        }
    }

    /// What takes the place of the history that was dropped, and the rest of it. Of results that are
    /// the same the first is shown, and the others point to it.
    pub(super) fn remembered(&self) -> Vec<Turn> {
        let mut turns = Vec::new();
        if !self.window.summary.is_empty() {
            turns.push(Turn::Summary(self.window.summed_up.clone()));
        }
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for turn in self.history.iter().skip(self.window.dropped) {
            let Turn::Exchange(exchange) = turn else {
                turns.push(turn.clone());
                continue;
            };
            let mut exchange_shown = exchange.clone();
            for (answered, shown) in exchange.calls.iter().zip(&mut exchange_shown.calls) {
                if answered.text.len() < MIN_STORED_RESULT_BYTES {
                    continue;
                }
                if !seen.insert(&answered.text) {
                    let arguments = answered.call.arguments.to_string();
                    let most = self.vault.clear(&arguments, 80);
                    shown.text = format!(
                        "the same, to the letter, as an earlier result above ({} {})",
                        answered.call.tool,
                        cut(&arguments, most)
                    );
                }
            }
            turns.push(Turn::Exchange(exchange_shown));
        }
        turns
    }

    /// The summary of what was dropped, as long as it may be now.
    fn sum_up(&self) -> String {
        let stored = &self.window.stored;
        let summary = &self.window.summary;
        let mut text = summary.text(self.summary_bytes(), |call| stored.contains(call));
        if !stored.is_empty() {
            text.push_str(
                "\nread_result reads the whole of what a call returned: its key is what stands in brackets.",
            );
        }
        text
    }

    /// From now on the summary is shown as it is now.
    fn sum_up_anew(&mut self) {
        self.window.summed_up = self.sum_up();
    }

    /// How many turns [`Self::remembered`] gives.
    pub(super) fn remembered_turns(&self) -> usize {
        let summary = usize::from(!self.window.summary.is_empty());
        summary + self.history.len().saturating_sub(self.window.dropped)
    }

    fn summary_bytes(&self) -> usize {
        let tokens = self.window.tokens.unwrap_or(u64::from(u32::MAX));
        let bytes = self.window.meter.bytes(tokens / SUMMARY_WINDOW_DIVISOR);
        bytes.max(MIN_STORED_RESULT_BYTES)
    }

    /// Drops the oldest history until the Request fits, if it does not and the window is known. Nothing
    /// where texts of it are counted first: [`Machine::tokens_counted`] goes on then.
    pub(super) fn fit(&mut self, effects: &mut Effects) -> Option<ChatRequest> {
        let mut composed = self.compose(effects);
        if !self.has_counted_once() && self.counts(&composed, effects) {
            return None;
        }
        let tokens = self.prompt_tokens(&composed);
        let before = *self.step.fitting.before.get_or_insert(tokens);
        // The window is the own model's; a candidate is shown a copy of its history. Of a Request that
        // fits with a shorter reply nothing is dropped.
        if self.forced().is_none() && self.left().is_none() {
            composed = self.drop_history(composed, effects);
        }
        if self.counts(&composed, effects) {
            return None;
        }
        let dropped = self.step.fitting.dropped;
        if dropped > 0 {
            effects.events.push(EventKind::Summarized {
                step: self.steps,
                turns: dropped,
                tokens_before: before,
                tokens_after: self.prompt_tokens(&composed),
            });
        }
        let reply = self.reply_tokens(&composed);
        composed.request.max_tokens = Some(reply);
        if self.forced().is_none() {
            self.note_sent(&composed);
            self.window.reply.sent = Some(reply);
        }
        let (parts, exact) = self.parts(&composed);
        effects.events.push(EventKind::Budget {
            step: self.steps,
            window: self.window.tokens,
            reply: u64::from(reply),
            parts,
            exact,
        });
        Some(composed.request)
    }

    /// Drops nothing from what fits, and otherwise enough for the next steps: as much as frees a part of the
    /// window or, where what cannot be dropped takes that, half of the history.
    fn drop_history(&mut self, mut composed: Composed, effects: &mut Effects) -> Composed {
        let half = self.droppable().div_ceil(2);
        let mut dropped = 0;
        loop {
            let is_worth_it =
                (1..half).contains(&dropped) && self.is_beyond(KEPT_WINDOW_PERCENT, &composed);
            let is_due = is_worth_it || self.is_too_long(&composed);
            if !is_due || !self.drop_oldest() {
                return composed;
            }
            self.sum_up_anew();
            dropped += 1;
            self.step.fitting.dropped += 1;
            composed = self.compose(effects);
        }
    }

    /// The turns of the history that are not in the summary and may go there: those before the newest
    /// exchange.
    fn droppable(&self) -> usize {
        let newest = self
            .history
            .iter()
            .rposition(|turn| matches!(turn, Turn::Exchange(_)));
        newest.map_or(0, |newest| newest.saturating_sub(self.window.dropped))
    }

    /// Moves the oldest turn of the history into the summary; the newest exchange stays. Who drops sums up
    /// anew when it is done.
    fn drop_oldest(&mut self) -> bool {
        let is_last = self
            .history
            .iter()
            .skip(self.window.dropped + 1)
            .all(|turn| !matches!(turn, Turn::Exchange(_)));
        let turn = self.history.get(self.window.dropped).cloned();
        let Some(turn) = turn.filter(|_| !is_last) else {
            return false;
        };
        let turn = self.hidden(turn);
        let wholes = self.wholes(&turn);
        self.window.summary.add(&turn, &wholes);
        self.window.dropped += 1;
        self.offer_reading();
        true
    }

    /// All of what calls returned, where it is kept, as the model may be shown it.
    fn wholes(&mut self, turn: &Turn) -> BTreeMap<String, String> {
        let mut wholes = BTreeMap::new();
        if let Turn::Exchange(exchange) = turn {
            for answered in exchange.calls.iter().filter(|answered| !answered.failed) {
                let id = &answered.call.id;
                if let Some(text) = self.window.stored.find(id) {
                    wholes.insert(id.clone(), self.vault.hide(text));
                }
            }
        }
        wholes
    }

    /// The endpoint refused a Request for its length. What is sent in its place, in words, if anything is.
    pub(super) fn shorten_for(&mut self, overflow: ContextOverflow) -> Option<String> {
        if let Some(tokens) = overflow.prompt_tokens {
            self.observe(tokens);
        }
        self.window.refusals += 1;
        let sent = self.sent_tokens();
        let reply = u64::from(self.request.settings.max_tokens);
        // Where it does not say what fits, a fifth less may.
        let fits = overflow.window.unwrap_or_else(|| {
            let all = self.window.tokens.unwrap_or(sent + reply);
            all - all / 5
        });
        let window = self.window.tokens.map_or(fits, |known| known.min(fits));
        self.window.tokens = Some(window);
        if overflow.window.is_some()
            && let Some(left) = self.left_beside_prompt(window, overflow)
        {
            self.window.reply.left = Some((self.steps, Some(left)));
            return Some(format!(
                "the endpoint refused the request for its length; it is sent again with {left} tokens for the reply"
            ));
        }
        if let Some((_, left)) = &mut self.window.reply.left {
            *left = None;
        }
        let is_shorter = self.window.refusals <= MAX_REFUSALS
            && (self.drop_oldest() || !self.window.summary.is_empty());
        // A summary is shorter where the window is, though nothing was dropped.
        self.sum_up_anew();
        is_shorter.then(|| {
            "the endpoint refused the request for its length; a shorter one is sent".into()
        })
    }

    /// The endpoint counted the prompt that was sent last.
    pub(super) fn counted(&mut self, prompt_tokens: u64) {
        if self.forced().is_none() {
            self.observe(prompt_tokens);
        }
    }

    /// A Request was answered: it was not too long.
    pub(super) fn fitted(&mut self) {
        self.window.refusals = 0;
    }
}

fn bytes_of(value: &Value) -> usize {
    value.to_string().len()
}

fn size(tool: &Tool) -> usize {
    tool.name.len() + tool.description.len() + bytes_of(&tool.parameters)
}

fn read_result() -> Tool {
    own(
        stored::READ_RESULT,
        "Reads a result that was cut or left out, by its key.".into(),
        stored::parameters(),
    )
}

fn find_tools(all: usize) -> Tool {
    own(
        toolbook::FIND_TOOLS,
        format!(
            "There are {all} tools, and only some are shown here. Finds those that do what you need; call it before you \
             say that something cannot be done."
        ),
        toolbook::parameters(),
    )
}

fn own(name: &str, description: String, parameters: Value) -> Tool {
    Tool {
        description,
        parameters,
        execution: Execution::Activity(name.into()),
        annotations: Annotations {
            read_only: true,
            idempotent: true,
            ..Annotations::default()
        },
        ..Tool::new(name)
    }
}
