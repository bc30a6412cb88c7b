//! Agents as a service: the HTTP API with its sessions and its page.
//!
//! A server admits runs fairly, records every event but pieces of replies before it is shown, and resumes runs of
//! servers that have ended. It knows no terminal; configuration reaches it as values ([`Settings`](settings::Settings),
//! `toolhold_runtime::config::Configuration`).
//!
//! Read it in this order: [`settings`] (`[serve]`), [`rights`] (how long a client's right
//! lasts), [`runs`] (the runs of this server), [`sessions`] (the
//! context that a turn leaves for the next), [`answer`] and [`answer_stream`] (a run's answer, whole and
//! while it is streamed), [`http`] (one resource a file), [`knowledge`] (who adds
//! and searches at a time), [`retention`] (deletes old records).
//!
//! ```
//! use toolhold_connections::web_origin;
//!
//! // Browsers write no path behind an origin.
//! let origins = ["https://console.example.com/".to_owned()];
//! assert!(web_origin::fault(&origins).is_some());
//! ```
#![forbid(unsafe_code)]

pub mod answer;
pub mod answer_stream;
pub mod http;
pub mod knowledge;
pub mod retention;
pub mod rights;
pub mod runs;
mod secret_mask;
pub mod sessions;
pub mod settings;
pub mod stop_texts;
