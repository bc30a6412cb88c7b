//! Facts that errors state only in prose: how long to wait, how many tokens would have fitted, and that a model takes no
//! images.

use std::time::Duration;

use serde_json::{Map, Value};

use toolhold_protocol::completion::ContextOverflow;

/// The wait that a message names: "Please try again in 1m2.5s".
pub(crate) fn wait_in(message: &str) -> Option<Duration> {
    let start = message.find("try again in ")? + "try again in ".len();
    let mut rest = &message[start..];
    let mut seconds = None;
    // Hours, minutes, seconds: no message has more parts.
    for _ in 0..4 {
        let digits = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
                .len();
        let number = rest[..digits].trim_end_matches('.').parse::<f64>();
        let Ok(number) = number else {
            break;
        };
        rest = rest[digits..].trim_start();
        let unit = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_alphabetic())
                .len();
        let scale = match &rest[..unit] {
            "ms" | "milliseconds" => 0.001,
            "" | "s" | "sec" | "second" | "seconds" => 1.0,
            "m" | "min" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3600.0,
            _ => break,
        };
        *seconds.get_or_insert(0.0) += number * scale;
        rest = &rest[unit..];
    }
    wait(seconds?)
}

/// A wait of `seconds`; waits above one day are rejected as implausible.
pub(crate) fn wait(seconds: f64) -> Option<Duration> {
    const DAY: f64 = 86_400.0;
    Duration::try_from_secs_f64(seconds.min(DAY)).ok()
}

/// Words of refusals that are about images, in small letters.
const OF_IMAGES: &[&str] = &["image", "multimodal", "multi-modal", "vision", "mmproj"];
/// Words that say with those that a model takes none, and not that one image is too large or broken.
const TAKES_NONE: &[&str] = &[
    // llama.cpp, LM Studio, Mistral, OpenRouter.
    "not support",
    "n't support",
    "unsupported content",
    "that support image",
    "not enabled",
    // OpenAI.
    "only supported by",
    // vLLM, SGLang.
    "not a multimodal",
    "at most 0 image",
    "not multimodal",
    // Ollama.
    "missing data required for image input",
    // DeepSeek, and others that read the content as a text: serde's words.
    "unknown variant `image_url`",
];

/// True if a refusal says that the model takes no images.
pub(crate) fn refuses_images(message: &str) -> bool {
    let message = message.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    // A format that is not known is one of this image.
    let is_of_one = has(&[
        "format",
        "media type",
        "mime",
        "too large",
        "invalid base64",
    ]);
    // Groq: a list of parts is no content of this model.
    let of_content = message.contains("content") && message.contains("must be a string");
    of_content || (has(OF_IMAGES) && has(TAKES_NONE) && !is_of_one)
}

/// True if a message speaks of the field `tool_choice`, in one of its spellings.
pub(crate) fn speaks_of_tool_choice(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["tool_choice", "tool choice", "toolchoice"]
        .iter()
        .any(|name| message.contains(name))
}

/// The text before and right behind a number in an error message.
type NumberContext = (&'static str, &'static str);

