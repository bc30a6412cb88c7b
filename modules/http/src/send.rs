use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_guest::http::Request;
use toolhold_guest::{Annotations, Error, Tool, Value, json};

use crate::body::{Answer, Form, MAX_BYTES, default_characters};

pub fn tool() -> Tool {
    Tool::new(
        "send",
        "Sends a request that changes something on a server (POST, PUT, PATCH, DELETE) and returns its answer. Only \
         addresses and methods that an operator granted can be used.",
        send,
    )
    .title("Send an HTTP request")
    .annotations(Annotations::DESTRUCTIVE | Annotations::OPEN_WORLD)
    .example(
        "Open a ticket at https://tickets.example.com/api/tickets: the printer is broken.",
        json!({
            "method": "POST",
            "url": "https://tickets.example.com/api/tickets",
            "body": { "title": "The printer is broken" },
        }),
        json!({
            "status": 201,
            "headers": { "content-type": "application/json" },
            "content": { "id": 7 },
            "truncated": false,
        }),
        "I opened ticket 7.",
    )
}

#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
enum Method {
    Post,
    Put,
    Patch,
    Delete,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Send {
    method: Method,
    /// The absolute URL: `https://…`.
    url: String,
    /// Headers of the request, by name. Secrets are put in by the host: write none.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The body. A string is sent as it is; anything else as JSON, with its content type.
    #[serde(default)]
    body: Option<Value>,
    /// The form of `content`.
    #[serde(default, rename = "as")]
    form: Form,
    /// The most characters of `content`.
    #[serde(default = "default_characters")]
    max_characters: u32,
}

fn send(arguments: Send) -> Result<Answer, Error> {
    let request = request(
        arguments.method,
        arguments.url,
        arguments.headers,
        arguments.body,
    );
    let response = request.send(MAX_BYTES)?;
    Answer::of(
        &request.url,
        response,
        arguments.form,
        arguments.max_characters,
    )
}

fn request(
    method: Method,
    url: String,
    headers: BTreeMap<String, String>,
    body: Option<Value>,
) -> Request {
    let method = match method {
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Patch => "PATCH",
        Method::Delete => "DELETE",
    };
    let mut request = Request::new(method, url);
    request.headers = headers.into_iter().collect();
    let has_type = request
        .headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    match body {
        None => request,
        Some(Value::String(text)) => request.body(text),
        Some(value) if has_type => request.body(value.to_string()),
        Some(value) => request
            .header("content-type", "application/json")
            .body(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(headers: &[(&str, &str)], body: Option<Value>) -> Request {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        request(Method::Put, "https://a.example".to_owned(), headers, body)
    }

    #[test]
    fn a_value_is_sent_as_json_and_a_text_as_it_is() {
        let sent = with(&[], Some(json!({"a": 1})));
        assert_eq!(sent.body.as_deref(), Some(br#"{"a":1}"#.as_slice()));
        assert_eq!(
            sent.headers,
            [("content-type".to_owned(), "application/json".to_owned())]
        );
        let sent = with(&[("Content-Type", "application/x")], Some(json!([1])));
        assert_eq!(
            sent.headers,
            [("Content-Type".to_owned(), "application/x".to_owned())]
        );
        let sent = with(&[], Some(json!("a=1")));
        assert_eq!(
            (sent.body.as_deref(), sent.headers.len()),
            (Some(b"a=1".as_slice()), 0)
        );
        assert_eq!(with(&[], None).body, None);
    }
}
