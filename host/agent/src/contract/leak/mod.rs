//! Tool calls that a model wrote as text, in the form that it was trained to: the server has no parser
//! for it, or the model forgot which form it was asked for.
//!
//! | form | written by |
//! |---|---|
//! | `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, also `<tools>`, `<function_call>` | Hermes, Qwen |
//! | `<function=NAME>{…}</function>` | Llama 3.1 |
//! | `<function=NAME><parameter=KEY>VALUE</parameter></function>`, with or without `<tool_call>` | Qwen3-Coder |
//! | `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>` | GLM |
//! | `<invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>` | MiniMax |
//! | `[TOOL_CALLS][{…}]`, `[TOOL_CALLS]NAME[ARGS]{…}`, `[TOOL_CALLS]NAME{…}` | Mistral |
//! | `<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME` and fenced JSON, or `NAME<｜tool▁sep｜>{…}` | DeepSeek |
//! | `<｜DSML｜invoke name="NAME"><｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter></｜DSML｜invoke>` | DeepSeek V3.2 |
//! | <code>&lt;&#124;channel&#124;&gt;commentary to=functions.NAME &lt;&#124;constrain&#124;&gt;json&lt;&#124;message&#124;&gt;{…}&lt;&#124;call&#124;&gt;</code> | gpt-oss |
//! | <code>&lt;&#124;tool_call_begin&#124;&gt;functions.NAME:0&lt;&#124;tool_call_argument_begin&#124;&gt;{…}</code> | Kimi |
//! | <code>&lt;&#124;python_tag&#124;&gt;</code> and JSON or `NAME(KEY=VALUE)` | Llama 3 |
//! | <code>&lt;&#124;tool_call&#124;&gt;[…]</code>, <code>&lt;&#124;START_ACTION&#124;&gt;[…]</code>, <code>&lt;&#124;plugin&#124;&gt;{…}</code>, `functools[…]` | Granite, Command, InternLM, Phi |
//! | `<start_function_call>call:NAME{KEY:<escape>VALUE<escape>}<end_function_call>` | FunctionGemma |
//! | <code>&lt;&#124;tool_call>call:NAME{KEY:&lt;&#124;"&#124;>VALUE&lt;&#124;"&#124;>}&lt;tool_call&#124;></code> | Gemma 4 |
//! | `` ```tool_code `` and `NAME(KEY=VALUE)` a line, each perhaps in a `print(…)` | Gemma |
//! | `[NAME(KEY=VALUE)]` | Llama 3.2 and 4, Gemma 3 |
//! | `<tool_calls>[{…}]</tool_calls>`, `<TOOLCALL>[{…}]</TOOLCALL>`, <code>&lt;&#124;tools_prefix&#124;&gt;[{NAME: {…}}]&lt;&#124;tools_suffix&#124;&gt;</code> | Hunyuan, Jamba, MiniMax M1; Nemotron; Apertus |
//! | `<tool_calls><tool_call>NAME<tool_sep><arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call></tool_calls>` | Hunyuan 3 |
//! | <code>&lt;&#124;tool_call_start&#124;&gt;[NAME(KEY=VALUE)]&lt;&#124;tool_call_end&#124;&gt;</code>, or a fence in it | LFM2, MiniCPM |
//! | `[unused11][{…}][unused12]`, `[TOOL_REQUEST]{…}[END_TOOL_REQUEST]` | Pangu, LM Studio |
//! | `<function_calls>` and `NAME(KEY=VALUE)` a line, or `<invoke …>`; `<dots_function_call>` alike | OLMo 3; dots |
//! | `<seed:tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></seed:tool_call>` | Seed |
//! | `<longcat_tool_call>NAME<longcat_arg_key>KEY</longcat_arg_key><longcat_arg_value>VALUE</longcat_arg_value></longcat_tool_call>`, or JSON | LongCat |
//! | `<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="NAME"><steptml:parameter name="KEY">VALUE</steptml:parameter></steptml:invoke><｜tool_call_end｜>` | Step 3 |
//! | calls between marks that no row has | any model ([`unknown`]) |
//! | `{"name": …, "parameters": {…}}`, also fenced, a list or `{…}; {…}`; `NAME` and `{…}` on the next line | Llama 3, Qwen-Coder, GLM 4 |
//! | `>>>NAME` and `{…}` on the next line; <code>&lt;&#124;recipient&#124;&gt;NAME</code> and <code>&lt;&#124;content&#124;&gt;{…}</code> | Functionary |
//! | `{"tool_calls": […]}`, `{"action": NAME, "action_input": {…}}`, `{NAME: {…}}`, `{"tool": NAME, KEY: VALUE}` | xLAM, agents' prompts |
//! | `{"tool_uses": […]}`, `{"function_call": {…}}`, `{"functionCall": {…}}`, `{"action": {…}}` | GPT, Gemini, agents' prompts |
//! | `✿FUNCTION✿: NAME`, `✿ARGS✿: {…}`; `Call: NAME(KEY=VALUE)<bot_end>`; `-> tool/function_call` and `[…]` | Qwen-Agent; NexusRaven; HyperCLOVA |
//! | `NAME` and a fence with `tool_call(KEY=VALUE)`; `<function(NAME){…}</function>` | ChatGLM3; Groq |
//! | `Action:` and fenced JSON; `Action: NAME` and `Action Input: {…}` | Command R+; ReAct |
//! | `<code>` and `NAME(KEY=VALUE)` a line; `<use_mcp_tool>` | SmolLM3; Cline |
//! | `NAME{…}`, `@NAME{…}`, `NAME<｜tool▁sep｜>{…}`, `TOOL_CALLS[{…}]` | models whose marks a server took away |
//! | `analysis…assistantcommentary to=functions.NAME json{…}` | gpt-oss, without its marks |
//!
//! # What is a call and what is quoted
//!
//! A reply may explain such a form and quote it, so a form alone makes no call. It is one where the model
//! *acts*, which takes all of this:
//!
//! 1. It names a tool that is offered, its arguments have one reading, and nothing but arguments stands
//!    beside them: the definition of a tool, repeated, is none.
//! 2. Forms with a mark of their own (all above the one of unknown marks) begin the answer, and on their line only
//!    further calls follow, or the end of the turn: special tokens of any model. Behind a call that ends with a special
//!    token a sentence may follow, too, but not the rest of one. Or they end it, with nothing but further calls behind the first: then what
//!    stands before is what the model says about what it does. There they begin a line (marks that are
//!    tokens of their own, such as `[TOOL_CALLS]`, may stand in it) and do not stand in code, neither in a
//!    fence nor between backticks. A fence that is a mark itself stands in no other.
//! 3. Forms without a mark are all of the answer, and may stand in one fence. Forms with marks that are not known are all
//!    of the answer, too. Where such an answer names an offered tool and cannot be read, it is no answer. The same holds
//!    for `NAME(KEY=VALUE)` without brackets, and for a fence around calls with marks: they may be meant or shown. So it does
//!    for statements and commands outside of a fence (`result = NAME(…)`, `/NAME KEY=VALUE`, [`statement`]).
//!    Behind prose they stay a part of it: `Sure!` and `The form:` before an unknown form look alike, and readers of a
//!    stream have the text by then. A tool with arguments among signs and words of calls alone (`-> NAME({…})`,
//!    `**NAME**` and a fence) is no answer, and is not made either ([`framed`]). With native calls it is an answer, and
//!    so are statements and commands: a list of the calls that were made looks like it. So is a form without marks that the model was shown (rule 6).
//! 4. Where the answer is empty, what the model thought is read by rule 2, as if it ended an answer:
//!    servers cut a call that follows a thought off with it. Drafts within a thought never count.
//! 5. A reply with a native call has no leaked ones: servers are known to give both copies. Nor has any later reply of
//!    its endpoint in the run: that has native calls, and what is text is text.
//! 6. The model was not shown it: a call that it repeats, whole or in pieces, is a quotation
//!    ([`provenance`](super::provenance)). It ends what is read of a reply.
//!
//! | form | compared |
//! |---|---|
//! | all with a mark | the text from its mark to its end, its name with its arguments as JSON, and their words in any form |
//! | those without a mark, or with unknown ones | the whole answer, without its fence; of several calls as above |
//! | `{"calls": …}`, `{"tool_name": …}` in prose or a fence | the call as JSON, by `is_copied` |
//! | the same as the whole reply | as above, with texts that the operator did not write |
//!
//! A call with a known mark between sentences (`Sure! <tool_call>…`), outside of code, is not made. The reply goes back to
//! the model ([`beside_sentences`]). Within a sentence (`Hermes writes <tool_call>… and waits.`) it is a part of the answer.
//! A value that may have been cut at a mark that it quotes makes no call.
//!
//! Everything else is text, and text is the answer or is refused as the contract says. Calls that begin
//! the answer are given out while it is generated, by [`LeakReader`], the moment their closing mark
//! arrives; a form whose end only the end of the reply shows is read then. Under the `tools` contract all
//! of them are read then, because a native copy may follow until then (rule 5).

