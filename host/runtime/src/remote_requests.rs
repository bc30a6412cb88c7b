//! Saved Requests at addresses that the operator granted (`requests.http`; docs/protocol.md, 6.1).
//!
//! A Request is fetched when a tool that names it is composed: for the tools of a run before its model is asked, and for
//! those of a sub-agent when the call begins that starts it. What was composed is in the record, so a run that is
//! replayed fetches nothing, and one that is resumed fetches only for sub-agents that had not begun, with new bounds of
//! time and number. A digest pins one document and none of the addresses in it.

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, OnceCell};
use toolhold_json::hex::sha256;
use toolhold_policy::HttpGrant;
use toolhold_protocol::saved::SavedRequest;
use toolhold_sandbox::SystemResolver;
use toolhold_sandbox::egress::{DocumentError, Egress};
use url::Url;

/// Most bytes of one Request. A Request that a person wrote has a few kilobytes.
const MAX_BYTES: usize = 1 << 20;
/// Most time for all Requests that one run fetches.
const MAX_TIME: Duration = Duration::from_secs(15);
/// Most addresses that one run fetches from.
const MAX_ADDRESSES: usize = 16;

/// The addresses that are granted. The default grants none. Clones share connections.
#[derive(Debug, Clone, Default)]
pub struct RemoteRequests {
    grants: Arc<Vec<HttpGrant>>,
    /// Set up when the first Request is fetched: most hosts fetch none.
    egress: Arc<OnceCell<Result<Egress, String>>>,
}

/// What one run has fetched.
#[derive(Debug, Default)]
pub(crate) struct FetchedRequests {
    by_address: BTreeMap<String, Result<SavedRequest, String>>,
    spent: Duration,
}

impl RemoteRequests {
    /// Requests may be fetched from where these grants reach.
    pub fn granted(grants: Vec<HttpGrant>) -> Self {
        Self {
            grants: Arc::new(grants),
            egress: Arc::default(),
        }
    }

    /// The Request that `address` means, if it is an address of the web. With `@sha256:…` at its end, the document must
    /// have this digest. Each address is fetched once a run.
    pub(crate) async fn find(
        &self,
        address: &str,
        fetched: &Mutex<FetchedRequests>,
    ) -> Option<Result<SavedRequest, String>> {
        if !["https://", "http://"]
            .iter()
            .any(|scheme| address.starts_with(scheme))
        {
            return None;
        }
        let mut fetched = fetched.lock().await;
        if let Some(known) = fetched.by_address.get(address) {
            return Some(known.clone());
        }
        if fetched.by_address.len() >= MAX_ADDRESSES {
            return Some(Err(format!(
                "{address:?} was not fetched: a run fetches saved Requests from at most {MAX_ADDRESSES} addresses; put \
                 them into the requests folder"
            )));
        }
        let (began, left) = (Instant::now(), MAX_TIME.saturating_sub(fetched.spent));
        let found = self.fetch(address, left).await;
        let found = found.map_err(|reason| format!("the saved Request at {address:?}: {reason}"));
        fetched.spent += began.elapsed();
        fetched.by_address.insert(address.to_owned(), found.clone());
        Some(found)
    }

    async fn fetch(&self, address: &str, patience: Duration) -> Result<SavedRequest, String> {
        let (plain, digest) = match address.rsplit_once("@sha256:") {
            Some((plain, digest)) => (plain, Some(digest)),
            None => (address, None),
        };
        let url = Url::parse(plain).map_err(|error| format!("this is no address: {error}"))?;
        let grants = self.grants.clone();
        let set_up = || async move {
            let egress = tokio::task::spawn_blocking(move || {
                Egress::new(grants.to_vec(), Vec::new(), Arc::new(SystemResolver))
            });
            let egress = egress.await.map_err(|error| error.to_string())?;
            egress.map_err(|error| error.to_string())
        };
        let egress = self.egress.get_or_init(set_up).await.as_ref()?;
        let began = Instant::now();
        let mut bytes = egress.fetch(&url, MAX_BYTES, patience).await;
        if matches!(bytes, Err(DocumentError::Transport { .. })) {
            // A connection that was kept for the next document may have been closed meanwhile.
            let left = patience.saturating_sub(began.elapsed());
            bytes = egress.fetch(&url, MAX_BYTES, left).await;
        }
        let bytes = bytes.map_err(|error| {
            format!(
                "{error}. The operator grants addresses in requests.http; or put it into the requests folder and name it"
            )
        })?;
        let own = sha256(&bytes);
        if let Some(digest) = digest.filter(|digest| *digest != own) {
            return Err(format!(
                "its digest is sha256:{own}, and sha256:{digest} is asked for: it was changed"
            ));
        }
        let value: Value = serde_json::from_slice(&bytes)
            .map_err(|error| format!("this is no JSON document: {error}"))?;
        SavedRequest::parse(&value)
    }
}

#[cfg(test)]
#[path = "remote_requests_tests.rs"]
mod tests;