/// Codes and types of refusals of a Request that is too long: OpenAI and many others, llama.cpp, GitHub's two services,
/// proxies.
const CODES: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size_error",
    "model_max_prompt_tokens_exceeded",
    "tokens_limit_reached",
    "model_context_window_exceeded",
    "prompt_too_long",
];
/// Words of such refusals, in small letters, where no code says it and the number may be missing: Anthropic, Bedrock, OpenAI,
/// llama.cpp, LM Studio, Ollama, MiniMax, Zhipu, Volcengine, GitHub. Each speaks of the prompt or of the window, because
/// rates, names and other parameters have limits, too.
const TOO_LONG: &[&str] = &[
    "prompt is too long",
    "prompt too long",
    "input is too long for requested model",
    "exceed context limit",
    "exceeds the context window",
    "exceeds the context length",
    "exceeds the available context size",
    "context size has been exceeded",
    "context length exceeded",
    "greater than the context length",
    "context window exceeds limit",
    "prompt exceeds max length",
    "prompt 超长",
    "exceed max message tokens",
    "prompt token count of ",
    "the configured context size is ",
];
/// Words of [`TOO_LONG`] begin with these where what is too long stands before them.
const NO_SUBJECT: &str = "exceeds the ";
/// Parameters that bound the reply. One that is larger than the window is no prompt that is too long.
const REPLY_LIMITS: &[&str] = &["max_tokens", "max_completion_tokens", "max_output_tokens"];
/// Words of what a prompt consists of, in small letters.
const OF_PROMPT: &[&str] = &["prompt", "input", "message"];
/// The size of the window, for servers that say it in words only: OpenAI, vLLM, SGLang, TGI, TensorRT-LLM,
/// NIM, LM Studio, hosted services.
const WINDOW: &[NumberContext] = &[
    ("maximum context length is ", ""),
    ("maximum context length of ", ""),
    ("maximum context length: ", ""),
    ("maximum model length of ", ""),
    ("context length (", ""),
    ("context length of only ", ""),
    ("context length is only ", ""),
    ("`max_new_tokens` must be <= ", ""),
    ("maximum number of tokens allowed (", ""),
    ("maximum allowed length (", ""),
    ("maximum allowed input length of ", " tokens"),
    ("exceeds maximum input length (", ""),
    ("should not exceed max_num_tokens (", ""),
    ("should not exceed max_seq_len (", ""),
    ("= max_seq_len (", ""),
    // xAI.
    ("maximum prompt length is ", ""),
    // Mistral.
    ("too large for model with ", " maximum context length"),
    // DashScope.
    ("ange of input length should be [1, ", "]"),
    // Moonshot.
    ("exceeded model token limit: ", ""),
    // Cohere.
    ("tokens in the prompt cannot exceed ", ""),
    // Yandex.
    ("umber of input tokens must be no more than ", ""),
];
/// The size of the window in words that do not tell alone what is too long.
const LIMIT: &[NumberContext] = &[
    // Anthropic.
    (" tokens > ", " maximum"),
    (" > ", ", decrease input length"),
    // GitHub.
    ("exceeds the limit of ", ""),
    ("Max size: ", " tokens"),
    // Cerebras.
    ("while limit is ", ""),
    ("the configured context size is ", " tokens"),
];
/// The prompt alone. Some count characters in the same words, so the unit is part of them.
const PROMPT: &[NumberContext] = &[
    ("The input (", " tokens"),
    ("ou passed ", " input tokens"),
    ("prompt contains ", " input tokens"),
    ("your request has ", " input tokens"),
    ("resulted in ", " tokens"),
    ("prompt (length ", ")"),
    ("keep the first ", " tokens"),
    ("nput token count (", ")"),
    ("rompt length (", ")"),
    ("Input length (", ""),
    ("`splited_prompt_len` (", ")"),
    (" ", " `inputs` tokens"),
    ("rompt contains ", " tokens"),
    ("rompt has ", " tokens"),
    ("request contains ", " tokens"),
    ("rompt token count of ", " "),
    ("rompt is too long: ", " tokens"),
    ("rompt is too long: ", ","),
    ("exceed context limit: ", " + "),
    ("nput length ", " exceeds"),
    ("urrent length is ", " while"),
    // Moonshot, Cohere, Yandex: behind the limit.
    ("(requested: ", ")"),
    (" - received ", ""),
    (", got ", ""),
];
const COMPLETION: &[NumberContext] = &[
    ("requested ", " output tokens"),
    ("max_completion_tokens' is too large: ", ""),
    (" max_tokens (", ")"),
    (" ", " in the completion"),
    (" ", " for the completion"),
    (" ", " tokens for the completion"),
    (" ", " in the output"),
    (" ", " `max_new_tokens`"),
    (" + ", " > "),
];
/// Prompt and completion together.
const TOTAL: &[NumberContext] = &[
    ("ou requested a total of ", " tokens"),
    ("ou requested about ", " tokens"),
    ("ou requested ", " tokens"),
];

