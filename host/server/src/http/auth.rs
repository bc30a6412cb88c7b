//! Identifies the client of a request, and its rights.

use crate::http::App;
use crate::http::error::ApiError;
use crate::http::party::{KeyName, party};
use crate::http::request_id::RunOfRequest;
use crate::http::request_memory::RequestMemory;
use crate::http::undelivered::RequestOrigin;
use crate::rights::Right;
use crate::runs::Viewer;
use crate::settings::Keys;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::net::IpAddr;
use toolhold_connections::{UnsentShare, bearer, source};
use toolhold_json::hex::sha256;
use toolhold_policy::Permit;
use toolhold_storage::{Permits, Scope};
use toolhold_telemetry as telemetry;

/// The client that sent a request. Extracting it requires a key.
#[derive(Debug, Clone)]
pub struct Client {
    /// Name of the key; empty if the server requires no keys.
    pub name: String,
    permits: Permits,
    /// The right with which the request was admitted. Work that outlives this check looks at it.
    pub right: Right,
    /// The client's trace context, if it sent one.
    pub trace: opentelemetry::Context,
    /// The memory of answers that it has not read.
    pub unsent: UnsentShare,
    /// The memory of the request: of its body, and of what is fetched or read again for it.
    pub memory: RequestMemory,
    /// The origin of the request, which tells when it is sent again.
    pub origin: RequestOrigin,
    /// The run that the request begins, for its id.
    pub run: RunOfRequest,
}

/// The name of a key and its permits.
struct KnownKey {
    name: String,
    permits: Permits,
    right: Right,
}

impl KnownKey {
    /// The operator, because the server requires no keys.
    fn anybody(right: Right) -> Self {
        Self {
            name: String::new(),
            right,
            permits: Permits {
                scopes: vec![Scope::Run, Scope::Approve, Scope::Admin],
                ..Permits::default()
            },
        }
    }
}

impl Client {
    pub fn may(&self, scope: Scope) -> Result<(), ApiError> {
        let scopes = &self.permits.scopes;
        if scopes.contains(&scope) || scopes.contains(&Scope::Admin) {
            return Ok(());
        }
        let name = match scope {
            Scope::Run => "run",
            Scope::Approve => "approve",
            Scope::Admin => "admin",
            Scope::Metrics => "metrics",
        };
        Err(ApiError::forbidden(format!(
            "this key lacks the scope {name:?}; the operator of this server can make one that has it"
        )))
    }

    pub fn is_admin(&self) -> bool {
        self.permits.scopes.contains(&Scope::Admin)
    }

    /// Whether the client may see a resource of `owner`.
    pub fn sees(&self, owner: &str) -> bool {
        self.name == owner || self.is_admin()
    }

    /// The owner whose runs this client lists; `None` lists all owners' runs.
    pub fn owner(&self) -> Option<&str> {
        (!self.is_admin()).then_some(self.name.as_str())
    }

    pub fn may_use_agent(&self, agent: &str) -> bool {
        let agents = self.permits.agents.as_ref();
        agents.is_none_or(|names| names.iter().any(|name| name == agent))
    }

    /// The client as a viewer of runs.
    pub fn viewer(&self) -> Viewer {
        Viewer {
            right: self.right.clone(),
            share: self.unsent.clone(),
        }
    }

    /// The part of the modules' grants that the key may use. Absent: all of it.
    pub fn grants(&self) -> Option<&[Permit]> {
        self.permits.grants.as_deref()
    }

    /// The tools that the key may use. Absent: all tools.
    pub fn tools(&self) -> Option<&[String]> {
        self.permits.tools.as_deref()
    }
}

impl FromRequestParts<App> for Client {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let client = Self::identify(parts, app).await?;
        let scopes = &client.permits.scopes;
        if !scopes.is_empty() && scopes.iter().all(|scope| *scope == Scope::Metrics) {
            return Err(ApiError::forbidden(
                "this key may read /metrics and nothing else; the operator of this server can make one that has the scope \"run\"",
            ));
        }
        Ok(client)
    }
}

/// A client that may read the metrics, and maybe nothing else. Extracting it requires a key.
#[derive(Debug)]
pub struct Scraper;

impl FromRequestParts<App> for Scraper {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let client = Client::identify(parts, app).await?;
        client.may(Scope::Metrics).map(|()| Self)
    }
}

impl Client {
    /// The client that sent a request, without a look at its scopes.
    async fn identify(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let source = source(&parts.extensions);
        let KnownKey {
            name,
            permits,
            right,
        } = key_of(parts, source, app).await?;
        app.key_rate.take(&name).map_err(|wait| {
            let what = "more requests than this key may make in a minute";
            ApiError::too_many_in_a_minute(what, wait)
        })?;
        KeyName::note(&mut parts.extensions, &name);
        // For those that read the body, which may take minutes to arrive.
        parts.extensions.insert(right.clone());
        let party = party(&parts.extensions);
        let kept = app.dispatcher.agents().registry().kept();
        let memory = RequestMemory::new(kept.of(party.clone()))?;
        // The body, which is read next, counts in it.
        parts.extensions.insert(memory.clone());
        Ok(Self {
            memory,
            name,
            permits,
            right,
            trace: telemetry::client_context(&parts.headers),
            unsent: app.unsent.of(party.clone()),
            origin: RequestOrigin::new(party, parts.uri.path(), &mut parts.extensions),
            run: RunOfRequest::of(&mut parts.extensions),
        })
    }
}

async fn key_of(parts: &Parts, source: IpAddr, app: &App) -> Result<KnownKey, ApiError> {
    let store = app.dispatcher.store();
    store.readable()?;
    let rights = app.dispatcher.rights();
    let open = match app.keys {
        Keys::Never => Some(Right::of_operator()),
        // A key that is created while the server runs ends open access.
        Keys::Auto if app.is_local && !store.has_keys().await? => Some(rights.until_keys()),
        Keys::Auto | Keys::Always => None,
    };
    if let Some(right) = open {
        // Open access makes every request the operator's, so requests of foreign web pages are refused.
        if app.guard.check(&parts.uri, &parts.headers).is_err() {
            return Err(ApiError::forbidden(
                "without keys this server answers only to this machine's own names, such as 127.0.0.1, and to pages of \
                 serve.origins; `toolhold keys create` makes a key",
            ));
        }
        return Ok(KnownKey::anybody(right));
    }
    let Some(key) = bearer(&parts.headers) else {
        return Err(ApiError::unauthenticated(
            "this server needs a key: Authorization: Bearer KEY; `toolhold keys create` makes one",
        ));
    };
    let digest = digest(key.as_bytes());
    app.auth_throttle.admit(store, source, &digest).await?;
    let Some(key) = store.key(&digest).await? else {
        app.auth_throttle.is_unknown(source);
        return Err(ApiError::unauthenticated(
            "this key is unknown here, or was revoked or replaced, or is too old",
        ));
    };
    Ok(KnownKey {
        right: rights.of_secret(&key.name, &digest),
        name: key.name,
        permits: key.permits,
    })
}

/// SHA-256 in hex.
pub fn digest(bytes: &[u8]) -> String {
    sha256(bytes)
}
