//! Pages of the calls that wait for a person. The calls have no id that orders them, so a page names where the next begins.

use crate::http::error::ApiError;
use crate::http::runs::{check_limit, usual_limit};
use serde::Deserialize;
use toolhold_storage::{WaitingDecision, WaitingPlace};
use utoipa::IntoParams;

/// Page of the calls that wait.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WaitingPage {
    /// The most calls of a page; 1 to 1000.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(default = "usual_limit")]
    pub limit: u32,
    /// `next` of the page before.
    after: Option<String>,
}

impl WaitingPage {
    /// The place after which the page begins; `None` for the first page.
    ///
    /// # Errors
    /// The limit is out of its bounds, or `after` is no place.
    pub fn start(&self) -> Result<Option<WaitingPlace>, ApiError> {
        check_limit(self.limit)?;
        let after = self.after.as_deref().map(str::parse::<WaitingPlace>);
        let after = after.transpose();
        after.map_err(|error| ApiError::invalid(format!("after: {error}")))
    }

    /// `after` of the next page; `None` if this one is not full.
    pub fn next(&self, calls: &[WaitingDecision]) -> Option<String> {
        let is_full = u32::try_from(calls.len()) == Ok(self.limit);
        let last = calls.last().filter(|_| is_full)?;
        Some(last.place.to_string())
    }
}
