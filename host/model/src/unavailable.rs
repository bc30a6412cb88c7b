//! Why a request was not sent: our own refusal, before any endpoint saw it.

use std::time::Duration;

use thiserror::Error;

/// A request that was not sent. Each passes by itself.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unavailable {
    /// The circuit breaker is open.
    /// `wait` is zero while a request tries it.
    #[error("{}", open(endpoint, *wait, *is_unreached))]
    Open {
        endpoint: String,
        wait: Duration,
        /// No connection to it could be opened. A wait is no use then: where nothing listens, a person has to act.
        is_unreached: bool,
    },

    /// The endpoint asked to be left alone (Retry-After). `wait` is zero while a request probes it.
    #[error("{}", resting(endpoint, *wait))]
    Resting { endpoint: String, wait: Duration },

    /// The queue before it is full.
    #[error(
        "as many requests wait for {endpoint} as may: {waiting}, and half of them for one key; raise its \
         concurrent_requests if it can do more"
    )]
    QueueFull { endpoint: String, waiting: usize },

    /// No place became free in time, or none of this minute's requests or tokens will.
    #[error(
        "no place became free at {endpoint} within {after:.1?}: raise its concurrent_requests, \
         requests_per_minute or tokens_per_minute if it can do more, its queue_timeout_ms if that is normal"
    )]
    QueueTimeout {
        endpoint: String,
        after: Duration,
        /// How long it would have been, where that is known.
        wait: Option<Duration>,
    },
}

fn open(endpoint: &str, wait: Duration, is_unreached: bool) -> String {
    let state = match (is_unreached, wait.is_zero()) {
        (true, true) => "opens no connection, and one request tries it just now".to_owned(),
        (true, false) => format!("opens no connection, and is tried again in {wait:.1?}"),
        (false, true) => {
            "failed too often, and one request tries whether it works again".to_owned()
        }
        (false, false) => format!("failed too often and is left alone for another {wait:.1?}"),
    };
    let advice = if is_unreached {
        "is the server running there? `toolhold doctor` checks it"
    } else {
        "its log may say why, and `toolhold doctor` checks it"
    };
    format!("{endpoint} {state}; {advice}")
}

fn resting(endpoint: &str, wait: Duration) -> String {
    if wait.is_zero() {
        format!("{endpoint} asked for a rest, and one request tries whether it answers again")
    } else {
        format!("{endpoint} asked not to be called for another {wait:.1?}")
    }
}

impl Unavailable {
    /// Its name in the log.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Open { .. } => "breaker_open",
            Self::Resting { .. } => "resting",
            Self::QueueFull { .. } => "queue_full",
            Self::QueueTimeout { .. } => "queue_timeout",
        }
    }

    /// How long until it may be otherwise, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Open { wait, .. } | Self::Resting { wait, .. } => Some(*wait),
            Self::QueueFull { .. } => None,
            Self::QueueTimeout { wait, .. } => *wait,
        }
    }
}
