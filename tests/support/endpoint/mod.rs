//! A scripted endpoint: speaks the OpenAI API over real HTTP as model servers do, answers what a
//! [`Scenario`] says, and fails in the ways that they fail.
//!
//! It runs on a thread of its own, so that it serves asynchronous tests and tests that start the
//! binary alike, and dropping it closes every connection at once.

mod connections;
pub mod raw;
mod scenario;
mod server;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::oneshot;

pub use scenario::{ErrorReply, Expect, Reply, ReplyOrder, Scenario, TokenForm, ToolCall};
use server::EndpointState;

/// A running endpoint; stops when dropped.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    shared: Arc<EndpointState>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Starts on a free port of the loopback interface.
    ///
    /// # Panics
    /// If a reply of the scenario contradicts itself, or no port can be opened.
    pub fn start(scenario: Scenario) -> Self {
        Self::start_at("127.0.0.1:0", scenario)
    }

    /// Starts where another one was that is gone: at its [`Self::address`].
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn start_at(at: &str, scenario: Scenario) -> Self {
        if let Err(fault) = scenario.check() {
            panic!("the scenario cannot be played: {fault}");
        }
        let shared = Arc::new(EndpointState::new(scenario));
        let (stop, stopped) = oneshot::channel();
        let (ready, address) = mpsc::channel();
        let at = at.to_owned();
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || server::run(shared, &at, &ready, stopped)
        });
        let address = address.recv_timeout(Duration::from_secs(10));
        Self {
            address: address.unwrap_or_else(|_| panic!("the scripted endpoint did not start")),
            shared,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Starts with the scenario of this name in `fixtures/scenarios`.
    ///
    /// # Panics
    /// If there is none, or it cannot be read.
    pub fn play(name: &str) -> Self {
        Self::start(Scenario::load(name))
    }

    /// `HOST:PORT`
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// What a client is configured with; ends in `/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The bodies of all chat requests so far, in order.
    pub fn requests(&self) -> Vec<Value> {
        self.shared.requests()
    }

    /// Paths and bodies of all requests that were not for a chat completion, in order.
    pub fn others(&self) -> Vec<(String, Value)> {
        self.shared.others()
    }

    /// The `Authorization` header of each chat request.
    pub fn authorizations(&self) -> Vec<Option<String>> {
        self.shared.authorizations()
    }

    /// What requests did not meet of what the scenario expected of them.
    pub fn mismatches(&self) -> Vec<String> {
        self.shared.mismatches()
    }

    /// Number of unused replies.
    pub fn replies_left(&self) -> usize {
        self.shared.replies_left()
    }

    /// Answers that are being given just now: where a real server's GPU would be busy.
    pub fn open_streams(&self) -> usize {
        self.shared.open_streams.count()
    }

    /// The most answers that were ever given at the same time.
    pub fn most_open_streams(&self) -> usize {
        self.shared.open_streams.most()
    }

    /// Answers that the client left before they ended.
    pub fn disconnects(&self) -> usize {
        self.shared.disconnects()
    }

    /// TCP connections that are open just now.
    pub fn open_connections(&self) -> usize {
        self.shared.open_connections.count()
    }

    /// TCP connections ever accepted: fewer than requests when the client keeps them alive.
    pub fn connections(&self) -> usize {
        self.shared.open_connections.total()
    }

    /// Waits until `condition` holds; false if it did not within the time.
    pub fn wait_until(&self, within: Duration, condition: impl Fn(&Self) -> bool) -> bool {
        let end = Instant::now() + within;
        while !condition(self) {
            if Instant::now() > end {
                return false;
            }
            thread::sleep(Duration::from_millis(2));
        }
        true
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the server shows in the test that it failed.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
