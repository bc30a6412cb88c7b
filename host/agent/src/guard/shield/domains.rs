//! A shield that lets tool arguments name only allowed hosts.
//!
//! The module's grant decides what it can really reach. This shield acts earlier, and on every tool, also
//! those outside of the sandbox: a server that fetches any URL it is given.

use super::personal::{aside, every_text};
use super::{Screening, Shield, ShieldVerdict};
use futures_util::future::BoxFuture;
use regex::Regex;
use std::net::Ipv4Addr;
use std::sync::LazyLock;
use toolhold_model::CompletionObserver;
use toolhold_text::fold::Folded;
use toolhold_text::may_begin;
use url::Url;

/// Maximum characters of a URL that are examined: its host is at the beginning.
const MAX_URL_CHARS: usize = 2_000;
/// Maximum hosts named in one reason.
const MAX_NAMED_HOSTS: usize = 5;

/// Built in: URLs of these hosts pass.
#[derive(Debug, Clone)]
pub struct Domains {
    allow: Vec<String>,
}

/// Points between the names of a host: IDNA has three more than ASCII (RFC 3490, section 3.1).
const DOTS: [char; 4] = ['.', '\u{3002}', '\u{ff0e}', '\u{ff61}'];

/// URLs as browsers and libraries take them: with slashes of either kind, or none, after a scheme that they know; with two
/// after any other. Two without a scheme count behind every sign; with a backslash among them, [`is_share`] decides. Where a
/// word goes before, [`Domains::strangers`] decides whether it is one.
static URLS: LazyLock<Regex> = LazyLock::new(pattern);

#[expect(
    clippy::expect_used,
    reason = "the pattern is a constant, and tests use it"
)]
fn pattern() -> Regex {
    Regex::new(
        r"(?i)(?:https?|wss?|ftp):[/\\]*|[a-z][a-z0-9+.-]*://|(?-i:^|[^A-Za-z0-9/\\.])(?P<rest>//|\\\\|/\\)|www[.\u{3002}\u{ff0e}\u{ff61}]",
    )
    .expect("a pattern")
}

impl Domains {
    /// `example.com` is that host alone, `*.example.com` every host below it.
    ///
    /// # Errors
    /// An entry that is no host.
    pub fn new(allow: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let allow = allow.into_iter().map(|host| {
            let name = host.strip_prefix("*.").unwrap_or(&host);
            let parsed = Url::parse(&format!("https://{name}/")).ok();
            let known = parsed.as_ref().and_then(Url::host_str);
            match known {
                Some(known) if known.eq_ignore_ascii_case(name) => Ok(host.to_ascii_lowercase()),
                _ => Err(format!(
                    "{host:?} is no host; write example.com or *.example.com"
                )),
            }
        });
        Ok(Self {
            allow: allow.collect::<Result<_, _>>()?,
        })
    }

    fn allows(&self, host: &str) -> bool {
        // What ends a sentence or a bracket is in no name that a resolver knows.
        let host = host.trim_end_matches([',', ';', ':', '!', ')', '\'', '.']);
        self.allow
            .iter()
            .any(|allowed| match allowed.strip_prefix('*') {
                Some(below) => host.len() > below.len() && host.ends_with(below),
                None => host == allowed,
            })
    }

