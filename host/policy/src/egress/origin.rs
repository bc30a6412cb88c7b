//! Where a request may go: scheme, host and port, in the one spelling that counts.
//!
//! Everything is read by the WHATWG parser (crate `url`), which turns each spelling of a host into
//! one (`0x7f.1` into `127.0.0.1`, `ＥＸＡＭＰＬＥ.com` into `example.com`), and compared after that.

use super::address::{AddressScope, reach};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use thiserror::Error;
use url::{Host, Url};

/// Why text is not an origin that can be granted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is no origin: {reason}; write it like https://api.example.com or https://*.example.com:8443"
)]
pub struct OriginError {
    text: String,
    reason: String,
}

/// A scheme, a host (or all hosts under one) and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Origin {
    secure: bool,
    host: HostPattern,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum HostPattern {
    /// As [`Url::host`] writes it: lower case, in punycode.
    Name(String),
    /// Every name that ends with this, which begins with a dot.
    Under(String),
    Address(IpAddr),
}

impl Origin {
    /// Whether `url` goes to this origin.
    pub fn covers(&self, url: &Url) -> bool {
        if url.scheme() != self.scheme() || url.port_or_known_default() != Some(self.port) {
            return false;
        }
        match (&self.host, url.host()) {
            (HostPattern::Name(name), Some(Host::Domain(host))) => name == host,
            (HostPattern::Under(suffix), Some(Host::Domain(host))) => {
                // Not the name itself, and not a name with an empty first label.
                host.len() > suffix.len() && host.ends_with(suffix) && !host.starts_with('.')
            }
            (HostPattern::Address(address), Some(host)) => literal(&host) == Some(*address),
            _ => false,
        }
    }

    /// Where both let a request go, if anywhere.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        if (self.secure, self.port) != (other.secure, other.port) {
            return None;
        }
        let is_under =
            |name: &str, suffix: &str| name.len() > suffix.len() && name.ends_with(suffix);
        let narrower = match (&self.host, &other.host) {
            (one, same) if one == same => self,
            (HostPattern::Name(name), HostPattern::Under(suffix)) if is_under(name, suffix) => self,
            (HostPattern::Under(suffix), HostPattern::Name(name)) if is_under(name, suffix) => {
                other
            }
            (HostPattern::Under(one), HostPattern::Under(suffix)) if is_under(one, suffix) => self,
            (HostPattern::Under(suffix), HostPattern::Under(one)) if is_under(one, suffix) => other,
            _ => return None,
        };
        Some(narrower.clone())
    }

    pub fn is_wildcard(&self) -> bool {
        matches!(self.host, HostPattern::Under(_))
    }

    pub fn is_https(&self) -> bool {
        self.secure
    }

    /// Whether it can only be this machine, whatever a name server says.
    pub fn is_loopback(&self) -> bool {
        match &self.host {
            HostPattern::Name(name) => is_localhost(name),
            HostPattern::Under(_) => false,
            HostPattern::Address(address) => address.is_loopback(),
        }
    }

    /// How far the host lies, where that is known without asking a name server.
    pub fn reach(&self) -> Option<AddressScope> {
        match &self.host {
            HostPattern::Address(address) => Some(reach(*address)),
            _ if self.is_loopback() => Some(AddressScope::Private),
            _ => None,
        }
    }

    fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }
}

/// The address that a host is, if it is one and not a name.
pub fn literal(host: &Host<&str>) -> Option<IpAddr> {
    match host {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some((*address).into()),
        Host::Ipv6(address) => Some((*address).into()),
    }
}

