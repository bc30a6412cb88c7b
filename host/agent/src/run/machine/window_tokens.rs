//! The share of the window that each part of a Request takes: by the endpoint's own count where it counts,
//! otherwise by an estimate (docs/protocol.md, 7.11).

use super::composed::{Composed, Size, texts};
use crate::context::{TokenCounts, TokenMeter};
use crate::run::rules::LoopRules;
use std::borrow::Cow;
use toolhold_model::chat::ChatRequest;
use toolhold_model::route::TOKENS_PER_ATTACHMENT;
use toolhold_protocol::window::{Counted, Part, TokensByPart};

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
pub(super) const ALL: u64 = 100;
/// How often one Request is made smaller because the endpoint refused its length. Before format 5, this held for all
/// endpoints.
const MAX_REFUSALS: u32 = 3;
/// Maximum of an endpoint that does not say what fits: the last Request has about 1/40 of the first.
const MAX_UNTOLD_REFUSALS: u32 = 6;
/// Where an endpoint refuses a Request for its length and does not say what fits, 1/5 less may.
const REFUSED_DIVISOR: u64 = 5;
/// Divisor of the tokens that may be sent, at each further refusal: the estimate is far off.
const REFUSED_AGAIN_DIVISOR: u64 = 2;

/// Knowledge about the window of the run's own model, and about the endpoint's token counts.
#[derive(Debug, Default)]
pub(super) struct WindowTokens {
    /// Tokens of prompt and reply together; absent if unknown.
    window: Option<u64>,
    meter: TokenMeter,
    endpoint: EndpointCounts,
    /// Of Requests in a row.
    refusals: u32,
    rules: LoopRules,
}

/// Token counts of one endpoint.
#[derive(Debug, Default)]
struct EndpointCounts {
    counts: TokenCounts,
    /// The endpoint failed to count, and is not asked again.
    has_failed: bool,
    /// The prompt that was sent last.
    sent: SentPrompt,
    /// Tokens that the template added to such a prompt, and its number of messages.
    template: Option<(u64, usize)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct SentPrompt {
    size: Size,
    messages: usize,
    bytes: usize,
    /// Tokens that its images are assumed to take.
    images: u64,
    is_counted: bool,
}

/// The progress of counting one Request.
#[derive(Debug, Default)]
pub(super) struct Fitting {
    rounds: u32,
    /// The texts that are being counted.
    asked: Option<Vec<String>>,
    /// Turns that were dropped.
    pub dropped: usize,
    /// Tokens before anything was dropped.
    pub before: Option<u64>,
    writing: SummaryWriting,
}

/// How far a model is that sums up the conversation for a Request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum SummaryWriting {
    #[default]
    NotAsked,
    Asked,
    Over,
}

impl Fitting {
    pub fn has_counted_once(&self) -> bool {
        self.rounds > 0
    }

    /// A model is asked for a summary, if none was asked before for this Request.
    pub fn begins_writing(&mut self) -> bool {
        let begins = self.writing == SummaryWriting::NotAsked;
        if begins {
            self.writing = SummaryWriting::Asked;
        }
        begins
    }

    /// Returns whether a model was asked for a summary, which is over now.
    pub fn ends_writing(&mut self) -> bool {
        let ends = self.writing == SummaryWriting::Asked;
        if ends {
            self.writing = SummaryWriting::Over;
        }
        ends
    }

    /// The texts that are being counted; nothing after that.
    pub fn take_asked(&mut self) -> Option<Vec<String>> {
        self.asked.take()
    }
}

impl WindowTokens {
    pub fn new(window: Option<u64>, rules: LoopRules) -> Self {
        Self {
            window,
            rules,
            ..Self::default()
        }
    }

    pub fn window(&self) -> Option<u64> {
        self.window
    }

    /// Another endpoint may go on with the run, so nothing that this one counted is known any more.
    pub fn forget(&mut self) {
        self.endpoint = EndpointCounts::default();
    }

    /// Returns an estimate of the bytes of this number of tokens.
    pub fn bytes_of(&self, tokens: u64) -> usize {
        self.meter.bytes(tokens)
    }

    /// Returns an estimate of the tokens of this number of bytes.
    pub fn tokens_of_bytes(&self, bytes: usize) -> u64 {
        self.meter.tokens(bytes)
    }