mod bare;
mod bare_opening;
mod body;
mod body_opening;
mod call_search;
mod closing;
mod framed;
mod gemma;
mod marks;
mod pythonic;
mod reader;
mod statement;
mod tags;
#[cfg(test)]
mod tests;
mod unknown;

pub use bare_opening::OfferedNames;
pub(super) use body::{CallableNames, THOUGHTS, unfenced};
pub use call_search::{CallSearch, ProseLength};
pub(super) use reader::{Fate, LeakReader};
pub use unknown::ReplyOpening;

use super::provenance::Provenance;
use closing::ClosingMark;
use marks::{
    AfterCall, Mark, alone, along_line, begins_sentence, follows, is_over, marks, opening,
    past_around, past_behind, starts_turn, trim_around,
};
use serde_json::{Map, Value};
use std::sync::Arc;
use toolhold_json::numbers::{self, InexactNumber};
use toolhold_json::repair::RepairKind;
use toolhold_json::repair::TextEnd;
use toolhold_json::rules::ReadingRules;

/// Closing marks that are tried for one call: a value may quote one.
const MAX_CLOSES: usize = 8;
/// Most calls of one reply; a model that writes more is in a loop.
const MAX_CALLS: usize = 64;
/// Marks behind prose that are looked at, from the last, and how far from the end of the text: each may
/// take a look at all that follows.
const MAX_PLACES: usize = 128;
const MAX_LAST: usize = 64 * 1024;
/// Marks that are looked at for calls with sentences around them.
const MAX_BESIDE: usize = 16;
/// Ends of sentences, behind which a call is none of their parts.
const SENTENCE_ENDS: [char; 7] = ['.', '!', '?', '…', '。', '！', '？'];

