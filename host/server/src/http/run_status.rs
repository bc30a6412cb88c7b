//! The HTTP status of an answer about a run that has ended (`docs/server.md`, "Statuses").

use axum::http::StatusCode;
use toolhold_protocol::event::StopReason;

/// The APIs that answer with the outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// `/v1/agent`, turns of sessions, saved Requests.
    Own,
    /// Chat Completions and Responses.
    OpenAi,
}

/// The statuses by API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RunStatus {
    own: StatusCode,
    open_ai: StatusCode,
}

impl RunStatus {
    const fn both(status: StatusCode) -> Self {
        Self {
            own: status,
            open_ai: status,
        }
    }

    fn of(reason: StopReason) -> Self {
        match reason {
            // An answer, or a part of one with the reason why there is no more.
            StopReason::Output
            | StopReason::Planned
            | StopReason::Incomplete
            | StopReason::ToolCalls
            | StopReason::MaxSteps
            | StopReason::TokenBudget
            | StopReason::MaxCost
            | StopReason::MaxToolCalls
            | StopReason::Timeout
            | StopReason::Blocked => Self::both(StatusCode::OK),
            StopReason::Cancelled => Self {
                own: StatusCode::OK,
                open_ai: StatusCode::CONFLICT,
            },
            StopReason::Model | StopReason::Unusable => Self::both(StatusCode::BAD_GATEWAY),
        }
    }
}

/// The status of an answer of `api` about a run that ended for `reason`.
pub fn status(reason: StopReason, api: Api) -> StatusCode {
    let status = RunStatus::of(reason);
    match api {
        Api::Own => status.own,
        Api::OpenAi => status.open_ai,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The table of the manual: from reasons to the two statuses.
    fn documented() -> BTreeMap<String, [u16; 2]> {
        let manual = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/server.md"));
        let (_, section) = manual.split_once("\n## Statuses\n").unwrap();
        let section = section.split("\n## ").next().unwrap();
        let mut found = BTreeMap::new();
        for row in section.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let [_, reasons, own, open_ai, ..] = cells.as_slice() else {
                panic!("{row}");
            };
            let statuses = [own, open_ai].map(|cell| cell[..3].parse().unwrap());
            for reason in reasons.split(',') {
                let reason = reason.trim().trim_matches('`').to_owned();
                assert!(found.insert(reason, statuses).is_none(), "{row}");
            }
        }
        found
    }

    #[test]
    fn the_manual_has_the_same_table() {
        let coded = StopReason::all().iter().map(|&reason| {
            let statuses = [Api::Own, Api::OpenAi].map(|api| status(reason, api).as_u16());
            (reason.name().to_owned(), statuses)
        });
        let coded: BTreeMap<_, _> = coded.collect();
        assert_eq!(documented(), coded);
    }
}
