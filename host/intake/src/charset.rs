//! Texts in other charsets than UTF-8, which JSON and event streams have by their standards.
//!
//! Some servers send another one and name it in the content type. Others name one, by a default of their framework, and send
//! UTF-8. So the bytes are believed before the name, where both read ASCII alike: the first characters beyond ASCII tell
//! which of the two it is. Two bytes of a charset with two bytes for each character are UTF-8 by chance, and three rarely.

use encoding_rs::{Decoder, Encoding, UTF_8};
use std::borrow::Cow;
use std::{fmt, mem};

/// The most bytes by which it is found out whether a text is UTF-8.
const MAX_UNPROVEN: usize = 1_024;

/// Makes UTF-8 of a body, piece by piece. Holds an unfinished character, or at most 1 KiB whose charset is not known yet.
pub struct Transcoder(Charset);

enum Charset {
    /// UTF-8, or a charset that is not known: the bytes stay as they are.
    Utf8,
    /// ASCII so far. Has what follows, of which nothing tells yet whether it is UTF-8.
    Unproven {
        encoding: &'static Encoding,
        held: Vec<u8>,
    },
    Other(Decoder),
}

/// Whether a text is UTF-8, by its bytes. Has the place where the first characters beyond ASCII begin.
enum CharsetProof {
    Utf8,
    Other(usize),
    NotYet(usize),
}

impl CharsetProof {
    fn of(encoding: &'static Encoding, text: &[u8]) -> Self {
        let begin = text.iter().position(|byte| !byte.is_ascii());
        let begin = begin.unwrap_or(text.len());
        let beyond = text.get(begin..).unwrap_or_default();
        let beyond = beyond.get(..MAX_UNPROVEN).unwrap_or(beyond);
        let (valid, fault) = match std::str::from_utf8(beyond) {
            Ok(_) => (beyond, None),
            Err(fault) => {
                let valid = beyond.get(..fault.valid_up_to());
                (valid.unwrap_or_default(), fault.error_len())
            }
        };
        let proof = if encoding.is_single_byte() { 2 } else { 3 };
        let valid = String::from_utf8_lossy(valid);
        if valid.chars().any(|c| c.len_utf8() >= proof) {
            Self::Utf8
        } else if fault.is_some() {
            Self::Other(begin)
        } else if beyond.len() == MAX_UNPROVEN {
            Self::Utf8
        } else {
            Self::NotYet(begin)
        }
    }
}

impl fmt::Debug for Transcoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let charset = match &self.0 {
            Charset::Utf8 => UTF_8.name(),
            Charset::Unproven { encoding, .. } => encoding.name(),
            Charset::Other(decoder) => decoder.encoding().name(),
        };
        f.debug_tuple("Transcoder").field(&charset).finish()
    }
}

impl Transcoder {
    /// `content_type`: the header of that name.
    pub fn new(content_type: Option<&str>) -> Self {
        let named = content_type.and_then(named);
        let encoding = named.and_then(|name| Encoding::for_label_no_replacement(name.as_bytes()));
        Self(match encoding.filter(|encoding| *encoding != UTF_8) {
            None => Charset::Utf8,
            Some(encoding) if encoding.is_ascii_compatible() => Charset::Unproven {
                encoding,
                held: Vec::new(),
            },
            // A mark of the byte order counts more than the name.
            Some(encoding) => Charset::Other(encoding.new_decoder()),
        })
    }

    /// Returns the next bytes as UTF-8, but for those that it still holds.
    pub fn push<'b>(&mut self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        match &mut self.0 {
            Charset::Utf8 => Cow::Borrowed(bytes),
            Charset::Other(decoder) => decoded(decoder, bytes, false).into(),
            Charset::Unproven { encoding, held } => {
                let mut text = mem::take(held);
                text.extend_from_slice(bytes);
                match CharsetProof::of(encoding, &text) {
                    CharsetProof::Utf8 => self.0 = Charset::Utf8,
                    CharsetProof::NotYet(begin) => *held = text.split_off(begin),
                    CharsetProof::Other(begin) => {
                        let rest = text.split_off(begin);
                        let mut decoder = encoding.new_decoder_without_bom_handling();
                        text.extend(decoded(&mut decoder, &rest, false));
                        self.0 = Charset::Other(decoder);
                    }
                }
                text.into()
            }
        }
    }

    /// The body has ended. Returns what was held back.
    pub fn finish(&mut self) -> Vec<u8> {
        match mem::replace(&mut self.0, Charset::Utf8) {
            Charset::Utf8 => Vec::new(),
            Charset::Other(mut decoder) => decoded(&mut decoder, &[], true),
            Charset::Unproven { held, .. } if std::str::from_utf8(&held).is_ok() => held,
            Charset::Unproven { encoding, held } => {
                let mut decoder = encoding.new_decoder_without_bom_handling();
                decoded(&mut decoder, &held, true)
            }
        }
    }
}

