//! What happens in a run, as one ordered stream with many readers: terminal, page, journal, replay.
//! There is no second logging path.

mod bodies;
mod end;
mod journal;
mod kind;
mod record;
mod removed;
mod seal;
mod shared;
mod so_far;
mod unusable;

pub use bodies::{Bodies, BodyError};
pub use end::{RunFailure, StopReason};
pub use journal::{CancelRequested, Journal, NoJournal};
pub use kind::{EventKind, ToolOutcome};
pub use record::Event;
pub use removed::{MAX_NAMED, RemovedSource, RemovedTexts};
pub use seal::Seal;
pub use shared::SharedWithPrevious;
pub use so_far::{ReplySoFar, ShownText, TextMissing};
pub use unusable::UnusableReply;

use uuid::Uuid;

/// The format of the records that this version writes. The crate's root says when it is raised.
pub const FORMAT: u32 = 5;

/// The oldest format of records that this version replays.
pub const OLDEST_FORMAT: u32 = 3;

/// The revision of the texts that this version asks models with (their order, headings, fences and bars, and the schemas of
/// functions) and of the parts that they are counted in. A record of another revision is replayed from its inputs, and the bodies of its requests are
/// not compared.
pub const PROMPTS: u32 = 6;

/// The id of the sub-agent's run that answers a call of the run `parent`. The same call gets the same id when its run is
/// resumed.
pub fn sub_run(parent: Uuid, call: &str) -> Uuid {
    Uuid::new_v5(&parent, call.as_bytes())
}
