//! Reads the bodies that model endpoints and MCP servers send over HTTP, with one tolerance for both.
//!
//! The crate promises that a body is recognised by its first bytes and not by its content type alone, that all memory of it has
//! a bound, and that no bytes are fatal. It opens no connection and knows neither completions nor messages of a protocol.
//!
//! Read it in this order: [`encoding`] (compression that nothing asked for), [`charset`] (texts that are no UTF-8), [`body`]
//! (event stream, JSON or neither), [`sse`] (events) and [`json`] (values).
//!
//! ```
//! use toolhold_intake::body::{BodyEnd, BodyReader};
//!
//! # fn main() -> Result<(), toolhold_intake::body::BodyFault> {
//! let mut body = BodyReader::new(1_000, Some("application/json"));
//! let events = body.push(b": ping\n\ndata: {\"a\":1}\n\ndata: 2")?;
//! assert_eq!(events[0].data, "{\"a\":1}");
//! let BodyEnd::Events(last) = body.finish()? else { panic!("no events") };
//! assert_eq!(last[0].data, "2");
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod body;
pub mod charset;
pub mod encoding;
pub mod json;
pub mod sse;
