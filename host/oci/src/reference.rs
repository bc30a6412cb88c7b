//! `oci://HOST[:PORT]/REPOSITORY[:TAG][@sha256:HEX]`.
//!
//! The grammar is the distribution specification's, read by hand: the parsers that exist follow
//! Docker's habits, where a name without a host means one company's registry. Here a host is always
//! required, so that no registry is contacted by default.

use crate::digest::Digest;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

const SCHEME: &str = "oci://";
/// Characters of a repository's name: the limit that clients and registries share.
const MAX_REPOSITORY: usize = 255;
const MAX_TAG: usize = 128;

/// The address of a component in a registry. Equal references have equal spelling.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reference {
    /// A name, an IPv4 address or an IPv6 address in brackets; lower case.
    host: String,
    port: Option<u16>,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// Text that is not a reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{reason}; a reference looks like oci://HOST/REPOSITORY:TAG or oci://HOST/REPOSITORY@sha256:HEX"
)]
pub struct ReferenceError {
    reason: &'static str,
}

impl Reference {
    /// The host as HTTP names it: `HOST` or `HOST:PORT`.
    pub fn authority(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.clone(),
        }
    }

    /// The path of the repository in its registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag to ask for where there is no digest; `latest` by convention.
    pub fn tag(&self) -> &str {
        self.tag.as_deref().unwrap_or("latest")
    }

    /// The digest that the content must have; if present, the tag is not used.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// The same reference with a digest, which fixes its content.
    pub fn pinned(&self, digest: Digest) -> Self {
        Self {
            digest: Some(digest),
            ..self.clone()
        }
    }

    /// Whether both have the same digest and the same repository.
    pub fn is_same_content(&self, other: &Self) -> bool {
        self.digest.is_some()
            && self.digest == other.digest
            && self.authority() == other.authority()
            && self.repository == other.repository
    }

    /// A module name made of the last part of the repository's name: `-` and `.` become `_`.
    pub fn module_name(&self) -> String {
        let last = self.repository.rsplit('/').next().unwrap_or_default();
        last.replace(['-', '.'], "_")
    }
}

/// Whether `host` (IPv6 in brackets) is the loopback interface, where traffic leaves no wire to tap.
pub fn is_loopback(host: &str) -> bool {
    let v6 = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    host == "localhost"
        || host.parse().is_ok_and(|ip: Ipv4Addr| ip.is_loopback())
        || v6.is_some_and(|ip| ip.parse().is_ok_and(|ip: Ipv6Addr| ip.is_loopback()))
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.authority(), self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |reason| ReferenceError { reason };
        let rest = text
            .strip_prefix(SCHEME)
            .ok_or(wrong("it does not begin with oci://"))?;
        let (authority, rest) = rest
            .split_once('/')
            .ok_or(wrong("it names no repository"))?;
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse().map_err(wrong)?)),
            None => (rest, None),
        };
        let (repository, tag) = match rest.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag.to_owned())),
            None => (rest, None),
        };
        let (host, port) = split_port(authority).ok_or(wrong("its port is not a number"))?;
        let host = host.to_ascii_lowercase();
        if !is_host(&host) {
            return Err(wrong("its host is not a name or an address"));
        }
        if repository.len() > MAX_REPOSITORY || !repository.split('/').all(is_component) {
            return Err(wrong(
                "its repository may hold lower case letters, digits, and - _ . / between them",
            ));
        }
        if tag.as_deref().is_some_and(|tag| !is_tag(tag)) {
            return Err(wrong(
                "its tag may hold letters, digits, _ and, after the first place, . and -",
            ));
        }
        Ok(Self {
            host,
            port,
            repository: repository.to_owned(),
            tag,
            digest,
        })
    }
}

/// `HOST:PORT` in its parts. An IPv6 address has colons of its own, inside its brackets.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let after_address = authority.rfind(']').map_or(0, |end| end + 1);
    match authority[after_address..].find(':') {
        None => Some((authority, None)),
        Some(colon) => {
            let (host, port) = authority.split_at(after_address + colon);
            let port = &port[1..];
            // One spelling for each port: neither `+80` nor `080`.
            let number = port.parse::<u16>().ok().filter(|n| n.to_string() == port)?;
            Some((host, Some(number)))
        }
    }
}

fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[') {
        let address = address.strip_suffix(']');
        return address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    }
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    // URLs read names that end in a number as addresses, even 1 or 0x7f.1; only the plain form is
    // accepted, so that the checked host is the host that we connect to.
    let ends_in_number = host
        .rsplit('.')
        .next()
        .is_some_and(|last| last.starts_with(|c: char| c.is_ascii_digit()));
    host.len() <= 253
        && host.split('.').all(is_label)
        && (!ends_in_number || host.parse::<Ipv4Addr>().is_ok())
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`
fn is_component(text: &str) -> bool {
    let is_alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = |b: Option<u8>| b.is_some_and(is_alphanumeric);
    let mut bytes = text.bytes();
    if !ends(bytes.next()) || !(text.len() == 1 || ends(bytes.next_back())) {
        return false;
    }
    text.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        .all(|between| {
            matches!(between, "" | "." | "_" | "__") || between.bytes().all(|b| b == b'-')
        })
}

/// `[a-zA-Z0-9_][a-zA-Z0-9._-]*`
fn is_tag(text: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= MAX_TAG
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|b| is_word(b) || b == b'.' || b == b'-')
}

#[cfg(test)]
#[path = "reference_tests.rs"]
mod tests;