    /// About how many bytes the n-th part of the window is; a bound that says nothing if it is unknown.
    pub fn bytes_of_share(&self, divisor: u64) -> usize {
        let tokens = self.window.unwrap_or(u64::from(u32::MAX));
        self.meter.bytes(tokens / divisor)
    }

    /// A Request, measured. `known` are texts in it and their part, where those of the user are within the data
    /// that the Request opens with; `is_counted`: whether the endpoint that is asked counts.
    pub fn measured(
        &self,
        request: ChatRequest,
        known: Vec<(Part, String)>,
        is_counted: bool,
    ) -> Composed {
        let images = Size {
            tokens: image_tokens(&request),
            bytes: 0,
        };
        let size = texts(&request)
            .map(|text| self.size(&text, is_counted))
            .fold(images, Size::plus);
        Composed {
            request,
            known,
            size,
            is_counted,
        }
    }

    fn size(&self, text: &str, is_counted: bool) -> Size {
        let counted = is_counted.then(|| self.endpoint.counts.of(text));
        match counted.flatten() {
            Some(tokens) => Size { tokens, bytes: 0 },
            None => Size {
                tokens: 0,
                bytes: text.len(),
            },
        }
    }

    fn tokens_of(&self, size: Size) -> u64 {
        size.tokens.saturating_add(self.meter.tokens(size.bytes))
    }

    /// Tokens of the whole prompt.
    pub fn prompt(&self, composed: &Composed) -> u64 {
        self.tokens_of(composed.size).saturating_add(
            self.template_tokens(composed.request.messages.len(), composed.is_counted),
        )
    }

    /// Whether prompt and reply need more than `share` percent of the window.
    pub fn is_beyond(&self, share: u64, composed: &Composed, reply: u32) -> bool {
        let needed = self.prompt(composed).saturating_add(u64::from(reply));
        let needed = composed.size.most(needed);
        let of = |window: u64| window / ALL * share + window % ALL * share / ALL;
        self.window.is_some_and(|window| needed > of(window))
    }

    /// Tokens that the window has left for a reply, if it is known.
    pub fn room(&self, composed: &Composed) -> Option<u64> {
        let prompt = composed.size.most(self.prompt(composed));
        Some(self.window?.saturating_sub(prompt))
    }

    /// Whether the endpoint counted something that the size of this goes by.
    pub fn is_measured(&self, composed: &Composed) -> bool {
        composed.size.is_counted() || self.meter.is_taught()
    }

    fn template_tokens(&self, messages: usize, is_counted: bool) -> u64 {
        if !is_counted {
            // The endpoint's count of whole prompts is what estimates go by.
            return 0;
        }
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        match self.endpoint.template {
            Some((tokens, of)) => tokens
                .saturating_mul(number(messages))
                .div_ceil(number(of.max(1))),
            None => TEMPLATE_TOKENS.saturating_mul(number(messages)),
        }
    }

    /// The texts that have no count yet, if the endpoint can count and the Request is worth another round.
    pub fn lacking(&self, composed: &Composed, fitting: &mut Fitting) -> Option<Vec<String>> {
        if !composed.is_counted || self.endpoint.has_failed || fitting.rounds >= MAX_COUNTS {
            return None;
        }
        let texts: Vec<Cow<'_, str>> = texts(&composed.request).collect();
        let known = composed.known.iter().map(|(_, text)| text.as_str());
        let all = texts.iter().map(AsRef::as_ref).chain(known);
        let lacking = self.endpoint.counts.lacking(all);
        if lacking.is_empty() {
            return None;
        }
        fitting.rounds += 1;
        fitting.asked = Some(lacking.clone());
        Some(lacking)
    }

    /// The endpoint counted these texts, or as many of them as it could.
    pub fn counted(&mut self, texts: &[String], counted: &Counted) {
        for (text, tokens) in texts.iter().zip(&counted.tokens) {
            self.endpoint.counts.add(text, *tokens);
        }
        self.endpoint.has_failed |= counted.failure.is_some();
    }

    /// Remembers what was sent to the run's own model.
    pub fn sent(&mut self, composed: &Composed) {
        self.endpoint.sent = SentPrompt {
            size: composed.size,
            messages: composed.request.messages.len(),
            bytes: texts(&composed.request).map(|text| text.len()).sum(),
            images: image_tokens(&composed.request),
            is_counted: composed.is_counted,
        };
    }

