//! JSON as models, tools and people write it, and what a host needs to make of it.
//!
//! What this crate promises: every function is a function of its arguments, without I/O, a clock or
//! chance; each bounds the depth of what it reads; and no function makes up a value that was not
//! written. Text with two readings is refused, not guessed at.
//!
//! Read it in this order: [`bounded`] (text whose value takes no more memory than it may), [`depth`] (and is nested no deeper), [`strict`] (a text that
//! is JSON), [`numbers`] (those that would change if they were read), [`repair`] (a text that is nearly JSON),
//! [`coerce`] (a value of nearly the right type), [`grammar_subset`]
//! (a schema in the keywords that every endpoint's grammar knows), [`descriptions`] (texts of a schema that only
//! describe), [`string`] and [`scan`] (strings and
//! values that arrive in pieces), [`rules`] (what older records demand of these), [`fragment`] (what can still be read of a text that was cut), [`hex`] (digests as
//! records write them).
//!
//! # From a model's text to valid arguments
//!
//! ```
//! use serde_json::json;
//! use toolhold_json::coerce::coerce;
//! use toolhold_json::repair::{TextEnd, RepairKind, repair};
//! use toolhold_schema::Validator;
//!
//! let schema = json!({
//!     "type": "object",
//!     "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
//!     "required": ["city", "days"],
//! });
//!
//! // The text is not JSON, but it has one reading only.
//! let written = repair("{'city': 'Lisbon', 'days': '3',}", TextEnd::Own).ok_or("not JSON")?;
//! assert_eq!(written.repairs, [RepairKind::SingleQuotes, RepairKind::TrailingComma]);
//!
//! // The value is not valid: the number is a string.
//! let validator = Validator::new(&schema)?;
//! assert!(validator.check(&written.value).is_err());
//! let coerced = coerce(&schema, &written.value).ok_or("nothing to coerce")?;
//! assert_eq!(coerced.arguments, json!({"city": "Lisbon", "days": 3}));
//! validator.check(&coerced.arguments)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod bounded;
pub mod coerce;
pub mod depth;
pub mod descriptions;
pub mod fragment;
pub mod grammar_subset;
pub mod hex;
pub mod numbers;
pub mod repair;
pub mod rules;
pub mod scan;
pub mod strict;
pub mod string;
