//! Access to the endpoint: refuses requests of foreign web pages, and requests without the token.

use super::HttpRejection;
use crate::serve::settings::{Bearer, Settings};
use axum::http::StatusCode;
use axum::http::request::Parts;
use toolhold_connections::{ForeignHeader, PageGuard, bearer};

#[derive(Debug)]
pub struct HttpGuard {
    pages: PageGuard,
    token: Option<Bearer>,
}

impl HttpGuard {
    pub fn new(is_local: bool, settings: &Settings, token: Option<Bearer>) -> Self {
        let pages = PageGuard::new(is_local, &settings.hosts, &settings.origins);
        Self { pages, token }
    }

    /// # Errors
    /// The request is refused.
    pub(super) fn check(&self, head: &Parts) -> Result<(), HttpRejection> {
        self.pages.check(&head.uri, &head.headers).map_err(|stranger| {
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
        if bearer(&head.headers).is_some_and(|given| token.is(given)) {
            return Ok(());
        }
        let reason = "this server needs its bearer token";
        Err(HttpRejection::new(StatusCode::UNAUTHORIZED, reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;
    use secrecy::SecretString;

    fn status(guard: &HttpGuard, pairs: &[(&'static str, &str)]) -> u16 {
        let request = pairs
            .iter()
            .fold(Request::builder(), |request, (name, value)| {
                request.header(*name, *value)
            });
        let (head, ()) = request.body(()).unwrap().into_parts();
        guard
            .check(&head)
            .map_or_else(|refused| refused.status.as_u16(), |()| 200)
    }

    #[test]
    fn pages_are_looked_at_before_tokens() {
        let token = Bearer::new(&SecretString::from("0123456789abcdef")).unwrap();
        let pages = PageGuard::new(true, &[], &[]);
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
