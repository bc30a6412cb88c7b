//! `[serve]`: the HTTP server.

use serde::Deserialize;
use std::net::SocketAddr;
use std::time::Duration;
use toolhold_connections::web_origin;

/// When requests need a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keys {
    /// Only if a key exists, or if other machines can reach the server.
    Auto,
    Always,
    Never,
}

/// The end of a run whose client closes its connection before it has the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDisconnect {
    /// The run is cancelled if its client does not come back for a while.
    Wait,
    /// The run is not affected.
    Continue,
    /// The run is cancelled at once.
    Cancel,
}

/// `[serve]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Settings {
    pub listen: SocketAddr,
    pub keys: Keys,
    pub concurrent_runs: usize,
    pub waiting_runs: usize,
    pub key_concurrent_runs: usize,
    pub key_requests_per_minute: u32,
    pub queue_timeout_ms: u64,
    pub connections: usize,
    pub body_bytes: usize,
    pub key_image_bytes: u64,
    pub image_bytes: u64,
    pub unsent_bytes: u64,
    pub on_disconnect: OnDisconnect,
    pub disconnect_wait_ms: u64,
    pub drain_ms: u64,
    pub lame_duck_ms: u64,
    pub origins: Vec<String>,
    pub module_upload: bool,
}

/// With less than this, what one key leaves to the others has no room for a page of events.
const LEAST_UNSENT_BYTES: u64 = 16 << 20;

impl Settings {
    pub fn queue_timeout(&self) -> Duration {
        Duration::from_millis(self.queue_timeout_ms)
    }

    pub fn disconnect_wait(&self) -> Duration {
        Duration::from_millis(self.disconnect_wait_ms)
    }

    pub fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }

    pub fn lame_duck(&self) -> Duration {
        Duration::from_millis(self.lame_duck_ms)
    }

    /// The first key with a wrong value, and the reason.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        for (key, is_zero) in [
            ("concurrent_runs", self.concurrent_runs == 0),
            ("key_concurrent_runs", self.key_concurrent_runs == 0),
            ("queue_timeout_ms", self.queue_timeout_ms == 0),
            ("connections", self.connections == 0),
            ("body_bytes", self.body_bytes == 0),
            ("disconnect_wait_ms", self.disconnect_wait_ms == 0),
        ] {
            if is_zero {
                return Some((key, "must be at least 1".into()));
            }
        }
        if self.unsent_bytes < LEAST_UNSENT_BYTES {
            let reason = format!(
                "must be at least {LEAST_UNSENT_BYTES}, so that other keys have room beside one that reads nothing"
            );
            return Some(("unsent_bytes", reason));
        }
        if let Some(reason) = web_origin::fault(&self.origins) {
            return Some(("origins", reason));
        }
        if self.keys == Keys::Never && !self.listen.ip().is_loopback() {
            let reason =
                "\"never\" is for an address of this machine alone, such as 127.0.0.1:8700";
            return Some(("keys", reason.into()));
        }
        None
    }
}
