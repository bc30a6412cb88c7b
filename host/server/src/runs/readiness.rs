//! Whether this server can begin runs, and what its metrics say of it as a whole.

use crate::runs::dispatcher::{Dispatcher, DispatcherInner};
use crate::runs::refused::RunRefusal;
use std::sync::Arc;
use thiserror::Error;
use toolhold_storage::{AuditLosses, Outage, StoreError};
use toolhold_telemetry::{AuditState, DatabaseState, ServerState};

/// Why no run can be begun at present.
#[derive(Debug, Error)]
pub enum NotReady {
    #[error("{}", RunRefusal::Closing)]
    Closing,
    #[error(transparent)]
    Database(StoreError),
    #[error(
        "no agent can run: none of their endpoints has answered yet; the server's log names them"
    )]
    NoAgent,
    #[error("modules are being loaded; {ready} are ready so far")]
    Loading { ready: usize },
}

impl Dispatcher {
    /// Whether runs can start, by known state alone: no query is made.
    ///
    /// # Errors
    /// What keeps them from it.
    pub fn ready(&self) -> Result<(), NotReady> {
        self.inner.ready()
    }

    /// Exports what the server can offer.
    pub(super) fn export_state(&self) {
        // Weak: metrics must not keep what they measure.
        let measured = Arc::downgrade(&self.inner);
        self.telemetry().watch_server(move || {
            let state = measured.upgrade().map(|inner| inner.state());
            state.unwrap_or_default()
        });
    }
}

impl DispatcherInner {
    fn ready(&self) -> Result<(), NotReady> {
        if self.closing.is_cancelled() {
            return Err(NotReady::Closing);
        }
        self.store.writable().map_err(NotReady::Database)?;
        if self.agents.all().ready.is_empty() {
            return Err(NotReady::NoAgent);
        }
        if !self.startup.is_over() {
            let ready = self.agents.registry().modules().len();
            return Err(NotReady::Loading { ready });
        }
        Ok(())
    }

    fn state(&self) -> ServerState {
        let (agents, registry) = (self.agents.all(), self.agents.registry());
        let modules = registry.modules();
        let ready = modules.iter().filter(|it| it.pin_state().may_run()).count();
        let AuditLosses {
            lost,
            refused,
            backlog,
        } = self.store.audit_losses();
        ServerState {
            is_ready: self.ready().is_ok(),
            database: match self.store.health().outage() {
                None => DatabaseState::Works,
                Some(Outage::ReadOnly) => DatabaseState::ReadOnly,
                Some(Outage::Unreachable) => DatabaseState::Unreachable,
            },
            ready_agents: agents.ready.len() as u64,
            waiting_agents: agents.waiting.len() as u64,
            ready_modules: ready as u64,
            disabled_modules: (modules.len() - ready) as u64,
            failed_modules: registry.failures().len() as u64,
            audit: AuditState {
                lost,
                refused,
                backlog,
            },
        }
    }
}