/// One call that was written as text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Leak {
    /// As the tool is offered, whatever the model made of its name.
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
    /// The text that it was read from, with its marks; of several calls in one text perhaps all of it.
    pub(super) written: Arc<str>,
}

impl Leak {
    pub(super) fn new(tool: String, arguments: Map<String, Value>) -> Self {
        Self {
            tool,
            arguments,
            written: Arc::default(),
        }
    }

    /// A call whose arguments are not known, and the text that may be it.
    fn without_arguments(tool: String, written: &str) -> Self {
        let mut leak = Self::new(tool, Map::new());
        leak.written = written.into();
        leak
    }
}

/// The calls of a text, and what had to be repaired in them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LeakedCalls {
    pub(super) calls: Vec<Leak>,
    pub(super) repairs: Vec<RepairKind>,
}

impl LeakedCalls {
    fn take(&mut self, more: Self) {
        self.calls.extend(more.calls);
        for kind in more.repairs {
            self.note(kind);
        }
    }

    /// The calls with the text that they were read from, where none is known that is shorter.
    fn written_as(mut self, text: &str) -> Self {
        let written = Arc::from(text);
        for call in &mut self.calls {
            if call.written.is_empty() {
                call.written = Arc::clone(&written);
            }
        }
        self
    }

    /// Without the first call that is a quotation, and those after it; nothing where no call is left. `given`: how many
    /// calls of the reply were compared before.
    pub(super) fn unquoted(mut self, provenance: &Provenance, given: usize) -> Option<Self> {
        let room = provenance.max_compared().saturating_sub(given);
        let quoted = |(at, call): (usize, &Leak)| {
            at >= room || provenance.is_quoted(&call.written, &call.tool, &call.arguments)
        };
        if let Some(at) = self.calls.iter().enumerate().position(quoted) {
            self.calls.truncate(at);
        }
        (!self.calls.is_empty()).then_some(self)
    }

