//! Unknown paths and older APIs: which path of this server a client means.

use crate::http::App;
use crate::http::auth::Client;
use crate::http::error::{ApiError, ErrorBody};
use axum::extract::Request;
use axum::http::StatusCode;
use toolhold_text::cut;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(refuse_completion))
        .routes(routes!(refuse_compaction))
        .routes(routes!(refuse_count))
}

/// The path that answers messages.
const CHAT: &str = "/chat/completions";

/// Paths of OpenAI's API that clients put behind a base address.
const KNOWN: [&str; 4] = [CHAT, "/completions", "/responses", "/models"];

/// Paths of OpenAI's API that have others below them.
const WITH_IDS: [&str; 2] = ["/responses/", "/models/"];

/// Maximum characters of a path in an error.
const MAX_PATH_CHARS: usize = 200;

/// The path that is meant by one that is none: the base address has `/v1` not at all, twice, or behind something else.
fn meant(path: &str) -> Option<String> {
    let trimmed = path.trim_end_matches('/');
    let known = KNOWN.iter().find(|known| trimmed.ends_with(*known));
    let right = match known {
        // A path that is there only to say so.
        Some(&"/completions") => format!("/v1{CHAT}"),
        Some(known) => format!("/v1{known}"),
        None => {
            let rest = WITH_IDS.iter().find_map(|root| {
                let start = trimmed.find(root)?;
                trimmed.get(start..)
            });
            format!("/v1{}", rest?)
        }
    };
    (right != path).then_some(right)
}

/// Answers a request for a path that is none.
pub async fn unknown(request: Request) -> ApiError {
    let fault = match meant(request.uri().path()) {
        Some(right) => ApiError::not_found(format_args!(
            "such path; {} is meant: the client's base address ends with /v1, once",
            cut(&right, MAX_PATH_CHARS)
        )),
        None => ApiError::not_found("such path; /openapi.json lists them"),
    };
    fault.coded("unknown_url")
}

/// Refuses a completion of a bare prompt: an agent answers messages. `POST /v1/chat/completions` takes them.
#[utoipa::path(
    post, path = "/v1/completions", tag = "agents", security(("key" = [])),
    responses((status = "4XX", body = ErrorBody)),
)]
async fn refuse_completion(_: Client) -> ApiError {
    let message = "this server completes no bare prompts (the legacy completions API): send the prompt as a message of \
                   the role user to POST /v1/chat/completions";
    ApiError::refused(StatusCode::NOT_FOUND, message).coded("unsupported_endpoint")
}

/// Refuses to make a conversation shorter for a client: what is too long for a model's window is summed up by itself.
#[utoipa::path(
    post, path = "/v1/responses/compact", tag = "responses", security(("key" = [])),
    responses((status = "4XX", body = ErrorBody)),
)]
async fn refuse_compaction(_: Client) -> ApiError {
    let message = "this server compacts no conversation for its client: go on with previous_response_id, and what is too long \
                   for the model is summed up";
    ApiError::refused(StatusCode::NOT_FOUND, message).coded("unsupported_endpoint")
}

/// Refuses to count tokens before a response: the agent adds its own tools and instructions, for the model that answers.
#[utoipa::path(
    post, path = "/v1/responses/input_tokens", tag = "responses", security(("key" = [])),
    responses((status = "4XX", body = ErrorBody)),
)]
async fn refuse_count(_: Client) -> ApiError {
    let message = "this server counts no tokens before a response, which an agent asks several models for: usage of the \
                   response has them";
    ApiError::refused(StatusCode::NOT_FOUND, message).coded("unsupported_endpoint")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_address_without_its_version_is_told() {
        for (path, right) in [
            ("/chat/completions", Some("/v1/chat/completions")),
            ("/v1/v1/chat/completions", Some("/v1/chat/completions")),
            ("/openai/v1/chat/completions", Some("/v1/chat/completions")),
            ("/v1/chat/completions/", Some("/v1/chat/completions")),
            ("/completions", Some("/v1/chat/completions")),
            ("/responses", Some("/v1/responses")),
            (
                "/responses/resp_1/cancel",
                Some("/v1/responses/resp_1/cancel"),
            ),
            ("/models", Some("/v1/models")),
            ("/models/default", Some("/v1/models/default")),
            ("/v1/nothing", None),
            ("/", None),
            ("/v1/models/a/b", None),
        ] {
            assert_eq!(meant(path).as_deref(), right, "{path}");
        }
    }
}
