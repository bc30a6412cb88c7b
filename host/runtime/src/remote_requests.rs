//! Saved Requests at addresses that the operator granted (`requests.http`; docs/protocol.md, 6.1).
//!
//! A Request is fetched when a tool that names it is composed: for the tools of a run before its model is asked, and for
//! those of a sub-agent when the call begins that starts it. What was composed is in the record, so a run that is
//! replayed fetches nothing, and one that is resumed fetches only for sub-agents that had not begun, with new bounds of
//! time and number. A digest pins one document and none of the addresses in it.
//!
//! What is sent, and where to, is decided by [`Egress`], as it is for modules.

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::sync::{Mutex, OnceCell};
use toolhold_admission::{Backoff, WorkParty, own_work};
use toolhold_json::bounded;
use toolhold_json::hex::sha256;
use toolhold_policy::HttpGrant;
use toolhold_policy::egress::{is_localhost, literal};
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::saved::SavedRequest;
use toolhold_sandbox::egress::{DocumentError, Egress};
use toolhold_sandbox::{Resolve, SystemResolver};
use url::{Host, Url};

/// Most bytes of one Request. A Request that a person wrote has a few kilobytes.
const MAX_BYTES: usize = 1 << 20;
/// Most addresses that one run fetches from.
const MAX_ADDRESSES: usize = 16;
/// Most requests for one document. A server that restarts is back by the third, and one that is down is not asked for
/// long.
const MAX_ATTEMPTS: u32 = 3;
/// Waits between them.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(1));
/// Addresses that a message names as those that took the time.
const MAX_NAMED: usize = 3;

/// The addresses that are granted. The default grants none. Clones share connections.
#[derive(Debug, Clone)]
pub struct RemoteRequests {
    grants: Arc<Vec<HttpGrant>>,
    rules: FetchRules,
    resolver: Arc<dyn Resolve>,
    /// Set up when the first Request is fetched: most hosts fetch none.
    egress: Arc<OnceCell<Result<Egress, String>>>,
}

/// How saved Requests are fetched.
#[derive(Debug, Clone, Copy)]
pub struct FetchRules {
    /// Most time for all Requests that one run fetches (`requests.timeout_ms`).
    pub budget: Duration,
    /// Whether plain `http://` of this machine itself may be fetched without a digest (`requests.plain_loopback`).
    pub plain_loopback: bool,
}

impl Default for FetchRules {
    fn default() -> Self {
        Self {
            budget: Duration::from_secs(15),
            plain_loopback: false,
        }
    }
}

/// What one run has fetched.
#[derive(Debug, Default)]
pub(crate) struct FetchedRequests {
    by_address: BTreeMap<String, Result<SavedRequest, String>>,
    /// How long each address took, also where the fetch was given up.
    took: BTreeMap<String, Duration>,
    /// Where a fetch goes that is dropped in the middle: nobody waits for what it came to.
    given_up: UntoldFetches,
}

/// Fetches that are in no record yet, by their whole addresses.
pub(crate) type UntoldFetches = Arc<std::sync::Mutex<Vec<(String, RequestFetch)>>>;

/// What an address came to.
#[derive(Debug)]
pub(crate) struct FoundRequest {
    pub request: Result<SavedRequest, String>,
    /// Absent: the run had fetched it before.
    pub fetch: Option<RequestFetch>,
}

/// Why a Request was not fetched, and what would be right.
#[derive(Debug, Error)]
enum FetchError {
    #[error("this is no address: {0}")]
    Address(#[from] url::ParseError),
    #[error(
        "@sha256: is followed by 64 hex digits in lower case, and {0:?} is none; a run shows the digest of what it fetched"
    )]
    NoDigest(String),
    #[error(
        "plain http:// is not fetched without a digest, because what comes could be changed on its way: write https://, or \
         put @sha256:DIGEST at the end of the address. For a server on this machine the operator may set \
         requests.plain_loopback = true"
    )]
    Plain,
    #[error(
        "a run fetches saved Requests from at most {MAX_ADDRESSES} addresses; put them into the requests folder"
    )]
    TooMany,
    #[error(
        "{}; {left_ms} ms were left of the {budget_ms} ms that a run has for all saved Requests which it fetches{used}. The \
         operator raises requests.timeout_ms",
        if *left_ms == 0 { "it was not asked for" } else { "it was not there in time" }
    )]
    OutOfTime {
        left_ms: u128,
        budget_ms: u128,
        used: String,
    },
    #[error("given up after {after_ms} ms: the call that needs it was stopped or ran out of time")]
    GivenUp { after_ms: u128 },
    #[error("the host cannot fetch: {0}")]
    SetUp(String),
    #[error(
        "{0}. The operator grants addresses in requests.http; or put it into the requests folder and name it"
    )]
    Refused(DocumentError),
    #[error("{0}; if that stays so, put it into the requests folder and name it")]
    Document(DocumentError),
    #[error("its digest is sha256:{own}, and sha256:{asked} is asked for: it was changed")]
    Changed { own: String, asked: String },
    #[error("this is no JSON document: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}")]
    Request(String),
}

