//! The listening address, and its protection.

use super::guard::HttpGuard;
use super::sessions::Sessions;
use super::{HEALTH, HttpEndpoint, router};
use crate::rpc::{self, INTERNAL_ERROR, RpcError};
use crate::serve::service::Service;
use crate::serve::settings::Bearer;
use anyhow::{Context as _, Result, bail};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolhold_connections as connections;
use uuid::Uuid;

/// Connections besides the others, for requests of health while all others are busy. As many as the HTTP API has.
const RESERVED_CONNECTIONS: usize = 16;
/// Time after which a session ends that does nothing.
const SESSION_IDLE: Duration = Duration::from_mins(30);

/// A listening address, and its protection.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    token: Option<Bearer>,
}

impl Bound {
    /// Listens at `address`, such as `127.0.0.1:8808`. An address other than loopback requires a token.
    pub async fn new(service: &Service, address: &str) -> Result<Self> {
        let variable = &service.settings().token_env;
        let token = service.settings().token.as_ref();
        let token = token
            .map(Bearer::new)
            .transpose()
            .map_err(|reason| anyhow::anyhow!("the variable {variable} is no token: {reason}"))?;
        let listener = connections::listen(address)
            .await
            .with_context(|| format!("{address} cannot be listened at"))?;
        let bound = Self { listener, token };
        if bound.token.is_none() && !bound.address()?.ip().is_loopback() {
            bail!(
                "{address} can be reached from other machines, and so every client must bring a token: put one into the \
                 variable {variable} (openssl rand -hex 32 makes one), or listen at 127.0.0.1"
            );
        }
        Ok(bound)
    }

    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }
}

/// Serves until dropped, which closes all connections.
pub async fn serve(service: Arc<Service>, bound: Bound) -> Result<()> {
    let settings = service.settings();
    let is_local = bound.address()?.ip().is_loopback();
    let endpoint = HttpEndpoint {
        guard: HttpGuard::new(is_local, settings, bound.token),
        sessions: Sessions::new(settings.sessions, SESSION_IDLE),
        id: Uuid::now_v7().to_string().into(),
        service: service.clone(),
    };
    let router = router(Arc::new(endpoint));
    // The clients are local programs and end with their connection.
    let stop = CancellationToken::new();
    let busy = RpcError::new(
        INTERNAL_ERROR,
        "all connections of this server are busy, and nothing was done with the request; try again in a while",
    );
    let settings = connections::Settings {
        reserve: RESERVED_CONNECTIONS,
        is_reserved: |path| path == HEALTH,
        busy_body: rpc::reply(None, &Err(busy)),
        ..connections::Settings::new(settings.connections.min(Semaphore::MAX_PERMITS))
    };
    connections::serve(bound.listener, router, settings, stop).await;
    Ok(())
}
