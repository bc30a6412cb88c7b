//! The request of `modules/examples`, in Rust.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_guest::http::Request;
use toolhold_guest::{Annotations, Error, Tool};

toolhold_guest::export!(tools);

fn tools() -> Vec<Tool> {
    vec![
        Tool::new(
            "fetch",
            "Sends a request and returns what the server answered.",
            fetch,
        )
        .title("Fetch")
        .annotations(Annotations::OPEN_WORLD),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Where to send it, with https://.
    url: String,
    /// What to post. Without it, the URL is got.
    body: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Answer {
    status: u16,
    /// The response's content type.
    r#type: String,
    /// The first 1,000 characters of its body.
    text: String,
}

fn fetch(arguments: Arguments) -> Result<Answer, Error> {
    let request = match arguments.body {
        Some(body) => Request::new("POST", arguments.url)
            .header("content-type", "text/plain")
            .body(body),
        None => Request::get(arguments.url),
    };
    let response = request.send(1 << 20)?;
    let text = String::from_utf8_lossy(&response.body);
    Ok(Answer {
        status: response.status,
        r#type: response
            .header("content-type")
            .unwrap_or_default()
            .to_owned(),
        text: text.chars().take(1000).collect(),
    })
}
