//! Decisions between a request and the endpoint that answers it. They are reported to the watcher, so that a
//! run's record explains why an answer came late or from another endpoint.

use serde::{Deserialize, Serialize};
use std::fmt;

use crate::completion::Usage;

/// One decision on the way to an answer. Names are those of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Routing {
    /// An attempt failed, and the same is tried again.
    Retry {
        /// Or the pool.
        endpoint: String,
        /// Number of the failed attempt: 1, 2, 3…
        attempt: u32,
        wait_ms: u64,
        reason: String,
    },
    /// It is not tried again.
    GaveUp {
        /// Or the pool.
        endpoint: String,
        /// Those that an endpoint saw.
        attempts: u32,
        waited_ms: u64,
        reason: String,
    },
    /// The request stood in the queue before an endpoint.
    Waited { endpoint: String, wait_ms: u64 },
    /// The circuit breaker opened: the endpoint is left alone by all runs.
    Opened {
        endpoint: String,
        failures: u32,
        rest_ms: u64,
    },
    /// This request tries whether the endpoint works again.
    Trial { endpoint: String },
    /// The endpoint works again.
    Closed { endpoint: String },
    /// The endpoint answered with success and something else than a completion, such as a page of a balancer.
    NoCompletion { endpoint: String },
    /// The endpoint answered with another revision of the model than the operator pinned.
    OtherRevision {
        endpoint: String,
        pinned: String,
        /// The model and the revision that it tells; absent: it tells none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        told: Option<String>,
    },
    /// The model takes no images, so the request was sent with a text in the place of each.
    ImagesLeftOut { endpoint: String, images: u64 },
    /// The member of the pool that this run's requests go to from now on.
    Chosen {
        pool: String,
        endpoint: String,
        /// Tokens that prompt and answer may have, by estimate.
        tokens: u64,
    },
    /// A member of the pool gave no answer; another one is asked if there is one.
    MemberFailed {
        pool: String,
        endpoint: String,
        reason: String,
    },
    /// Nothing of an answer had come after so long, so the request was sent to `to` as well: the first to
    /// send a piece wins, and the other is cancelled.
    Hedged {
        endpoint: String,
        to: String,
        after_ms: u64,
    },
    /// One of two hedged requests failed; the other one is awaited.
    HedgeFailed { endpoint: String, reason: String },
    /// Less is requested because the pool is overloaded.
    Degraded {
        pool: String,
        #[serde(flatten)]
        how: Degradation,
    },
    /// The class of the run's task, and so where its requests go.
    Classified {
        class: String,
        /// The endpoint or pool.
        to: String,
        by: Classifier,
        /// Tokens of the model that decided, if it reported them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
}

/// How less is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Degradation {
    /// A shorter answer.
    FewerTokens { from: Option<u32>, to: u32 },
    /// An answer no longer than there is room for in this endpoint's window.
    ShortWindow { endpoint: String, max_tokens: u32 },
    /// Another model.
    SmallerModel { to: String },
}

/// How a class was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Classifier {
    Rule,
    Model {
        model: String,
    },
    /// Neither a rule nor the model could decide.
    Default {
        reason: String,
    },
}

impl Routing {
    /// Whether the decision was caused by a failure.
    pub fn is_trouble(&self) -> bool {
        !matches!(
            self,
            Self::Waited { .. }
                | Self::Closed { .. }
                | Self::NoCompletion { .. }
                | Self::Chosen { .. }
                | Self::Hedged { .. }
                | Self::Classified { .. }
        )
    }
}