    fn note(&mut self, kind: RepairKind) {
        if !self.repairs.contains(&kind) {
            self.repairs.push(kind);
        }
    }
}

/// The beginning of a complete text.
#[derive(Debug)]
enum TextOpening<'t> {
    /// Calls, and what follows them.
    Calls(LeakedCalls, &'t str),
    /// Nothing more that counts.
    Nothing,
    /// Something else.
    Other,
}

/// The calls of a complete answer, if what it does is to call.
pub(super) fn find(answer: &str, offer: &CallableNames, end: TextEnd) -> Option<LeakedCalls> {
    front(answer, offer, end)
        .or_else(|| last(answer, offer, end))
        .or_else(|| body::unmarked(answer, offer, end))
        .or_else(|| unknown::calls(answer, offer, end))
        .map(noted)
}

/// The calls that a complete answer begins with.
pub(super) fn front(answer: &str, offer: &CallableNames, end: TextEnd) -> Option<LeakedCalls> {
    let (leaked, _) = run(answer, offer, end);
    (!leaked.calls.is_empty()).then_some(leaked).map(noted)
}

/// The calls that a thought ends with: for answers that are empty.
pub(super) fn of_thought(
    thought: &str,
    offer: &CallableNames,
    end: TextEnd,
) -> Option<LeakedCalls> {
    front_only(thought, offer, end)
        .or_else(|| last(thought, offer, end))
        .map(noted)
}

/// Whether the answer is nothing but what stands between the marks of calls, and is none: it is no answer either.
pub(super) fn is_failed(answer: &str, offer: &CallableNames, end: TextEnd) -> bool {
    is_marked(answer, offer) && find(answer, offer, end).is_none()
}

/// Whether the answer is nothing but what stands between the marks of calls, known ones or others around the name of an
/// offered tool.
pub(super) fn is_marked(answer: &str, offer: &CallableNames) -> bool {
    is_in_known_marks(offer.rules(), answer) || unknown::is_call(answer, offer)
}

/// The call between the marks of an unknown form that are all of the answer: the first tool that it names. Its arguments
/// are not given.
pub(super) fn in_unknown_marks(answer: &str, offer: &CallableNames) -> Option<Leak> {
    unknown::named(answer, offer)
}

fn is_in_known_marks(rules: ReadingRules, answer: &str) -> bool {
    let start = past_around(rules, answer).trim_end();
    let Some(mark) = marks(rules).find(|mark| start.starts_with(mark.open)) else {
        return false;
    };
    mark.close.is_empty()
        || match start.rfind(mark.close) {
            Some(at) => is_over(rules, &start[at + mark.close.len()..]),
            None => true,
        }
}

/// The call of an answer that is nothing but that, in a form without marks or with words as marks, and cannot be read or is
/// not known to be meant. Its arguments are not given.
pub(super) fn unread(answer: &str, offer: &CallableNames, end: TextEnd) -> Option<Leak> {
    bare::unread(answer, offer)
        .or_else(|| bare::spoken_call(answer, offer))
        .filter(|_| find(answer, offer, end).is_none())
}

