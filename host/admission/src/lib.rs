//! Admission of work: a fair queue for a bounded number of permits, rates per minute, and work on blocking threads.
//!
//! The crate does not know what is admitted: calls of modules, runs of owners, requests to an endpoint. It
//! promises that no party starves another, that queues are bounded, and that time is measured by tokio's clock,
//! so that tests with a paused clock see refusals and waits exactly.
//!
//! Read [`FairQueue`] first, then [`FairRate`] (one rate that keys share), [`KeyedRate`] (a rate for each key) and
//! [`SlidingWindow`] (an exact minute);
//! [`WorkKind`] is work that blocks a thread and that others cause, and [`own_work`] such work of the host itself;
//! [`Backoff`] is how long to wait between attempts, [`Seldom`] a bound for lines of a log, and [`MemoryCeiling`] what
//! may be kept in memory at a time, which keys share. [`SharedRead`] is a read that a crowd shares.
//!
//! ```
//! use std::time::Duration;
//! use tokio::time::Instant;
//! use toolhold_admission::{FairQueue, FairRate, Lane};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // At most two at a time, at most one of each owner, at most ten in the queue.
//! let queue = FairQueue::<String>::new(2, 10);
//! let deadline = Instant::now() + Duration::from_secs(1);
//! let ada = queue.enter(Lane::of("ada".to_owned()), 1, deadline).await.unwrap();
//! assert!(queue.try_enter(Lane::of("ada".to_owned()), 1).is_none());
//! let bob = queue.try_enter(Lane::of("bob".to_owned()), 1);
//! assert!(bob.is_some() && queue.free() == 0);
//!
//! let rate = FairRate::per_minute(1);
//! assert!(rate.take(&"ada").is_ok());
//! assert!(rate.take(&"ada").is_err_and(|wait| wait <= Duration::from_secs(60)));
//! # }
//! ```
#![forbid(unsafe_code)]

mod backoff;
mod blocking;
mod debt;
mod fair_rate;
mod memory;
mod queue;
mod rate;
mod seldom;
mod shared_read;
mod window;

pub use backoff::Backoff;
pub use blocking::{
    BlockingWork, WorkFailure, WorkKind, WorkParty, WorkStop, detach, own_work, start_own,
    start_queued,
};
pub use fair_rate::FairRate;
pub use memory::{MemoryCeiling, MemoryFull, MemoryReservation, MemoryShare};
pub use queue::{FairQueue, Lane, LaneKey, MOST_DEPTHS, Permit, QueueRefusal};
pub use rate::KeyedRate;
pub use seldom::Seldom;
pub use shared_read::SharedRead;
pub use window::{SlidingWindow, WindowCharge};