/// What is known of a document while it is fetched.
#[derive(Debug, Default)]
struct DocumentFetch {
    attempts: u32,
    bytes: usize,
    digest: Option<String>,
}

impl Default for RemoteRequests {
    fn default() -> Self {
        Self::granted(Vec::new(), FetchRules::default())
    }
}

impl RemoteRequests {
    /// Requests may be fetched from where these grants reach.
    pub fn granted(grants: Vec<HttpGrant>, rules: FetchRules) -> Self {
        Self {
            grants: Arc::new(grants),
            rules,
            resolver: Arc::new(SystemResolver),
            egress: Arc::default(),
        }
    }

    /// The Request that `address` means, if it is an address of the web. With `@sha256:…` at its end, the document must
    /// have this digest. Each address is fetched once a run.
    pub(crate) async fn find(
        &self,
        address: &str,
        fetched: &Mutex<FetchedRequests>,
    ) -> Option<FoundRequest> {
        if !["https://", "http://"]
            .iter()
            .any(|scheme| address.starts_with(scheme))
        {
            return None;
        }
        let mut fetched = fetched.lock().await;
        if let Some(known) = fetched.by_address.get(address) {
            return Some(FoundRequest {
                request: known.clone(),
                fetch: None,
            });
        }
        let began = Instant::now();
        let (request, document) =
            if !fetched.took.contains_key(address) && fetched.took.len() >= MAX_ADDRESSES {
                (Err(FetchError::TooMany), DocumentFetch::default())
            } else {
                let used = fetched.used();
                let left = self.rules.budget.saturating_sub(fetched.spent());
                let mut timed = TimedFetch {
                    fetched: &mut fetched,
                    address,
                    began,
                    document: DocumentFetch::default(),
                    is_over: false,
                };
                let found = self.fetch(address, left, &mut timed.document).await;
                timed.is_over = true;
                let document = std::mem::take(&mut timed.document);
                (
                    found.map_err(|error| self.late(error, left, used)),
                    document,
                )
            };
        let request = request.map_err(|error| failed(address, &error));
        if fetched.took.contains_key(address) {
            let known = request.clone();
            fetched.by_address.insert(address.to_owned(), known);
        }
        let fetch = document.told(address, began, request.as_ref().err().cloned());
        Some(FoundRequest {
            request,
            fetch: Some(fetch),
        })
    }

    /// A fetch that is out of time says whose time it was.
    fn late(&self, error: FetchError, left: Duration, used: String) -> FetchError {
        match error {
            FetchError::Document(DocumentError::Timeout { .. }) => FetchError::OutOfTime {
                left_ms: left.as_millis(),
                budget_ms: self.rules.budget.as_millis(),
                used,
            },
            error => error,
        }
    }

    async fn fetch(
        &self,
        address: &str,
        patience: Duration,
        document: &mut DocumentFetch,
    ) -> Result<SavedRequest, FetchError> {
        let (plain, digest) = match address.rsplit_once("@sha256:") {
            Some((plain, digest)) => (plain, Some(digest)),
            None => (address, None),
        };
        if let Some(digest) = digest.filter(|digest| !is_digest(digest)) {
            return Err(FetchError::NoDigest(digest.chars().take(80).collect()));
        }
        let url = Url::parse(plain)?;
        let may_be_plain = self.rules.plain_loopback && is_loopback(&url);
        if url.scheme() == "http" && digest.is_none() && !may_be_plain {
            return Err(FetchError::Plain);
        }
        let bytes = self.document(&url, patience, document).await?;
        let own = sha256(&bytes);
        (document.bytes, document.digest) = (bytes.len(), Some(own.clone()));
        if let Some(asked) = digest.filter(|digest| *digest != own) {
            let asked = asked.to_owned();
            return Err(FetchError::Changed { own, asked });
        }
        let value: Value = bounded::from_slice(&bytes)?;
        SavedRequest::parse(&value).map_err(FetchError::Request)
    }