    /// Upper bound of the tokens of the prompt that was sent last.
    pub fn most_sent(&self) -> u64 {
        let sent = self.endpoint.sent;
        let template = self.template_tokens(sent.messages, sent.is_counted);
        sent.size
            .most(self.tokens_of(sent.size).saturating_add(template))
    }

    /// The endpoint counted the whole prompt that was sent last.
    pub fn observe(&mut self, prompt_tokens: u64) {
        let sent = self.endpoint.sent;
        // What the images really take is not known.
        let texts = prompt_tokens.saturating_sub(sent.images);
        self.meter.observe(sent.bytes, texts);
        let most = u64::try_from(sent.messages)
            .unwrap_or(u64::MAX)
            .saturating_mul(MAX_PER_MESSAGE)
            .saturating_add(MAX_PREAMBLE);
        let template = prompt_tokens.saturating_sub(sent.size.tokens);
        if sent.size.is_counted() && sent.size.tokens > 0 && sent.images == 0 && template <= most {
            self.endpoint.template = Some((template, sent.messages));
        }
    }

    /// The endpoint refused the prompt that was sent last: what it said of its window, or else a part of what
    /// was sent with room for `reply` tokens, bounds the window from now on.
    pub fn refused(&mut self, told: Option<u64>, reply: u32) -> u64 {
        self.refusals += 1;
        let sent = self.endpoint.sent;
        let sent = self.meter.tokens(sent.bytes).saturating_add(sent.images);
        let fits = told.unwrap_or_else(|| {
            let sent = sent.saturating_add(u64::from(reply));
            let all = match self.window {
                // A window that is known too large says nothing of what was refused.
                Some(known) if self.rules.are_from_5() => known.min(sent),
                Some(known) => known,
                None => sent,
            };
            let is_again = self.refusals > 1 && self.rules.are_from_5();
            let divisor = if is_again {
                REFUSED_AGAIN_DIVISOR
            } else {
                REFUSED_DIVISOR
            };
            all - all / divisor
        });
        let window = self.window.map_or(fits, |known| known.min(fits));
        self.window = Some(window);
        window
    }

    /// Whether a Request that was refused is worth to be sent with a shorter prompt. `is_told`: whether the endpoint said what
    /// fits.
    pub fn may_be_shorter(&self, is_told: bool) -> bool {
        let most = if self.rules.are_from_5() && !is_told {
            MAX_UNTOLD_REFUSALS
        } else {
            MAX_REFUSALS
        };
        self.refusals <= most
    }

    /// A Request was answered: it was not too long.
    pub fn fitted(&mut self) {
        self.refusals = 0;
    }

    /// Of each part its tokens, and the parts whose tokens the endpoint counted.
    pub fn parts(&self, composed: &Composed) -> (TokensByPart, Vec<Part>) {
        let mut sizes: Vec<(Part, Size)> = Vec::new();
        let (mut shown, mut within) = (Size::default(), Size::default());
        for (part, text) in &composed.known {
            let size = self.size(text, composed.is_counted);
            if matches!(part, Part::User | Part::Retrieved) {
                shown = shown.plus(size);
            } else {
                within = within.plus(size);
            }
            match sizes.iter_mut().find(|(known, _)| part == known) {
                Some((_, sum)) => *sum = sum.plus(size),
                None => sizes.push((*part, size)),
            }
        }
        // Tools, the form of a reply and the examples are written by the contract, around the rest.
        let images = Size {
            tokens: image_tokens(&composed.request),
            bytes: 0,
        };
        sizes.push((Part::Tools, composed.size.less(within).less(images)));
        // How the template writes what is no text is its own affair.
        let is_rendered = !composed.request.tools.is_empty();
        let (mut parts, mut exact) = (TokensByPart::default(), Vec::new());
        for (part, size) in sizes {
            let size = match part {
                Part::Data => size.less(shown),
                _ => size,
            };
            let tokens = self.tokens_of(size);
            parts.add(part, tokens);
            let is_text = !(is_rendered && matches!(part, Part::Tools | Part::History));
            if is_text && composed.is_counted && size.is_counted() && tokens > 0 {
                exact.push(part);
            }
        }
        // They are the user's, and nobody has counted them.
        parts.add(Part::User, images.tokens);
        exact.retain(|part| images.tokens == 0 || *part != Part::User);
        let messages = composed.request.messages.len();
        parts.add(
            Part::Template,
            self.template_tokens(messages, composed.is_counted),
        );
        (parts, exact)
    }
}