/// Returns a whole body as UTF-8. `content_type`: the header of that name.
pub fn utf8(body: Vec<u8>, content_type: Option<&str>) -> Vec<u8> {
    let mut transcoder = Transcoder::new(content_type);
    if matches!(transcoder.0, Charset::Utf8) {
        return body;
    }
    let mut text = transcoder.push(&body).into_owned();
    text.extend(transcoder.finish());
    text
}

/// The charset in a content type.
fn named(content_type: &str) -> Option<&str> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is_charset = name.trim().eq_ignore_ascii_case("charset");
        is_charset.then(|| value.trim().trim_matches('"'))
    })
}

/// U+FFFD stands for bytes that are no character of the charset.
fn decoded(decoder: &mut Decoder, bytes: &[u8], is_last: bool) -> Vec<u8> {
    let room = decoder.max_utf8_buffer_length(bytes.len());
    let mut text = String::with_capacity(room.unwrap_or_default());
    // There is room for all of it.
    let _ = decoder.decode_to_string(bytes, &mut text, is_last);
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(content_type: &str, body: &[u8], chunk: usize) -> String {
        let mut transcoder = Transcoder::new(Some(content_type));
        let mut text = Vec::new();
        for piece in body.chunks(chunk) {
            text.extend_from_slice(&transcoder.push(piece));
        }
        text.extend(transcoder.finish());
        String::from_utf8_lossy(&text).into_owned()
    }

    #[test]
    fn text_is_read_by_the_charset_that_its_server_names() {
        const LATIN: &str = "application/json; charset=ISO-8859-1";
        for (content_type, body, text) in [
            (LATIN, &b"caf\xe9 \xab\xc9\xbb"[..], "café «É»"),
            ("text/plain;charset=\"windows-1251\"", b"\xcf\xf0", "Пр"),
            ("a/b; q=1; Charset = gbk", b"\xc1\xaa\xcd\xa8", "联通"),
            ("a/b; charset=utf-16le", b"\xff\xfe[\0]\0", "[]"),
            ("a/b; charset=utf-16", b"\xfe\xff\0[\0]", "[]"),
            // Its first two bytes are UTF-8 by chance.
            ("a/b; charset=gbk", b"1 \xd2\xbb\xb8\xf6", "1 一个"),
            // A name that is wrong.
            (LATIN, "café 联".as_bytes(), "café 联"),
            (LATIN, b"end\xc3", "endÃ"),
            ("a/b; charset=gbk", "两 café".as_bytes(), "两 café"),
            ("a/b; charset=gbk", "café".as_bytes(), "café"),
            ("a/b; charset=Shift_JIS", "日本".as_bytes(), "日本"),
            // What was UTF-8 stays so.
            (LATIN, b"\xc3\xa9 \xe9 \xc3\xa9", "é \u{fffd} é"),
            ("a/b; charset=utf-8", b"caf\xe9", "caf\u{fffd}"),
            ("a/b; charset=klingon", "é".as_bytes(), "é"),
            ("application/json", "é".as_bytes(), "é"),
        ] {
            for chunk in [1, 2, 3, 1_000] {
                assert_eq!(read(content_type, body, chunk), text, "{content_type}");
            }
            let whole = utf8(body.to_vec(), Some(content_type));
            assert_eq!(String::from_utf8_lossy(&whole), text, "{content_type}");
        }
    }

    /// Two bytes a character, as French has them, tell nothing about a charset of two bytes: it is found out after a while.
    #[test]
    fn long_text_that_may_be_either_is_not_held() {
        let text = "é ".repeat(MAX_UNPROVEN);
        let mut transcoder = Transcoder::new(Some("a/b; charset=gbk"));
        assert!(transcoder.push(&text.as_bytes()[..9]).is_empty());
        let more = transcoder.push(&text.as_bytes()[9..MAX_UNPROVEN]);
        assert_eq!(more, &text.as_bytes()[..MAX_UNPROVEN]);
        let other = b"\xd2\xbb\xb8\xf6".repeat(1_000);
        let read = read("a/b; charset=gbk", &other, other.len());
        assert_eq!(read, "一个".repeat(1_000));
    }

    proptest! {
        #[test]
        fn chunks_change_nothing(
            body in prop::collection::vec(any::<u8>(), 0..60),
            charset in prop::sample::select(vec!["latin1", "gb18030", "utf-16be", "iso-2022-jp", "utf-8"]),
            chunk in 1_usize..20,
        ) {
            let content_type = format!("text/plain; charset={charset}");
            prop_assert_eq!(read(&content_type, &body, chunk), read(&content_type, &body, 1_000));
        }
    }
}
