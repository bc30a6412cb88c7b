//! How a Request becomes a chat completion and its reply a Solution (docs/protocol.md, 4).
//!
//! The same Solution can be had in several ways; which one works is a property of the endpoint and
//! its model. The loop never sees the difference.

mod conversation;
mod examples;
mod harmony;
mod leak;
mod provenance;
mod reader;
mod schema;
mod simple;
#[cfg(test)]
mod tests;
mod text;
mod thought;
mod tools;

pub use examples::MAX_EXAMPLES;
pub use leak::{CallSearch, OfferedNames, ProseLength, ReplyOpening};
pub use provenance::Provenance;
pub(crate) use provenance::{TextSource, plain_text};
pub use reader::{ReplyPart, ReplyReader};
pub use thought::{Filter as ThoughtFilter, ReplyText};
use toolhold_protocol::contract::Contract;
pub use tools::tool;

use crate::catalogue::ToolCatalogue;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::sync::Arc;
use toolhold_json::repair::RepairKind;
use toolhold_json::repair::{Repaired, TextEnd, repair_under};
use toolhold_json::rules::ReadingRules;
use toolhold_model::chat::ChatRequest;
use toolhold_protocol::completion::Completion;
use toolhold_protocol::compose::Composition;
use toolhold_protocol::settings::Settings;
use toolhold_protocol::solution::{Call, Solution};
use toolhold_protocol::tool::Tool;
use toolhold_protocol::turn::Turn;

/// The text of a reply after its thoughts, for requests made in addition to the run's own.
pub(crate) fn answer(reply: &str) -> &str {
    thought::split(reply).answer
}

/// Whether a reply was cut at its token limit while the model thought: the answer is not longer than the
/// thoughts, or empty.
pub(crate) fn is_cut_in_thought(rules: ReadingRules, reply: &Completion) -> bool {
    let split = thought::split_under(rules, &reply.content);
    let calls = reply.tool_calls.iter().map(|call| call.arguments.len());
    let answered = split.answer.trim().len() + calls.sum::<usize>();
    let thought = split.thought.trim().len() + reply.reasoning.trim().len();
    reply.finish_reason.as_deref() == Some("length") && answered <= thought
}

/// Why nothing is done with a reply whose calls may lack their arguments. Under the rules of format 3 such calls are made.
fn lost_arguments(rules: ReadingRules, reply: &Completion) -> Option<&'static str> {
    if !rules.are_from_4() {
        return None;
    }
    if reply.unplaced > 0 {
        return Some(UNPLACED);
    }
    let is_cut = reply.finish_reason.as_deref() == Some("length");
    let last = reply.tool_calls.last().filter(|_| is_cut);
    last.is_some_and(|call| call.arguments.trim().is_empty())
        .then_some("the arguments of its last call are missing")
}

/// The reason where a piece of the reply fits no call.
const UNPLACED: &str = "a part of it came without a word of which call it belongs to, so calls may lack their arguments; \
make the calls that are missing again, each in a reply of its own";

/// Everything a Request is made of.
#[derive(Debug, Clone, Copy)]
pub struct RequestView<'a> {
    pub model: &'a str,
    pub instructions: &'a str,
    pub turns: &'a [Turn],
    pub tools: &'a [Arc<Tool>],
    pub output_schema: Option<&'a Value>,
    pub settings: &'a Settings,
    /// Parts of the reply that are requested besides calls and output.
    pub composition: Composition<'a>,
}

/// The chat completion request for `view`. `catalogue` keeps the forms of its tools for the next Request; other tools are
/// printed each time.
pub fn request(
    contract: Contract,
    view: &RequestView<'_>,
    catalogue: &ToolCatalogue,
) -> ChatRequest {
    let mut request = match contract {
        Contract::Schema => schema::request(view, catalogue),
        Contract::Tools => tools::request(view, catalogue),
        Contract::Simple => simple::request(view, catalogue),
    };
    if let Some(seed) = &view.settings.seed {
        request.extra.insert("seed".into(), seed.clone().into());
    }
    if let Ok(Value::Object(sampling)) = serde_json::to_value(&view.settings.sampling) {
        request.extra.extend(sampling);
    }
    request
}

/// [`read_from`], of a reply that repeats nothing.
///
/// # Errors
/// The errors of [`read_from`].
pub fn read(
    contract: Contract,
    completion: &Completion,
    view: &RequestView<'_>,
) -> Result<Solution, String> {
    read_from(contract, completion, view, &Provenance::default())
}

/// Reads a complete reply. A call that it only repeats is none: `provenance` is what the model was shown.
///
/// # Errors
/// What is wrong with it, in words that the model can act on.
pub fn read_from(
    contract: Contract,
    completion: &Completion,
    view: &RequestView<'_>,
    provenance: &Provenance,
) -> Result<Solution, String> {
    let said = ParsedReply::of(completion, view, provenance, contract == Contract::Tools);
    let read = match contract {
        Contract::Schema => schema::read(&said),
        Contract::Tools => tools::read(&said, view),
        Contract::Simple => simple::read(&said),
    };
    let read = read.and_then(|solution| {
        if solution.repairs.is_empty() || view.settings.repair {
            return Ok(solution);
        }
        let faults: Vec<_> = solution.repairs.iter().map(ToString::to_string).collect();
        Err(format!(
            "it is not of the form that was asked for ({})",
            faults.join(", ")
        ))
    });
    let read = read.map_err(|reason| {
        if said.is_only_thought() {
            format!("the reply holds thoughts and nothing else; think, then reply ({reason})")
        } else {
            reason
        }
    });
    // Complete JSON can end with finish_reason `length` (trailing white space): parse first.
    read.map_err(|reason| match completion.finish_reason.as_deref() {
        Some("length") => format!(
            "the reply was cut at the limit of {} tokens, so give a shorter one ({reason})",
            view.settings.max_tokens
        ),
        _ => reason,
    })
}

