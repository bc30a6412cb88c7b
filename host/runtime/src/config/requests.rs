//! `[requests]`: the saved Requests that tools may name.

use crate::config::fetched::check_fetched;
use crate::config::surroundings::ConfigFault;
use crate::remote_requests::{FetchRules, RemoteRequests};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;
use toolhold_policy::HttpGrant;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct RequestsTable {
    pub folder: PathBuf,
    http: Vec<HttpGrant>,
    timeout_ms: u64,
    plain_loopback: bool,
}

impl RequestsTable {
    /// # Errors
    /// A grant says what no fetch of a saved Request does: a reader would believe that it holds.
    pub fn check(&self) -> Result<(), ConfigFault> {
        check_fetched(&self.http, "a saved Request")?;
        if self.timeout_ms == 0 {
            let reason = "must be at least 1; leave http empty if nothing is to be fetched";
            return Err(ConfigFault::new("timeout_ms", reason));
        }
        Ok(())
    }

    /// The addresses whose saved Requests tools may name.
    pub fn remote(&self) -> RemoteRequests {
        RemoteRequests::granted(
            self.http.clone(),
            FetchRules {
                budget: Duration::from_millis(self.timeout_ms),
                plain_loopback: self.plain_loopback,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_nothing_here_is_refused_with_words() {
        let check = |grant: &str, timeout_ms: u64| {
            let table = format!(
                "folder = 'requests'\nplain_loopback = false\ntimeout_ms = {timeout_ms}\nhttp = [{{origin = 'https://a.example'{grant}}}]"
            );
            let table: RequestsTable = toml::from_str(&table).unwrap();
            table.check().map_err(|fault| fault.to_string())
        };
        for fine in [
            "",
            ", methods = ['GET']",
            ", methods = ['GET', 'HEAD'], reason = 'ours'",
        ] {
            assert_eq!(check(fine, 1), Ok(()), "{fine}");
        }
        for (grant, expect) in [
            (", redirects = 2", "redirects are not followed"),
            (", methods = ['GET', 'POST']", "the method POST"),
            (", methods = ['HEAD']", "lacks the method GET"),
        ] {
            let fault = check(grant, 1).unwrap_err();
            assert!(
                fault.contains(expect) && fault.contains("entry 1 (https://a.example)"),
                "{grant}: {fault}"
            );
        }
        assert!(check("", 0).unwrap_err().contains("timeout_ms"));
    }
}
