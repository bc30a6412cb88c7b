//! Reads the errors of model servers, in every shape they come in, into an [`ErrorDetail`].
//!
//! | server | shape |
//! |---|---|
//! | OpenAI, vLLM, llama.cpp | `{"error": {"message", "type", "code": string or int}}` |
//! | SGLang, older vLLM | `{"object": "error", "message", "type", "code"}` |
//! | TGI | `{"error": "…", "error_type": "…"}` |
//! | Ollama, proxies | `{"error": "…"}` |
//! | FastAPI | `{"detail": "…"}`, `{"detail": [{"loc", "msg"}]}` or `{"detail": {…}}` |
//! | Gemini | `[{"error": {…}}]` |
//! | gateways | `{"errors": [{"code", "message"}]}`, `{"fault": {"faultstring"}}`, `{"statusCode", "message"}` |
//! | NIM | problem details: `{"type": URI, "title", "status", "detail"}` |
//! | load balancers | an HTML page, plain text, nothing |

use serde_json::Value;

use crate::error::{ErrorDetail, ModelError};
use crate::error_names;
use crate::error_words::{overflow, wait, wait_in};
use crate::event_form::DONE;
use toolhold_intake::json;
use toolhold_intake::sse::SseDecoder;
use toolhold_protocol::completion::ContextOverflow;
use toolhold_text::cut;

/// Characters of an endpoint's own text that an error message quotes: enough for two sentences, too
/// few for a page.
const MAX_EXCERPT_CHARS: usize = 200;
/// Characters of an error message that the endpoint wrote for people; longer than an excerpt.
const MAX_MESSAGE_CHARS: usize = 1000;
/// Characters of all texts of an error together.
const MAX_WORDS_CHARS: usize = 4000;
/// Members with texts of an error, at any depth. Others may repeat the request, whose words are no refusal.
const TEXTS: [&str; 14] = [
    "message",
    "msg",
    "error",
    "errors",
    "detail",
    "details",
    "param",
    "loc",
    "reason",
    "description",
    "cause",
    "metadata",
    // What OpenRouter's endpoints answered.
    "raw",
    "title",
];

/// The error in a body that came with an error status. Never fails: what cannot be read is quoted.
pub(crate) fn from_status(status: u16, body: &[u8], key_variable: Option<&str>) -> ErrorDetail {
    let body = body.trim_ascii();
    let mut detail = match json::from_slice(body) {
        Ok(value) => any_error(&value),
        Err(_) => in_events(body),
    }
    .unwrap_or_else(|| message_only(body));
    if detail.message.is_empty() {
        detail.message = "no explanation".into();
    }
    if detail.advice.is_none() {
        detail.advice = advice_for_status(status, key_variable);
    }
    detail
}

/// The error that an answer holds instead of, or beside, what was asked for; `None` if it holds
/// none.
pub(crate) fn from_value(value: &Value) -> Option<ErrorDetail> {
    let body = match value {
        Value::Array(list) => list.first()?.as_object()?,
        value => value.as_object()?,
    };
    let (message, source) = message_of(body)?;
    Some(detail(message, source, body))
}

fn any_error(value: &Value) -> Option<ErrorDetail> {
    from_value(value).or_else(|| spoken(value))
}

/// The error in events: some servers have these where the body should be.
fn in_events(body: &[u8]) -> Option<ErrorDetail> {
    let mut decoder = SseDecoder::new(body.len());
    let mut events = decoder.push(body).ok()?;
    events.extend(decoder.finish());
    let mut values = events.iter().filter_map(|it| json::parse(&it.data).ok());
    if let Some(error) = values.find_map(|value| any_error(&value)) {
        return Some(error);
    }
    // Of a text that only has lines of that form, such as a page, all is quoted.
    if !(body.starts_with(b"data:") || body.starts_with(b"event:")) {
        return None;
    }
    let mut texts = events.iter().map(|event| event.data.trim());
    let words = texts.find(|text| !text.is_empty() && *text != DONE)?;
    Some(message_only(words.as_bytes()))
}

