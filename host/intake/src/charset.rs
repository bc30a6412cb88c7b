//! Texts in other charsets than UTF-8, which JSON and event streams have by their standards.
//!
//! Some servers send another one and name it in the content type. Others name one, by a default of their framework, and send
//! UTF-8. So of a charset with one byte for each character the bytes are believed first: up to the first one that is no
//! UTF-8, a body is UTF-8. By chance, text in a charset of more bytes is often UTF-8 as well, so there the name counts.

use encoding_rs::{Decoder, Encoding, UTF_8};
use std::borrow::Cow;
use std::{fmt, mem};

/// Makes UTF-8 of a body, piece by piece. Holds at most one unfinished character.
pub struct Transcoder(Charset);

enum Charset {
    /// UTF-8, or a charset that is not known: the bytes stay as they are.
    Utf8,
    /// UTF-8 so far. Has the bytes that begin a character.
    Unproven {
        encoding: &'static Encoding,
        begun: Vec<u8>,
    },
    Other(Decoder),
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
            Some(encoding) if encoding.is_single_byte() => Charset::Unproven {
                encoding,
                begun: Vec::new(),
            },
            Some(encoding) => Charset::Other(encoding.new_decoder_with_bom_removal()),
        })
    }

    /// Returns the next bytes as UTF-8, but for those that begin a character.
    pub fn push<'b>(&mut self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        match &mut self.0 {
            Charset::Utf8 => Cow::Borrowed(bytes),
            Charset::Other(decoder) => decoded(decoder, bytes, false).into(),
            Charset::Unproven { encoding, begun } => {
                let mut text = mem::take(begun);
                text.extend_from_slice(bytes);
                let Err(fault) = std::str::from_utf8(&text) else {
                    return text.into();
                };
                let rest = text.split_off(fault.valid_up_to());
                if fault.error_len().is_none() {
                    *begun = rest;
                } else {
                    let mut decoder = encoding.new_decoder_without_bom_handling();
                    text.extend(decoded(&mut decoder, &rest, false));
                    self.0 = Charset::Other(decoder);
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
            Charset::Unproven { encoding, begun } => {
                let mut decoder = encoding.new_decoder_without_bom_handling();
                decoded(&mut decoder, &begun, true)
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
            // A name that is wrong.
            (LATIN, "café 联".as_bytes(), "café 联"),
            (LATIN, b"end\xc3", "endÃ"),
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
