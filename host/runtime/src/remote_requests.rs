//! Saved Requests at addresses that the operator granted (`requests.http`; docs/protocol.md, 6.1).
//!
//! A Request is fetched when a tool that names it is composed, before a model is asked. The record of the run has it
//! as it was fetched, so a run that is replayed or resumed fetches nothing.

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, OnceCell};
use toolhold_json::hex::sha256;
use toolhold_policy::HttpGrant;
use toolhold_protocol::saved::SavedRequest;
use toolhold_sandbox::SystemResolver;
use toolhold_sandbox::egress::Egress;
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
        let bytes = egress.fetch(&url, MAX_BYTES, patience).await;
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
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const REQUEST: &str =
        r#"{"description": "Refunds.", "context": [{"role": "user", "content": "Refund it."}]}"#;

    /// A server that answers each connection with what belongs to the path, and counts.
    fn server(body: &'static str) -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut head = [0; 4_096];
                let read = stream.read(&mut head).unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..read]).into_owned();
                counted.fetch_add(1, Ordering::SeqCst);
                let path = head.split(' ').nth(1).unwrap_or_default();
                let answer = match path {
                    "/team/elsewhere" => {
                        "HTTP/1.1 302 Found\r\nlocation: /team/refund\r\ncontent-length: 0\r\n\r\n"
                            .to_owned()
                    }
                    "/team/large" => {
                        let body = " ".repeat(MAX_BYTES + 1);
                        format!(
                            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                            body.len()
                        )
                    }
                    "/team/slow" => {
                        std::thread::sleep(Duration::from_secs(2));
                        String::new()
                    }
                    "/team/none" => {
                        "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned()
                    }
                    _ => format!(
                        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    ),
                };
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        (origin, count)
    }

    fn granted(origin: &str, more: &str) -> RemoteRequests {
        let grant =
            format!(r#"{{"origin": "{origin}", "path_prefix": "/team", "private": true{more}}}"#);
        RemoteRequests::granted(vec![serde_json::from_str(&grant).unwrap()])
    }

    async fn find(remote: &RemoteRequests, address: &str) -> Result<SavedRequest, String> {
        remote.find(address, &Mutex::default()).await.unwrap()
    }

    #[tokio::test]
    async fn a_request_is_fetched_from_where_the_operator_granted_and_once_a_run() {
        let (origin, count) = server(REQUEST);
        let remote = granted(&origin, "");
        let fetched = Mutex::default();
        let address = format!("{origin}/team/refund");
        for _ in 0..2 {
            let found = remote.find(&address, &fetched).await.unwrap().unwrap();
            assert_eq!(found.description, "Refunds.");
        }
        assert_eq!(count.load(Ordering::SeqCst), 1);
        // What changed since it was read is not taken.
        let pinned = format!("{address}@sha256:{}", sha256(REQUEST));
        assert!(find(&remote, &pinned).await.is_ok());
        let other = format!("{address}@sha256:{}", sha256("another"));
        let reason = find(&remote, &other).await.unwrap_err();
        assert!(reason.contains("it was changed"), "{reason}");
        assert!(remote.find("idea://refund", &fetched).await.is_none());
    }

    #[tokio::test]
    async fn nothing_is_fetched_without_a_grant() {
        let (origin, count) = server(REQUEST);
        let address = format!("{origin}/team/refund");
        for (remote, address) in [
            (RemoteRequests::default(), address.clone()),
            (granted(&origin, ""), format!("{origin}/other/refund")),
            (granted(&origin, ""), format!("{origin}/team/../other")),
            (granted("http://127.0.0.1:9", ""), address.clone()),
            (
                granted(&origin, r#", "methods": ["HEAD"]"#),
                address.clone(),
            ),
        ] {
            let reason = find(&remote, &address).await.unwrap_err();
            assert!(
                reason.contains("no grant lets it be fetched") && reason.contains("requests.http"),
                "{address}: {reason}"
            );
        }
        let with_key = address.replace("http://", "http://ada:key@");
        let reason = find(&granted(&origin, ""), &with_key).await.unwrap_err();
        assert!(reason.contains("user name"), "{reason}");
        assert_eq!(count.load(Ordering::SeqCst), 0);
        // A name on the public internet that leads into the own network: the grant does not say `private`.
        let public = r#"{"origin": "http://*.example.com"}"#;
        assert!(serde_json::from_str::<HttpGrant>(r#"{"origin": "http://127.0.0.1"}"#).is_err());
        assert!(serde_json::from_str::<HttpGrant>(public).is_ok());
    }

    #[tokio::test]
    async fn what_is_fetched_is_bounded_and_nothing_is_followed() {
        let (origin, count) = server(REQUEST);
        let remote = granted(&origin, "");
        for (path, expect) in [
            ("large", "more than 1048576 bytes"),
            ("elsewhere", "redirects are not followed"),
            ("none", "status 404"),
        ] {
            let reason = find(&remote, &format!("{origin}/team/{path}"))
                .await
                .unwrap_err();
            assert!(reason.contains(expect), "{path}: {reason}");
        }
        let slow = remote.fetch(&format!("{origin}/team/slow"), Duration::from_millis(50));
        let reason = slow.await.unwrap_err();
        assert!(reason.contains("after 50 ms"), "{reason}");
        let (before, fetched) = (count.load(Ordering::SeqCst), Mutex::default());
        for n in 0..MAX_ADDRESSES {
            let address = format!("{origin}/other/{n}");
            assert!(remote.find(&address, &fetched).await.unwrap().is_err());
        }
        let more = remote
            .find(&format!("{origin}/team/refund"), &fetched)
            .await;
        let reason = more.unwrap().unwrap_err();
        assert!(reason.contains("at most 16 addresses"), "{reason}");
        assert_eq!(count.load(Ordering::SeqCst), before);
    }

    #[tokio::test]
    async fn what_is_no_request_is_an_error_with_its_place() {
        for (body, expect) in [
            ("<html>", "no JSON document"),
            (r#"{"context": "x"}"#, "no saved Request"),
        ] {
            let (origin, _) = server(body);
            let reason = find(&granted(&origin, ""), &format!("{origin}/team/refund")).await;
            let reason = reason.unwrap_err();
            assert!(reason.contains(expect), "{body}: {reason}");
        }
    }
}
