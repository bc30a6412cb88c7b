//! Reads the errors of model servers, in every shape they come in, into an [`ErrorDetail`].
//!
//! | server | shape |
//! |---|---|
//! | OpenAI, vLLM, llama.cpp | `{"error": {"message", "type", "code": string or int}}` |
//! | SGLang, older vLLM | `{"object": "error", "message", "type", "code"}` |
//! | TGI | `{"error": "…", "error_type": "…"}` |
//! | Ollama, proxies | `{"error": "…"}` |
//! | FastAPI | `{"detail": "…"}` or `{"detail": [{"loc", "msg"}]}` |
//! | load balancers | an HTML page, plain text, nothing |

use serde_json::Value;

use super::error::{ContextOverflow, ErrorDetail};

/// How much of an endpoint's own words goes into a message, in characters: enough for a sentence or
/// two, too little for a page.
const EXCERPT_CHARS: usize = 200;
/// An error message that the endpoint meant to be read may be longer, in characters.
const MESSAGE_CHARS: usize = 1000;

/// The error in a body that came with an error status. Never fails: what cannot be read is quoted.
pub(super) fn from_status(status: u16, body: &[u8], key_variable: Option<&str>) -> ErrorDetail {
    let mut detail = match serde_json::from_slice::<Value>(body) {
        Ok(value) => from_value(&value).unwrap_or_else(|| message_only(body)),
        Err(_) => message_only(body),
    };
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
pub(super) fn from_value(value: &Value) -> Option<ErrorDetail> {
    let body = value.as_object()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (message, source) = match body.get("error") {
        Some(Value::Object(error)) => {
            let message = ["message", "error", "detail"]
                .into_iter()
                .find_map(|key| error.get(key).and_then(text));
            let message = message.unwrap_or_else(|| body["error"].to_string());
            (message, error)
        }
        Some(Value::String(error)) if !error.is_empty() => (error.clone(), body),
        Some(Value::Array(errors)) if !errors.is_empty() => (body["error"].to_string(), body),
        _ if body.contains_key("choices") => return None,
        _ => match (body.get("message").and_then(text), body.get("detail")) {
            (Some(message), _) if is_flat_error(body) => (message, body),
            (None, Some(Value::String(detail))) => (detail.clone(), body),
            (None, Some(detail @ Value::Array(_))) => (validation_messages(detail), body),
            _ => return None,
        },
    };
    let code = ["code", "error_type", "type", "status"]
        .into_iter()
        .filter_map(|key| source.get(key).or_else(|| body.get(key)))
        .find_map(|code| match code {
            Value::String(code) if !code.is_empty() => Some(code.clone()),
            Value::Number(code) => Some(code.to_string()),
            _ => None,
        });
    // llama.cpp puts the status into `code` and the useful word into `type`.
    let kind = source.get("type").and_then(Value::as_str);
    let overflow = overflow(&message, code.as_deref(), kind, source);
    Some(ErrorDetail {
        advice: overflow.map(advice_for_overflow),
        code: if overflow.is_some() {
            kind.map(Into::into).or(code)
        } else {
            code
        },
        message: clip(&message, MESSAGE_CHARS),
        overflow,
    })
}

/// The beginning of a text on one line, at most 200 characters, without control characters.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    // Four bytes a character at most, so that a huge body is not decoded for its first line.
    let head = &bytes[..bytes.len().min(EXCERPT_CHARS * 4)];
    clip(&String::from_utf8_lossy(head), EXCERPT_CHARS)
}

fn clip(text: &str, limit: usize) -> String {
    let mut clean = String::new();
    let words = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty());
    for word in words {
        if !clean.is_empty() {
            clean.push(' ');
        }
        clean.push_str(word);
    }
    match clean.char_indices().nth(limit) {
        Some((end, _)) => {
            clean.truncate(end);
            clean.push('…');
            clean
        }
        None => clean,
    }
}

fn message_only(body: &[u8]) -> ErrorDetail {
    let text = String::from_utf8_lossy(body);
    let message = match html_title(&text) {
        Some(title) => clip(title, EXCERPT_CHARS),
        None => excerpt(body),
    };
    ErrorDetail {
        message,
        ..ErrorDetail::default()
    }
}

/// A load balancer's page says what matters in its title.
fn html_title(text: &str) -> Option<&str> {
    let lower = text.to_ascii_lowercase();
    let start = lower.find("<title>")? + "<title>".len();
    let end = start + lower[start..].find("</title>")?;
    text.get(start..end)
        .filter(|title| !title.trim().is_empty())
}

