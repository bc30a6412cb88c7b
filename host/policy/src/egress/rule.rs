//! A grant of outbound HTTP: allowed origins, methods and paths, checked when it is read.

use super::address::AddressScope;
use super::origin::{Origin, OriginError};
use super::path;
use http::Method;
use serde::{Deserialize, Serialize};
use std::fmt;
use thiserror::Error;
use url::Url;

/// More hops than any honest chain.
const MAX_REDIRECTS: u8 = 20;

/// Why a grant of outbound HTTP cannot be given, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GrantError {
    #[error(transparent)]
    Origin(#[from] OriginError),
    #[error("{origin} is this machine or its network; add private = true if that is meant")]
    NotPrivate { origin: Origin },
    #[error(
        "no grant reaches {origin}: link-local, multicast and reserved addresses are never sent to"
    )]
    Forbidden { origin: Origin },
    #[error(
        "{method:?} is no method that can be granted; name some of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS in capitals"
    )]
    Method { method: String },
    #[error("methods must name at least one; leave it out for GET and HEAD")]
    NoMethod,
    #[error("path_prefix = {prefix:?} {reason}")]
    PathPrefix { prefix: String, reason: String },
    #[error("redirects = {redirects} is more than {MAX_REDIRECTS}")]
    Redirects { redirects: u8 },
    #[error("the secret {name:?} {reason}")]
    Secret { name: String, reason: String },
}

/// Requests a module may make: an origin, the methods, the paths under a prefix.
///
/// ```
/// use toolhold_policy::HttpGrant;
///
/// let grant: HttpGrant = serde_json::from_str(
///     r#"{"origin": "https://api.example.com", "path_prefix": "/v1"}"#,
/// )?;
/// assert_eq!(grant.to_string(), "may GET and HEAD https://api.example.com/v1/…");
///
/// let wrong = serde_json::from_str::<HttpGrant>(r#"{"origin": "http://127.0.0.1:8080"}"#);
/// assert!(wrong.unwrap_err().to_string().contains("private = true"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenGrant", into = "WrittenGrant")]
pub struct HttpGrant {
    origin: Origin,
    methods: Vec<Method>,
    /// Begins with a slash; ends with none, unless it is `/`.
    path_prefix: String,
    redirects: u8,
    private: bool,
    reason: Option<String>,
}

/// A grant as people write it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenGrant {
    /// Scheme, host (exact, or all under one after `*.`) and port.
    origin: String,
    /// In capitals.
    #[serde(default = "reading")]
    methods: Vec<String>,
    /// `/v1` holds `/v1` and what is under `/v1/`.
    #[serde(default = "root")]
    path_prefix: String,
    /// How many redirects the host follows by itself, each one checked against all grants again. At
    /// 0 the guest is handed the redirect and may ask again.
    #[serde(default)]
    redirects: u8,
    /// Whether the host may be this machine or in its own network.
    #[serde(default)]
    private: bool,
    /// The reason, in the module author's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

fn reading() -> Vec<String> {
    vec!["GET".into(), "HEAD".into()]
}

fn root() -> String {
    "/".into()
}

impl HttpGrant {
    /// Whether this grant lets a request through. The host's addresses are checked later.
    pub fn allows(&self, method: &Method, url: &Url) -> bool {
        self.methods.contains(method)
            && self.origin.covers(url)
            && path::is_under(&self.path_prefix, url.path())
    }

