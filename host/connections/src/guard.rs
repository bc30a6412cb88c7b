//! The guard against pages of other sites. A page can make its name resolve to this machine (DNS rebinding) and
//! let its visitor's browser send requests here; the headers `Host` and `Origin` show it.

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use std::net::IpAddr;

/// The host names of a server, and the origins of pages that may send it requests.
#[derive(Debug, Clone, Default)]
pub struct PageGuard {
    /// Whether the server listens on loopback only.
    pub is_local: bool,
    /// Accepted values of `Host`, with or without a port. A local server also accepts loopback names.
    pub hosts: Vec<String>,
    /// Accepted values of `Origin`. A local server also accepts loopback origins.
    pub origins: Vec<String>,
}

/// The header that names a foreign host or page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignHeader {
    /// `Host` is missing, repeated, or not one of ours.
    Host,
    /// An `Origin` is not accepted.
    Origin,
}

impl PageGuard {
    /// Checks `Host` and `Origin` of a request.
    ///
    /// # Errors
    /// There is no `Host`, or more than one, or it is not ours; or an `Origin` is not.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), ForeignHeader> {
        if !self.knows_host(headers) {
            return Err(ForeignHeader::Host);
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        let is_known = origins.all(|origin| {
            origin
                .to_str()
                .is_ok_and(|origin| self.knows_origin(origin))
        });
        is_known.then_some(()).ok_or(ForeignHeader::Origin)
    }

    fn knows_host(&self, headers: &HeaderMap) -> bool {
        // A public server may have names that it does not know; there the key is the protection.
        if !self.is_local && self.hosts.is_empty() {
            return true;
        }
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return false;
        };
        host.to_str().is_ok_and(|host| {
            let own = |own: &String| {
                own.eq_ignore_ascii_case(host) || own.eq_ignore_ascii_case(name(host))
            };
            (self.is_local && is_loopback(host)) || self.hosts.iter().any(own)
        })
    }

    fn knows_origin(&self, origin: &str) -> bool {
        let mut own = self.origins.iter();
        let is_own = own.any(|own| own.eq_ignore_ascii_case(origin));
        let host = origin.split_once("://").map(|(_, host)| host);
        is_own || (self.is_local && host.is_some_and(is_loopback))
    }
}

/// The token of `Authorization: Bearer …` (RFC 6750, 2.1); `None` if the header is repeated.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether a host, with or without a port, is loopback.
fn is_loopback(authority: &str) -> bool {
    let name = name(authority);
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

/// A host without its port.
fn name(authority: &str) -> &str {
    let name = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => authority.split(':').next(),
    };
    name.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn guard(is_local: bool, hosts: &[&str]) -> PageGuard {
        PageGuard {
            is_local,
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            origins: vec!["https://app.example.com".into()],
        }
    }

    #[test]
    fn a_page_of_another_site_does_not_reach_this_machine() {
        let local = guard(true, &["tools.test"]);
        let (host, origin) = (Err(ForeignHeader::Host), Err(ForeignHeader::Origin));
        for (pairs, expect) in [
            (&[("host", "localhost:8080")][..], Ok(())),
            (&[("host", "127.0.0.1")], Ok(())),
            (&[("host", "[::1]:1")], Ok(())),
            (&[("host", "tools.test:8080")], Ok(())),
            (&[("host", "Tools.Test")], Ok(())),
            (&[("host", "evil.example")], host),
            (&[("host", "localhost.evil.example")], host),
            (&[("host", "evil.example"), ("host", "localhost")], host),
            (&[("host", "localhost"), ("host", "evil.example")], host),
            (&[], host),
            (
                &[("host", "localhost"), ("origin", "http://localhost:3000")],
                Ok(()),
            ),
            (
                &[("host", "localhost"), ("origin", "http://[::1]:3000")],
                Ok(()),
            ),
            (
                &[("host", "localhost"), ("origin", "https://App.example.com")],
                Ok(()),
            ),
            (
                &[("host", "localhost"), ("origin", "https://evil.example")],
                origin,
            ),
            (
                &[
                    ("host", "localhost"),
                    ("origin", "http://localhost"),
                    ("origin", "https://evil.example"),
                ],
                origin,
            ),
            (
                &[
                    ("host", "localhost"),
                    ("origin", "http://localhost.evil.example"),
                ],
                origin,
            ),
            (&[("host", "localhost"), ("origin", "null")], origin),
        ] {
            assert_eq!(local.check(&headers(pairs)), expect, "{pairs:?}");
        }
    }

    #[test]
    fn a_public_server_has_the_names_that_it_is_given() {
        let elsewhere = headers(&[("host", "tools.example.com")]);
        assert_eq!(guard(false, &[]).check(&elsewhere), Ok(()));
        let named = guard(false, &["tools.example.com"]);
        assert_eq!(named.check(&elsewhere), Ok(()));
        let here = headers(&[("host", "localhost")]);
        assert_eq!(named.check(&here), Err(ForeignHeader::Host));
    }

    #[test]
    fn one_token_is_read() {
        for (values, expect) in [
            (&["Bearer abc"][..], Some("abc")),
            (&["bearer  abc "], Some("abc")),
            (&["Basic abc"], None),
            (&["abc"], None),
            (&["Bearer abc", "Bearer abd"], None),
            (&[], None),
        ] {
            let pairs: Vec<_> = values.iter().map(|it| ("authorization", *it)).collect();
            assert_eq!(bearer(&headers(&pairs)), expect, "{values:?}");
        }
    }
}
