//! The runs of a server: admitted and cancelled ([`dispatcher`]), permitted to work while they do
//! (`run_permit`, `parked_runs`), resumed (`resumption`), taken over from servers that are gone
//! ([`takeover`]), watched (`watcher`, `live`), and refused (`refused`). `readiness` says whether they can be begun.

pub mod dispatcher;
mod live;
mod log;
mod parked_runs;
mod readiness;
mod refused;
mod resumption;
mod run_permit;
pub mod takeover;
mod watcher;

pub use dispatcher::{Dispatcher, Limits};
pub use readiness::NotReady;
pub use refused::RunRefusal;
pub use resumption::cancel_orphan;
pub use watcher::{Viewer, WatchError, Watcher, weight};
