//! The model: 20 ms to its first token, 50 tokens in all.

use anyhow::Result;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::serve::ListenerExt as _;
use futures_util::stream::{self, StreamExt as _};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;

const FIRST_TOKEN: Duration = Duration::from_millis(20);
const TOKENS: usize = 50;
/// The tool's result: a Request that contains it is the second of its run.
pub const RESULT: &str = "18446744073709551616";
/// A task with this word is answered slowly, so that there is time to watch the run.
pub const SLOWLY: &str = "slowly";
const BETWEEN_SLOW_TOKENS: Duration = Duration::from_millis(40);

pub struct LoadEndpoint {
    address: SocketAddr,
}

impl LoadEndpoint {
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        // Without it, each of the small writes would wait for the acknowledgement of the one before.
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let router = Router::new().route("/v1/chat/completions", post(complete));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address })
    }

    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}

async fn complete(request: String) -> Response {
    let is_slow = request.contains(SLOWLY);
    let said = if is_slow || request.contains(RESULT) {
        json!({"calls": [], "output": "word ".repeat(TOKENS)})
    } else {
        let call = |expression| json!({"_tool": "calculator.evaluate", "expression": expression});
        json!({"calls": [call("2^64"), call("2^64 + 1")], "output": null})
    };
    let said = said.to_string();
    let mut tokens = pieces(&said).map(chunk).collect::<Vec<_>>();
    tokens.push(Bytes::from_static(
        b"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":400,\"completion_tokens\":50}}\n\n\
        data: [DONE]\n\n",
    ));
    tokio::time::sleep(FIRST_TOKEN).await;
    let pause = if is_slow {
        BETWEEN_SLOW_TOKENS
    } else {
        Duration::ZERO
    };
    let stream = stream::iter(tokens).then(move |token| async move {
        // Even a sleep of zero takes a tick of the clock.
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        Ok::<_, std::convert::Infallible>(token)
    });
    let head = [(header::CONTENT_TYPE, "text/event-stream")];
    (head, Body::from_stream(stream)).into_response()
}

/// As many pieces as there are tokens; the text is ASCII.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let cut = |token: usize| text.len() * token / TOKENS;
    (0..TOKENS).filter_map(move |token| text.get(cut(token)..cut(token + 1)))
}

fn chunk(text: &str) -> Bytes {
    let chunk = json!({"id": "1", "object": "chat.completion.chunk", "model": "m",
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]});
    format!("data: {chunk}\n\n").into()
}
