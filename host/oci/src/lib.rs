//! Pulls WebAssembly components from OCI registries: an `oci://` reference becomes bytes.
//!
//! The crate promises three things about what a registry sends. It reads every answer up to a bound. It
//! checks every manifest and layer against its digest before it uses them. It sends a password only to
//! the host that the password was given for. The only disk access is the cache folder in [`Settings`].
//!
//! Read `reference` first (the text that a user writes), then `fetcher`, which puts the parts
//! together: `client` asks the registry, `auth` holds the credentials and answers challenges,
//! `artifact` reads manifests, `store` is the cache.
//!
//! ```no_run
//! use toolhold_oci::{Fetcher, Reference, Settings};
//!
//! # async fn pull() -> Result<(), Box<dyn std::error::Error>> {
//! let fetcher = Fetcher::new(Settings::new("cache".into(), None));
//! let reference: Reference = "oci://registry.example/tools/calculator:1.2".parse()?;
//! let most_bytes = 64 << 20;
//! let fetched = fetcher.resolve(&reference, most_bytes).await?;
//! println!("{} bytes, pinned as {}", fetched.bytes.len(), fetched.pinned);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod answer;
mod artifact;
mod auth;
mod client;
mod digest;
mod error;
mod fetcher;
mod reference;
mod settings;
mod store;

pub use auth::Credentials;
pub use digest::Digest;
pub use error::FetchError;
pub use fetcher::{Fetcher, PulledComponent};
pub use reference::{Reference, ReferenceError};
pub use settings::{Network, Settings};
