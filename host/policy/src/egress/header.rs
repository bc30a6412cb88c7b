//! Which headers belong to the connection.

use http::{HeaderName, header};

/// Whether a header frames a message or steers a connection. Such headers are the host's: a guest cannot set
/// them, does not see them, and no secret goes into them.
pub fn is_forbidden_header(name: &HeaderName) -> bool {
    const FRAMING: [HeaderName; 7] = [
        header::CONNECTION,
        header::HOST,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::EXPECT,
    ];
    let name_text = name.as_str();
    FRAMING.contains(name)
        || name_text.starts_with("proxy-")
        || matches!(name_text, "keep-alive" | "http2-settings" | "alt-used")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_belongs_to_the_host() {
        for name in [
            "host",
            "connection",
            "transfer-encoding",
            "te",
            "trailer",
            "upgrade",
            "expect",
            "keep-alive",
            "proxy-authorization",
            "proxy-connection",
            "proxy-anything",
        ] {
            assert!(
                is_forbidden_header(&HeaderName::from_static(name)),
                "{name}"
            );
        }
        for name in [
            "accept",
            "authorization",
            "content-type",
            "content-length",
            "x-host",
        ] {
            assert!(
                !is_forbidden_header(&HeaderName::from_static(name)),
                "{name}"
            );
        }
    }
}
