use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use toolhold_guest::http::Request;
use toolhold_guest::{Annotations, Error, Tool, json};

use crate::body::{Answer, Form, MAX_BYTES, default_characters};

pub fn tool() -> Tool {
    Tool::new(
        "get",
        "Fetches a URL and returns its status and content. Only addresses that an operator granted can be reached. A web \
         page is shorter and easier to read with `\"as\": \"markdown\"`.",
        get,
    )
    .title("Fetch a URL")
    .annotations(Annotations::READ_ONLY | Annotations::IDEMPOTENT | Annotations::OPEN_WORLD)
    .example(
        "What does the page https://docs.example.com/install say?",
        json!({ "url": "https://docs.example.com/install", "as": "markdown" }),
        json!({
            "status": 200,
            "headers": { "content-type": "text/html" },
            "content": "# Install\n\nRun the installer, then restart.\n",
            "truncated": false,
        }),
        "It says to run the installer and then to restart.",
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Get {
    /// The absolute URL: `https://…`.
    url: String,
    /// Headers of the request, by name. Secrets are put in by the host: write none.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The form of `content`.
    #[serde(default, rename = "as")]
    form: Form,
    /// The most characters of `content`.
    #[serde(default = "default_characters")]
    max_characters: u32,
}

fn get(arguments: Get) -> Result<Answer, Error> {
    // Some servers take the method from there, and this tool only reads.
    let is_method = |name: &&String| name.to_ascii_lowercase().contains("method");
    if let Some(name) = arguments.headers.keys().find(is_method) {
        return Err(Error::correctable(format!(
            "the header {name} could make the request another one than GET; use the tool `send`"
        )));
    }
    let mut request = Request::get(arguments.url);
    request.headers = arguments.headers.into_iter().collect();
    let response = request.send(MAX_BYTES)?;
    Answer::of(
        &request.url,
        response,
        arguments.form,
        arguments.max_characters,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_names_another_method_is_not_sent() {
        for name in [
            "X-HTTP-Method-Override",
            "x-method-override",
            "X-HTTP-METHOD",
        ] {
            let arguments = json!({ "url": "https://a.example", "headers": { name: "DELETE" } });
            let error = get(serde_json::from_value(arguments).unwrap()).unwrap_err();
            assert!(
                error.is_correctable() && error.message().contains(name),
                "{}",
                error.message()
            );
        }
    }
}