type Object = serde_json::Map<String, Value>;

/// The error's message, and the object with its details.
fn message_of(body: &Object) -> Option<(String, &Object)> {
    let text = |of: &Object, keys: &[&str]| {
        let text = keys.iter().find_map(|key| of.get(*key)?.as_str());
        text.map(str::to_owned)
    };
    match body.get("error") {
        Some(Value::Object(error)) => {
            let message = text(error, &["message", "error", "detail"]);
            return Some((message.unwrap_or_else(|| body["error"].to_string()), error));
        }
        Some(Value::String(error)) if !error.is_empty() => return Some((error.clone(), body)),
        Some(Value::Array(errors)) if !errors.is_empty() => {
            return Some((listed(errors), body));
        }
        _ if body.contains_key("choices") => return None,
        _ => {}
    }
    if let Some(Value::Array(errors)) = body.get("errors").filter(|list| list.get(0).is_some()) {
        let source = errors[0].as_object().unwrap_or(body);
        return Some((listed(errors), source));
    }
    match (body.get("message"), body.get("detail")) {
        (Some(Value::String(message)), _) if is_flat_error(body) => Some((message.clone(), body)),
        // A message that is a list of faults itself.
        (Some(Value::Object(message)), _) if is_flat_error(body) => match message.get("detail") {
            Some(Value::Array(faults)) => Some((listed(faults), body)),
            _ => Some((body["message"].to_string(), body)),
        },
        (None, Some(Value::String(detail))) => Some((detail.clone(), body)),
        (None, Some(Value::Array(faults))) => Some((listed(faults), body)),
        // Frameworks wrap the error that was raised.
        (None, Some(Value::Object(inner))) => {
            let message = ["error", "message"].into_iter().find_map(|key| {
                let value = inner.get(key)?;
                let nested = value.get("message").and_then(Value::as_str);
                nested.or_else(|| value.as_str()).map(str::to_owned)
            });
            let source = inner.get("error").and_then(Value::as_object);
            let message = message.unwrap_or_else(|| body["detail"].to_string());
            Some((message, source.unwrap_or(inner)))
        }
        _ => None,
    }
}

/// With an error status, any field that looks like a message is taken as one: gateways have their own names
/// for it.
fn spoken(value: &Value) -> Option<ErrorDetail> {
    let body = value.as_object()?;
    let places = [
        "/message",
        "/Message",
        "/fault/faultstring",
        "/msg",
        "/title",
        "/reason",
    ];
    let message = places
        .into_iter()
        .find_map(|place| value.pointer(place)?.as_str())?;
    Some(detail(message.to_owned(), body, body))
}

fn detail(message: String, source: &Object, body: &Object) -> ErrorDetail {
    let code = ["code", "error_type", "type", "status", "statusCode"]
        .into_iter()
        .filter_map(|key| source.get(key).or_else(|| body.get(key)))
        .find_map(|code| match code {
            // Problem details (RFC 9457) have a URI for a type, which explains nothing.
            Value::String(code) if !code.is_empty() && !code.contains(':') => Some(code.clone()),
            Value::Number(code) => Some(code.to_string()),
            _ => None,
        });
    // llama.cpp puts the status into `code` and the useful word into `type`.
    let kind = source.get("type").and_then(Value::as_str);
    let explained = explained(message.clone(), source);
    let overflow = overflow(&explained, code.as_deref(), kind, source);
    let code = match overflow {
        Some(_) => kind.map(Into::into).or(code),
        None => code,
    };
    // Seconds until a model is loaded, as hosted inference says it.
    let estimate = body.get("estimated_time").and_then(Value::as_f64);
    let retry_after = wait_in(&message).or_else(|| wait(estimate?));
    let mut words = vec![message.as_str()];
    collect_texts(body, &mut words);
    let words = clip(&words.join("; "), MAX_WORDS_CHARS);
    ErrorDetail {
        advice: overflow.map(advice_for_overflow),
        code,
        retry_after,
        message: clip(&explained, MAX_MESSAGE_CHARS),
        words,
        overflow,
        own_code: error_names::code_of(source),
        param: error_names::param_of(source),
    }
}