    /// Hosts in a text that are not allowed. A URL without a host that can be read is one, too.
    fn strangers(&self, text: &str, found: &mut Vec<String>) {
        // As a library reads the whole text, which drops tabs and line breaks, and takes quotes before an `@` for a name.
        let kept = text.trim().chars().filter(|c| !"\t\n\r".contains(*c));
        let whole: String = kept.take(MAX_URL_CHARS).collect();
        if let Some(host) = Url::parse(&whole).ok().as_ref().and_then(Url::host_str) {
            self.judge_host(host, found);
        } else if whole.starts_with(['/', '\\'])
            && whole.get(1..).is_some_and(|it| it.starts_with(['/', '\\']))
        {
            self.judge_url(&format!("https:{whole}"), found);
        }
        let last_at = text.rfind('@');
        for captures in URLS.captures_iter(text) {
            if found.len() >= MAX_NAMED_HOSTS {
                return;
            }
            let Some(candidate) = captures.name("rest").or_else(|| captures.get(0)) else {
                continue;
            };
            // What has slashes is a URL wherever it stands.
            let is_word = !candidate.as_str().ends_with(['/', '\\']);
            if is_word && !may_begin(text, candidate.start()) {
                continue;
            }
            let rest = text.get(candidate.start()..).unwrap_or_default();
            let prefix = candidate.len();
            let ends = |(at, c): (usize, char)| {
                (at >= prefix && (c.is_whitespace() || "\"'<>`{}|".contains(c))).then_some(at)
            };
            let most = rest.char_indices().nth(MAX_URL_CHARS);
            let is_long = most.is_some();
            let most = most.map_or(rest.len(), |(at, _)| at);
            let near = rest.get(..most).unwrap_or_default();
            let end = near.char_indices().find_map(ends);
            let url = near.get(..end.unwrap_or(most)).unwrap_or_default();
            let has_path = url
                .get(prefix..)
                .is_some_and(|it| it.contains(['/', '\\', '?', '#']));
            let is_relative = captures.name("rest").is_some();
            // No name of a host is as long as that, but one before an `@` may be.
            let may_be_name = candidate.as_str() == "//"
                || !is_relative
                || last_at.is_some_and(|at| at > candidate.start() + most)
                    && stands_before_urls(text, candidate.start());
            if is_long && end.is_none() && !has_path && may_be_name {
                // Whose host it is stands behind what is looked at.
                note(url, found);
                continue;
            }
            if is_relative && !is_meant(text, candidate.start(), url) {
                continue;
            }
            if is_relative {
                self.judge_url(&format!("https:{url}"), found);
            } else if is_of_www(url) {
                self.judge_url(&format!("https://{url}"), found);
            } else {
                self.judge_url(url, found);
            }
            // A backslash ends a host (WHATWG), or belongs to the name before an `@` (RFC 3986).
            let authority = url.get(prefix..).unwrap_or_default();
            let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
            if let Some((name, host)) = authority.rsplit_once('@')
                && has_backslash(name)
            {
                self.judge_url(&format!("https://{host}"), found);
            }
            // `xhttp://`: a scheme that nobody knows, and one that is known behind a letter.
            let known = candidate.as_str().to_ascii_lowercase();
            let inner = ["https:", "http:", "wss:", "ws:", "ftp:"]
                .iter()
                .find_map(|scheme| known.find(scheme).filter(|at| *at > 0));
            if let Some(inner) = inner.and_then(|at| url.get(at..)) {
                self.judge_url(inner, found);
            }
        }
    }

    /// The host of a URL, or the URL where it has none that can be read. Where the last name of a host is none, as with
    /// a comma of any script behind it, the host is what stands before that.
    fn judge_url(&self, url: &str, found: &mut Vec<String>) {
        let parsed = Url::parse(url).ok();
        let host = parsed.as_ref().and_then(Url::host_str);
        let last = host.and_then(|host| host.rsplit('.').find(|name| !name.is_empty()));
        let is_name = |name: &str| {
            name.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || "-[]:".contains(char::from(byte)))
        };
        let has_user = url.contains('@');
        match (host, last) {
            (Some(host), Some(last)) if is_name(last) || has_user => self.judge_host(host, found),
            (Some(host), _) => {
                let before = url
                    .split(['，', '；', '！', '？', '、', '）', '」', '』'])
                    .next();
                let before = before.and_then(|url| Url::parse(url).ok());
                let before = before.as_ref().and_then(Url::host_str);
                self.judge_host(before.unwrap_or(host), found);
            }
            (None, _) => note(url, found),
        }
    }

    fn judge_host(&self, host: &str, found: &mut Vec<String>) {
        if !self.allows(&host.to_ascii_lowercase()) {
            note(host, found);
        }
    }
}

