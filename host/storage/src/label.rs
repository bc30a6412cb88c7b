//! What a run is started as.

use crate::blob_quota::BlobQuota;
use uuid::Uuid;

/// Owner, agent and origin of a run.
#[derive(Debug, Clone, Default)]
pub struct Label {
    /// Name of the API key; empty for the user of this machine's terminal.
    pub owner: String,
    /// The configured agent; empty for none.
    pub agent: String,
    /// What started the run.
    pub origin: Origin,
    /// The session that the run is a turn of, and the turn's number from 0 on.
    pub turn: Option<(Uuid, u32)>,
    /// For a run of OpenAI's Responses API: the part of the request that events do not hold, as JSON. Deleted
    /// with the run.
    pub asked: Option<String>,
    /// The run's span as `traceparent`; absent without tracing.
    pub trace: Option<String>,
    /// The quota of the images that the run begins with, which are written only if they fit. Absent: any number of bytes.
    pub images: Option<BlobQuota>,
}

/// What started a run, and resumes it after a crash.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Origin {
    /// A person, with `toolhold resume`.
    #[default]
    Cli,
    /// The server, by itself.
    Serve,
}

impl Origin {
    /// As the column `origin` holds it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cli => "cli",
            Self::Serve => "serve",
        }
    }
}
