//! Outbound HTTP of a guest: what was granted, and nothing else (`docs/security.md`, promise 8).
//!
//! A request passes these checks in order: the grants of [`toolhold_policy::egress`] (one for this method, origin
//! and path), the address (names are resolved by `resolve`, once, and the connection goes to the very
//! addresses that were judged), the limits (`meter`), the module's [secrets](toolhold_policy::secret). `send`
//! walks a request through; `redirect` says what a redirect turns it into; `body` counts, times and cleans what
//! flows.
//!
//! The client is reqwest's: it takes a resolver of ours, follows nothing, knows no proxy, and pools
//! connections by origin. Each module has clients of its own, so that no connection made under one
//! module's grant ever serves another. It speaks HTTP/1.1: a connection serves one request at a time, so a call that ends in
//! the middle of a request closes the connection. A connection of HTTP/2 is shared: it would keep heads of requests
//! that were let go, take frames of its peer after the call, and serve later calls although the peer reads nothing more.

mod body;
mod fetch;
mod headers;
mod meter;
mod redirect;
mod resolve;
mod send;

pub use fetch::{DocumentError, FetchedDocument};
pub use resolve::{Resolve, SystemResolver};
pub(crate) use send::admitted;

use crate::denial_log::DenialLog;
use crate::descriptors::CallDescriptors;
use crate::revocation::Revocation;
use http::{Method, Request, Response};
pub(crate) use meter::EndedExchange;
use meter::HttpMeter;
use reqwest::Client;
use resolve::CheckingResolver;
use send::OutboundRequest;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use thiserror::Error as ThisError;
use toolhold_admission::WorkParty;
use toolhold_policy::egress::is_forbidden_header;
use toolhold_policy::{GrantError, HttpGrant, HttpLimits};
use toolhold_policy::{Redactor, SecretGrant};
use url::Url;
use wasmtime_wasi_http::{Error, ForbiddenHeaderFilter, RequestOptions, WasiBody, WasiHttpHooks};

/// Idle connections kept to one origin: enough for a burst, few enough to leave open.
const MAX_IDLE_CONNECTIONS_PER_ORIGIN: usize = 2;
/// Shorter than what servers and middleboxes commonly keep.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// Four of the largest writes that WASI's blocking calls make.
const BODY_CHUNK_BYTES: usize = 16 << 10;
/// What one body may buffer: a chunk that waits, and one that is being written.
pub(crate) const BODY_MEMORY_BYTES: usize = 2 * BODY_CHUNK_BYTES;

/// Why a module's outbound HTTP cannot be set up.
#[derive(Debug, ThisError)]
pub enum EgressError {
    #[error(transparent)]
    Grant(#[from] GrantError),
    #[error("no HTTP client can be set up: {reason}")]
    Client { reason: String },
}

/// What one module may send, and the connections it sends over.
#[derive(Debug, Default)]
pub struct Egress {
    grants: Vec<HttpGrant>,
    secrets: Vec<SecretGrant>,
    redactor: Redactor,
    /// Finds those secrets with which a response is refused.
    refused: Redactor,
    /// Reaches the public internet alone.
    public: Option<Client>,
    /// Reaches this machine and its network too, for the grants that say so.
    private: Option<Client>,
}

impl Egress {
    /// Names are looked up for `party`.
    ///
    /// # Errors
    /// If the host can set up no client (for https it needs the system's root certificates), or if
    /// the secrets are too large to be looked for.
    pub fn new(
        party: &WorkParty,
        grants: Vec<HttpGrant>,
        secrets: Vec<SecretGrant>,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Self, EgressError> {
        let client_for = |private: bool| {
            let mut served = grants
                .iter()
                .filter(|grant| grant.is_private() == private)
                .peekable();
            served.peek()?;
            let tls = served.any(|grant| grant.origin().is_https());
            let judge = CheckingResolver {
                resolver: resolver.clone(),
                party: party.clone(),
                private,
            };
            Some(client(judge, tls))
        };
        Ok(Self {
            redactor: SecretGrant::redactor(&secrets)?,
            refused: SecretGrant::redactor(secrets.iter().filter(|secret| secret.is_refused()))?,
            public: client_for(false).transpose()?,
            private: client_for(true).transpose()?,
            grants,
            secrets,
        })
    }

    /// The hooks of a single call. Dropping them with the store, at the call's deadline, ends what they started.
    pub(crate) fn hooks(
        self: &Arc<Self>,
        limits: &HttpLimits,
        descriptors: CallDescriptors,
        revocation: Arc<Revocation>,
    ) -> Hooks {
        Hooks {
            revocation,
            egress: self.clone(),
            limits: limits.clone(),
            descriptors,
            meter: OnceLock::new(),
        }
    }

    /// Finds the secrets of this module.
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    fn secrets(&self) -> &[SecretGrant] {
        &self.secrets
    }

    /// Finds the secrets with which a response is refused.
    fn refused(&self) -> &Redactor {
        &self.refused
    }

    /// Of several grants that fit, the one that reaches further, then the one that follows further.
    fn grant(&self, method: &Method, url: &Url) -> Option<&HttpGrant> {
        let fitting = self.grants.iter().filter(|grant| grant.allows(method, url));
        fitting.max_by_key(|grant| (grant.is_private(), grant.redirects()))
    }

    fn client(&self, grant: &HttpGrant) -> Option<&Client> {
        if grant.is_private() {
            self.private.as_ref()
        } else {
            self.public.as_ref()
        }
    }
}

fn client(judge: CheckingResolver, tls: bool) -> Result<Client, EgressError> {
    let mut builder = Client::builder()
        // The environment is the host's; a proxy would resolve names by itself.
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .dns_resolver(judge)
        .tls_version_min(reqwest::tls::Version::TLS_1_2)
        .http1_only()
        .tcp_nodelay(true)
        .pool_idle_timeout(IDLE_CONNECTION_TIMEOUT)
        .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS_PER_ORIGIN);
    if !tls {
        // A machine without root certificates can still serve plain http to itself.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| EgressError::Client {
        reason: error.to_string(),
    })
}