/// `localhost` and the names below it are this machine (RFC 6761, section 6.3).
pub fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let wrong = |reason: &str| OriginError {
            text: text.chars().take(200).collect(),
            reason: reason.into(),
        };
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| wrong("the scheme is missing"))?;
        let secure = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(wrong("the scheme must be http or https")),
        };
        // The parser would forgive these; a rule that people read should not need forgiving.
        if rest.contains(|c: char| c.is_whitespace() || c.is_control() || "@?#\\%".contains(c)) {
            return Err(wrong("only a host and a port may follow the scheme"));
        }
        let (wildcard, rest) = match rest.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        if rest.contains('*') {
            return Err(wrong("a * may only stand for what is before the first dot"));
        }
        let url =
            Url::parse(&format!("{scheme}://{rest}")).map_err(|error| wrong(&error.to_string()))?;
        if url.path() != "/" || rest.ends_with('/') {
            return Err(wrong(
                "it must end after the host or port; the path belongs in path_prefix",
            ));
        }
        let host = match url.host() {
            Some(Host::Domain(name)) => {
                if name.ends_with('.') || name.starts_with('.') || name.contains("..") {
                    return Err(wrong("the host has an empty part between dots"));
                }
                if wildcard && !name.contains('.') {
                    return Err(wrong(
                        "a wildcard needs two names after it, or it is half the internet",
                    ));
                }
                if wildcard {
                    HostPattern::Under(format!(".{name}"))
                } else {
                    HostPattern::Name(name.to_owned())
                }
            }
            Some(host) => match literal(&host) {
                Some(address) if !wildcard => HostPattern::Address(address),
                _ => return Err(wrong("there is nothing under an address")),
            },
            None => return Err(wrong("the host is missing")),
        };
        let port = url.port_or_known_default().unwrap_or_default();
        if port == 0 {
            return Err(wrong("0 is no port"));
        }
        Ok(Self { secure, host, port })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme())?;
        match &self.host {
            HostPattern::Name(name) => f.write_str(name)?,
            HostPattern::Under(suffix) => write!(f, "*{suffix}")?,
            HostPattern::Address(IpAddr::V4(address)) => write!(f, "{address}")?,
            HostPattern::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
        }
        if self.port == if self.secure { 443 } else { 80 } {
            Ok(())
        } else {
            write!(f, ":{}", self.port)
        }
    }
}

impl TryFrom<String> for Origin {
    type Error = OriginError;

    fn try_from(text: String) -> Result<Self, OriginError> {
        text.parse()
    }
}

impl From<Origin> for String {
    fn from(origin: Origin) -> Self {
        origin.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(origin: &str, url: &str) -> bool {
        let origin: Origin = origin.parse().unwrap();
        Url::parse(url).is_ok_and(|url| origin.covers(&url))
    }

    #[test]
    fn an_origin_covers_itself_in_every_spelling_and_nothing_else() {
        let api = "https://api.example.com";
        for url in [
            "https://api.example.com",
            "https://api.example.com:443/x?y",
            "HTTPS://API.EXAMPLE.COM/",
            "https://api%2Eexample.com/",
            "https://ａｐｉ.example.com/",
            "https://api。example.com/",
        ] {
            assert!(covers(api, url), "{url}");
        }
        for url in [
            "http://api.example.com/",
            "https://api.example.com:444/",
            "https://example.com/",
            "https://x.api.example.com/",
            "https://api.example.com.evil.net/",
            "https://api.example.com@evil.net/",
            "https://api.example.com./",
            "https://apiXexample.com/",
            "https://аpi.example.com/",
            "https://evil.net/#api.example.com",
        ] {
            assert!(!covers(api, url), "{url}");
        }
    }

    #[test]
    fn a_wildcard_covers_what_is_under_it() {
        let any = "https://*.example.com:8443";
        assert!(covers(any, "https://a.example.com:8443/"));
        assert!(covers(any, "https://a.b.example.com:8443/"));
        for url in [
            "https://example.com:8443/",
            "https://.example.com:8443/",
            "https://a.example.com/",
            "https://aexample.com:8443/",
            "https://a.example.com.evil.net:8443/",
        ] {
            assert!(!covers(any, url), "{url}");
        }
    }

    #[test]
    fn an_origin_is_shown_as_it_is_compared() {
        for (text, shown) in [
            (
                "https://Bücher.example:443",
                "https://xn--bcher-kva.example",
            ),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("http://0x7f.1", "http://127.0.0.1"),
            ("https://*.Example.com", "https://*.example.com"),
        ] {
            assert_eq!(text.parse::<Origin>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn invalid_origin_is_refused_with_the_reason() {
        for (text, reason) in [
            ("api.example.com", "scheme is missing"),
            ("ftp://example.com", "http or https"),
            ("https://", "empty host"),
            ("https://user@example.com", "only a host"),
            ("https://example.com/v1", "path_prefix"),
            ("https://example.com/", "path_prefix"),
            ("https://example.com?x", "only a host"),
            ("https://*", "a * may only"),
            ("https://*.com", "half the internet"),
            ("https://a.*.com", "a * may only"),
            ("https://*.*.example.com", "a * may only"),
            ("https://*.127.0.0.1", "under an address"),
            ("https://example.com:0", "0 is no port"),
            ("https://example.com:99999", "invalid port"),
            ("https://example..com", "empty part"),
            ("https://example.com.", "empty part"),
            ("https://exa mple.com", "only a host"),
            ("https://[fe80::1%25eth0]", "only a host"),
        ] {
            let error = text.parse::<Origin>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
