//! A transport that answers from a recording, and from nothing else.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::Value;

use crate::exchange::{self, BodyChunk, Exchange, RecordingError, RequestKey, canonical};
use crate::transport::{HttpRequest, HttpResponse, Transport, TransportError};

/// Maximum number of differences listed for an unknown request: enough to see what changed.
const MAX_DIFFERENCES: usize = 8;
/// Characters of a value that are shown on each side of a difference.
const MAX_VALUE_CHARS: usize = 60;

/// Answers each request with the recorded one for it: the first time with the first recording, the
/// second time with the second, and after the last with an error. It never invents an answer.
#[derive(Debug)]
pub struct ReplayTransport {
    exchanges: Vec<Exchange>,
    by_key: HashMap<RequestKey, Vec<usize>>,
    /// How often each request was made.
    asked: Mutex<HashMap<RequestKey, usize>>,
    pace: f64,
}

impl ReplayTransport {
    /// Reads a recording ([`crate::exchange`] describes the format).
    pub fn parse(text: &str) -> Result<Self, RecordingError> {
        let exchanges = exchange::parse(text)?;
        let mut by_key: HashMap<RequestKey, Vec<usize>> = HashMap::new();
        for (place, exchange) in exchanges.iter().enumerate() {
            by_key.entry(exchange.key()).or_default().push(place);
        }
        Ok(Self {
            exchanges,
            by_key,
            asked: Mutex::default(),
            pace: 0.0,
        })
    }

    /// Waits the recorded delays times `pace`; 0, the default, replays at once.
    #[must_use]
    pub fn with_pace(mut self, pace: f64) -> Self {
        self.pace = pace;
        self
    }

    fn find(&self, request: &HttpRequest) -> Result<&Exchange, TransportError> {
        let canonical = canonical(request.body.as_ref());
        let key = RequestKey::new(request.method, &request.path, &canonical);
        let Some(places) = self.by_key.get(&key) else {
            return Err(TransportError::Unrecorded {
                explanation: self.explain_unknown(request, &canonical),
            });
        };
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let count = asked.entry(key).or_default();
        let Some(&place) = places.get(*count) else {
            return Err(TransportError::Unrecorded {
                explanation: format!(
                    "{} {} was recorded {} times with this body, and is made once more; record again",
                    request.method,
                    request.path,
                    places.len()
                ),
            });
        };
        *count += 1;
        Ok(&self.exchanges[place])
    }

    fn explain_unknown(&self, request: &HttpRequest, canonical: &Value) -> String {
        let same_route = self
            .exchanges
            .iter()
            .filter(|exchange| exchange.method == request.method && exchange.path == request.path);
        let nearest = same_route
            .map(|exchange| {
                let mut differences = Vec::new();
                let recorded = Some(&exchange.request);
                compare("", recorded, Some(canonical), &mut differences);
                differences
            })
            .min_by_key(Vec::len);
        let route = format!("{} {}", request.method, request.path);
        let Some(differences) = nearest else {
            return format!("no request {route} was recorded; record again");
        };
        let mut text = format!(
            "this {route} was never recorded; it differs from the nearest recording in {} places \
             (record again if the change is meant):",
            differences.len()
        );
        for difference in differences.iter().take(MAX_DIFFERENCES) {
            let _ = write!(text, "\n  {difference}");
        }
        if differences.len() > MAX_DIFFERENCES {
            text.push_str("\n  …");
        }
        text
    }

    fn pieces(&self, exchange: &Exchange) -> Vec<BodyChunk> {
        let mut pieces = exchange.body.clone();
        for piece in &mut pieces {
            piece.delay_ms = (piece.delay_ms as f64 * self.pace) as u64;
        }
        pieces
    }
}

impl Transport for ReplayTransport {
    fn target(&self) -> &'static str {
        "a recording"
    }

    fn send(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>> {
        async move {
            let exchange = self.find(&request)?;
            let headers = exchange
                .headers
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
            let pieces = stream::iter(self.pieces(exchange)).then(|piece| async move {
                if piece.delay_ms > 0 {
                    tokio::time::sleep(Duration::from_millis(piece.delay_ms)).await;
                }
                Ok(piece.bytes)
            });
            let cut = exchange.cut.then(|| {
                Err(TransportError::Broken {
                    url: self.target().to_owned(),
                    reason: "the recording was cut here".into(),
                })
            });
            Ok(HttpResponse {
                status: exchange.status,
                headers: headers.collect(),
                body: pieces.chain(stream::iter(cut)).boxed(),
            })
        }
        .boxed()
    }
}

/// Lists the leaves in which two values differ, as `path: recorded … / now …`.
fn compare(
    path: &str,
    recorded: Option<&Value>,
    now: Option<&Value>,
    differences: &mut Vec<String>,
) {
    match (
        recorded.unwrap_or(&Value::Null),
        now.unwrap_or(&Value::Null),
    ) {
        (Value::Object(old), Value::Object(new)) => {
            let added = new.keys().filter(|key| !old.contains_key(*key));
            for key in old.keys().chain(added) {
                let (old, new) = (old.get(key), new.get(key));
                compare(&format!("{path}.{key}"), old, new, differences);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            for place in 0..old.len().max(new.len()) {
                let (old, new) = (old.get(place), new.get(place));
                compare(&format!("{path}[{place}]"), old, new, differences);
            }
        }
        (old, new) if old == new => {}
        (old, new) => {
            let (old, new) = (old.to_string(), new.to_string());
            let same = old
                .chars()
                .zip(new.chars())
                .take_while(|(a, b)| a == b)
                .count();
            let path = path.trim_start_matches('.');
            let (old, new) = (around(&old, same), around(&new, same));
            differences.push(format!("{path}: recorded {old} / now {new}"));
        }
    }
}

/// The part of a value that begins shortly before its first difference.
fn around(text: &str, same: usize) -> String {
    let start = same.saturating_sub(MAX_VALUE_CHARS / 3);
    let mut part: String = text.chars().skip(start).take(MAX_VALUE_CHARS).collect();
    if start > 0 {
        part.insert(0, '…');
    }
    if text.chars().nth(start + MAX_VALUE_CHARS).is_some() {
        part.push('…');
    }
    part
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