/// Tokens that a Request's images are assumed to take.
fn image_tokens(request: &ChatRequest) -> u64 {
    let images = u64::try_from(request.images()).unwrap_or(u64::MAX);
    images.saturating_mul(TOKENS_PER_ATTACHMENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_model::chat::ChatMessage;
    use toolhold_protocol::image::Image;

    #[test]
    fn an_image_takes_tokens_and_not_the_bytes_of_its_text() {
        let mut tokens = WindowTokens::new(Some(10_000), LoopRules::default());
        let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
        bytes.resize(1 << 20, 0);
        let image = Image::new("a.png", &bytes).unwrap();
        for is_counted in [false, true] {
            let without = tokens.measured(request(), Vec::new(), is_counted);
            let mut with = request();
            with.messages[1].images.push(image.clone());
            let with = tokens.measured(with, Vec::new(), is_counted);
            let before = tokens.prompt(&without);
            assert_eq!(tokens.prompt(&with), before + TOKENS_PER_ATTACHMENT);
            let ((before, _), (parts, _)) = (tokens.parts(&without), tokens.parts(&with));
            assert_eq!(parts.of(Part::User), before.of(Part::User) + 1_000);
            assert_eq!(parts.of(Part::Tools), before.of(Part::Tools));
            // What is learnt of a prompt is learnt of its texts.
            tokens.sent(&with);
            let meter = tokens.meter;
            tokens.observe(1_000);
            assert_eq!(tokens.meter, meter);
        }
    }

    const SYSTEM: &str = "You are terse.";
    const TASK: &str = "How many parcels are there?";

    fn request() -> ChatRequest {
        let messages = vec![ChatMessage::system(SYSTEM), ChatMessage::user(TASK)];
        ChatRequest::new("m", messages)
    }

    fn measured(tokens: &WindowTokens, is_counted: bool) -> Composed {
        let known = vec![
            (Part::System, SYSTEM.to_owned()),
            (Part::User, TASK.to_owned()),
            (Part::Data, TASK.to_owned()),
        ];
        tokens.measured(request(), known, is_counted)
    }

    /// As an endpoint that counts each text as so many tokens.
    fn count(tokens: &mut WindowTokens, of: &[u64]) {
        let (composed, mut fitting) = (measured(tokens, true), Fitting::default());
        assert_eq!(
            tokens.lacking(&composed, &mut fitting).unwrap(),
            [SYSTEM, TASK]
        );
        let asked = fitting.take_asked().unwrap();
        let counted = Counted {
            tokens: of.to_vec(),
            failure: (of.len() < asked.len()).then(|| "no".into()),
        };
        tokens.counted(&asked, &counted);
    }

    #[test]
    fn token_counts_of_the_endpoint_are_exact_and_others_estimated() {
        let mut tokens = WindowTokens::new(Some(100), LoopRules::default());
        let estimate = tokens.prompt(&measured(&tokens, false));
        assert_eq!(estimate, (SYSTEM.len() + TASK.len()).div_ceil(3) as u64);
        count(&mut tokens, &[5, 7]);
        let composed = measured(&tokens, true);
        assert!(tokens.is_measured(&composed));
        assert_eq!(tokens.prompt(&composed), 5 + 7 + 2 * TEMPLATE_TOKENS);
        let (parts, exact) = tokens.parts(&composed);
        assert_eq!((parts.of(Part::System), parts.of(Part::User)), (5, 7));
        assert_eq!(parts.of(Part::Data), 0, "the user's text is within it");
        assert_eq!(parts.total(), tokens.prompt(&composed));
        assert_eq!(exact, [Part::System, Part::User]);
        // A candidate's endpoint is another one.
        assert_eq!(tokens.prompt(&measured(&tokens, false)), estimate);
        assert!(tokens.lacking(&composed, &mut Fitting::default()).is_none());
    }

    #[test]
    fn an_endpoint_that_failed_to_count_is_not_asked_again() {
        let mut tokens = WindowTokens::new(None, LoopRules::default());
        count(&mut tokens, &[5]);
        let composed = measured(&tokens, true);
        assert!(tokens.lacking(&composed, &mut Fitting::default()).is_none());
        assert!(!tokens.is_measured(&composed));
        // A run that was resumed may have another endpoint.
        tokens.forget();
        count(&mut tokens, &[5, 7]);
    }

    #[test]
    fn one_request_is_counted_a_few_times_at_most() {
        let tokens = WindowTokens::new(None, LoopRules::default());
        let (composed, mut fitting) = (measured(&tokens, true), Fitting::default());
        let rounds = (0..10).filter(|_| tokens.lacking(&composed, &mut fitting).is_some());
        assert_eq!(rounds.count(), MAX_COUNTS as usize);
        assert!(fitting.has_counted_once());
    }

    #[test]
    fn the_window_says_what_is_too_long_and_what_is_left() {
        let mut tokens = WindowTokens::new(Some(100), LoopRules::default());
        count(&mut tokens, &[15, 17]);
        let composed = measured(&tokens, true);
        assert_eq!(tokens.room(&composed), Some(60));
        for (share, reply, is_beyond) in [(ALL, 60, false), (ALL, 61, true), (70, 31, true)] {
            assert_eq!(
                tokens.is_beyond(share, &composed, reply),
                is_beyond,
                "{share}% with {reply}"
            );
        }
        let unknown = WindowTokens::new(None, LoopRules::default());
        assert!(!unknown.is_beyond(ALL, &composed, u32::MAX));
        assert_eq!(unknown.room(&composed), None);
    }

    #[test]
    fn a_prompt_that_was_counted_tells_what_the_template_adds() {
        let mut tokens = WindowTokens::new(None, LoopRules::default());
        count(&mut tokens, &[15, 17]);
        let composed = measured(&tokens, true);
        tokens.sent(&composed);
        tokens.observe(52);
        assert_eq!(tokens.prompt(&composed), 52);
        assert_eq!(tokens.most_sent(), 52);
        // That many tokens are no template.
        tokens.observe(9_000);
        assert_eq!(tokens.prompt(&composed), 52);
    }

    #[test]
    fn a_refused_prompt_bounds_the_window() {
        for (known, told, bound) in [
            (None, Some(4_096), 4_096),
            (Some(2_048), Some(4_096), 2_048),
            (Some(4_096), Some(2_048), 2_048),
            // 14 tokens were sent, and 86 were for the reply.
            (None, None, 80),
            (Some(1_000_000), None, 80),
            (Some(50), None, 40),
        ] {
            let mut tokens = WindowTokens::new(known, LoopRules::default());
            tokens.sent(&measured(&tokens, false));
            assert_eq!(tokens.refused(told, 86), bound, "{known:?} {told:?}");
            assert_eq!(tokens.window(), Some(bound));
        }
    }

    #[test]
    fn a_request_is_shortened_a_few_times_at_most() {
        for (rules, told, most) in [
            (LoopRules::Current, Some(4_000), MAX_REFUSALS),
            (LoopRules::Current, None, MAX_UNTOLD_REFUSALS),
            (LoopRules::Format4, None, MAX_REFUSALS),
        ] {
            let mut tokens = WindowTokens::new(Some(4_096), rules);
            let mut shorter = |times: u32| {
                for _ in 0..times {
                    tokens.refused(told, 1);
                }
                let may_be = tokens.may_be_shorter(told.is_some());
                tokens.fitted();
                may_be
            };
            assert!(shorter(most) && !shorter(most + 1), "{rules:?} {told:?}");
        }
    }

    #[test]
    fn the_size_of_a_request_is_halved_from_the_second_refusal_on() {
        for (rules, bounds) in [
            (LoopRules::Current, [8_000, 4_000, 2_000]),
            (LoopRules::Format4, [8_000, 6_400, 5_120]),
        ] {
            let mut tokens = WindowTokens::new(Some(10_000), rules);
            let refused = bounds.map(|_| tokens.refused(None, 10_000));
            assert_eq!(refused, bounds, "{rules:?}");
            // Another Request is refused for the first time.
            tokens.fitted();
            let last = refused[2];
            let fits = last - last / 5;
            assert_eq!(tokens.refused(None, 10_000), fits, "{rules:?}");
        }
    }

    /// Records of older formats took the part of the window that was known.
    #[test]
    fn by_older_rules_a_known_window_is_what_is_made_smaller() {
        let mut tokens = WindowTokens::new(Some(1_000), LoopRules::Format4);
        tokens.sent(&measured(&tokens, false));
        assert_eq!(tokens.refused(None, 86), 800);
    }
}