/// The call of an answer that is tools with arguments among signs and words of calls, or statements and commands, where it
/// cannot be read.
pub(super) fn among_signs(answer: &str, offer: &CallableNames, end: TextEnd) -> Option<Leak> {
    framed::call(answer, offer)
        .or_else(|| statement::call(answer, offer))
        .filter(|_| find(answer, offer, end).is_none())
}

/// Why a call that looks like one cannot be read: a number in it would lose digits.
pub(super) fn inexact(answer: &str, offer: &CallableNames) -> Option<InexactNumber> {
    let is_current = offer.rules().are_from_4();
    numbers::check(answer.as_bytes())
        .err()
        .filter(|_| is_current)
}

/// Calls between sentences of an answer, outside of code. Calls within a sentence are left out.
pub(super) fn beside_sentences(answer: &str, offer: &CallableNames) -> Option<LeakedCalls> {
    let rules = offer.rules();
    if !rules.are_from_4() {
        return None;
    }
    let text = answer.trim();
    let mut places = places(rules, text).into_iter().take(MAX_BESIDE);
    places.find_map(|place| {
        let (before, start) = text.split_at_checked(place.at)?;
        let before = trim_around(rules, before);
        if !(before.is_empty() || before.ends_with(SENTENCE_ENDS)) {
            return None;
        }
        let start = start.get(..start.floor_char_boundary(MAX_LAST))?;
        let (leaked, end) = ClosingMark::of(place.mark).find(start, offer)?;
        let rest = start.get(end..)?;
        let is_end = is_over(rules, rest) || opening(rules, past_behind(rules, rest)).is_some();
        (is_end || begins_sentence(past_behind(rules, rest))).then_some(leaked)
    })
}

/// Whether the answer is nothing but calls, in any form.
pub(super) fn is_call(answer: &str, offer: &CallableNames, end: TextEnd) -> bool {
    front_only(answer, offer, end).is_some()
        || body::unmarked(answer, offer, end).is_some()
        || unknown::calls(answer, offer, end).is_some()
}

fn noted(mut leaked: LeakedCalls) -> LeakedCalls {
    leaked
        .repairs
        .retain(|kind| *kind != RepairKind::LeakedCall);
    leaked.repairs.insert(0, RepairKind::LeakedCall);
    leaked
}

/// As [`front`], with nothing behind the calls.
fn front_only(text: &str, offer: &CallableNames, end: TextEnd) -> Option<LeakedCalls> {
    let (leaked, is_all) = run(text, offer, end);
    (is_all && !leaked.calls.is_empty()).then_some(leaked)
}

/// Calls one after the other, and whether they are all there is.
fn run(text: &str, offer: &CallableNames, end: TextEnd) -> (LeakedCalls, bool) {
    run_of(text, offer, end, |_| true)
}

/// [`run`], of calls with these marks.
fn run_of(
    mut text: &str,
    offer: &CallableNames,
    end: TextEnd,
    may_open: fn(&Mark) -> bool,
) -> (LeakedCalls, bool) {
    let mut leaked = LeakedCalls::default();
    while leaked.calls.len() < MAX_CALLS {
        let is_first = leaked.calls.is_empty();
        match next(text, is_first, offer, end, may_open) {
            TextOpening::Calls(more, rest) => {
                leaked.take(more);
                text = rest;
            }
            TextOpening::Nothing => return (leaked, true),
            TextOpening::Other => return (leaked, false),
        }
    }
    (leaked, false)
}