impl fmt::Display for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry {
                endpoint,
                attempt,
                wait_ms,
                reason,
            } => write!(
                f,
                "attempt {attempt} at {endpoint} failed and is made again in {wait_ms} ms: {reason}"
            ),
            Self::GaveUp {
                endpoint,
                attempts,
                waited_ms,
                reason,
            } => write!(
                f,
                "{endpoint} is given up after {attempts} attempts and {waited_ms} ms of waiting: {reason}"
            ),
            Self::Waited { endpoint, wait_ms } => {
                write!(f, "waited {wait_ms} ms for a place at {endpoint}")
            }
            Self::Opened {
                endpoint,
                failures,
                rest_ms,
            } => write!(
                f,
                "{endpoint} failed {failures} times and is left alone for {rest_ms} ms"
            ),
            Self::Trial { endpoint } => write!(f, "trying whether {endpoint} works again"),
            Self::Closed { endpoint } => write!(f, "{endpoint} works again"),
            Self::NoCompletion { endpoint } => {
                write!(
                    f,
                    "{endpoint} answered with something else than a completion"
                )
            }
            Self::OtherRevision {
                endpoint,
                pinned,
                told,
            } => {
                let told = told.as_deref().unwrap_or("a model that tells no revision");
                write!(f, "{endpoint} answered as {told}, and {pinned} is pinned")
            }
            Self::ImagesLeftOut { endpoint, images } => write!(
                f,
                "the model of {endpoint} takes no images: the {images} of the task are left out"
            ),
            Self::Chosen {
                pool,
                endpoint,
                tokens,
            } => write!(f, "{pool} asks {endpoint} (up to {tokens} tokens)"),
            Self::MemberFailed {
                pool,
                endpoint,
                reason,
            } => write!(f, "{endpoint} of {pool} gave no answer: {reason}"),
            Self::Hedged {
                endpoint,
                to,
                after_ms,
            } if endpoint == to => write!(
                f,
                "{endpoint} said nothing for {after_ms} ms and is asked a second time"
            ),
            Self::Hedged {
                endpoint,
                to,
                after_ms,
            } => write!(
                f,
                "{endpoint} said nothing for {after_ms} ms; {to} is asked as well"
            ),
            Self::HedgeFailed { endpoint, reason } => {
                write!(f, "of two requests the one to {endpoint} failed: {reason}")
            }
            Self::Degraded { pool, how } => write!(f, "{pool} is overloaded: {how}"),
            Self::Classified { class, to, by, .. } => {
                write!(f, "a task of the class {class}, for {to} ({by})")
            }
        }
    }
}

impl fmt::Display for Degradation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FewerTokens {
                from: Some(from),
                to,
            } => {
                write!(f, "at most {to} tokens are asked for instead of {from}")
            }
            Self::FewerTokens { from: None, to } => write!(f, "at most {to} tokens are asked for"),
            Self::ShortWindow {
                endpoint,
                max_tokens,
            } => write!(
                f,
                "{endpoint} is asked, whose window has room for {max_tokens} tokens"
            ),
            Self::SmallerModel { to } => write!(f, "{to} is asked instead"),
        }
    }
}

impl fmt::Display for Classifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule => f.write_str("by a rule"),
            Self::Model { model } => write!(f, "said {model}"),
            Self::Default { reason } => write!(f, "the default: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_survive_the_record() {
        for decision in [
            Routing::NoCompletion {
                endpoint: "e".into(),
            },
            Routing::OtherRevision {
                endpoint: "e".into(),
                pinned: "m@fp_1".into(),
                told: None,
            },
            Routing::ImagesLeftOut {
                endpoint: "e".into(),
                images: 2,
            },
            Routing::Degraded {
                pool: "all".into(),
                how: Degradation::FewerTokens {
                    from: Some(1_024),
                    to: 256,
                },
            },
            Routing::Classified {
                class: "hard".into(),
                to: "big".into(),
                by: Classifier::Model {
                    model: "tiny".into(),
                },
                usage: Some(Usage::default()),
            },
        ] {
            let text = serde_json::to_string(&decision).unwrap();
            let back: Routing = serde_json::from_str(&text).unwrap();
            assert_eq!(back, decision, "{text}");
        }
    }
}
