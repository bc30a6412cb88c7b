//! The share of the window that each part of a Request takes: by the endpoint's own count where it counts,
//! otherwise by an estimate (docs/protocol.md, 7.11).

use super::{Action, Effects, Machine};
use crate::context::TokenCounts;
use std::borrow::Cow;
use toolhold_model::chat::ChatRequest;
use toolhold_protocol::context::Message;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::turn::Turn;
use toolhold_protocol::window::Counted;
use toolhold_protocol::window::{Part, TokensByPart};

/// Maximum rounds of counting for one Request: first all of it, then what replaced dropped history.
/// The rest is estimated.
const MAX_COUNTS: u32 = 4;
/// Assumed tokens that a chat template writes around a message, until the endpoint has counted a
/// prompt.
const TEMPLATE_TOKENS: u64 = 4;
/// Maximum tokens that a template plausibly adds to a prompt: a preamble for the tools, a date. An endpoint
/// that counts more than this and [`MAX_PER_MESSAGE`] beyond the texts has counted something else.
const MAX_PREAMBLE: u64 = 1_024;
const MAX_PER_MESSAGE: u64 = 64;
/// A whole window, in percent.
const ALL: u64 = 100;

/// The next Request, with the texts in it of which it is known what they are.
#[derive(Debug)]
pub(super) struct Composed {
    pub request: ChatRequest,
    known: Vec<(Part, String)>,
    size: Size,
}

/// The size of texts: counted tokens, and estimated bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Size {
    tokens: u64,
    bytes: usize,
}

impl Size {
    /// Whether nothing of it is estimated.
    fn is_counted(self) -> bool {
        self.bytes == 0
    }

