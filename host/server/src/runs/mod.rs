//! The runs of a server: admitted and cancelled ([`dispatcher`]), permitted to work while they do
//! (`run_permit`, `parked_runs`), resumed (`resumption`), taken over from servers that are gone
//! ([`takeover`]), watched (`watcher`, `live`), and refused (`refused`). `readiness` says whether they can be begun;
//! `part_tracker` knows since when.

pub mod dispatcher;
mod live;
mod log;
mod parked_runs;
mod part_tracker;
mod readiness;
mod refused;
mod resumption;
mod run_permit;
pub mod takeover;
mod watcher;

pub use dispatcher::{Dispatcher, Limits};
pub use part_tracker::PartState;
pub use readiness::{NotReady, PartReport, ServerHealth};
pub use refused::RunRefusal;
pub use resumption::cancel_orphan;
pub use watcher::{Viewer, WatchError, Watcher, weight};
