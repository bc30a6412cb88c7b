//! `toolhold serve`: agents as a service. `dispatcher` has the runs, `http` is one way to them.

pub mod agents;
pub mod answer;
pub mod answer_stream;
pub mod dispatcher;
pub mod http;
mod parked_runs;
mod refused;
mod resumption;
pub mod retention;
pub mod run_permit;
pub mod session;
mod settings;
pub mod takeover;
pub mod watcher;
pub mod web_origin;

pub use agents::{Agent, Agents, Offered, OnBehalf};
pub use dispatcher::{Dispatcher, Limits};
pub use refused::Refused;
pub use resumption::end;
pub use session::{answered, left_by};
pub use settings::{Keys, Settings};
pub use watcher::Watcher;