    /// These tokens, which go by this size. What an estimate has beyond is for what it does not see.
    fn most(self, tokens: u64) -> u64 {
        if self.is_counted() {
            tokens
        } else {
            tokens.saturating_mul(20) / 19
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn less(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// The progress of counting one Request.
#[derive(Debug, Default)]
pub(super) struct Fitting {
    rounds: u32,
    /// The texts that are being counted.
    asked: Option<Vec<String>>,
    pub dropped: usize,
    /// Tokens before anything was dropped.
    pub before: Option<u64>,
}

/// Knowledge about the endpoint's token counts.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    counts: TokenCounts,
    /// The endpoint failed to count, and is not asked again.
    has_failed: bool,
    /// The prompt that was sent last: its texts, and how many messages they are.
    sent: (Size, usize),
    sent_bytes: usize,
    /// Tokens that the template added to such a prompt, and its number of messages.
    template: Option<(u64, usize)>,
}

impl Tokens {
    /// Another endpoint may go on with the run, so nothing that this one counted is known any more.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

impl Machine {
    pub(super) fn composed(&mut self, request: ChatRequest, turns: &[Turn]) -> Composed {
        let known = self.known(turns);
        let size = texts(&request)
            .map(|text| self.size(&text))
            .fold(Size::default(), Size::plus);
        Composed {
            request,
            known,
            size,
        }
    }

    /// Texts of the Request whose part is known; `turns` as the model is shown them. Those of the user
    /// are within the data that the Request opens with.
    fn known(&mut self, turns: &[Turn]) -> Vec<(Part, String)> {
        let mut known = vec![(Part::System, self.request.instructions.clone())];
        for message in &self.context.messages {
            if let Message::Text(text) = message {
                known.push((Part::User, text.text.clone()));
            }
        }
        if !self.vault.is_off() {
            for (_, text) in &mut known {
                *text = self.vault.hide(text);
            }
        }
        let happened = self.opening.len() + self.remembered_turns();
        for (at, turn) in turns.iter().enumerate() {
            match turn {
                Turn::Text { text, .. } => {
                    let is_data = at < self.opening.len() || at >= happened;
                    let part = if is_data { Part::Data } else { Part::History };
                    known.push((part, text.clone()));
                }
                Turn::Exchange(exchange) => {
                    for answered in &exchange.calls {
                        known.push((Part::Results, answered.text.clone()));
                        known.push((Part::History, answered.call.tool.clone()));
                        known.push((Part::History, answered.call.arguments.to_string()));
                    }
                }
                Turn::Summary(text) => known.push((Part::Summary, text.clone())),
                Turn::Rejected { reply, reason } => {
                    known.push((Part::History, reply.clone()));
                    known.push((Part::History, reason.clone()));
                }
            }
        }
        known
    }

    fn size(&self, text: &str) -> Size {
        let counted = self
            .is_counted()
            .then(|| self.window.tokens_of.counts.of(text));
        match counted.flatten() {
            Some(tokens) => Size { tokens, bytes: 0 },
            None => Size {
                tokens: 0,
                bytes: text.len(),
            },
        }
    }

    /// Whether the endpoint that is asked next counts. A candidate of the fallback is another one.
    fn is_counted(&self) -> bool {
        self.request.settings.window.counted && self.forced().is_none()
    }

    fn tokens(&self, size: Size) -> u64 {
        let estimated = self.window.meter.tokens(size.bytes);
        size.tokens.saturating_add(estimated)
    }

    /// Tokens of the whole prompt.
    pub(super) fn prompt_tokens(&self, composed: &Composed) -> u64 {
        self.tokens(composed.size)
            .saturating_add(self.template_tokens(composed.request.messages.len()))
    }

    pub(super) fn is_too_long(&self, composed: &Composed) -> bool {
        self.is_beyond(ALL, composed)
    }

    /// Whether prompt and reply need more than so many hundredths of the window.
    pub(super) fn is_beyond(&self, share: u64, composed: &Composed) -> bool {
        let reply = u64::from(self.request.settings.max_tokens);
        let needed = self.prompt_tokens(composed).saturating_add(reply);
        let needed = composed.size.most(needed);
        let of = |window: u64| window / ALL * share + window % ALL * share / ALL;
        self.window.tokens.is_some_and(|window| needed > of(window))
    }

    /// Tokens that the window has left for a reply, if it is known.
    pub(super) fn room(&self, composed: &Composed) -> Option<u64> {
        let prompt = composed.size.most(self.prompt_tokens(composed));
        Some(self.window.tokens?.saturating_sub(prompt))
    }

    /// Whether the endpoint counted something that the size of this goes by.
    pub(super) fn is_measured(&self, composed: &Composed) -> bool {
        composed.size.is_counted() || self.window.meter.is_taught()
    }

    fn template_tokens(&self, messages: usize) -> u64 {
        if !self.is_counted() {
            // The endpoint's count of whole prompts is what estimates go by.
            return 0;
        }
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        match self.window.tokens_of.template {
            Some((tokens, of)) => tokens
                .saturating_mul(number(messages))
                .div_ceil(number(of.max(1))),
            None => TEMPLATE_TOKENS.saturating_mul(number(messages)),
        }
    }

    /// Requests the counts of texts that have none yet, if the endpoint can count.
    pub(super) fn counts(&mut self, composed: &Composed, effects: &mut Effects) -> bool {
        let fitting = &self.step.fitting;
        if !self.is_counted() || self.window.tokens_of.has_failed || fitting.rounds >= MAX_COUNTS {
            return false;
        }
        let texts: Vec<Cow<'_, str>> = texts(&composed.request).collect();
        let known = composed.known.iter().map(|(_, text)| text.as_str());
        let all = texts.iter().map(AsRef::as_ref).chain(known);
        let lacking = self.window.tokens_of.counts.lacking(all);
        if lacking.is_empty() {
            return false;
        }
        let fitting = &mut self.step.fitting;
        fitting.rounds += 1;
        fitting.asked = Some(lacking.clone());
        effects.actions.push(Action::Count(lacking));
        true
    }

    pub(super) fn has_counted_once(&self) -> bool {
        self.step.fitting.rounds > 0
    }

    /// The endpoint counted what it was asked to, or as much of it as it could.
    pub(super) fn tokens_counted(&mut self, counted: Counted, effects: &mut Effects) {
        let Some(asked) = self.step.fitting.asked.take() else {
            return;
        };
        for (text, tokens) in asked.iter().zip(&counted.tokens) {
            self.window.tokens_of.counts.add(text, *tokens);
        }
        let failure = counted.failure.clone();
        effects.events.push(EventKind::Counted {
            step: self.steps,
            counted,
        });
        if let Some(reason) = failure {
            self.window.tokens_of.has_failed = true;
            effects.events.push(EventKind::Notice {
                step: self.steps,
                message: format!(
                    "the endpoint failed to count tokens, so from here on they are estimated: {reason}"
                ),
            });
        }
        self.send_fitting(effects);
    }

    /// Remembers what was sent to the run's own model.
    pub(super) fn note_sent(&mut self, composed: &Composed) {
        let messages = composed.request.messages.len();
        let tokens = &mut self.window.tokens_of;
        tokens.sent = (composed.size, messages);
        tokens.sent_bytes = texts(&composed.request).map(|text| text.len()).sum();
    }

    /// Tokens of the prompt that was sent last.
    pub(super) fn sent_tokens(&self) -> u64 {
        self.window.meter.tokens(self.window.tokens_of.sent_bytes)
    }

    /// Upper bound of the tokens of the prompt that was sent last.
    pub(super) fn most_sent_tokens(&self) -> u64 {
        let (size, messages) = self.window.tokens_of.sent;
        let template = self.template_tokens(messages);
        size.most(self.tokens(size).saturating_add(template))
    }

    /// The endpoint counted the whole prompt that was sent last.
    pub(super) fn observe(&mut self, prompt_tokens: u64) {
        let tokens = &mut self.window.tokens_of;
        self.window.meter.observe(tokens.sent_bytes, prompt_tokens);
        let (sent, messages) = tokens.sent;
        let most = u64::try_from(messages)
            .unwrap_or(u64::MAX)
            .saturating_mul(MAX_PER_MESSAGE)
            .saturating_add(MAX_PREAMBLE);
        let template = prompt_tokens.saturating_sub(sent.tokens);
        if sent.is_counted() && sent.tokens > 0 && template <= most {
            tokens.template = Some((template, messages));
        }
    }

    /// Of each part its tokens, and the parts whose tokens the endpoint counted.
    pub(super) fn parts(&self, composed: &Composed) -> (TokensByPart, Vec<Part>) {
        let mut sizes: Vec<(Part, Size)> = Vec::new();
        let (mut user, mut within) = (Size::default(), Size::default());
        for (part, text) in &composed.known {
            let size = self.size(text);
            if *part == Part::User {
                user = user.plus(size);
            } else {
                within = within.plus(size);
            }
            match sizes.iter_mut().find(|(known, _)| part == known) {
                Some((_, sum)) => *sum = sum.plus(size),
                None => sizes.push((*part, size)),
            }
        }
        // Tools, the form of a reply and the examples are written by the contract, around the rest.
        sizes.push((Part::Tools, composed.size.less(within)));
        // How the template writes what is no text is its own affair.
        let is_rendered = !composed.request.tools.is_empty();
        let (mut parts, mut exact) = (TokensByPart::default(), Vec::new());
        for (part, size) in sizes {
            let size = match part {
                Part::Data => size.less(user),
                _ => size,
            };
            let tokens = self.tokens(size);
            parts.add(part, tokens);
            let is_text = !(is_rendered && matches!(part, Part::Tools | Part::History));
            if is_text && self.is_counted() && size.is_counted() && tokens > 0 {
                exact.push(part);
            }
        }
        let template = self.template_tokens(composed.request.messages.len());
        parts.add(Part::Template, template);
        (parts, exact)
    }
}

/// The texts that an endpoint counts: the messages, and native tools.
fn texts(request: &ChatRequest) -> impl Iterator<Item = Cow<'_, str>> {
    let messages = request.messages.iter().flat_map(|message| {
        let text = message.text().map(Cow::Borrowed);
        let calls = message.tool_calls.iter();
        text.into_iter()
            .chain(calls.map(|call| Cow::Owned(format!("{}\n{}", call.name, call.arguments))))
    });
    let tools = request.tools.iter().map(|tool| {
        let (name, description) = (&tool.name, &tool.description);
        Cow::Owned(format!("{name}\n{description}\n{}", tool.parameters))
    });
    messages.chain(tools)
}