pub(crate) fn overflow(
    message: &str,
    code: Option<&str>,
    kind: Option<&str>,
    source: &Map<String, Value>,
) -> Option<ContextOverflow> {
    let count = |key: &str| source.get(key).and_then(Value::as_u64);
    let lower = message.to_lowercase();
    let named = [code, kind]
        .into_iter()
        .flatten()
        .any(|word| CODES.contains(&word))
        || says_too_long(&lower);
    let said =
        |places: &[NumberContext]| places.iter().find_map(|place| number_at(message, *place));
    let window = count("n_ctx")
        .or_else(|| said(WINDOW))
        .or_else(|| said(LIMIT).filter(|_| named));
    if !named && window.is_none() {
        return None;
    }
    let completion_tokens = said(COMPLETION);
    // The prompt may hold more than messages: functions are counted separately.
    let rest = || said(TOTAL)?.checked_sub(completion_tokens?);
    let prompt_tokens = count("n_prompt_tokens")
        .or_else(|| said(PROMPT))
        .or_else(rest)
        .filter(|prompt| !is_least(*prompt, completion_tokens, window));
    Some(ContextOverflow {
        prompt_tokens,
        completion_tokens,
        window,
    })
}

/// True if a message, in small letters, says in words that the prompt is too long.
fn says_too_long(lower: &str) -> bool {
    TOO_LONG.iter().any(|words| {
        let before = lower.split_once(words).map(|(before, _)| before);
        before.is_some_and(|before| !words.starts_with(NO_SUBJECT) || !ends_with_limit(before))
    })
}

/// True if the last sentence of a text is about the limit of the reply alone.
fn ends_with_limit(text: &str) -> bool {
    let sentence = text.rsplit(". ").next().unwrap_or_default();
    let has = |words: &[&str]| words.iter().any(|word| sentence.contains(word));
    has(REPLY_LIMITS) && !has(OF_PROMPT)
}

/// vLLM stops counting one token above the window, so the real number is unknown then.
fn is_least(prompt: u64, completion: Option<u64>, window: Option<u64>) -> bool {
    let fits = window.zip(completion);
    let fits = fits.and_then(|(window, completion)| window.checked_sub(completion));
    fits.is_some_and(|fits| prompt == fits.saturating_add(1))
}

fn number_at(text: &str, (before, behind): NumberContext) -> Option<u64> {
    text.match_indices(before).find_map(|(start, _)| {
        let rest = text.get(start + before.len()..)?;
        let (number, after) = rest.split_at_checked(number_len(rest))?;
        // What Python divided is a float: "prompt length (9351.0)".
        let after = after.strip_prefix(".0").unwrap_or(after);
        let number = after.starts_with(behind).then(|| number.replace(',', ""));
        number?.parse().ok()
    })
}

/// Bytes of the number that a text begins with. Some servers write commas between groups of three digits.
fn number_len(text: &str) -> usize {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let mut end = digits(text);
    while end > 0
        && let Some(group) = text.get(end..).and_then(|rest| rest.strip_prefix(','))
        && digits(group) == 3
    {
        end += 4;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_read_from_words() {
        for (message, ms) in [
            (
                "Rate limit reached. Please try again in 1.2s. Visit",
                Some(1_200),
            ),
            ("try again in 20 seconds", Some(20_000)),
            ("try again in 1m2.5s.", Some(62_500)),
            ("try again in 250ms", Some(250)),
            ("try again in 2h", Some(7_200_000)),
            ("try again in 1e300s", None),
            ("try again in 99999999999999999999h", Some(86_400_000)),
            ("try again in a moment", None),
            ("try again later", None),
        ] {
            let wait = wait_in(message);
            assert_eq!(wait.map(|wait| wait.as_millis()), ms, "{message}");
        }
    }

    #[test]
    fn a_refusal_of_all_images_is_told_from_one_of_an_image() {
        for (message, expected) in [
            (
                "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
                true,
            ),
            ("m is not a multimodal model", true),
            ("At most 0 image(s) may be provided in one prompt.", true),
            (
                "Invalid content type. image_url is only supported by certain models.",
                true,
            ),
            (
                "Failed to deserialize the JSON body: messages[1]: unknown variant `image_url`, expected `text`",
                true,
            ),
            ("No endpoints found that support image input", true),
            (
                "Model does not support images. Please use a model that does.",
                true,
            ),
            (
                "'messages.1' : for 'role:user' ('messages.1.content' : value must be a string)",
                true,
            ),
            ("this model is missing data required for image input", true),
            (
                "Unsupported image format: this image's format is not supported",
                false,
            ),
            ("At most 4 image(s) may be provided in one prompt.", false),
            ("the image is too large, which is not supported", false),
            ("Could not process image", false),
            ("tool_choice is not supported", false),
        ] {
            assert_eq!(refuses_images(message), expected, "{message}");
        }
    }
}