/// Whether it begins with the usual name of a host.
fn is_of_www(url: &str) -> bool {
    let www = url.get(..3).unwrap_or_default();
    www.eq_ignore_ascii_case("www") && url.get(3..).is_some_and(|rest| rest.starts_with(DOTS))
}

/// Whether two slashes at this place begin a URL.
fn is_meant(text: &str, at: usize, url: &str) -> bool {
    if url.starts_with("//") {
        names_host(url) || stands_before_urls(text, at)
    } else {
        is_share(text, at, url)
    }
}

/// Whether slashes with a backslash among them name a host: `\\host\share`, with twice as many backslashes in JSON, wherever
/// that stands, and others behind spaces and quotes. Escapes (`\\n`), patterns (`"\\.js$"`) and the paths of Windows in JSON
/// (`C:\\dir\\a.txt`) are none.
fn is_share(text: &str, at: usize, url: &str) -> bool {
    let host = url.trim_start_matches(['/', '\\']);
    let slashes = url.get(..url.len() - host.len()).unwrap_or_default();
    let (host, path) = match host.find(['/', '\\', '?', '#']) {
        Some(end) => host.split_at(end),
        None => (host, ""),
    };
    if !is_host(host) {
        return false;
    }
    let behind = path.len() - path.trim_start_matches('\\').len();
    if slashes.bytes().all(|slash| slash == b'\\') && slashes.len() == 2 * behind {
        return true;
    }
    let before = text.get(..at).and_then(|before| before.chars().next_back());
    let is_apart = before.is_none_or(|c| c.is_whitespace() || "\"'(=,".contains(c));
    let is_escape = slashes == "\\\\" && host.starts_with(['n', 'r', 't']);
    is_apart && !is_escape
}

/// Whether it is a name of parts as hosts have them, whose last one is no number, or an address.
fn is_host(host: &str) -> bool {
    let host = host.rsplit('@').next().unwrap_or_default();
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    let is_part = |part: &str| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_alphanumeric() || "-_".contains(c))
    };
    let name = name.strip_suffix(DOTS).unwrap_or(name);
    let is_address = host.parse::<Ipv4Addr>().is_ok() || name.parse::<Ipv4Addr>().is_ok();
    let is_literal = host.starts_with('[')
        && host.contains("::")
        && host
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || b"[]:.".contains(&byte));
    let has_parts = name.contains(DOTS) && name.split(DOTS).all(is_part);
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
    is_address || is_literal || has_parts && is_port && names_host(name)
}

/// Whether `//` at this place begins a URL without a look at its host: where a text begins, and behind spaces, quotes,
/// signs before values and letters of other scripts. Behind any other sign it may belong to a program.
fn stands_before_urls(text: &str, at: usize) -> bool {
    let before = text.get(..at).and_then(|before| before.chars().next_back());
    before.is_none_or(|c| c.is_whitespace() || "\"'(=,".contains(c) || !c.is_ascii())
}

/// Whether `//` is followed by what only a host is: a name with a point whose last part begins with a letter or digit and is no number, or an
/// address.
fn names_host(url: &str) -> bool {
    let host = url.trim_start_matches(['/', '\\']);
    let host = host.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    let mut labels = host.trim_end_matches(DOTS).rsplit(DOTS);
    let last = labels.next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
    let is_label = last.chars().next().is_some_and(char::is_alphanumeric);
    let is_name = labels.next().is_some() && is_label && !is_number;
    is_name || host.contains('[') || host.parse::<Ipv4Addr>().is_ok()
}

