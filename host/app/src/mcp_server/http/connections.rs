//! Accepting connections: so many at a time, none that dawdles, every reply in one write.

use super::guard::Guard;
use super::sessions::Sessions;
use super::{Endpoint, router};
use crate::mcp_server::service::Service;
use crate::mcp_server::settings::Bearer;
use anyhow::{Context as _, Result, bail};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use secrecy::SecretString;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use uuid::Uuid;

/// For the head of a request, the wait between two requests included.
const HEAD: Duration = Duration::from_mins(1);
const HEAD_BYTES: usize = 64 << 10;
/// When the system has no more connections to give.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// An address that is listened at, and what protects it.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    token: Option<Bearer>,
}

impl Bound {
    /// Listens at `address`, such as `127.0.0.1:8808`. Every other address than this machine's own
    /// needs a token.
    pub async fn new(service: &Service, address: &str) -> Result<Self> {
        let variable = &service.settings().token_env;
        let token = std::env::var(variable).ok().map(SecretString::from);
        let token = token
            .map(|token| Bearer::new(&token))
            .transpose()
            .map_err(|reason| anyhow::anyhow!("the variable {variable} is no token: {reason}"))?;
        let listener = TcpListener::bind(address)
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

/// Serves until it is dropped, and with it every connection.
pub async fn serve(service: Arc<Service>, bound: Bound) -> Result<()> {
    let settings = service.settings();
    let is_local = bound.address()?.ip().is_loopback();
    let places = Arc::new(Semaphore::new(settings.connections));
    let endpoint = Endpoint {
        guard: Guard::new(is_local, settings, bound.token),
        sessions: Sessions::new(settings.sessions, settings.session_idle),
        id: Uuid::now_v7().to_string().into(),
        service: service.clone(),
    };
    let router = router(Arc::new(endpoint));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let place = places.clone().acquire_owned().await?;
        let stream = match bound.listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(EXHAUSTED).await;
                continue;
            }
        };
        // A reply is one write; it should not wait for the next.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        connections.spawn(async move {
            let _place = place;
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .max_buf_size(HEAD_BYTES)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
}
