//! The model client: everything between a [`ChatRequest`] and a
//! [`Completion`](toolhold_protocol::completion::Completion).
//!
//! What this crate promises: every wait and every buffer has a bound; dropping a future ends the
//! generation at the endpoint; what servers really send is decoded, and what cannot be decoded is an
//! error that says whose move it is. It knows nothing of runs and tools.
//!
//! Read it in this order: [`model`] (the trait), [`chat`] (what is asked), [`client`] (how one
//! completion is driven and timed), `decode` (what servers really answer), [`error`] (what goes wrong,
//! and whose move it is then). Bytes come from a [`Transport`]: over HTTP ([`http`]), or from a
//! recording ([`replay`]). The client makes one attempt; [`route`] asks again, elsewhere, or for less.
//! [`probe`] finds out what an endpoint can do, and says it as a [`Dialect`].
//!
//! # One completion
//!
//! ```no_run
//! use std::sync::Arc;
//! use toolhold_model::{ChatMessage, ChatRequest, HttpTransport, Model as _, OpenAiModel, Timeouts};
//! use toolhold_protocol::completion::Delta;
//!
//! # async fn ask() -> Result<(), Box<dyn std::error::Error>> {
//! let timeouts = Timeouts::default();
//! let transport = HttpTransport::new("http://127.0.0.1:8080/v1", None, timeouts.connect)?;
//! let model = OpenAiModel::new(Arc::new(transport), "qwen3", timeouts);
//! let request = ChatRequest::new("", vec![ChatMessage::user("Say hello.")]);
//! let completion = model.complete(&request, &mut |delta: Delta| drop(delta)).await?;
//! println!("{}", completion.content);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod call_arguments;
pub mod chat;
pub mod client;
pub mod condition;
mod cut_pairs;
mod decode;
mod delta_text;
pub mod dialect;
pub mod embed;
pub mod error;
mod error_body;
mod error_names;
mod error_words;
mod event_form;
pub mod exchange;
mod extras;
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
pub mod model;
pub mod none;
mod offered;
pub mod probe;
mod reasoning;
pub mod record;
mod refusals;
pub mod replay;
pub mod route;
pub mod server;
pub mod side;
pub mod thought_marks;
pub mod tokenizer;
mod tool_calls;
pub mod transport;
pub mod unavailable;
mod usage;

pub use chat::{ChatMessage, ChatRequest, ChatTool, Content, Delivery, Role, ToolChoice};
pub use client::{OpenAiModel, Timeouts};
pub use condition::EndpointCondition;
pub use dialect::{Dialect, ProbeVerdict};
pub use embed::Embeddings;
pub use error::{ErrorDetail, ModelError, TimeoutPhase};
pub use http::{ApiKey, HttpTransport};
pub use model::{CompletionObserver, Model, RunContext};
pub use none::NoModel;
pub use record::RecordingTransport;
pub use replay::ReplayTransport;
pub use server::{Health, ModelInfo, ServerInfo};
pub use side::{SideModel, SideObserver};
pub use tokenizer::{Counter, Tokenizer};
pub use transport::{HttpRequest, HttpResponse, Method, Transport, TransportError};
