//! `toolhold serve`: agents as a service. `dispatcher` has the runs, `http` is one way to them.

pub mod agents;
pub mod answer;
pub mod dispatcher;
pub mod http;
pub mod session;
pub mod spoken;

pub use agents::{Agent, Agents, OnBehalf};
pub use dispatcher::{Dispatcher, Limits, Refused, Watcher, end};
pub use session::{answered, left_by};