fn is_flat_error(body: &serde_json::Map<String, Value>) -> bool {
    // A bare `message` with some `type` may be a notice; an error's type says `…Error`.
    let kind = body.get("type").and_then(Value::as_str).unwrap_or_default();
    body.get("object").and_then(Value::as_str) == Some("error")
        || body.contains_key("code")
        || kind.to_ascii_lowercase().contains("error")
        || body.len() == 1
}

/// FastAPI's list of what is wrong with a request, as one line.
fn validation_messages(detail: &Value) -> String {
    let faults = detail.as_array().map(Vec::as_slice).unwrap_or_default();
    let lines: Vec<String> = faults
        .iter()
        .map(|fault| match (fault.get("msg"), fault.get("loc")) {
            (Some(Value::String(message)), Some(place)) => format!("{message} at {place}"),
            _ => fault.to_string(),
        })
        .collect();
    lines.join("; ")
}

fn overflow(
    message: &str,
    code: Option<&str>,
    kind: Option<&str>,
    source: &serde_json::Map<String, Value>,
) -> Option<ContextOverflow> {
    let count = |key: &str| source.get(key).and_then(Value::as_u64);
    let named = [code, kind].into_iter().flatten().any(|word| {
        matches!(
            word,
            "exceed_context_size_error" | "context_length_exceeded"
        )
    });
    // vLLM, SGLang and TGI say it in words only.
    let window = count("n_ctx")
        .or_else(|| number_after(message, "maximum context length is "))
        .or_else(|| number_after(message, "context length ("))
        .or_else(|| number_after(message, "`max_new_tokens` must be <= "));
    (named || window.is_some()).then(|| ContextOverflow {
        prompt_tokens: count("n_prompt_tokens")
            .or_else(|| number_after(message, "The input ("))
            .or_else(|| number_after(message, "you requested "))
            .or_else(|| number_after(message, "your request has ")),
        window,
    })
}

fn number_after(text: &str, marker: &str) -> Option<u64> {
    let start = text.find(marker)? + marker.len();
    let digits = text[start..].split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

fn advice_for_overflow(overflow: ContextOverflow) -> String {
    let window = match (overflow.prompt_tokens, overflow.window) {
        (Some(prompt), Some(window)) => {
            format!(
                "the request has {prompt} tokens and the server's context window (n_ctx) {window}"
            )
        }
        (None, Some(window)) => format!("the server's context window (n_ctx) is {window} tokens"),
        _ => "the request does not fit the server's context window (n_ctx)".into(),
    };
    format!("{window}: shorten the request, or start the server with a larger one")
}

fn advice_for_status(status: u16, key_variable: Option<&str>) -> Option<String> {
    let advice = match (status, key_variable) {
        (401 | 403, Some(variable)) => {
            return Some(format!(
                "check the API key in the environment variable {variable}"
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
    fn an_answer_is_not_taken_for_an_error() {
        for body in [
            r#"{"choices":[],"error":null}"#,
            r#"{"choices":[{"delta":{"content":"x"}}],"message":"m","code":1}"#,
            r#"{"choices":[],"error":""}"#,
            r#"{"type":"ping"}"#,
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
        let cases = [
            (
                r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}}"#,
                (Some(5000), Some(4096)),
            ),
            (
                r#"{"error":{"message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4500 in the messages, 500 in the completion).","type":"BadRequestError","code":400}}"#,
                (Some(5000), Some(4096)),
            ),
            (
                r#"{"object":"error","message":"The input (5000 tokens) is longer than the model's context length (4096 tokens).","code":400}"#,
                (Some(5000), Some(4096)),
            ),
            (
                r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000","error_type":"validation"}"#,
                (None, Some(4096)),
            ),
            (
                r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#,
                (None, None),
            ),
        ];
        for (body, (prompt_tokens, window)) in cases {
            let detail = from_status(400, body.as_bytes(), None);
            assert_eq!(
                detail.overflow,
                Some(ContextOverflow {
                    prompt_tokens,
                    window
                }),
                "{body}"
            );
            assert!(detail.to_string().contains("n_ctx"), "{detail}");
        }
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
        assert!(text.chars().count() <= EXCERPT_CHARS + 1);
        assert!(!text.chars().any(char::is_control));
    }
}
