//! Why the server does not take a run.

use crate::rights::RightEnd;
use thiserror::Error;
use tokio::task::JoinError;
use toolhold_admission::MemoryFull;
use toolhold_agent::run::replay::ReplayError;
use toolhold_connections::no_memory;
use toolhold_protocol::error::RunError;
use toolhold_storage::{RecordError, StoreError};
use uuid::Uuid;

/// Why a run was not begun or not resumed.
#[derive(Debug, Error)]
pub enum RunRefusal {
    #[error("too many runs wait already; try again in a while")]
    Full,
    #[error("no place for the run became free in time; try again in a while")]
    Late,
    #[error("the server is about to stop; try again when it is back")]
    Closing,
    #[error(transparent)]
    Request(#[from] RunError),
    #[error("the run could not be recorded, and was not begun; the server's log says why")]
    NotRecorded,
    #[error("another turn of this session began meanwhile; a session takes one at a time")]
    TurnTaken,
    #[error("session {session}")]
    NoSession { session: Uuid },
    #[error("there is no agent {name:?} any more, which began this run")]
    NoAgent { name: String },
    #[error("the endpoint of the agent {name:?} has not answered yet; try again in a while")]
    AgentWaits { name: String },
    #[error("modules of the run are still being loaded ({}); it goes on when they are ready", names.join(", "))]
    ModulesLoad { names: Vec<String> },
    #[error(
        "MCP servers of the run have not listed their tools yet ({}); it goes on when they have, or have failed",
        names.join(", ")
    )]
    SilentServers { names: Vec<String> },
    #[error("the images of the run are not read: {}", no_memory(*.0))]
    Memory(MemoryFull),
    #[error("its record does not fit together: {0}")]
    Replay(#[from] ReplayError),
    #[error("what was done with the run broke off: {0}")]
    Broken(#[from] JoinError),
    #[error(transparent)]
    Right(#[from] RightEnd),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RunRefusal {
    /// The refusal is temporary, or not caused by the run: all places are taken, or the configuration lacks
    /// the agent, which the operator may add again.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Full
            | Self::Late
            | Self::AgentWaits { .. }
            | Self::ModulesLoad { .. }
            | Self::SilentServers { .. }
            | Self::NoAgent { .. } => true,
            Self::Memory(full) => !full.is_for_ever(),
            Self::Store(error) | Self::Record(RecordError::Store(error)) => {
                error.outage().is_some()
            }
            _ => false,
        }
    }

    /// True if the run waits for something that this process loads or asks when it begins.
    pub fn awaits_startup(&self) -> bool {
        matches!(self, Self::ModulesLoad { .. } | Self::SilentServers { .. })
    }
}