    /// What both let through, if anything.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        let is_shared = |method: &&Method| other.methods.contains(method);
        let methods: Vec<_> = self.methods.iter().filter(is_shared).cloned().collect();
        let path_prefix = if path::is_under(&self.path_prefix, &other.path_prefix) {
            &other.path_prefix
        } else if path::is_under(&other.path_prefix, &self.path_prefix) {
            &self.path_prefix
        } else {
            return None;
        };
        (!methods.is_empty()).then_some(())?;
        Some(Self {
            origin: self.origin.and(&other.origin)?,
            methods,
            path_prefix: path_prefix.clone(),
            redirects: self.redirects.min(other.redirects),
            private: self.private && other.private,
            reason: self.reason.clone(),
        })
    }

    /// Whether this lets everything through that `other` does, but for redirects.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.and(other).is_some_and(|both| {
            both.methods.len() == other.methods.len()
                && both.path_prefix == other.path_prefix
                && both.origin == other.origin
                && both.private == other.private
        })
    }

    /// As `toolhold modules grant --with-http` takes it: `GET,POST https://api.example.com/v1`.
    pub(crate) fn request(&self) -> String {
        let methods: Vec<&str> = self.methods.iter().map(Method::as_str).collect();
        let path = if self.path_prefix == "/" {
            ""
        } else {
            &self.path_prefix
        };
        format!("{} {}{path}", methods.join(","), self.origin)
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// How many redirects the host follows.
    pub fn redirects(&self) -> u8 {
        self.redirects
    }

    /// Whether it reaches this machine and its own network.
    pub fn is_private(&self) -> bool {
        self.private
    }

    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

impl TryFrom<WrittenGrant> for HttpGrant {
    type Error = GrantError;

    fn try_from(written: WrittenGrant) -> Result<Self, GrantError> {
        let origin: Origin = written.origin.parse()?;
        match origin.reach() {
            Some(AddressScope::Never) => return Err(GrantError::Forbidden { origin }),
            Some(AddressScope::Private) if !written.private => {
                return Err(GrantError::NotPrivate { origin });
            }
            _ => {}
        }
        if written.redirects > MAX_REDIRECTS {
            let redirects = written.redirects;
            return Err(GrantError::Redirects { redirects });
        }
        let mut methods = Vec::new();
        for text in written.methods {
            let method = grantable(&text).ok_or(GrantError::Method { method: text })?;
            if !methods.contains(&method) {
                methods.push(method);
            }
        }
        if methods.is_empty() {
            return Err(GrantError::NoMethod);
        }
        Ok(Self {
            origin,
            methods,
            path_prefix: checked_prefix(written.path_prefix)?,
            redirects: written.redirects,
            private: written.private,
            reason: written.reason,
        })
    }
}

/// CONNECT would be a tunnel past every check, and TRACE an echo of injected secrets.
fn grantable(text: &str) -> Option<Method> {
    let method = Method::from_bytes(text.as_bytes()).ok()?;
    let token = text.bytes().all(|b| b.is_ascii_uppercase() || b == b'-');
    (token && method != Method::CONNECT && method != Method::TRACE).then_some(method)
}

fn checked_prefix(prefix: String) -> Result<String, GrantError> {
    let wrong = |reason: String| GrantError::PathPrefix {
        prefix: prefix.clone(),
        reason,
    };
    if !prefix.starts_with('/') {
        return Err(wrong("must begin with a slash".into()));
    }
    if prefix.contains(['?', '#']) {
        return Err(wrong("must be a path, without a query".into()));
    }
    if !path::is_plain(&prefix) {
        return Err(wrong(
            "could be read in two ways: no dot segments, double or encoded slashes".into(),
        ));
    }
    // Requests are compared as the parser writes them, so a prefix must be written so too.
    let mut url = match Url::parse("http://host/") {
        Ok(url) => url,
        Err(error) => return Err(wrong(error.to_string())),
    };
    url.set_path(&prefix);
    if url.path() != prefix {
        return Err(wrong(format!("must be written {:?}", url.path())));
    }
    let trimmed = prefix.trim_end_matches('/');
    Ok(if trimmed.is_empty() {
        root()
    } else {
        trimmed.to_owned()
    })
}

impl From<HttpGrant> for WrittenGrant {
    fn from(grant: HttpGrant) -> Self {
        Self {
            origin: grant.origin.to_string(),
            methods: grant.methods.iter().map(ToString::to_string).collect(),
            path_prefix: grant.path_prefix,
            redirects: grant.redirects,
            private: grant.private,
            reason: grant.reason,
        }
    }
}

/// One sentence for the person who approves it.
impl fmt::Display for HttpGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("may ")?;
        for (at, method) in self.methods.iter().enumerate() {
            let joint = match at {
                0 => "",
                _ if at + 1 == self.methods.len() => " and ",
                _ => ", ",
            };
            write!(f, "{joint}{method}")?;
        }
        let slash = if self.path_prefix == "/" { "" } else { "/" };
        write!(f, " {}{}{slash}…", self.origin, self.path_prefix)?;
        match self.redirects {
            0 => {}
            1 => f.write_str(", following 1 redirect")?,
            more => write!(f, ", following {more} redirects")?,
        }
        if self.private {
            f.write_str(", even on this machine and in its network")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(toml: &str) -> HttpGrant {
        toml::from_str(toml).unwrap()
    }

    #[test]
    fn a_grant_lets_through_what_it_says() {
        let reading = grant("origin = 'https://api.example.com'\npath_prefix = '/v1'");
        let any = grant("origin = 'https://*.example.com:8443'\nmethods = ['POST', 'DELETE']");
        let local = grant("origin = 'http://127.0.0.1:8080'\nprivate = true");
        for (grant, method, url, allowed) in [
            (&reading, "GET", "https://api.example.com/v1/x?y=z", true),
            (&reading, "HEAD", "https://api.example.com/v1", true),
            (&reading, "GET", "https://api.example.com/v1/../v1/x", true),
            (&reading, "POST", "https://api.example.com/v1", false),
            (&reading, "get", "https://api.example.com/v1", false),
            (&reading, "GET", "https://api.example.com/v2", false),
            (&reading, "GET", "https://api.example.com/v1/../v2", false),
            (
                &reading,
                "GET",
                "https://api.example.com/v1/%2e%2e/v2",
                false,
            ),
            (&reading, "GET", "https://api.example.com/v1\\..\\v2", false),
            (&reading, "GET", "http://api.example.com/v1", false),
            (&reading, "GET", "https://api.example.com:8443/v1", false),
            (&reading, "GET", "https://www.example.com/v1", false),
            (&any, "POST", "https://a.b.example.com:8443/", true),
            (&any, "GET", "https://a.example.com:8443/", false),
            (&any, "POST", "https://example.com:8443/", false),
            (&local, "GET", "http://127.0.0.1:8080/", true),
            (&local, "GET", "http://2130706433:8080/", true),
            (&local, "GET", "http://127.0.0.2:8080/", false),
            (&local, "GET", "http://localhost:8080/", false),
            (&local, "GET", "http://[::ffff:127.0.0.1]:8080/", false),
        ] {
            let parsed = Method::from_bytes(method.as_bytes()).unwrap();
            let got = grant.allows(&parsed, &Url::parse(url).unwrap());
            assert_eq!(got, allowed, "{grant}: {method} {url}");
        }
    }

    #[test]
    fn two_grants_together_let_through_what_both_do() {
        let both = |one: &str, other: &str| grant(one).and(&grant(other)).map(|it| it.to_string());
        let wide =
            "origin = 'https://*.example.com'\nmethods = ['GET', 'POST']\npath_prefix = '/v1'";
        for (other, left) in [
            (wide, Some("may GET and POST https://*.example.com/v1/…")),
            (
                "origin = 'https://a.example.com'",
                Some("may GET https://a.example.com/v1/…"),
            ),
            (
                "origin = 'https://*.b.example.com'\npath_prefix = '/v1/x'",
                Some("may GET https://*.b.example.com/v1/x/…"),
            ),
            ("origin = 'https://example.com'", None),
            ("origin = 'https://badexample.com'", None),
            ("origin = 'http://a.example.com'", None),
            ("origin = 'https://a.example.com:8443'", None),
            ("origin = 'https://a.example.com'\nmethods = ['PUT']", None),
            (
                "origin = 'https://a.example.com'\npath_prefix = '/v10'",
                None,
            ),
        ] {
            assert_eq!(both(wide, other).as_deref(), left, "{other}");
            // The words of methods are in the order of the first.
            assert_eq!(both(other, wide).is_some(), left.is_some(), "{other}");
        }
        let near = "origin = 'http://127.0.0.1:80'\nprivate = true\nredirects = 5";
        assert_eq!(
            both(
                near,
                "origin = 'http://127.0.0.1'\nprivate = true\nredirects = 1"
            )
            .as_deref(),
            Some(
                "may GET and HEAD http://127.0.0.1/…, following 1 redirect, even on this machine and in its network"
            )
        );
    }

    #[test]
    fn a_wrong_grant_says_what_would_be_right() {
        for (text, expect) in [
            ("origin = 'example.com'", "write it like https://"),
            ("origin = 'http://localhost:3000'", "private = true"),
            ("origin = 'http://[::1]'", "private = true"),
            ("origin = 'http://0x0a000001'", "private = true"),
            ("origin = 'http://169.254.169.254'\nprivate = true", "never"),
            (
                "origin = 'http://[::ffff:127.0.0.1]'\nprivate = true",
                "never",
            ),
            ("origin = 'https://a.b'\nmethods = ['get']", "in capitals"),
            (
                "origin = 'https://a.b'\nmethods = ['CONNECT']",
                "in capitals",
            ),
            ("origin = 'https://a.b'\nmethods = ['TRACE']", "in capitals"),
            ("origin = 'https://a.b'\nmethods = []", "at least one"),
            (
                "origin = 'https://a.b'\npath_prefix = 'v1'",
                "begin with a slash",
            ),
            (
                "origin = 'https://a.b'\npath_prefix = '/a/../b'",
                "two ways",
            ),
            ("origin = 'https://a.b'\npath_prefix = '/a b'", "\"/a%20b\""),
            (
                "origin = 'https://a.b'\npath_prefix = '/a?b'",
                "without a query",
            ),
            ("origin = 'https://a.b'\nredirects = 21", "more than 20"),
            ("origin = 'https://a.b'\nmethod = ['GET']", "unknown field"),
        ] {
            let error = toml::from_str::<HttpGrant>(text).unwrap_err().to_string();
            assert!(error.contains(expect), "{text}: {error}");
        }
    }

    #[test]
    fn a_grant_is_shown_in_words_and_written_back_whole() {
        let full = grant(
            "origin = 'http://nas.lan'\nmethods = ['GET', 'PUT', 'DELETE']\npath_prefix = '/data/'\n\
             redirects = 3\nprivate = true\nreason = 'backups'",
        );
        assert_eq!(
            full.to_string(),
            "may GET, PUT and DELETE http://nas.lan/data/…, following 3 redirects, even on this machine and in its network"
        );
        let written = serde_json::to_string(&full).unwrap();
        assert_eq!(serde_json::from_str::<HttpGrant>(&written).unwrap(), full);
    }
}
