//! What the integration tests share.
#![expect(
    clippy::expect_used,
    reason = "a fixture that cannot be made should say so"
)]

pub mod clock;
pub mod collector;
pub mod endpoint;
pub mod foreign;
pub mod host;
pub mod oci;
pub mod postgres;
pub mod records;
pub mod sandbox;
pub mod server;
pub mod transcript;