/// The calls between the ends of `mark`. Those of a list may have marks of their own, and no list in them: each level
/// would read the text again.
fn inside(mark: &Mark, text: &str, offer: &CallableNames, end: TextEnd) -> Option<LeakedCalls> {
    let rules = offer.rules();
    let is_single = |mark: &Mark| !mark.is_list;
    if mark.is_list && opening(rules, past_around(rules, text)).is_some_and(is_single) {
        let (leaked, is_all) = run_of(text, offer, end, is_single);
        return (is_all && !leaked.calls.is_empty()).then_some(leaked);
    }
    body::read(text, offer, end)
}

/// Calls that end a text in which something stands before them: as many as there are.
fn last(text: &str, offer: &CallableNames, end: TextEnd) -> Option<LeakedCalls> {
    let mut found = None;
    let places = places(offer.rules(), text)
        .into_iter()
        .rev()
        .take(MAX_PLACES);
    for place in places.take_while(|place| text.len() - place.at <= MAX_LAST) {
        if place.mark.is_token || place.begins_line {
            found = front_only(&text[place.at..], offer, end).or(found);
        }
    }
    found
}

/// A mark that opens a call, in a text.
#[derive(Debug)]
struct MarkPlace {
    at: usize,
    mark: &'static Mark,
    /// Whether nothing but blanks and marks around calls stand before it on its line.
    begins_line: bool,
}

/// Where marks stand outside of code.
fn places(rules: ReadingRules, text: &str) -> Vec<MarkPlace> {
    let mut places = Vec::new();
    let (mut in_fence, mut at) = (false, 0);
    for line in text.split_inclusive('\n') {
        let start = line.trim_start();
        if start.starts_with("```") {
            if let (false, Some(mark)) = (in_fence, opening(rules, start)) {
                places.push(MarkPlace {
                    at: at + line.len() - start.len(),
                    mark,
                    begins_line: true,
                });
            }
            in_fence = !in_fence;
        } else if !in_fence {
            // Once for all marks of the line, of which there may be many.
            let first = line.len() - past_around(rules, line).len();
            let mut ticks = 0;
            for (within, c) in line.char_indices() {
                match c {
                    '`' => ticks += 1,
                    '<' | '[' if ticks % 2 == 0 => {
                        if let Some(mark) = opening(rules, &line[within..]) {
                            places.push(MarkPlace {
                                at: at + within,
                                mark,
                                begins_line: within == first,
                            });
                        }
                    }
                    _ => {}
                }
            }
        }
        at += line.len();
    }
    places
}

/// Reads what a complete text begins with. `is_first`: no call stands before it.
fn next<'t>(
    text: &'t str,
    is_first: bool,
    offer: &CallableNames,
    end: TextEnd,
    may_open: fn(&Mark) -> bool,
) -> TextOpening<'t> {
    let rules = offer.rules();
    let start = if is_first {
        past_around(rules, text)
    } else {
        past_behind(rules, text)
    };
    if start.is_empty() || (!is_first && starts_turn(rules, start)) {
        return TextOpening::Nothing;
    }
    let Some(mark) = opening(rules, start).filter(|mark| may_open(mark)) else {
        return TextOpening::Other;
    };
    if let Some((leaked, end)) = ClosingMark::of(mark).find(start, offer) {
        let rest = &start[end..];
        return match follows(rules, mark, along_line(rules, rest)) {
            AfterCall::Nothing | AfterCall::Calls => TextOpening::Calls(leaked, rest),
            AfterCall::Begun | AfterCall::Prose => TextOpening::Other,
        };
    }
    // Nothing closes it: the next one does, or the end of the reply.
    let inner = &start[mark.open.len()..];
    let end_at = inner.find(mark.open).unwrap_or(inner.len());
    let is_last = end_at == inner.len();
    let how = if is_last { end } else { TextEnd::Own };
    match inside(
        mark,
        trim_around(rules, mark.body(start, end_at)),
        offer,
        how,
    ) {
        Some(leaked) => {
            let leaked = leaked.written_as(&start[..mark.open.len() + end_at]);
            TextOpening::Calls(leaked, &inner[end_at..])
        }
        None => TextOpening::Other,
    }
}
