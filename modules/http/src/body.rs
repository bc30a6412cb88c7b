//! A response in the form that was asked for, bounded to what a model's context can take.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_guest::http::Response;
use toolhold_guest::{Error, ErrorClass, Value, json, other_tools};

/// Bytes of a body that are read; the default limit of the host is above it.
pub const MAX_BYTES: u64 = 4 << 20;
/// Headers that are shown, and characters of each.
const MAX_HEADERS: usize = 40;
const MAX_HEADER_CHARACTERS: usize = 300;

pub fn default_characters() -> u32 {
    20_000
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// JSON as a value, everything else as text.
    #[default]
    Auto,
    Text,
    Json,
    /// HTML as Markdown, without scripts, styles and what is hidden.
    Markdown,
    /// Any bytes.
    Base64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Answer {
    /// The HTTP status, such as 200, 404 or 503.
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    /// A value where the content is JSON, else a string.
    pub content: Value,
    /// Whether there is more than `content` holds.
    pub truncated: bool,
}

impl Answer {
    pub fn of(url: &str, response: Response, form: Form, most: u32) -> Result<Self, Error> {
        let content_type = response.header("content-type").unwrap_or_default();
        let content_type = content_type.to_ascii_lowercase();
        let (content, is_cut) = match form.chosen(&content_type) {
            Form::Json => (value(url, &response, most)?, false),
            Form::Base64 => {
                // Four characters for three bytes.
                let most = most as usize / 4 * 3;
                let bytes = response.body.get(..most).unwrap_or(&response.body);
                let is_cut = bytes.len() < response.body.len();
                (STANDARD.encode(bytes).into(), is_cut)
            }
            Form::Markdown => {
                let text = text(url, &response, &content_type)?;
                cut(&markdown(&text, url)?, most)
            }
            Form::Text | Form::Auto => cut(&text(url, &response, &content_type)?, most),
        };
        Ok(Self {
            status: response.status,
            headers: shown(&response.headers),
            content,
            truncated: is_cut || response.is_cut,
        })
    }
}

impl Form {
    fn chosen(self, content_type: &str) -> Self {
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        if self == Self::Auto && (kind == "application/json" || kind.ends_with("+json")) {
            Self::Json
        } else {
            self
        }
    }
}

fn value(url: &str, response: &Response, most: u32) -> Result<Value, Error> {
    let size = response.body.len();
    if response.is_cut || size > most as usize {
        return Err(Error::correctable(format!(
            "{url} answered {} with more than {most} bytes of JSON; ask for less of it, raise max_characters, or take \
             a part of it with \"as\": \"text\"",
            response.status
        )));
    }
    serde_json::from_slice(&response.body).map_err(|error| {
        Error::correctable(format!(
            "what {url} answered ({} bytes, status {}) is not JSON: {error}; ask with \"as\": \"text\"",
            size, response.status
        ))
    })
}

/// UTF-8, or the character set that the server names if it is known here.
fn text(url: &str, response: &Response, content_type: &str) -> Result<String, Error> {
    let bytes = &response.body;
    let charset = content_type.split("charset=").nth(1).unwrap_or("utf-8");
    let charset = charset.split(';').next().unwrap_or_default();
    match charset.trim().trim_matches('"') {
        "utf-8" | "utf8" | "us-ascii" => {}
        // As browsers have it, the first is the second.
        "iso-8859-1" | "windows-1252" => return Ok(bytes.iter().copied().map(western).collect()),
        other => {
            return Err(Error::correctable(format!(
                "what {url} answered is written in {other:?}, which is not known here; ask with \"as\": \"base64\""
            )));
        }
    }
    if bytes.contains(&0) {
        return Err(Error::correctable(format!(
            "what {url} answered is no text ({} bytes, {}); ask with \"as\": \"base64\"",
            bytes.len(),
            if content_type.is_empty() {
                "no content type"
            } else {
                content_type
            }
        )));
    }
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// A character of windows-1252 (WHATWG, Encoding Standard).
fn western(byte: u8) -> char {
    const FROM_80: [char; 32] = [
        '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž',
        '\u{8f}', '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}',
        'ž', 'Ÿ',
    ];
    match byte {
        0x80..=0x9f => FROM_80[usize::from(byte - 0x80)],
        _ => char::from(byte),
    }
}

/// What the module `markdown` makes of it: one reader of hostile pages is enough.
fn markdown(html: &str, url: &str) -> Result<String, Error> {
    let arguments = json!({"html": html, "base_url": url}).to_string();
    let made = other_tools::call("markdown.from_html", &arguments).map_err(|error| {
        let message = format!(
            "the tool markdown.from_html, which makes Markdown, says: {}. \"as\": \"text\" needs no other tool",
            error.message
        );
        match error.class {
            ErrorClass::Correctable => Error::correctable(message),
            ErrorClass::Retryable => Error::retryable(message),
            ErrorClass::Fatal => Error::fatal(format!(
                "{message}; an operator grants it with: toolhold modules grant http --with-tool markdown.from_html"
            )),
        }
    })?;
    let made: Value = serde_json::from_str(&made).map_err(|error| {
        Error::fatal(format!("markdown.from_html did not return JSON: {error}"))
    })?;
    match made.get("markdown").and_then(Value::as_str) {
        Some(text) => Ok(text.to_owned()),
        None => Err(Error::fatal("markdown.from_html returned no Markdown")),
    }
}

/// The text, and whether it was cut.
fn cut(text: &str, most: u32) -> (Value, bool) {
    match text.char_indices().nth(most as usize) {
        Some((end, _)) => (text[..end].into(), true),
        None => (text.into(), false),
    }
}

fn shown(headers: &[(String, String)]) -> BTreeMap<String, String> {
    let cut = |value: &str| value.chars().take(MAX_HEADER_CHARACTERS).collect();
    headers
        .iter()
        .take(MAX_HEADERS)
        .map(|(name, value)| (name.clone(), cut(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(content_type: &str, body: &[u8]) -> Response {
        Response {
            status: 200,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body: body.to_vec(),
            is_cut: false,
        }
    }

    fn content(
        content_type: &str,
        body: &[u8],
        form: Form,
        most: u32,
    ) -> Result<(Value, bool), String> {
        let answer = Answer::of(
            "https://a.example",
            response(content_type, body),
            form,
            most,
        );
        let answer = answer.map_err(|error| error.message().to_owned())?;
        Ok((answer.content, answer.truncated))
    }

    #[test]
    fn content_has_the_form_that_fits() {
        let json = br#"{"a": [1]}"#;
        for (content_type, body, form, expected) in [
            (
                "application/json; charset=utf-8",
                json.as_slice(),
                Form::Auto,
                json!({"a": [1]}),
            ),
            (
                "application/problem+json",
                json,
                Form::Auto,
                json!({"a": [1]}),
            ),
            ("application/json", json, Form::Text, json!(r#"{"a": [1]}"#)),
            ("text/plain", json, Form::Json, json!({"a": [1]})),
            ("text/html", "<p>é".as_bytes(), Form::Auto, json!("<p>é")),
            (
                "text/html; charset=ISO-8859-1",
                b"\xe9\x80",
                Form::Auto,
                json!("é€"),
            ),
            ("image/png", b"\0\x01\x02", Form::Base64, json!("AAEC")),
        ] {
            assert_eq!(
                content(content_type, body, form, 100),
                Ok((expected, false)),
                "{content_type} {form:?}"
            );
        }
    }

    #[test]
    fn what_does_not_fit_is_cut_or_said() {
        assert_eq!(
            content("text/plain", "äbc".as_bytes(), Form::Auto, 2),
            Ok((json!("äb"), true))
        );
        assert_eq!(
            content("a/b", b"123456789", Form::Base64, 8),
            Ok((json!("MTIzNDU2"), true))
        );
        for (content_type, body, form, part) in [
            (
                "application/json",
                b"[1, 2, 3, 4]".as_slice(),
                Form::Auto,
                "more than 9 bytes of JSON",
            ),
            ("application/json", b"{", Form::Auto, "is not JSON"),
            (
                "text/plain; charset=\"shift_jis\"",
                b"a",
                Form::Auto,
                "\"shift_jis\"",
            ),
            (
                "image/png",
                b"\x89PNG\0",
                Form::Auto,
                "image/png); ask with \"as\": \"base64\"",
            ),
        ] {
            let error = content(content_type, body, form, 9).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let mut more = response("text/plain", b"all of it that was read");
        more.is_cut = true;
        assert!(
            Answer::of("https://a.example", more, Form::Auto, 100)
                .unwrap()
                .truncated
        );
    }
}