/// Outbound HTTP as one call sees it. Nothing that it starts outlives the call: requests are futures
/// that the call's store owns, and a connection ends with the response that is read from it.
#[derive(Debug)]
pub struct Hooks {
    /// Nothing is sent after it.
    revocation: Arc<Revocation>,
    egress: Arc<Egress>,
    limits: HttpLimits,
    descriptors: CallDescriptors,
    /// Made for the first request: most calls send none.
    meter: OnceLock<Arc<HttpMeter>>,
}

impl Drop for Hooks {
    /// The call is over. In the store this stands before the table of resources, so requests see it before their bodies
    /// end, and do not send an unfinished body as a whole one.
    fn drop(&mut self) {
        if let Some(meter) = self.meter.get() {
            meter.end();
        }
    }
}

impl Hooks {
    fn meter(&self) -> &Arc<HttpMeter> {
        let make = || HttpMeter::new(self.limits.clone(), self.descriptors.clone());
        self.meter.get_or_init(|| Arc::new(make()))
    }

    /// Why the host ended an exchange of this call: the first time.
    pub fn fired(&self) -> Option<EndedExchange> {
        self.meter.get()?.fired()
    }

    /// Requests of this call that were refused, if it sent any.
    pub(crate) fn denials(&self) -> Option<&DenialLog> {
        Some(&self.meter.get()?.denials)
    }

    /// The secrets that requests of this call may carry.
    pub(crate) fn secrets(&self) -> &[SecretGrant] {
        self.egress.secrets()
    }

    /// How many times a secret was taken out of what came back.
    pub fn redactions(&self) -> u64 {
        self.meter.get().map_or(0, |meter| meter.redactions())
    }
}

type Io = Box<dyn Future<Output = Result<(), Error>> + Send>;
type ExchangeFuture = Box<dyn Future<Output = Result<(Response<WasiBody>, Io), Error>> + Send>;

impl WasiHttpHooks for Hooks {
    fn forbidden_header_filter(&mut self) -> ForbiddenHeaderFilter {
        Arc::new(is_forbidden_header)
    }

    /// The client writes it, from the URL as it was checked and not as the guest spelt it.
    fn set_host_header(&mut self) -> bool {
        false
    }

    /// Two of these are buffered for each body that a guest opens, sent or not, and it may open as
    /// many as it has handles.
    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        BODY_CHUNK_BYTES
    }

    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Io,
    ) -> ExchangeFuture {
        let exchange = OutboundRequest {
            egress: self.egress.clone(),
            meter: self.meter().clone(),
            options: options.unwrap_or_default(),
        };
        let revocation = self.revocation.clone();
        Box::new(async move {
            revocation.check().map_err(|_| Error::HttpRequestDenied)?;
            let response = exchange.send(request).await?;
            Ok((response, Box::new(async { Ok(()) }) as Io))
        })
    }
}