/// Adds the texts in the members of an error.
fn collect_texts<'a>(members: &'a Object, texts: &mut Vec<&'a str>) {
    for (name, value) in members {
        if TEXTS.contains(&name.as_str()) {
            collect_values(value, texts);
        }
    }
}

fn collect_values<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => {
            for item in items {
                collect_values(item, texts);
            }
        }
        Value::Object(members) => collect_texts(members, texts),
        _ => {}
    }
}

/// The message with what explains it: MiMo has the explanation in the place of a parameter's name, and OpenRouter what the
/// endpoint behind it answered.
fn explained(mut message: String, source: &Object) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let raw = text(source.get("metadata").and_then(|it| it.get("raw"))).map(|raw| {
        let inner = json::from_slice(raw.as_bytes()).ok();
        let inner = inner.as_ref().and_then(from_value);
        inner.map_or(raw, |inner| inner.message)
    });
    // A name alone is that of a field.
    let param = text(source.get("param")).filter(|it| it.trim().contains(char::is_whitespace));
    for more in [param, raw].into_iter().flatten() {
        if !message.contains(&more) {
            message.truncate(message.trim_end_matches(['.', ':']).len());
            message.push_str(": ");
            message.push_str(&more);
        }
    }
    message
}

/// The error of bytes that are not `what` was due.
pub(crate) fn unreadable(
    what: &'static str,
    bytes: &[u8],
    source: Option<serde_json::Error>,
) -> ModelError {
    ModelError::Decode {
        what,
        excerpt: excerpt(bytes),
        source,
    }
}

/// The beginning of a text on one line, at most 200 characters, without control characters.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    // Four bytes a character at most, so that a huge body is not decoded for its first line.
    let head = &bytes[..bytes.len().min(MAX_EXCERPT_CHARS * 4)];
    clip(&String::from_utf8_lossy(head), MAX_EXCERPT_CHARS)
}

fn clip(text: &str, limit: usize) -> String {
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    cut(&words.join(" "), limit)
}

fn message_only(body: &[u8]) -> ErrorDetail {
    let text = String::from_utf8_lossy(body);
    let message = match html_title(&text) {
        Some(title) => clip(title, MAX_EXCERPT_CHARS),
        None => excerpt(body),
    };
    ErrorDetail {
        message,
        ..ErrorDetail::default()
    }
}

/// The title of a load balancer's error page holds the useful text.
fn html_title(text: &str) -> Option<&str> {
    let lower = text.to_ascii_lowercase();
    let start = lower.find("<title>")? + "<title>".len();
    let end = start + lower[start..].find("</title>")?;
    text.get(start..end)
        .filter(|title| !title.trim().is_empty())
}

fn is_flat_error(body: &Object) -> bool {
    // A bare `message` with some `type` may be a notice; an error's type says `…Error`.
    let kind = body.get("type").and_then(Value::as_str).unwrap_or_default();
    body.get("object").and_then(Value::as_str) == Some("error")
        || body.contains_key("code")
        || body.contains_key("statusCode")
        || kind.to_ascii_lowercase().contains("error")
        || body.len() == 1
}

/// A list of errors as one line.
fn listed(errors: &[Value]) -> String {
    let lines: Vec<String> = errors
        .iter()
        .map(|error| {
            let message = error["msg"].as_str().or_else(|| error["message"].as_str());
            match (message.or_else(|| error.as_str()), error.get("loc")) {
                (Some(message), Some(place)) => format!("{message} at {place}"),
                (Some(message), None) => message.to_owned(),
                (None, _) => error.to_string(),
            }
        })
        .collect();
    lines.join("; ")
}

