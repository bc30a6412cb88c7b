//! Requests of one key in a minute.

use crate::http::error::ApiError;
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use std::num::NonZeroU32;

#[derive(Debug)]
pub struct Limiter {
    keys: Option<DefaultKeyedRateLimiter<String>>,
    clock: DefaultClock,
}

impl Limiter {
    /// 0: not limited.
    pub fn per_minute(requests: u32) -> Self {
        let quota = NonZeroU32::new(requests).map(Quota::per_minute);
        Self {
            keys: quota.map(RateLimiter::keyed),
            clock: DefaultClock::default(),
        }
    }

    pub fn admit(&self, key: &str) -> Result<(), ApiError> {
        let Some(keys) = &self.keys else {
            return Ok(());
        };
        keys.check_key(&key.to_owned()).map_err(|until| {
            let wait = until.wait_time_from(self.clock.now());
            let seconds = u32::try_from(wait.as_secs().saturating_add(1)).unwrap_or(60);
            ApiError::too_many(
                format!(
                    "more requests than this key may make in a minute; try again in {seconds} s"
                ),
                seconds,
            )
        })
    }
}