/// A reply, taken apart.
#[derive(Debug)]
struct ParsedReply<'a> {
    completion: &'a Completion,
    /// Without the thoughts before it.
    answer: &'a str,
    /// What stood in the answer, and what the endpoint kept apart.
    thoughts: [&'a str; 2],
    offer: leak::CallableNames,
    end: TextEnd,
    provenance: &'a Provenance,
}

/// The reason that is given for a call that the model only repeats.
const COPIED: &str = "a call in it stands in a text that this run was given, such as a result, a file or a message, and \
what is only repeated is not made; if it is needed, say in words what for, or make another one";
/// The reason where more was shown than is compared.
const UNCOMPARED: &str = "a call in it is written as text, and this run was given more text than calls are compared \
with (8 MiB), so that it is not known whether it is repeated; call the tool in the form that was asked for, or answer";

impl<'a> ParsedReply<'a> {
    /// `is_text`: the answer is text.
    fn of(
        completion: &'a Completion,
        view: &RequestView<'_>,
        provenance: &'a Provenance,
        is_text: bool,
    ) -> Self {
        // In a reply that streams, the calls behind such a mark were judged as what they are.
        let mut marks = provenance.marks();
        let mut is_quoted = |mark: thought::EndMark<'_>| is_text && marks.is_quoted(mark);
        let rules = view.composition.reading;
        let split = thought::split_from(rules, &completion.content, &mut is_quoted);
        Self {
            completion,
            answer: split.answer,
            thoughts: [split.thought, &completion.reasoning],
            offer: leak::CallableNames::of(view.tools)
                .under(rules)
                .named(view.composition.names),
            end: match completion.finish_reason.as_deref() {
                Some("length") => TextEnd::Cut,
                _ => TextEnd::Own,
            },
            provenance,
        }
    }

    /// The rules by which it is read.
    fn rules(&self) -> ReadingRules {
        self.offer.rules()
    }

    /// Why a call in it is not made.
    fn repeats(&self) -> &'static str {
        if self.provenance.is_full() {
            UNCOMPARED
        } else {
            COPIED
        }
    }

    /// # Errors
    /// The call is a copy.
    fn refuse_copy(&self, contract: Contract, call: &Value, is_prose: bool) -> Result<(), String> {
        if self.provenance.is_copied(contract, call, is_prose) {
            return Err(self.repeats().to_owned());
        }
        Ok(())
    }

    /// This reply, in which `offer` may be called.
    fn offering(&self, offer: leak::CallableNames) -> Self {
        Self { offer, ..*self }
    }

    fn is_only_thought(&self) -> bool {
        self.answer.trim().is_empty()
            && self.completion.tool_calls.is_empty()
            && self
                .thoughts
                .iter()
                .any(|thought| !thought.trim().is_empty())
    }

    /// What had to be done to find the answer.
    fn repairs(&self) -> Vec<RepairKind> {
        match self.thoughts {
            ["", _] => Vec::new(),
            _ => vec![RepairKind::Thought],
        }
    }

    /// Repairs an unconstrained text that is nearly JSON, if it has one reading. Valid JSON is not repaired:
    /// its fault is a different one.
    fn repaired(&self, text: &str) -> Option<Repaired> {
        let text = text.trim();
        if serde_json::from_str::<IgnoredAny>(text).is_ok() {
            return None;
        }
        repair_under(self.rules(), text, self.end)
    }

    /// Calls that the answer begins with, in a form that the model was trained to.
    fn leaked_first(&self) -> Option<leak::LeakedCalls> {
        self.own(leak::front(self.answer, &self.offer, self.end))
    }

    /// Calls that are what the reply does, in such a form.
    fn leaked(&self) -> Option<leak::LeakedCalls> {
        self.own(self.written())
    }

    /// The calls before the first one that is a quotation; none where the endpoint makes native calls.
    fn own(&self, leaked: Option<leak::LeakedCalls>) -> Option<leak::LeakedCalls> {
        leaked
            .filter(|_| !self.provenance.has_native_calls())?
            .unquoted(self.provenance, 0)
    }

    /// Calls in such a form, whether the model only repeats them or not.
    fn written(&self) -> Option<leak::LeakedCalls> {
        if !self.answer.trim().is_empty() {
            return leak::find(self.answer, &self.offer, self.end);
        }
        self.thoughts
            .iter()
            .find_map(|thought| leak::of_thought(thought, &self.offer, self.end))
    }

    /// The solution that leaked calls are.
    fn solution(&self, leaked: leak::LeakedCalls) -> Result<Solution, String> {
        let mut solution = Solution {
            repairs: self.repairs(),
            is_prose: true,
            ..Solution::default()
        };
        for call in leaked.calls {
            let call = reader::call_object(call.tool, call.arguments);
            solution.calls.push(Call::read(call)?);
        }
        solution.note(leaked.repairs);
        Ok(solution)
    }
}