fn advice_for_overflow(overflow: ContextOverflow) -> String {
    let ContextOverflow {
        prompt_tokens,
        completion_tokens,
        window,
    } = overflow;
    let what = match (prompt_tokens, window) {
        (Some(prompt), Some(window)) => {
            let more = match completion_tokens {
                Some(completion) => format!(", asks for {completion} more,"),
                None => String::new(),
            };
            format!(
                "the request has {prompt} tokens{more} and the server's context window (n_ctx) {window}"
            )
        }
        (None, Some(window)) => format!("the server's context window (n_ctx) is {window} tokens"),
        _ => "the request does not fit the server's context window (n_ctx)".into(),
    };
    let less = match completion_tokens {
        Some(_) => "shorten the request, lower `max_tokens`,",
        None => "shorten the request,",
    };
    format!("{what}: {less} or start the server with a larger one")
}

fn advice_for_status(status: u16, key_variable: Option<&str>) -> Option<String> {
    let advice = match (status, key_variable) {
        (401 | 403, Some(variable)) => {
            return Some(format!(
                "check the API key in the environment variable {variable}, or keep one with `toolhold secrets set \
                 {variable}`"
            ));
        }
        (401 | 403, None) => {
            "it wants an API key: name the environment variable that holds it in the endpoint's \
             configuration"
        }
        (300..=399, _) => "it redirects, which is not followed: set the base URL to the target",
        (404 | 405, _) => {
            "check the model's name and that the base URL ends where the API begins (usually `/v1`)"
        }
        (413, _) => "shorten the request",
        (429, _) => "too many requests, or a quota is used up",
        (503, _) => "it may be overloaded or still loading its model: try again shortly",
        (502 | 504, _) => "a proxy answers in its place: is the server behind it running?",
        _ => return None,
    };
    Some(advice.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_gives_its_message_and_code() {
        for (body, message, code) in [
            (
                r#"{"error":{"message":"bad model","type":"invalid_request_error","code":"model_not_found"}}"#,
                "bad model",
                Some("model_not_found"),
            ),
            (
                r#"{"error":{"message":"boom","type":"Internal","param":null,"code":500}}"#,
                "boom",
                Some("500"),
            ),
            (
                r#"{"object":"error","message":"flat","type":"BadRequestError","param":null,"code":400}"#,
                "flat",
                Some("400"),
            ),
            (r#"{"message":"only a message"}"#, "only a message", None),
            (
                r#"{"error":"Input validation error","error_type":"validation"}"#,
                "Input validation error",
                Some("validation"),
            ),
            (r#"{"error":"model is loading"}"#, "model is loading", None),
            (r#"{"detail":"Not Found"}"#, "Not Found", None),
            (
                r#"{"detail":[{"loc":["body","messages"],"msg":"Field required"}]}"#,
                r#"Field required at ["body","messages"]"#,
                None,
            ),
            (
                "<html><head><TITLE>502 Bad\n Gateway</TITLE></head><body>…</body></html>",
                "502 Bad Gateway",
                None,
            ),
            (
                "upstream\r\nrequest timeout\n",
                "upstream request timeout",
                None,
            ),
            (
                r#"[{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED"}}]"#,
                "Quota exceeded",
                Some("429"),
            ),
            (
                r#"{"success":false,"errors":[{"code":10000,"message":"Authentication error"}]}"#,
                "Authentication error",
                Some("10000"),
            ),
            (r#"{"errors":["one","two"]}"#, "one; two", None),
            (
                r#"{"type":"urn:nim:problem-details:forbidden","title":"Forbidden","status":403,"detail":"Authorization failed"}"#,
                "Authorization failed",
                Some("403"),
            ),
            (
                r#"{"detail":{"error":{"message":"budget exceeded","type":"budget_exceeded","code":"400"}}}"#,
                "budget exceeded",
                Some("400"),
            ),
            (r#"{"detail":{"error":"not allowed"}}"#, "not allowed", None),
            (r#"{"detail":{"odd":1}}"#, r#"{"odd":1}"#, None),
            (
                r#"{"object":"error","message":{"detail":[{"loc":["body","n"],"msg":"Field required"}]},"type":"invalid_request_error"}"#,
                r#"Field required at ["body","n"]"#,
                Some("invalid_request_error"),
            ),
            (
                r#"{"statusCode":401,"message":"Access denied due to invalid subscription key"}"#,
                "Access denied due to invalid subscription key",
                Some("401"),
            ),
            (
                r#"{"message":"no Route matched with those values","request_id":"7"}"#,
                "no Route matched with those values",
                None,
            ),
            (
                r#"{"fault":{"faultstring":"Spike arrest violation","detail":{"errorcode":"x"}}}"#,
                "Spike arrest violation",
                None,
            ),
            (
                r#"{"error":{"code":"400","message":"Param Incorrect","param":"The reasoning_content must be passed back.","type":""}}"#,
                "Param Incorrect: The reasoning_content must be passed back.",
                Some("400"),
            ),
            (
                r#"data: {"error":{"code":"400","message":"Bad value.","param":"messages"}}"#,
                "Bad value.",
                Some("400"),
            ),
            (
                "event: error\ndata: {\"error\":{\"message\":\"Bad value.\",\"code\":400}}\n\n",
                "Bad value.",
                Some("400"),
            ),
            (
                "data: {\"error\":{\"message\":\"Bad value.\",\"code\":400}}\n\ndata: [DONE]\n\n",
                "Bad value.",
                Some("400"),
            ),
            (
                ": ping\n\ndata: {\"id\":\"c\"}\n\ndata: {\"message\":\"Bad value.\"}\n\n",
                "Bad value.",
                None,
            ),
            ("event: error\ndata: gone away\n\n", "gone away", None),
            ("data: [DONE]\n\n", "data: [DONE]", None),
            ("Gateway\n{color: red}\n", "Gateway {color: red}", None),
            (
                r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"no such model\"}}","provider_name":"P"}}}"#,
                "Provider returned error: no such model",
                Some("400"),
            ),
            ("", "no explanation", None),
            (r#"{"error":{"odd":1}}"#, r#"{"odd":1}"#, None),
            ("[1,2]", "[1,2]", None),
        ] {
            let detail = from_status(400, body.as_bytes(), None);
            assert_eq!(detail.message, message, "{body}");
            assert_eq!(detail.code.as_deref(), code, "{body}");
        }
    }

    #[test]
    fn all_texts_of_an_error_are_among_its_words_and_those_of_the_request_are_not() {
        for (body, words) in [
            (r#"{"error":{"message":"m","param":"p"}}"#, "m; m; p"),
            (r#"{"error":"m","error_type":"t"}"#, "m; m"),
            (
                r#"{"detail":[{"loc":["body",2,"n"],"msg":"m","input":{"message":"asked"}}]}"#,
                r#"m at ["body",2,"n"]; body; n; m"#,
            ),
            (
                r#"{"error":{"message":"m","metadata":{"raw":"r"}},"request":{"message":"asked"}}"#,
                "m; m; r",
            ),
        ] {
            let detail = from_status(400, body.as_bytes(), None);
            assert_eq!(detail.words(), words, "{body}");
        }
        assert_eq!(from_status(400, b"plain", None).words(), "plain");
    }

    #[test]
    fn an_answer_is_not_taken_for_an_error() {
        for body in [
            r#"{"choices":[],"error":null}"#,
            r#"{"choices":[{"delta":{"content":"x"}}],"message":"m","code":1}"#,
            r#"{"choices":[],"error":""}"#,
            r#"{"type":"ping"}"#,
            r#"{"message":"m","request_id":"7"}"#,
            r#"{"errors":[],"choices":[]}"#,
            "[]",
            "{}",
            "7",
        ] {
            assert_eq!(
                from_value(&serde_json::from_str(body).unwrap()),
                None,
                "{body}"
            );
        }
    }

    #[test]
    fn an_overflow_is_recognised_with_its_numbers() {
        // Prompt, completion, window.
        let cases = [
            (
                r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}}"#,
                (Some(5000), None, Some(4096)),
            ),
            (
                r#"{"error":{"message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4500 in the messages, 500 in the completion).","type":"BadRequestError","code":400}}"#,
                (Some(4500), Some(500), Some(4096)),
            ),
            (
                r#"{"error":{"message":"This model's maximum context length is 4097 tokens, however you requested 5000 tokens (4500 in your prompt; 500 for the completion). Please reduce your prompt."}}"#,
                (Some(4500), Some(500), Some(4097)),
            ),
            (
                r#"{"error":{"message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4400 in the messages, 100 in the functions, and 500 in the completion)."}}"#,
                (Some(4500), Some(500), Some(4096)),
            ),
            (
                r#"{"error":{"message":"This endpoint's maximum context length is 4096 tokens. However, you requested about 5000 tokens (4400 of text input, 100 of tool input, 500 in the output)."}}"#,
                (Some(4500), Some(500), Some(4096)),
            ),
            (
                r#"{"error":{"message":"You passed 10243 input tokens and requested 6142 output tokens. However, the model's context length is only 16384 tokens, resulting in a maximum input length of 10242 tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=10243)","type":"BadRequestError","param":"input_tokens","code":400}}"#,
                (None, Some(6_142), Some(16_384)),
            ),
            (
                r#"{"error":{"message":"You passed 70001 input characters and requested 6142 output tokens. However, the model's context length is only 16384 tokens, resulting in a maximum input length of 10242 tokens (at most 70000 characters).","code":400}}"#,
                (None, Some(6_142), Some(16_384)),
            ),
            (
                r#"{"error":{"message":"This model's maximum context length is 32768 tokens. However, you requested 32000 output tokens and your prompt contains at least 769 input tokens, for a total of at least 32769 tokens.","code":400}}"#,
                (None, Some(32_000), Some(32_768)),
            ),
            (
                r#"{"error":{"message":"This model's maximum context length is 40960 tokens. However, you requested 40960 output tokens and your prompt contains 12769 characters (more than 0 characters, which is the upper bound for 0 input tokens).","code":400}}"#,
                (None, Some(40_960), Some(40_960)),
            ),
            (
                r#"{"error":{"message":"'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 4096 tokens and your request has 3200 input tokens (5000 > 4096 - 3200).","code":400}}"#,
                (Some(3_200), Some(5_000), Some(4_096)),
            ),
            (
                r#"{"object":"error","message":"`default_max_tokens` (-40205) should be greater than 0, `default_max_tokens` (-40205) = max_seq_len (40961) - `splited_prompt_len` (81166) - `query_token_len` (0)","type":"BadRequestError","code":400}"#,
                (Some(81_166), None, Some(40_961)),
            ),
            (
                r#"{"object":"error","message":"The sum of prompt length (9351.0), query length (0) should not exceed max_num_tokens (8192)","code":400}"#,
                (Some(9_351), None, Some(8_192)),
            ),
            (
                r#"{"object":"error","message":"The sum of prompt length (4000), query length (0) and max_tokens (2048) should not exceed max_seq_len (4096)","code":400}"#,
                (Some(4_000), Some(2_048), Some(4_096)),
            ),
            (
                r#"{"object":"error","message":"The input (5000 tokens) is longer than the model's context length (4096 tokens).","code":400}"#,
                (Some(5000), None, Some(4096)),
            ),
            (
                r#"{"error":{"message":"Input length (5000 tokens) exceeds the maximum allowed length (4096 tokens)."}}"#,
                (Some(5000), None, Some(4096)),
            ),
            (
                r#"{"error":{"message":"Input length (5000) exceeds model's maximum context length (4096)."}}"#,
                (Some(5000), None, Some(4096)),
            ),
            (
                r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4500 `inputs` tokens and 500 `max_new_tokens`","error_type":"validation"}"#,
                (Some(4500), Some(500), Some(4096)),
            ),
            (
                r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#,
                (None, None, None),
            ),
            (
                r#"{"error":{"message":"This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens (4900 in the messages, 100 in the functions)."}}"#,
                (Some(5000), None, Some(4096)),
            ),
            (
                r#"{"error":{"message":"The decoder prompt (length 5000) is longer than the maximum model length of 4096."}}"#,
                (Some(5000), None, Some(4096)),
            ),
            (
                r#"{"object":"error","message":"Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000 tokens: 4500 tokens from the input messages and 500 tokens for the completion."}"#,
                (Some(4500), Some(500), Some(4096)),
            ),
            (
                r#"{"object":"error","message":"Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000 tokens"}"#,
                (None, None, Some(4096)),
            ),
            (
                r#"{"error":"Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens"}"#,
                (Some(5000), None, Some(4096)),
            ),
            (
                r#"{"error":{"message":"Prompt length (5000) exceeds maximum input length (4096)."}}"#,
                (Some(5000), None, Some(4096)),
            ),
            (
                r#"[{"error":{"code":400,"message":"The input token count (5000) exceeds the maximum number of tokens allowed (4096)."}}]"#,
                (Some(5000), None, Some(4096)),
            ),
            (
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}"#,
                (Some(208_310), None, Some(200_000)),
            ),
            (
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again"}}"#,
                (Some(188_240), Some(21_333), Some(200_000)),
            ),
            (
                r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt is too long: 5000 tokens > 4096 maximum\"}}"}}}"#,
                (Some(5000), None, Some(4096)),
            ),
            (
                r#"{"object":"error","message":"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length","type":"invalid_request_prompt","code":"3051"}"#,
                (Some(40_000), None, Some(32_768)),
            ),
            (
                r#"{"error":{"code":"invalid_parameter_error","message":"Range of input length should be [1, 30720]","type":"invalid_request_error"}}"#,
                (None, None, Some(30_720)),
            ),
            (
                r#"{"error":{"message":"Invalid request: Your request exceeded model token limit: 8192 (requested: 10003)","type":"invalid_request_error"}}"#,
                (Some(10_003), None, Some(8_192)),
            ),
            (
                r#"{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}"#,
                (Some(537_812), None, Some(131_072)),
            ),
            (
                r#"{"error":{"message":"prompt token count of 5000 exceeds the limit of 4096","code":"model_max_prompt_tokens_exceeded"}}"#,
                (Some(5000), None, Some(4096)),
            ),
            (
                r#"{"error":{"code":"tokens_limit_reached","message":"Request body too large for gpt-4o model. Max size: 8000 tokens."}}"#,
                (None, None, Some(8_000)),
            ),
            (
                r#"{"message":"Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}"#,
                (Some(9_000), None, Some(8_192)),
            ),
            (
                r#"{"error":{"message":"Prompt has 300,000 tokens, but the configured context size is 131,072 tokens"}}"#,
                (Some(300_000), None, Some(131_072)),
            ),
            (
                r#"{"error":{"message":"The prompt is too long: 140000, model maximum context length: 131071"}}"#,
                (Some(140_000), None, Some(131_071)),
            ),
            (
                r#"{"error":{"message":"Input length 131393 exceeds the maximum allowed input length of 131040 tokens."}}"#,
                (Some(131_393), None, Some(131_040)),
            ),
            (
                r#"{"message":"too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try using a shorter prompt"}"#,
                (Some(5_000), None, Some(4_081)),
            ),
            (
                r#"{"error":"Number of input tokens must be no more than 8192, got 9000"}"#,
                (Some(9_000), None, Some(8_192)),
            ),
            (
                r#"{"error":{"message":"invalid params, context window exceeds limit (2013)","type":"bad_request_error"}}"#,
                (None, None, None),
            ),
            (
                r#"{"message":"Input is too long for requested model."}"#,
                (None, None, None),
            ),
            (
                r#"{"message":"The sum of the prompt and max_tokens exceeds the context length of the model."}"#,
                (None, None, None),
            ),
            (
                r#"{"message":"You may lower max_tokens. What you sent exceeds the context length."}"#,
                (None, None, None),
            ),
            (
                r#"{"error":{"code":"1261","message":"Prompt exceeds max length"}}"#,
                (None, None, None),
            ),
            (
                r#"{"error":"prompt too long; exceeded max context length by 4096 tokens"}"#,
                (None, None, None),
            ),
            (
                r#"{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","code":"context_length_exceeded"}}"#,
                (None, None, None),
            ),
        ];
        for (body, (prompt_tokens, completion_tokens, window)) in cases {
            let detail = from_status(400, body.as_bytes(), None);
            assert_eq!(
                detail.overflow,
                Some(ContextOverflow {
                    prompt_tokens,
                    completion_tokens,
                    window
                }),
                "{body}"
            );
            assert!(detail.to_string().contains("n_ctx"), "{detail}");
        }
    }

    /// Other limits are in the same words.
    #[test]
    fn other_limits_are_no_overflow() {
        for message in [
            "max_tokens exceeds the limit of 8192",
            "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Requested 31000",
            "Request too large for model on tokens per minute (TPM): Limit 6000, Requested 8000, please reduce your message size",
            "Too many tokens, please wait before trying again.",
            "tools[0].function.name is too long: 80 characters > 64 maximum",
            "image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes",
            "max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens",
            "max_tokens exceeds the context length of this model",
            "`max_completion_tokens` exceeds the context length",
            "The value of max_output_tokens exceeds the context window.",
        ] {
            let body = serde_json::json!({"error": {"message": message}}).to_string();
            for status in [400, 429] {
                let detail = from_status(status, body.as_bytes(), None);
                assert_eq!(detail.overflow, None, "{status} {message}");
            }
        }
    }

    #[test]
    fn context_overflow_names_its_parts() {
        let body = r#"{"error":{"message":"You passed 3200 input tokens and requested 5000 output tokens. However, the model's context length is only 4096 tokens"}}"#;
        let detail = from_status(400, body.as_bytes(), None);
        assert_eq!(
            detail.advice.as_deref(),
            Some(
                "the request has 3200 tokens, asks for 5000 more, and the server's context window \
                 (n_ctx) 4096: shorten the request, lower `max_tokens`, or start the server with a larger one"
            )
        );
    }

    #[test]
    fn a_model_that_loads_says_how_long() {
        let loading = br#"{"error":"Model is loading","estimated_time":20.0}"#;
        let detail = from_status(503, loading, None);
        assert_eq!(detail.retry_after, Some(std::time::Duration::from_secs(20)));
    }

    #[test]
    fn a_refused_key_names_its_variable() {
        let body = br#"{"error":{"message":"Incorrect API key"}}"#;
        let detail = from_status(401, body, Some("MY_KEY"));
        assert!(detail.to_string().contains("MY_KEY"), "{detail}");
    }

    #[test]
    fn long_and_ugly_text_is_cut_and_cleaned() {
        let page = "\u{1b}[31mérror\u{0}\n".repeat(10_000);
        let text = excerpt(page.as_bytes());
        assert!(text.chars().count() <= MAX_EXCERPT_CHARS + 1);
        assert!(!text.chars().any(char::is_control));
    }
}
