//! Routing of requests to endpoints: which endpoint is asked, when, and how often.
//!
//! Each of these is a [`Model`](crate::model::Model), so they are put around each other. An [`Endpoint`] is one
//! model at a server, behind the server's limits and circuit breaker ([`Protection`]). [`Retry`] asks it again. A [`Pool`] asks one
//! of several endpoints, then the next, then again, and asks for less when all are overloaded.
//!
//! Three rules hold everywhere. Once a piece of an answer was given out, the request is never sent again,
//! and what was sent twice (hedged) is dropped but for one: the loop acts on pieces. Every wait has a bound
//! and ends when the future is dropped. Every decision is reported as a [`Routing`](toolhold_protocol::routing::Routing). Endpoints
//! are shared by all runs of a process; what belongs to one run is in its
//! [`session`](crate::model::Model::session).

mod admission;
mod breaker;
mod counters;
mod course;
mod endpoint;
mod estimate;
mod hedge;
mod images;
mod listening;
mod log;
mod pool;
mod rest;
mod retry;
mod revision;
#[cfg(any(test, feature = "scripted"))]
pub mod scripted;

use std::time::Duration;

use tokio::time::Instant;

pub use crate::unavailable::Unavailable;
pub use admission::EndpointLimits;
pub use breaker::{BreakerPolicy, Circuit};
pub use endpoint::{Endpoint, EndpointPolicy, EndpointRest, EndpointState, Protection};
pub use estimate::{TOKENS_PER_ATTACHMENT, prompt_tokens};
pub use pool::{Member, Pool, PoolPolicy, Relief};
pub use retry::{Retry, RetryPolicy};
pub use revision::PinnedRevision;

/// Now plus `by`, capped at one day because `Instant` can overflow.
fn later(by: Duration) -> Instant {
    Instant::now() + by.min(Duration::from_hours(24))
}
