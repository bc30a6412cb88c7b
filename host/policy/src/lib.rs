//! The operator's decisions about modules, and the data that pins hold.
//!
//! This crate is vocabulary: types that say what a module may do, with the checks and comparisons that need
//! nothing but the types. It runs no code, opens no file or socket and knows no model; so every other crate can
//! speak about grants, limits, pins and calls without linking the sandbox.
//!
//! Read it in this order: [`grant`] (what a module is given) and [`egress`] and [`secret`] in it; [`limits`]
//! (what a call may use); [`restrictions`] (what narrows grants for one call); [`manifest`] (what a module asks
//! for); [`tool`] (what a tool says of itself), [`digest`] and [`pin`] (what is pinned); [`call`] (an
//! invocation, its report, and the seams of a running call) with [`error`]; [`redact`], [`text`] and [`prompt`]
//! (untrusted text before it is shown or kept, or becomes a part of a prompt); [`pii`] and [`redaction`] (personal
//! data and secrets in texts).
//!
//! ```
//! use toolhold_policy::{Grant, GrantRestrictions, Restriction};
//!
//! let granted = Grant { tools: vec!["calculator".into()], ..Grant::default() };
//! assert_eq!(granted.sentences(), ["call the tool calculator, with that tool's own grants"]);
//!
//! // A key that may use no capability at all.
//! let none = GrantRestrictions::default().with("this key", Restriction::Permits(Vec::new()));
//! let left = none.narrow("notes", &granted, &|one, other| one == other);
//! assert!(left.grant.is_empty());
//! assert_eq!(left.withheld, ["tools not granted to this key"]);
//! ```
#![forbid(unsafe_code)]

pub mod call;
pub mod digest;
pub mod egress;
pub mod error;
pub mod grant;
pub mod limits;
pub mod log;
pub mod manifest;
pub mod names;
pub mod pii;
pub mod pin;
pub mod prompt;
pub mod redact;
pub mod redaction;
pub mod restrictions;
pub mod secret;
pub mod text;
pub mod tool;

pub use call::{
    AllowingRule, BeginCheck, BegunJob, CallClock, CallProfile, CallReport, CallUsage, Caller,
    ClockPause, Denial, Denials, Invocation, JobQuestion, JobState, KnowledgeAccess, Listener,
    MAX_CALL_DEPTH, MAX_JOB_ID, NestedCall, NestedCalls, NestedResult, Output, OwnedCaller,
    ProfileSlot, ProfileSummary, ProfiledFunction, Progress, is_job_id,
};
pub use digest::Digest;
pub use egress::{GrantError, HttpGrant, HttpLimit, HttpLimits, Origin};
pub use error::{CallError, ErrorClass, TakenPlaces};
pub use grant::{
    Access, Capability, Clocks, CollectionGrant, CollectionRight, DirectoryGrant, Grant, Keep,
    KeyValueGrant, KnowledgeGrant, MemoryGrant, MemoryRight, MemoryScope, Randomness, ScratchGrant,
    Share,
};
pub use limits::{Limit, Limits, LimitsRequest};
pub use log::{Captured, LogLevel, LogLine};
pub use manifest::{Manifest, ManifestError};
pub use pin::{EarlierPinDecision, GrantChange, Pin, PinState, PinStore, PinWriteError, PinnedBy};
pub use redact::Redactor;
pub use restrictions::{GrantRestrictions, NarrowedGrant, Permit, PermitError, Restriction};
pub use secret::{Reflect, SecretGrant, SecretPlace, SecretSlot};
pub use text::{UntrustedText, is_name, tool_name, visible};
pub use tool::{Annotations, Claims, DocsSource, Example, ToolSpec};
