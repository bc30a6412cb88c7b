//! The models that are asked in a fallback where none is listed: those that are widely used for calling tools.

use crate::config::endpoint::EndpointTable;
use std::collections::BTreeMap;
use url::{Host, Url};

/// How the names of models begin, in the order in which the models are asked.
const COMMON: [&str; 22] = [
    "gpt-5",
    "claude-opus",
    "claude-sonnet",
    "gemini-2.5-pro",
    "gpt-4.1",
    "gpt-4o",
    "claude-3",
    "claude-haiku",
    "o4",
    "o3",
    "gemini-2.5",
    "gemini-2.0",
    "deepseek",
    "kimi-k2",
    "glm-4",
    "gpt-oss",
    "qwen3",
    "qwen2.5",
    "mistral",
    "llama-4",
    "llama-3",
    "llama3",
];

/// The names of the endpoints that run a common model and see nothing that they would not see without a fallback:
/// those at the host of the run's own endpoint, and those on this machine.
pub fn configured<'a>(endpoints: &'a BTreeMap<String, EndpointTable>, own: &str) -> Vec<&'a str> {
    let Some((own_name, own)) = endpoints.get_key_value(own) else {
        return Vec::new();
    };
    let Some(own_url) = parsed(own) else {
        return Vec::new();
    };
    let mut found: Vec<(usize, &str)> = endpoints
        .iter()
        .filter(|(name, _)| *name != own_name)
        .filter(|(_, endpoint)| {
            let is_same = endpoint.base_url == own.base_url && endpoint.model == own.model;
            let url = parsed(endpoint);
            !is_same && url.is_some_and(|url| url.host() == own_url.host() || is_here(&url))
        })
        .filter_map(|(name, endpoint)| Some((rank(&endpoint.model)?, name.as_str())))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, name)| name).collect()
}

fn parsed(endpoint: &EndpointTable) -> Option<Url> {
    Url::parse(endpoint.base_url.trim()).ok()
}

/// Whether an endpoint is on this machine.
fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// The place of a model in the order. Its name may follow that of its publisher and a slash, and a version or size
/// may follow it.
fn rank(model: &str) -> Option<usize> {
    let name = model.rsplit('/').next()?.to_ascii_lowercase();
    COMMON.iter().position(|common| {
        let rest = name.strip_prefix(common);
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphanumeric()))
    })
}
