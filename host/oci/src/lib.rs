//! Components from registries: `oci://` references become bytes.
//!
//! [`reference`] is what is written, [`client`] asks the registry ([`auth`]: as whom), [`artifact`]
//! reads what it says, [`store`] keeps what was fetched. Everything that a registry sends is bounded
//! before it is read and hashed before it is used; [`fetcher`] puts the four together.

mod answer;
mod artifact;
mod auth;
mod client;
mod digest;
mod error;
mod fetcher;
mod reference;
mod store;

pub use auth::Credentials;
pub use client::Network;
pub use digest::Digest;
pub use error::FetchError;
pub use fetcher::{Fetched, Fetcher, Settings};
pub use reference::Reference;
