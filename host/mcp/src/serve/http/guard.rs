//! Access to the endpoint: refuses requests of foreign web pages, and requests without the token.

use super::HttpRejection;
use crate::serve::settings::{Bearer, Settings};
use axum::http::{HeaderMap, StatusCode};
use toolhold_connections as connections;
use toolhold_connections::{ForeignHeader, bearer};

#[derive(Debug)]
pub struct HttpGuard {
    pages: connections::PageGuard,
    token: Option<Bearer>,
}

impl HttpGuard {
    pub fn new(is_local: bool, settings: &Settings, token: Option<Bearer>) -> Self {
        let pages = connections::PageGuard {
            is_local,
            hosts: settings.hosts.clone(),
            origins: settings.origins.clone(),
        };
        Self { pages, token }
    }

    /// # Errors
    /// The request is refused.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), HttpRejection> {
        self.pages.check(headers).map_err(|stranger| {
            let reason = match stranger {
                ForeignHeader::Host => {
                    "this server is not known by that Host; name it in mcp_server.hosts"
                }
                ForeignHeader::Origin => {
                    "pages of that Origin may not reach this server; name it in mcp_server.origins"
                }
            };
            HttpRejection::new(StatusCode::FORBIDDEN, reason)
        })?;
        let Some(token) = &self.token else {
            return Ok(());
        };
        if bearer(headers).is_some_and(|given| token.is(given)) {
            return Ok(());
        }
        let reason = "this server needs its bearer token";
        Err(HttpRejection::new(StatusCode::UNAUTHORIZED, reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::SecretString;

    fn status(guard: &HttpGuard, pairs: &[(&'static str, &str)]) -> u16 {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        guard
            .check(&headers)
            .map_or_else(|refused| refused.status.as_u16(), |()| 200)
    }

    #[test]
    fn pages_are_looked_at_before_tokens() {
        let token = Bearer::new(&SecretString::from("0123456789abcdef")).unwrap();
        let pages = connections::PageGuard {
            is_local: true,
            ..connections::PageGuard::default()
        };
        let guard = HttpGuard {
            pages,
            token: Some(token),
        };
        let host = ("host", "localhost");
        let token = ("authorization", "Bearer 0123456789abcdef");
        for (pairs, expect) in [
            (&[host, token][..], 200),
            (&[host, ("authorization", "bearer  0123456789abcdef")], 200),
            (&[host, ("authorization", "Bearer 0123456789abcdeg")], 401),
            (&[host, ("authorization", "Basic 0123456789abcdef")], 401),
            (&[host, token, token], 401),
            (&[host], 401),
            (&[("host", "evil.example"), token], 403),
            (&[host, ("origin", "https://evil.example"), token], 403),
        ] {
            assert_eq!(status(&guard, pairs), expect, "{pairs:?}");
        }
    }
}
