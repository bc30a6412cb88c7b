//! Outbound HTTP: grants of any text are read or refused; what a grant admits goes to its origin, to no
//! address that no grant reaches, with no user in front of the host, and under its prefix for every
//! reading of the path.
//!
//! An input is three lines: the origin (behind a `!` where private addresses are granted), the path
//! prefix, the URI.

use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use toolhold_policy::HttpGrant;
use toolhold_sandbox::fuzzing::admitted;
use url::Url;

/// Decodings after which nothing encoded is left in inputs of libFuzzer's size.
const DECODINGS: usize = 8;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut lines = text.splitn(3, '\n');
    let (Some(origin), Some(prefix), Some(uri)) = (lines.next(), lines.next(), lines.next()) else {
        return;
    };
    let (private, origin) = match origin.strip_prefix('!') {
        Some(origin) => (true, origin),
        None => (false, origin),
    };
    let written = json!({"origin": origin, "path_prefix": prefix, "private": private});
    let Ok(grant) = serde_json::from_value::<HttpGrant>(written) else {
        return;
    };
    let again = json!(grant);
    assert_eq!(
        serde_json::from_value(again).ok().as_ref(),
        Some(&grant),
        "{text:?}"
    );

    let Some(url) = admitted(&grant, uri) else {
        return;
    };
    assert!(goes_to(origin, &url), "{url} is not {origin}: {text:?}");
    assert_eq!((url.username(), url.password()), ("", None), "{text:?}");
    assert!(is_reachable(&url, private), "{url}: {text:?}");
    assert!(
        is_under(prefix, url.path()),
        "{url} is not under {prefix:?}: {text:?}"
    );
}

fn goes_to(origin: &str, url: &Url) -> bool {
    let Ok(granted) = Url::parse(&origin.replacen("://*.", "://", 1)) else {
        return false;
    };
    let host = granted.host_str().unwrap_or_default();
    let actual = url.host_str().unwrap_or_default();
    let same_host = if origin.contains("://*.") {
        actual
            .strip_suffix(host)
            .is_some_and(|name| name.len() > 1 && name.ends_with('.'))
    } else {
        actual == host
    };
    same_host
        && url.scheme() == granted.scheme()
        && url.port_or_known_default() == granted.port_or_known_default()
}

/// What the standard library knows of addresses; the sandbox has a stricter list of its own.
fn is_reachable(url: &Url, private: bool) -> bool {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse() {
        Ok(IpAddr::V4(address)) => is_reachable_v4(address, private),
        Ok(IpAddr::V6(address)) => is_reachable_v6(address, private),
        Err(_) => true,
    }
}

fn is_reachable_v4(address: Ipv4Addr, private: bool) -> bool {
    let never = address.is_unspecified()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_documentation();
    !never && (private || !(address.is_loopback() || address.is_private()))
}

fn is_reachable_v6(address: Ipv6Addr, private: bool) -> bool {
    if let Some(carried) = address.to_ipv4_mapped() {
        return is_reachable_v4(carried, private);
    }
    let never =
        address.is_unspecified() || address.is_unicast_link_local() || address.is_multicast();
    !never && (private || !(address.is_loopback() || address.is_unique_local()))
}

/// For the most forgiving of servers: one that decodes until nothing is encoded, takes a backslash
/// for a slash, drops parameters and walks dot segments.
fn is_under(prefix: &str, path: &str) -> bool {
    let prefix = walked(prefix);
    let path = walked(path);
    prefix.len() <= path.len() && prefix.iter().zip(&path).all(|(a, b)| a == b)
}

fn walked(path: &str) -> Vec<String> {
    let mut path = path.to_owned();
    for _ in 0..DECODINGS {
        path = decoded(&path);
    }
    let mut out: Vec<String> = Vec::new();
    for segment in path.split(['/', '\\']) {
        match segment.split(';').next().unwrap_or_default() {
            "" | "." => {}
            ".." => drop(out.pop()),
            name => out.push(name.to_owned()),
        }
    }
    out
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits = bytes
            .get(at + 1..at + 3)
            .and_then(|d| std::str::from_utf8(d).ok());
        let digits = digits.filter(|d| byte == b'%' && d.bytes().all(|b| b.is_ascii_hexdigit()));
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            out.push(byte);
            at += 3;
        } else {
            out.push(byte);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_seed_is_admitted() {
        let written = json!({"origin": "https://api.example.com", "path_prefix": "/v1"});
        let grant: HttpGrant = serde_json::from_value(written).unwrap();
        let url = admitted(&grant, "https://api.example.com/v1/a?b=c").unwrap();
        assert_eq!(url.as_str(), "https://api.example.com/v1/a?b=c");
    }

    #[test]
    fn the_most_forgiving_reading_finds_what_lies_outside() {
        assert!(is_under("/v1", "/v1/a%20b"));
        for outside in [
            "/v1/%2e%2e/x",
            "/v1/%252e%252e/x",
            "/v1/..;a/x",
            "/v1/..%5cx",
            "/v10",
        ] {
            assert!(!is_under("/v1", outside), "{outside}");
        }
    }
}
