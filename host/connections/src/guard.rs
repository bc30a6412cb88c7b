//! The guard against pages of other sites. A page can make its name resolve to this machine (DNS rebinding) and
//! let its visitor's browser send requests here; the headers `Host` and `Origin` show it.

use crate::authority::Authority;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Uri};

/// The host names of a server, and the origins of pages that may send it requests.
#[derive(Debug, Clone)]
pub struct PageGuard {
    /// True if the server listens on loopback only.
    is_local: bool,
    /// True if every well-formed `Host` is accepted.
    is_open: bool,
    /// Accepted hosts. A local server also accepts loopback names.
    hosts: Vec<Authority>,
    /// Accepted values of `Origin`. A local server also accepts loopback origins.
    origins: Vec<String>,
}

/// The header that names a foreign host or page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignHeader {
    /// `Host` is missing, repeated, malformed, not that of the request's target, or not one of ours.
    Host,
    /// `Origin` is repeated, malformed or not accepted.
    Origin,
}

impl PageGuard {
    /// A guard of a server with these names, which [`authority::fault`](crate::authority::fault) has checked: an entry
    /// that is no host is never met. `is_local` says that the server listens on loopback only.
    pub fn new(is_local: bool, hosts: &[String], origins: &[String]) -> Self {
        Self {
            is_local,
            // A public server may have names that it does not know; there the key is the protection.
            is_open: !is_local && hosts.is_empty(),
            hosts: hosts.iter().filter_map(|it| Authority::parse(it)).collect(),
            origins: origins.to_vec(),
        }
    }

    /// Checks the target, `Host` and `Origin` of a request.
    ///
    /// # Errors
    /// [`ForeignHeader`]: one of them names another server or another site's page, or cannot be read.
    pub fn check(&self, target: &Uri, headers: &HeaderMap) -> Result<(), ForeignHeader> {
        if !self.knows_host(target, headers) {
            return Err(ForeignHeader::Host);
        }
        if headers.contains_key(ORIGIN) {
            let origin = only(headers, &ORIGIN).filter(|origin| self.knows_origin(origin));
            origin.ok_or(ForeignHeader::Origin)?;
        }
        Ok(())
    }

    fn knows_host(&self, target: &Uri, headers: &HeaderMap) -> bool {
        let Some(host) = only(headers, &HOST).and_then(Authority::parse) else {
            return false;
        };
        // A target with a host takes the place of the header (RFC 9112, 3.2.2), so they must agree.
        let in_target = target.authority().map(|it| Authority::parse(it.as_str()));
        if in_target.is_some_and(|it| it.as_ref() != Some(&host)) {
            return false;
        }
        self.is_open
            || (self.is_local && host.is_loopback())
            || self.hosts.iter().any(|own| host.is_of(own))
    }

    fn knows_origin(&self, origin: &str) -> bool {
        let mut own = self.origins.iter();
        own.any(|own| own.eq_ignore_ascii_case(origin)) || (self.is_local && is_loopback(origin))
    }
}

/// The token of `Authorization: Bearer …` (RFC 6750, 2.1); `None` if the header is repeated.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = only(headers, &AUTHORIZATION)?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The value of a header; `None` if it is missing, repeated or no text.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

/// True for the origin of a web page that was loaded from loopback.
fn is_loopback(origin: &str) -> bool {
    let host = ["http://", "https://"]
        .into_iter()
        .find_map(|scheme| origin.strip_prefix(scheme));
    host.and_then(Authority::parse)
        .is_some_and(|host| host.is_loopback())
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
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        PageGuard::new(is_local, &hosts, &["https://app.example.com".into()])
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
            (&[("host", "localhost:80@evil.example")], host),
            (&[("host", "[::1].evil.example")], host),
            (&[("host", "tools.test@evil.example")], host),
            (&[("host", "tools.test:80@evil.example")], host),
            (&[("host", "localhost"), ("host", "localhost")], host),
            (
                &[
                    ("host", "localhost"),
                    ("origin", "https://[::1].evil.example"),
                ],
                origin,
            ),
            (
                &[
                    ("host", "localhost"),
                    ("origin", "http://localhost:80@evil.example"),
                ],
                origin,
            ),
            (
                &[
                    ("host", "localhost"),
                    ("origin", "x://evil.example?://localhost"),
                ],
                origin,
            ),
            (
                &[
                    ("host", "localhost"),
                    ("origin", "chrome-extension://localhost"),
                ],
                origin,
            ),
            (&[("host", "localhost"), ("origin", "localhost")], origin),
            (&[("host", "localhost"), ("origin", "")], origin),
            (
                &[
                    ("host", "localhost"),
                    ("origin", "http://localhost"),
                    ("origin", "http://localhost"),
                ],
                origin,
            ),
        ] {
            assert_eq!(
                local.check(&Uri::from_static("/"), &headers(pairs)),
                expect,
                "{pairs:?}"
            );
        }
    }

    #[test]
    fn a_public_server_has_the_names_that_it_is_given() {
        let elsewhere = headers(&[("host", "tools.example.com")]);
        let target = Uri::from_static("/");
        assert_eq!(guard(false, &[]).check(&target, &elsewhere), Ok(()));
        let named = guard(false, &["tools.example.com"]);
        assert_eq!(named.check(&target, &elsewhere), Ok(()));
        let (here, refused) = (headers(&[("host", "localhost")]), Err(ForeignHeader::Host));
        assert_eq!(named.check(&target, &here), refused);
        // One that takes each name takes no text that is none.
        for pairs in [
            &[][..],
            &[("host", "a b")],
            &[("host", "tools.example.com"), ("host", "localhost")],
        ] {
            let checked = guard(false, &[]).check(&target, &headers(pairs));
            assert_eq!(checked, refused, "{pairs:?}");
        }
        let is_open = guard(false, &["no host"])
            .check(&target, &elsewhere)
            .is_ok();
        assert!(
            !is_open,
            "an entry that is no host does not open the server"
        );
    }

    #[test]
    fn a_target_with_another_host_is_refused() {
        let local = guard(true, &[]);
        for (target, host, expect) in [
            ("/v1/runs", "localhost:80", Ok(())),
            ("http://localhost:80/v1/runs", "localhost:80", Ok(())),
            (
                "http://evil.example/v1/runs",
                "localhost",
                Err(ForeignHeader::Host),
            ),
            (
                "http://a@localhost/v1/runs",
                "localhost",
                Err(ForeignHeader::Host),
            ),
            (
                "http://localhost:81/v1/runs",
                "localhost:80",
                Err(ForeignHeader::Host),
            ),
        ] {
            let checked = local.check(&Uri::from_static(target), &headers(&[("host", host)]));
            assert_eq!(checked, expect, "{target}");
        }
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
