//! Names of a server in `Host`, in the target of a request and in `Origin`: a host, with or without a port.
//!
//! A lenient parser takes a part of a foreign name for a name of this machine, as in `localhost:80@evil.example` and
//! `[::1].evil.example`. This one refuses each text that is not a name as a whole.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum characters of a host name (RFC 1035, 2.3.4), with a dot at its end.
const NAME_CHARS: usize = 254;
/// Maximum digits of a port.
const PORT_DIGITS: usize = 5;

/// A host, with or without a port (RFC 9110, 4.2.3 and 7.2): no user, no path, no space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    host: HostName,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostName {
    Address(IpAddr),
    /// In lower case.
    Name(String),
}

impl Authority {
    /// Parses a name, an IPv4 address or an IPv6 address in brackets, each with or without a port. `None` for every
    /// other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, rest) = match text.strip_prefix('[') {
            Some(bracketed) => {
                let (address, rest) = bracketed.split_once(']')?;
                let address: Ipv6Addr = address.parse().ok()?;
                (HostName::Address(address.into()), rest)
            }
            None => {
                let (host, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
                (HostName::parse(host)?, rest)
            }
        };
        let port = match rest.strip_prefix(':') {
            Some(port) => Some(parse_port(port)?),
            None if rest.is_empty() => None,
            None => return None,
        };
        Some(Self { host, port })
    }

    /// True for `localhost` and for loopback addresses.
    pub fn is_loopback(&self) -> bool {
        match &self.host {
            HostName::Address(address) => address.is_loopback(),
            HostName::Name(name) => name == "localhost",
        }
    }

    /// True if this is one of the names that `own` permits: its host, at each port or at the port that it has.
    pub fn is_of(&self, own: &Self) -> bool {
        self.host == own.host && (own.port.is_none() || own.port == self.port)
    }
}

impl HostName {
    fn parse(host: &str) -> Option<Self> {
        if let Ok(address) = host.parse::<Ipv4Addr>() {
            return Some(Self::Address(address.into()));
        }
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_name = !host.is_empty() && host.len() <= NAME_CHARS && host.bytes().all(is_of_name);
        is_name.then(|| Self::Name(host.to_ascii_lowercase()))
    }
}

/// Parses digits alone; `u16::from_str` would also take a sign.
fn parse_port(port: &str) -> Option<u16> {
    let is_number = port.len() <= PORT_DIGITS && port.bytes().all(|byte| byte.is_ascii_digit());
    port.parse().ok().filter(|_| is_number)
}

/// Describes the first of `hosts`, the names that a configuration gives its server, which is no [`Authority`].
pub fn fault(hosts: &[String]) -> Option<String> {
    let wrong = hosts.iter().find(|host| Authority::parse(host).is_none())?;
    Some(format!(
        "{wrong:?} is no host, such as \"tools.example.com\", \"tools.example.com:8443\" or \"[2001:db8::1]\""
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_host_as_a_whole_or_not_at_all() {
        for (text, is_loopback) in [
            ("localhost", Some(true)),
            ("LocalHost:8080", Some(true)),
            ("127.0.0.1", Some(true)),
            ("127.8.0.1:1", Some(true)),
            ("[::1]", Some(true)),
            ("[::1]:65535", Some(true)),
            ("tools.example.com", Some(false)),
            ("a_b.example:80", Some(false)),
            ("127.0.0.1.", Some(false)),
            ("127.0.0.1.evil.example", Some(false)),
            ("xn--localhost", Some(false)),
            ("", None),
            (":80", None),
            ("localhost:", None),
            ("localhost:+80", None),
            ("localhost:65536", None),
            ("localhost:000080", None),
            ("localhost:80:80", None),
            ("localhost:80@evil.example", None),
            ("localhost@evil.example", None),
            ("localhost/", None),
            ("localhost#", None),
            ("localhost\tx", None),
            (" localhost", None),
            ("localhost,evil.example", None),
            ("[::1].evil.example", None),
            ("[::1]evil.example", None),
            ("[::1]@evil.example", None),
            ("[localhost]", None),
            ("[127.0.0.1]", None),
            ("[::1%25lo]", None),
            ("::1", None),
            ("[::1", None),
            ("münchen.example", None),
        ] {
            let read = Authority::parse(text).map(|host| host.is_loopback());
            assert_eq!(read, is_loopback, "{text:?}");
        }
    }

    #[test]
    fn a_host_without_a_port_stands_for_each_port() {
        for (text, own, is) in [
            ("Tools.test:8443", "tools.test", true),
            ("tools.test", "tools.test", true),
            ("tools.test:8443", "tools.test:8443", true),
            ("tools.test", "tools.test:8443", false),
            ("tools.test:8444", "tools.test:8443", false),
            ("tools.test.", "tools.test", false),
        ] {
            let [text, own] = [text, own].map(|it| Authority::parse(it).unwrap());
            assert_eq!(text.is_of(&own), is, "{text:?} {own:?}");
        }
        assert_eq!(fault(&["tools.test".into(), "[::1]:80".into()]), None);
        assert!(fault(&["tools.test".into(), "https://tools.test".into()]).is_some());
    }

    /// Other text beside a name of this machine never leaves it such a name.
    #[test]
    fn text_around_a_loopback_name_is_not_ignored() {
        let names = [
            "localhost",
            "127.0.0.1",
            "[::1]",
            "localhost:80",
            "[::1]:80",
        ];
        let pieces = [
            "@",
            ":",
            "/",
            ".",
            "#",
            "?",
            "%",
            "\\",
            " ",
            "\t",
            "a@",
            "://",
            "[",
            "]",
            "evil.example",
            "@evil.example",
            ".evil.example",
            "#.evil.example",
            "/evil.example",
            ":80@evil.example",
        ];
        for name in names {
            assert!(Authority::parse(name).is_some_and(|it| it.is_loopback()));
            for piece in pieces {
                for text in [format!("{piece}{name}"), format!("{name}{piece}")] {
                    let read = Authority::parse(&text);
                    assert!(!read.is_some_and(|it| it.is_loopback()), "{text:?}");
                }
            }
        }
    }
}
