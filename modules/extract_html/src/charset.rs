//! The encoding of a page: its byte order mark, what it says of itself, or what is most likely.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use std::borrow::Cow;

/// Where a page says how it is encoded.
const HEAD_BYTES: usize = 1024;

/// The page's text; what is no text of its encoding is replaced.
pub fn decode(bytes: &[u8]) -> Cow<'_, str> {
    let (text, ..) = encoding(bytes).decode(bytes);
    text
}

fn encoding(bytes: &[u8]) -> &'static Encoding {
    // `decode` goes by a byte order mark in any case.
    if str::from_utf8(bytes).is_ok() {
        return UTF_8;
    }
    said(&bytes[..bytes.len().min(HEAD_BYTES)]).unwrap_or(WINDOWS_1252)
}

/// The encoding that follows `charset=`, as in `<meta charset="…">` and `content="text/html; charset=…"`.
fn said(head: &[u8]) -> Option<&'static Encoding> {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let (_, rest) = head
        .split_once("charset=")
        .or_else(|| head.split_once("encoding="))?;
    let rest = rest.trim_start_matches(['"', '\'', ' ']);
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"-_:.".contains(c));
    Encoding::for_label(&rest.as_bytes()[..end.unwrap_or(rest.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_decoded_as_they_say() {
        for (page, text) in [
            (&b"\xef\xbb\xbfGr\xc3\xbc\xc3\x9fe"[..], "Gr\u{fc}\u{df}e"),
            (b"Gr\xc3\xbc\xc3\x9fe", "Gr\u{fc}\u{df}e"),
            (b"Gr\xfc\xdfe", "Gr\u{fc}\u{df}e"),
            (
                b"<meta charset='shift_jis'>\x93\xfa",
                "<meta charset='shift_jis'>\u{65e5}",
            ),
            (
                b"<meta content='text/html; Charset=KOI8-R'>\xc1",
                "<meta content='text/html; Charset=KOI8-R'>\u{430}",
            ),
            (b"\xff\xfeh\0i\0", "hi"),
            (b"<meta charset=none>\xe9", "<meta charset=none>\u{e9}"),
        ] {
            assert_eq!(decode(page), text);
        }
    }
}
