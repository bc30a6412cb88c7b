//! Opens the database when `toolhold serve` starts. The server waits for one that cannot be reached, as it waits for
//! endpoints, and for one that takes long, because it stands still or is migrated. Meanwhile the server listens: it is
//! alive and not ready, and says why.

use crate::service_manager::ServiceManager;
use crate::terminal::output::{self, NoteMark};
use anyhow::Result;
use std::net::TcpListener as StdListener;
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use toolhold_admission::Backoff;
use toolhold_connections as connections;
use toolhold_runtime::causes::causes;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_server::http::waiting_router;
use toolhold_storage::{Location, Outage, Store, StoreError};

/// Waits between attempts to open the database. A server that comes back is soon seen.
const RETRY: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(2));
/// Time for the database to be open before clients are answered that it is awaited.
const SHORT_OPENING: Duration = Duration::from_secs(2);
/// Grace period for answers that were begun while the database was awaited. They are short.
const ANSWER_GRACE: Duration = Duration::from_secs(2);

/// Status of a server whose database cannot be reached.
const AWAITED: &str = "waits for its database";

/// A listener of its own on the same socket. No connection is refused between the end of one listener and the begin of
/// another.
///
/// # Errors
/// The process has no descriptor left.
pub fn listen_on(socket: &StdListener) -> Result<TcpListener> {
    Ok(TcpListener::from_std(socket.try_clone()?)?)
}

/// Answers clients while the database is awaited, until it is ended.
#[derive(Debug)]
pub struct WaitingService {
    stop: CancellationToken,
    served: JoinHandle<()>,
}

impl WaitingService {
    fn start(socket: &StdListener, bounds: connections::Settings) -> Result<Self> {
        let stop = CancellationToken::new();
        let served = tokio::spawn(connections::serve(
            listen_on(socket)?,
            waiting_router(SystemTime::now()),
            bounds,
            stop.clone(),
        ));
        Ok(Self { stop, served })
    }

    /// Stops accepting. Connections that do not end soon are closed.
    pub async fn end(mut self) {
        self.stop.cancel();
        if timeout(ANSWER_GRACE, &mut self.served).await.is_err() {
            self.served.abort();
        }
    }
}

/// Opens the store. If its server cannot be reached, or it is not open soon, everything is answered on `socket` by the returned
/// service, until the caller ends it. `bounds` makes the bounds of its connections.
///
/// # Errors
/// The store cannot be opened for a reason that does not pass by itself, such as a wrong password.
pub async fn open(
    config: &Configuration,
    bounds: &(dyn Fn() -> connections::Settings + Sync),
    socket: &StdListener,
    manager: &ServiceManager,
) -> Result<(Store, Option<WaitingService>)> {
    let address = socket.local_addr()?;
    let mut waiting = None;
    let (mut told, mut failures) = (String::new(), 0_u32);
    loop {
        let mut opening = Box::pin(host::store(config));
        let opened = if let Ok(opened) = timeout(SHORT_OPENING, &mut opening).await {
            opened
        } else {
            if waiting.is_none() {
                let text = format!(
                    "the database takes long to open; http://{address}/v1 answers 503 until it is open"
                );
                output::note(NoteMark::Warn("waiting:"), &text);
                waiting = Some(WaitingService::start(socket, bounds())?);
                manager.ready("opens its database");
            }
            // Not begun anew: a migration would never end.
            opening.await
        };
        let error = match opened {
            Ok(store) => {
                if waiting.is_some() {
                    output::note(NoteMark::Good("database:"), "it is open");
                }
                return Ok((store, waiting));
            }
            Err(error) => error,
        };
        if !is_away(config, &error) {
            return Err(error);
        }
        let reason = causes(&error);
        if reason != told {
            let text = format!("{reason}; http://{address}/v1 answers 503 until it can be reached");
            output::note(NoteMark::Warn("waiting:"), &text);
            told = reason;
        }
        if waiting.is_none() {
            waiting = Some(WaitingService::start(socket, bounds())?);
            manager.ready(AWAITED);
        } else {
            manager.status(AWAITED);
        }
        failures = failures.saturating_add(1);
        tokio::time::sleep(RETRY.after(failures)).await;
    }
}

/// True if the database is one of a server that cannot be reached at present. A file is there, or a person has to act.
fn is_away(config: &Configuration, error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<StoreError>();
    let outage = error.and_then(StoreError::outage);
    matches!(config.storage(), Location::Postgres(_)) && outage == Some(Outage::Unreachable)
}