    /// Asks for the document, again where its server could not be reached or was busy, as long as there is time.
    async fn document(
        &self,
        url: &Url,
        patience: Duration,
        document: &mut DocumentFetch,
    ) -> Result<Vec<u8>, FetchError> {
        let out_of_time = || FetchError::Document(DocumentError::Timeout { patience });
        if patience.is_zero() {
            return Err(out_of_time());
        }
        let egress = self.egress().await.map_err(FetchError::SetUp)?;
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            document.attempts += 1;
            let error = match egress.fetch(url, MAX_BYTES, left).await {
                Ok(bytes) => return Ok(bytes),
                Err(error) => error,
            };
            match error {
                DocumentError::NotGranted | DocumentError::Credentials | DocumentError::Address => {
                    document.attempts -= 1;
                    return Err(FetchError::Refused(error));
                }
                error if error.may_pass() && document.attempts < MAX_ATTEMPTS => {
                    let wait = BACKOFF.after(document.attempts);
                    if wait >= until.saturating_duration_since(Instant::now()) {
                        return Err(FetchError::Document(error));
                    }
                    tokio::time::sleep(wait).await;
                }
                error => return Err(FetchError::Document(error)),
            }
        }
    }

    async fn egress(&self) -> Result<&Egress, String> {
        let (grants, resolver) = (self.grants.clone(), self.resolver.clone());
        let set_up = || async move {
            let egress = own_work(move || {
                let party = WorkParty::Kind("addresses of Requests");
                Egress::new(&party, grants.to_vec(), Vec::new(), resolver)
            });
            let egress = egress.await.map_err(|error| error.to_string())?;
            egress.map_err(|error| error.to_string())
        };
        let egress = self.egress.get_or_init(set_up).await;
        egress.as_ref().map_err(Clone::clone)
    }
}

impl FetchedRequests {
    /// Leaves fetches that are dropped there.
    pub fn leaving(given_up: UntoldFetches) -> Self {
        Self {
            given_up,
            ..Self::default()
        }
    }

    fn spent(&self) -> Duration {
        self.took.values().sum()
    }

    /// Which addresses took the time so far, the slowest first; empty if none did.
    fn used(&self) -> String {
        let mut took: Vec<_> = self
            .took
            .iter()
            .filter(|(_, took)| took.as_millis() > 0)
            .collect();
        took.sort_by_key(|(_, took)| std::cmp::Reverse(**took));
        let named: Vec<_> = took
            .iter()
            .take(MAX_NAMED)
            .map(|(address, took)| format!("{} took {} ms", shown(address), took.as_millis()))
            .collect();
        match named.as_slice() {
            [] => String::new(),
            named => format!(": {}", named.join(", ")),
        }
    }
}

impl DocumentFetch {
    /// What the record and the log say of it: a run that cannot begin has no record.
    fn told(self, address: &str, began: Instant, error: Option<String>) -> RequestFetch {
        let fetch = RequestFetch {
            address: shown(address),
            call: None,
            digest: self.digest,
            bytes: self.bytes as u64,
            duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            attempts: self.attempts,
            error,
        };
        match &fetch.error {
            Some(_) => tracing::warn!(?fetch, "a saved Request was not fetched"),
            None => tracing::info!(?fetch, "a saved Request was fetched"),
        }
        fetch
    }
}

/// A fetch under way. Its time counts and it is told also where it is dropped in the middle.
struct TimedFetch<'a> {
    fetched: &'a mut FetchedRequests,
    address: &'a str,
    began: Instant,
    document: DocumentFetch,
    is_over: bool,
}

impl Drop for TimedFetch<'_> {
    fn drop(&mut self) {
        let address = self.address;
        let took = self.fetched.took.entry(address.to_owned()).or_default();
        *took += self.began.elapsed();
        if self.is_over {
            return;
        }
        let error = FetchError::GivenUp {
            after_ms: self.began.elapsed().as_millis(),
        };
        let document = std::mem::take(&mut self.document);
        let fetch = document.told(address, self.began, Some(failed(address, &error)));
        let mut given_up = self
            .fetched
            .given_up
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        given_up.push((address.to_owned(), fetch));
    }
}

fn failed(address: &str, error: &FetchError) -> String {
    format!("the saved Request at {:?}: {error}", shown(address))
}

/// An address as it may stand in logs, in the record and in what others are told: without the name and the password of a
/// user, and without a query, which may be a key as well.
fn shown(address: &str) -> String {
    let pinned = address.rsplit_once("@sha256:");
    let (plain, digest) = match pinned.filter(|(_, digest)| is_digest(digest)) {
        Some((plain, digest)) => (plain, format!("@sha256:{digest}")),
        None => (address, String::new()),
    };
    let (scheme, rest) = plain.split_once("://").unwrap_or(("", plain));
    let (rest, hidden) = match rest.find(['?', '#']) {
        Some(end) => (&rest[..end], "?…"),
        None => (rest, ""),
    };
    let end = rest.find(['/', '\\']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}{hidden}{digest}")
}

fn is_digest(text: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 64 && text.bytes().all(is_hex)
}

/// Whether the address is of this machine itself, whatever a name server says.
fn is_loopback(url: &Url) -> bool {
    let host = url.host();
    let is_named = matches!(host, Some(Host::Domain(name)) if is_localhost(name));
    is_named
        || host
            .as_ref()
            .and_then(literal)
            .is_some_and(|address| address.is_loopback())
}

#[cfg(test)]
#[path = "remote_requests_tests.rs"]
mod tests;
