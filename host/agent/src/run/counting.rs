//! Counts tokens at the endpoint, a few texts concurrently, within a short time limit: the run can go on with
//! an estimate.

use futures_util::stream::{self, StreamExt as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use toolhold_model::tokenizer::Counter;
use toolhold_protocol::window::Counted;

/// Maximum concurrent count requests: the endpoint should mostly generate.
const MAX_CONCURRENT_COUNTS: usize = 8;
/// Time limit for all texts of a Request together. Counting a whole window takes milliseconds.
const COUNT_TIMEOUT: Duration = Duration::from_secs(10);
/// A token is a byte at least, but for those that a tokenizer puts before and behind a text.
const MAX_ADDED_TOKENS: usize = 8;

pub(super) async fn count(counter: Option<Arc<dyn Counter>>, texts: Vec<String>) -> Counted {
    let Some(counter) = counter else {
        return failed(Vec::new(), "this endpoint does not count".into());
    };
    let deadline = Instant::now() + COUNT_TIMEOUT;
    let mut tokens = Vec::with_capacity(texts.len());
    let counts: Vec<_> = texts.iter().map(|text| counter.count(text)).collect();
    let mut counts = stream::iter(counts).buffered(MAX_CONCURRENT_COUNTS);
    for text in &texts {
        let counted = match timeout_at(deadline, counts.next()).await {
            Ok(Some(counted)) => counted,
            Ok(None) => break,
            Err(_) => {
                let reason = format!("it took longer than {} s", COUNT_TIMEOUT.as_secs());
                return failed(tokens, reason);
            }
        };
        match counted {
            Ok(count) if is_believable(count, text) => tokens.push(count),
            Ok(count) => {
                let reason = format!("{count} tokens in {} bytes", text.len());
                return failed(tokens, reason);
            }
            Err(error) => return failed(tokens, error.to_string()),
        }
    }
    Counted {
        tokens,
        failure: None,
    }
}

fn failed(tokens: Vec<u64>, reason: String) -> Counted {
    Counted {
        tokens,
        failure: Some(reason),
    }
}

fn is_believable(count: u64, text: &str) -> bool {
    let most = text.len().saturating_add(MAX_ADDED_TOKENS);
    let is_something = count > 0 || text.trim().is_empty();
    is_something && usize::try_from(count).is_ok_and(|count| count <= most)
}
