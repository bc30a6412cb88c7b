//! Statements of the documents that the project was made from, by their numbers: one file a topic, one test a statement.

mod advisors;
mod calls_in_text;
mod capacity_formula;
mod conversations;
mod corrections;
mod default_agent;
mod default_fallback;
mod documents_by_address;
mod eight_languages;
pub mod jobs;
mod language;
mod repair;
mod serving_templates;
mod steps;
mod versions;

use serde_json::{Value, json};
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::Host;
use support::server::Server;

/// A server with this configuration, whose agent is given these replies.
fn server(config: &str, replies: impl IntoIterator<Item = Reply>) -> (Host, Endpoint, Server) {
    let host = Host::new();
    host.ship("calculator").write("toolhold.toml", config);
    let endpoint = Endpoint::start(Scenario::new(replies));
    let url = endpoint.base_url();
    let server = Server::start(&host, &["--base-url", &url, "--model", "m"]);
    (host, endpoint, server)
}

fn ask(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}]})
}
