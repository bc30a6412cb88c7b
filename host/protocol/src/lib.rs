//! The agent protocol's vocabulary: what a run is asked, what it may use, and what is recorded of it.
//!
//! What this crate promises: data and functions of data, without I/O, without a clock, without a
//! runtime. Who reads the record of a run needs this crate and no other: the loop, the model client
//! and the sandbox all speak in its types, and none of them is known here.
//!
//! Read it in this order: [`context`] (the messages that a Request is built from) with [`tool`],
//! [`data`], [`image`], [`knowledge`], [`reference`](mod@reference) and [`meta`]; [`function_names`] (names of tools in other systems),
//! [`compose`] (the schema of a reply), [`solution`] and
//! [`turn`] (what a model replied and was told), [`citation`] (what it cites); [`plan`] and [`advisor`]; [`settings`] (what a run is
//! asked, and its limits) with [`bound`], [`decision`], [`privacy`], [`shield`], [`fallback`] and
//! [`window`]; [`completion`], [`routing`], [`side_request`] and [`cost`] (what models answer, and for
//! how much); [`result`](mod@result), [`blob`], [`failure`] and [`error`] (what comes of calls and runs); and
//! last [`event`], the record that all of this is written to.
//!
//! # Reading a record
//!
//! ```
//! use serde_json::json;
//! use toolhold_protocol::event::{Event, EventKind, Seal};
//!
//! let event = Event {
//!     run: uuid::Uuid::nil(),
//!     seq: 0,
//!     at_ms: 0,
//!     kind: EventKind::Notice { step: 1, message: "nothing happened".into() },
//!     removed: None,
//!     seal: Seal::default(),
//! };
//! let event = event.sealed(&Seal::default())?;
//! let line = serde_json::to_string(&event)?;
//! assert_eq!(Seal::of(&line, &Seal::default()), Some(event.seal));
//!
//! let read: Event = serde_json::from_str(&line)?;
//! assert_eq!(read.kind.name(), "notice");
//! # Ok::<(), serde_json::Error>(())
//! ```
//! # How the record format evolves
//!
//! The first event of a run, and of each sub-agent's, names the [`format`](event::FORMAT) of what
//! follows. Replay means that the loop comes to the same events again, so a record is replayed by the rules of
//! its format. This version has the rules of the formats from [`OLDEST_FORMAT`](event::OLDEST_FORMAT) on, and a
//! record of another one is an error that says which version can go on with it. What the rules of an older
//! format say is asked in one place of the loop.
//!
//! - A field may be added without a new number if it may be absent and its absence means what it meant
//!   before: `#[serde(default, skip_serializing_if = …)]`. The same holds for a new kind of event.
//! - Whatever makes a run come to other events from the same inputs needs a new number: a changed rule of
//!   the loop, another order of events, a changed default of a setting that records leave out.
//! - Another text that a model reads needs a new number of [`PROMPTS`](event::PROMPTS): requests are no inputs of a run, so a
//!   record of other texts is replayed without a comparison of what was asked.
//! - Meaning is never in a text for people. What a program needs to tell apart is an event of its own, or
//!   a field.
//! - Showing a record ([`event::Event`] read as data) is no replay: fields that are unknown are
//!   ignored, and what is missing has its default.
#![forbid(unsafe_code)]

pub mod advisor;
pub mod blob;
pub mod bound;
pub mod citation;
pub mod completion;
pub mod compose;
pub mod context;
pub mod contract;
pub mod cost;
pub mod data;
pub mod decision;
pub mod error;
pub mod event;
pub mod failure;
pub mod fallback;
pub mod function_names;
pub mod image;
pub mod job;
pub mod knowledge;
pub mod meta;
pub mod plan;
pub mod privacy;
pub mod reference;
pub mod reply_offset;
pub mod request_fetch;
pub mod result;
pub mod result_cache;
pub mod routing;
pub mod saved;
pub mod sent_file;
pub mod settings;
pub mod shield;
pub mod side_request;
pub mod solution;
pub mod tool;
pub mod tool_retry;
pub mod turn;
pub mod window;
