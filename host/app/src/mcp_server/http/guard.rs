//! Who may talk to the endpoint at all: no page of elsewhere, and nobody without the token.

use super::Refused;
use crate::connections::is_loopback;
use crate::mcp_server::settings::{Bearer, Settings};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};

/// A page whose name was made to mean this machine (DNS rebinding) says so in `Host` and `Origin`.
#[derive(Debug)]
pub struct Guard {
    /// Whether only this machine reaches us.
    is_local: bool,
    hosts: Vec<String>,
    origins: Vec<String>,
    token: Option<Bearer>,
}

impl Guard {
    pub fn new(is_local: bool, settings: &Settings, token: Option<Bearer>) -> Self {
        Self {
            is_local,
            hosts: settings.hosts.clone(),
            origins: settings.origins.clone(),
            token,
        }
    }

    /// # Errors
    /// Why not.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), Refused> {
        if !self.knows_host(headers) {
            return Err(Refused::new(
                StatusCode::FORBIDDEN,
                "this server is not known by that Host; name it in mcp_server.hosts",
            ));
        }
        if !self.knows_origin(headers) {
            return Err(Refused::new(
                StatusCode::FORBIDDEN,
                "pages of that Origin may not reach this server; name it in mcp_server.origins",
            ));
        }
        if self.has_token(headers) {
            return Ok(());
        }
        let reason = "this server needs its bearer token";
        Err(Refused::new(StatusCode::UNAUTHORIZED, reason))
    }

    fn knows_host(&self, headers: &HeaderMap) -> bool {
        // A machine that others reach has names that only they know; there it is the token that counts.
        if !self.is_local && self.hosts.is_empty() {
            return true;
        }
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return false;
        };
        host.to_str().is_ok_and(|host| {
            let name = name(host);
            (self.is_local && is_loopback(host))
                || self
                    .hosts
                    .iter()
                    .any(|own| own.eq_ignore_ascii_case(host) || own.eq_ignore_ascii_case(name))
        })
    }

    fn knows_origin(&self, headers: &HeaderMap) -> bool {
        headers.get_all(ORIGIN).iter().all(|origin| {
            origin.to_str().is_ok_and(|origin| {
                let own = self.origins.iter();
                own.clone().any(|own| own.eq_ignore_ascii_case(origin))
                    || (self.is_local
                        && origin
                            .split_once("://")
                            .is_some_and(|(_, host)| is_loopback(host)))
            })
        })
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else {
            return true;
        };
        let given = headers
            .get(AUTHORIZATION)
            .and_then(|given| given.to_str().ok());
        let given = given.and_then(|given| given.split_once(' '));
        given.is_some_and(|(scheme, given)| {
            scheme.eq_ignore_ascii_case("bearer") && token.is(given.trim())
        })
    }
}

/// A host without its port.
fn name(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::SecretString;

    fn guard(is_local: bool, hosts: &[&str], token: Option<&str>) -> Guard {
        Guard {
            is_local,
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            origins: vec!["https://app.example.com".into()],
            token: token.map(|token| Bearer::new(&SecretString::from(token)).unwrap()),
        }
    }

    fn status(guard: &Guard, pairs: &[(&str, &str)]) -> u16 {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name: axum::http::HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        guard
            .check(&headers)
            .map_or_else(|refused| refused.status.as_u16(), |()| 200)
    }

    #[test]
    fn a_page_of_elsewhere_does_not_reach_this_machine() {
        let local = guard(true, &["tools.test"], None);
        for (pairs, expect) in [
            (&[("host", "localhost:8080")][..], 200),
            (&[("host", "127.0.0.1")], 200),
            (&[("host", "[::1]:1")], 200),
            (&[("host", "tools.test:8080")], 200),
            (&[("host", "evil.example")], 403),
            (&[("host", "localhost.evil.example")], 403),
            (&[("host", "evil.example"), ("host", "localhost")], 403),
            (&[], 403),
            (
                &[("host", "localhost"), ("origin", "http://localhost:3000")],
                200,
            ),
            (
                &[("host", "localhost"), ("origin", "http://[::1]:3000")],
                200,
            ),
            (
                &[("host", "localhost"), ("origin", "https://app.example.com")],
                200,
            ),
            (
                &[("host", "localhost"), ("origin", "https://evil.example")],
                403,
            ),
            (
                &[
                    ("host", "localhost"),
                    ("origin", "http://localhost.evil.example"),
                ],
                403,
            ),
            (&[("host", "localhost"), ("origin", "null")], 403),
        ] {
            assert_eq!(status(&local, pairs), expect, "{pairs:?}");
        }
    }

    #[test]
    fn what_others_reach_asks_for_the_token() {
        let open = guard(false, &[], Some("0123456789abcdef"));
        let host = ("host", "tools.example.com");
        for (token, expect) in [
            ("Bearer 0123456789abcdef", 200),
            ("bearer  0123456789abcdef", 200),
            ("Bearer 0123456789abcdeg", 401),
            ("Basic 0123456789abcdef", 401),
            ("0123456789abcdef", 401),
        ] {
            assert_eq!(
                status(&open, &[host, ("authorization", token)]),
                expect,
                "{token}"
            );
        }
        assert_eq!(status(&open, &[host]), 401);
        let named = guard(false, &["tools.example.com"], Some("0123456789abcdef"));
        let token = ("authorization", "Bearer 0123456789abcdef");
        assert_eq!(status(&named, &[host, token]), 200);
        assert_eq!(status(&named, &[("host", "localhost"), token]), 403);
    }
}