/// Whether there is a backslash, but for one that is a line break or a tab as programs and JSON write it, with something
/// behind it.
fn has_backslash(name: &str) -> bool {
    let Some((_, behind)) = name.split_once('\\') else {
        return false;
    };
    let is_break = behind.len() > 1 && behind.starts_with(['n', 'r', 't']);
    !is_break || behind.contains('\\')
}

/// Names a host once.
fn note(host: &str, found: &mut Vec<String>) {
    let host: String = host.chars().take(80).collect();
    if found.len() < MAX_NAMED_HOSTS && !found.contains(&host) {
        found.push(host);
    }
}

impl Shield for Domains {
    fn screen<'a>(
        &'a self,
        screening: &'a Screening,
        _: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<ShieldVerdict, String>> {
        let shield = self.clone();
        aside(screening, move |screening| shield.judge(screening))
    }
}

impl Domains {
    /// The strangers of a text, and of URLs inside of its URLs.
    fn all_strangers(&self, text: &str, found: &mut Vec<String>) {
        self.strangers_in_all_forms(text, found);
        let mut decode = |text: &str| {
            if let Some(decoded) = decoded(text) {
                self.strangers_in_all_forms(&decoded, found);
            }
        };
        decode(text);
        for shown in Folded::without_hidden(text) {
            decode(shown.text());
        }
    }

    /// The strangers of a text as it is written, with its characters of full width as those of ASCII, and without its hidden
    /// characters, as a model is shown it.
    fn strangers_in_all_forms(&self, text: &str, found: &mut Vec<String>) {
        self.strangers(text, found);
        let folded = Folded::of(text);
        if folded.text() != text {
            self.strangers(folded.text(), found);
        }
        for shown in Folded::without_hidden(text) {
            self.strangers(shown.text(), found);
        }
    }

    fn judge(&self, screening: &Screening) -> ShieldVerdict {
        let mut found = Vec::new();
        let context = screening.context.iter().map(|(_, value)| value);
        for value in std::iter::once(&screening.value).chain(context) {
            every_text(value, &mut |text| self.all_strangers(text, &mut found));
        }
        if found.is_empty() {
            return ShieldVerdict::Pass;
        }
        ShieldVerdict::Block {
            reason: format!(
                "{} is not among the allowed hosts ({})",
                found.join(", "),
                self.allow.join(", ")
            ),
        }
    }
}

/// The text with its percent-escapes read, if it has some.
fn decoded(text: &str) -> Option<String> {
    if !text.contains('%') {
        return None;
    }
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match (byte, digit(bytes.get(at + 1)), digit(bytes.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_text::continues_value;

    /// Directly before an address, and directly behind it, as scripts without spaces are written.
    #[test]
    fn addresses_are_found_beside_letters_of_all_scripts() {
        let shield = Domains::new(["example.com".to_owned()]).unwrap();
        let strangers = |text: &str| {
            let mut found = Vec::new();
            shield.all_strangers(text, &mut found);
            found
        };
        let letters = ('\u{80}'..'\u{32000}').filter(|c| c.is_alphabetic());
        // Two of each 256 characters.
        let letters: Vec<char> = letters
            .filter(|c| u32::from(*c) % 256 < 2 || "éａ卡のカบ각мЯλאبक".contains(*c))
            .collect();
        assert!(letters.len() > 500, "{}", letters.len());
        for letter in letters {
            let mut addresses = vec!["http://evil.test/x", "//evil.test/x", "any://evil.test"];
            if !continues_value(letter) {
                addresses.extend(["www.evil.test", "https:evil.test", "www。evil.test"]);
            }
            for address in addresses {
                for text in [
                    format!("{letter}{address}"),
                    format!("{address}{letter}"),
                    format!("{letter}{address}{letter}"),
                    format!("{letter}_{address}"),
                ] {
                    assert!(!strangers(&text).is_empty(), "{text}");
                }
            }
            let known = format!("{letter}http://example.com/{letter}");
            assert!(strangers(&known).is_empty(), "{known}");
        }
    }
}
