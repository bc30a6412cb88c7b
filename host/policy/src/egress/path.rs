//! Whether a path lies under a prefix, for every server that may read it.
//!
//! Servers disagree on what a path means: some decode twice, some merge slashes, some take `\` for
//! `/` or drop what follows `;`. So under a prefix other than `/` a path must read the same to all
//! of them; one that could mean something else to any is refused.

use std::borrow::Cow;

/// Deeper than any honest nesting of encodings.
const MAX_DECODINGS: usize = 4;

/// Whether `path`, which begins with a slash, lies under `prefix`: `/v1` holds `/v1` and `/v1/x`,
/// not `/v10`. Everything lies under `/`.
pub fn is_under(prefix: &str, path: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    if prefix.is_empty() {
        return path.starts_with('/');
    }
    let inside = path
        .strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    inside && is_plain(path)
}

/// Whether every server reads the same segments out of `path`.
pub fn is_plain(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else {
        return false;
    };
    let last = rest.split('/').count() - 1;
    // An empty segment is a double slash, except after the last slash.
    rest.split('/')
        .enumerate()
        .all(|(at, segment)| (at == last && segment.is_empty()) || is_plain_segment(segment))
}

fn is_plain_segment(segment: &str) -> bool {
    let mut seen = Cow::Borrowed(segment);
    for _ in 0..MAX_DECODINGS {
        let name = seen.split(';').next().unwrap_or_default().trim();
        let moves = name.is_empty() || name.chars().all(is_dot);
        if moves || seen.chars().any(|c| c.is_control() || is_slash(c)) {
            return false;
        }
        match decoded(&seen) {
            Some(next) if next == seen => return true,
            Some(next) => seen = Cow::Owned(next),
            // Not UTF-8: an overlong slash, or text of another encoding.
            None => return false,
        }
    }
    false
}

/// The dot and what compatibility mappings turn into dots.
fn is_dot(c: char) -> bool {
    matches!(c, '.' | '\u{2024}'..='\u{2026}' | '\u{FE52}' | '\u{FF0E}')
}

/// Both slashes and what compatibility mappings and old code pages turn into one.
fn is_slash(c: char) -> bool {
    matches!(
        c,
        '/' | '\\'
            | '\u{2044}'
            | '\u{2215}'
            | '\u{29F5}'
            | '\u{29F8}'
            | '\u{FE68}'
            | '\u{FF0F}'
            | '\u{FF3C}'
    )
}

/// `text` with each `%XX` decoded once, if that is UTF-8.
fn decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = (byte == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(hex.unwrap_or(byte));
        at += if hex.is_some() { 3 } else { 1 };
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_between_segments() {
        for path in [
            "/v1",
            "/v1/",
            "/v1/x",
            "/v1/x%20y/z.json",
            "/v1/a.b/..c",
            "/v1/100%25",
            "/v1/x;a=1",
            "/v1/%F0%9F%A6%80",
        ] {
            assert!(is_under("/v1", path), "{path}");
            assert!(is_under("/v1/", path), "{path}");
            assert!(is_under("/", path), "{path}");
        }
        for path in ["/", "/v10", "/v", "/V1/x", "/x/v1", "v1", "", "/%761/x"] {
            assert!(!is_under("/v1", path), "{path}");
        }
        assert!(is_under("/", "/a//b/../c"));
    }

    #[test]
    fn nothing_climbs_out_of_a_prefix() {
        for tail in [
            "..",
            "../x",
            "./../x",
            "%2e%2e/x",
            "%2E%2e/x",
            ".%2e/x",
            "%2e./x",
            ".",
            "%2e",
            "..%2fx",
            "..%5cx",
            "..\\x",
            "a%2f..%2f..%2fx",
            "%252e%252e/x",
            "%252e%252e%252fx",
            "%25252e%25252e/x",
            "..;/x",
            "..;a=b/x",
            "%2e%2e;/x",
            ";/x",
            "%20../x",
            "..%20/x",
            "/x",
            "a//x",
            "a%2fb",
            "a%252fb",
            "a%5cb",
            "%c0%ae%c0%ae/x",
            "%c0%af",
            "%00",
            "a%00b",
            "%0a",
            "%0d%0aHost:x",
            "%e3%80%82%ff",
            "\u{FF0E}\u{FF0E}/x",
            "%ef%bc%8e%ef%bc%8e/x",
            "a\u{2215}x",
            "%e2%88%95x",
            "\u{2025}/x",
            "%25252525252e/x",
            "\t../x",
            "a\u{7f}b",
        ] {
            let path = format!("/v1/{tail}");
            assert!(!is_under("/v1", &path), "{path:?}");
        }
    }
}
