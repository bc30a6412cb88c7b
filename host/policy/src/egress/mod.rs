//! Outbound HTTP as an operator grants it: origins, methods, paths, limits. Sending is the sandbox's.
//!
//! [`rule`](HttpGrant) says which requests a grant allows, [`address`](reach) how far an address lies,
//! [`Origin`] compares scheme, host and port in one spelling, [`HttpLimits`] bounds one call.

mod address;
mod header;
mod limits;
mod origin;
mod path;
mod rule;

pub use address::{AddressScope, reach};
pub use header::is_forbidden_header;
pub use limits::{HttpLimit, HttpLimits};
pub use origin::{Origin, OriginError, is_localhost, literal};
pub use rule::{GrantError, HttpGrant};
