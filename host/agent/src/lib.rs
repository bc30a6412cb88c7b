//! The agent loop: it asks a model, runs the tools the model calls, and asks again until there is an
//! output.
//!
//! What this crate promises: the loop itself ([`run::Machine`]) is a state machine without I/O, so
//! that every rule of the protocol can be tested without a clock or a network; every step leaves
//! one [`Event`](toolhold_protocol::event::Event), journalled before anyone sees it (pieces of replies are shown and not
//! journalled); a tool's fault is a message to the model and never the end of a run; and every run ends, with a reason. Every tool call, by any caller,
//! passes the stages of [`calls`]; each stage is implemented once.
//!
//! Read it in this order: [`run`] (the machine, then the driver that performs what it asks), [`calls`] (the way of
//! a call), [`catalogue`] (tools with what is derived from them), [`contract`] (how a Request becomes a chat completion and back), [`context`] (what fits into the
//! window), [`guard`] (shields, and data that is hidden), [`router`] (which model answers a run), [`language`] (that of
//! the task), [`user_text`] (texts of the host for the user). The data are of [`toolhold_protocol`], the client of models is [`toolhold_model`]. The crate knows nothing of WebAssembly:
//! tools are behind [`Toolbox`].
//!
//! # Embedding
//!
//! A run needs a [`Model`](toolhold_model::Model) and a [`Toolbox`]; [`Activities`] are tools of your own, in Rust.
//! Here one tool is defined by a message, run by an activity, and its result is passed on by
//! reference. With an endpoint, the model is an [`OpenAiModel`](toolhold_model::OpenAiModel).
//!
//! ```
//! # use futures_util::future::BoxFuture;
//! # use serde_json::{Value, json};
//! # use std::sync::Arc;
//! # use toolhold_model::{ChatRequest, CompletionObserver, Model, ModelError};
//! # use toolhold_protocol::completion::{Completion, Delta};
//! use toolhold_protocol::event::NoJournal;
//! use toolhold_agent::{Activities, Driver, NoModules};
//! use toolhold_protocol::event::EventKind;
//! use toolhold_protocol::context::Message;
//! use toolhold_protocol::settings::RunRequest;
//! use toolhold_protocol::failure::ToolFailure;
//!
//! # /// Replies the same to everything, and then gives an answer.
//! # #[derive(Debug, Default)]
//! # struct Scripted(std::sync::atomic::AtomicUsize);
//! # impl Model for Scripted {
//! #     fn name(&self) -> &str { "scripted" }
//! #     fn complete<'a>(
//! #         &'a self,
//! #         _: &'a ChatRequest,
//! #         watch: &'a mut dyn CompletionObserver,
//! #     ) -> BoxFuture<'a, Result<Completion, ModelError>> {
//! #         let turn = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
//! #         let content = match turn {
//! #             0 => json!({"calls": [
//! #                 {"_tool": "weather", "_reasoningForCall": "asked for", "city": "†input.city", "_outputPath": "†state.weather"},
//! #             ], "output": null}),
//! #             _ => json!({"calls": [], "output": "It is sunny in Lisbon."}),
//! #         }
//! #         .to_string();
//! #         watch.delta(Delta::Content(content.clone()));
//! #         Box::pin(async move { Ok(Completion { content, ..Completion::default() }) })
//! #     }
//! # }
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let model = Arc::new(Scripted::default());
//! async fn weather(arguments: Value) -> Result<Value, ToolFailure> {
//!     match arguments["city"].as_str() {
//!         Some("Lisbon") => Ok(json!({"sky": "sunny", "celsius": 24})),
//!         _ => Err(ToolFailure::correctable("unknown_city", "only Lisbon is known; ask for that")),
//!     }
//! }
//!
//! let driver = Driver {
//!     activities: Activities::default().with("weather", weather),
//!     ..Driver::new(model, Arc::new(NoModules))
//! };
//! let mut request = RunRequest::new(uuid::Uuid::now_v7(), "What is the weather?");
//! request.context.extend(Message::parse_all(&json!([
//!     {"type": "input", "input": {"city": "Lisbon"}, "schema": {"type": "object"}},
//!     {"type": "tool", "tool": {"weather": {
//!         "type": "object",
//!         "description": "The weather of a city.",
//!         "properties": {"city": {"type": "string"}},
//!         "required": ["city"],
//!     }}},
//! ]))?);
//! let mut run = driver.start(request, Box::new(NoJournal)).await?;
//! let mut answer = Value::Null;
//! while let Some(event) = run.events.recv().await {
//!     match event.kind {
//!         EventKind::ToolResult { tool, written, .. } => println!("{tool} wrote {written:?}"),
//!         EventKind::Done { output, .. } => answer = output,
//!         _ => {}
//!     }
//! }
//! run.finished().await?;
//! assert_eq!(answer, "It is sunny in Lisbon.");
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod calls;
pub mod catalogue;
pub mod context;
pub mod contract;
pub mod guard;
pub mod language;
pub mod retrieval;
pub mod router;
pub mod run;
pub mod toolbox;
pub mod user_text;

pub use run::{Driver, Run};
pub use toolbox::{
    Activities, Activity, NoModules, ResolvedModule, ToolCall, ToolRunner, ToolSource, Toolbox,
    module_tool,
};
