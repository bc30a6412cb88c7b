//! Kinds of bodies that servers send: an event stream, JSON, or neither.

use crate::charset::Transcoder;
use crate::sse::{SseDecoder, SseEvent};
use std::mem;

/// How many bytes tell an event stream from other text: the longest field name and its colon.
const SNIFF_BYTES: usize = 6;

/// Reads one body by its bytes, and by its content type only where those leave it open. Holds a body of JSON whole, and
/// of a stream one unfinished event.
#[derive(Debug)]
pub struct BodyReader {
    /// Maximum bytes of the body.
    limit: usize,
    received: usize,
    transcoder: Transcoder,
    state: BodyState,
}

#[derive(Debug)]
enum BodyState {
    /// Too few bytes to tell.
    Unknown {
        head: Vec<u8>,
        /// The content type is that of an event stream.
        is_event_stream: bool,
    },
    Events(SseDecoder),
    Json(Vec<u8>),
}

/// The part of a body that was not given out before its end.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// A body of blanks, or of no bytes.
    Empty,
    /// All of a body that begins as JSON does. It may be cut, or several values one behind the other.
    Json(Vec<u8>),
    /// Events that the end of the stream ended, and no blank line. The last one may be cut.
    Events(Vec<SseEvent>),
}

/// Why a body is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// The body has more bytes than the limit.
    TooLarge,
    /// The body is neither an event stream nor JSON; has the bytes that it begins with.
    Foreign(Vec<u8>),
}

impl BodyReader {
    /// `limit`: maximum bytes of the body. `content_type`: the header of that name.
    pub fn new(limit: usize, content_type: Option<&str>) -> Self {
        let transcoder = Transcoder::new(content_type);
        let content_type = content_type.unwrap_or_default().trim();
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        Self {
            limit,
            received: 0,
            transcoder,
            state: BodyState::Unknown {
                head: Vec::new(),
                is_event_stream: kind.eq_ignore_ascii_case("text/event-stream"),
            },
        }
    }

    /// Takes the next bytes, and returns the events that they complete.
    ///
    /// # Errors
    /// The body is too large, or neither events nor JSON.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, BodyFault> {
        let text = self.transcoder.push(bytes);
        self.take(bytes.len().max(text.len()), &text)
    }

    /// Takes the next bytes as UTF-8. `size`: how many they are, there or on the wire.
    fn take(&mut self, size: usize, bytes: &[u8]) -> Result<Vec<SseEvent>, BodyFault> {
        self.received = self.received.saturating_add(size);
        if self.received > self.limit {
            return Err(BodyFault::TooLarge);
        }
        match &mut self.state {
            BodyState::Unknown { head, .. } => {
                head.extend_from_slice(bytes);
                self.sniff(false)
            }
            BodyState::Json(json) => {
                json.extend_from_slice(bytes);
                Ok(Vec::new())
            }
            BodyState::Events(events) => events.push(bytes).map_err(|_| BodyFault::TooLarge),
        }
    }

    /// The body has ended in good order. Returns what it ended with.
    ///
    /// # Errors
    /// The body is neither events nor JSON, or too large.
    pub fn finish(&mut self) -> Result<BodyEnd, BodyFault> {
        let rest = self.transcoder.finish();
        let mut events = self.take(rest.len(), &rest)?;
        if matches!(self.state, BodyState::Unknown { .. }) {
            events.extend(self.sniff(true)?);
        }
        Ok(match &mut self.state {
            BodyState::Unknown { .. } => BodyEnd::Empty,
            BodyState::Json(json) => {
                let last = json.iter().rposition(|byte| !is_padding(*byte));
                json.truncate(last.map_or(0, |last| last.saturating_add(1)));
                BodyEnd::Json(mem::take(json))
            }
            BodyState::Events(decoder) => {
                events.extend(decoder.finish());
                BodyEnd::Events(events)
            }
        })
    }

    /// Decides what the body is. Its first bytes are believed before the content type: errors to
    /// streaming requests come as JSON under any name, and proxies send their pages as anything.
    fn sniff(&mut self, at_end: bool) -> Result<Vec<SseEvent>, BodyFault> {
        let BodyState::Unknown {
            head,
            is_event_stream,
        } = &mut self.state
        else {
            return Ok(Vec::new());
        };
        let after_mark = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
        let start = after_mark.trim_ascii_start();
        let is_json = start.starts_with(b"{") || start.starts_with(b"[");
        if start.len() < SNIFF_BYTES && !at_end && !is_json {
            // Of blanks one is enough. More would be looked through again with each chunk.
            let mark = head.len() - after_mark.len();
            let blanks = after_mark.len() - start.len();
            head.drain(mark..mark + blanks.saturating_sub(1));
            return Ok(Vec::new());
        }
        let is_page = start.starts_with(b"<");
        let has_field = [&b"data:"[..], b"event:", b"id:", b"retry:", b":"]
            .iter()
            .any(|field| start.starts_with(field));
        if is_json {
            self.state = BodyState::Json(start.to_vec());
            Ok(Vec::new())
        } else if start.is_empty() {
            // A connection that closed without a word: cut, not misconfigured.
            Ok(Vec::new())
        } else if !is_page && (*is_event_stream || has_field) {
            let head = mem::take(head);
            let mut events = SseDecoder::new(self.limit);
            let first = events.push(&head);
            self.state = BodyState::Events(events);
            first.map_err(|_| BodyFault::TooLarge)
        } else {
            Err(BodyFault::Foreign(start.to_vec()))
        }
    }
}

/// True for bytes behind JSON that mean nothing. Servers in C send the NUL that ends their text.
fn is_padding(byte: u8) -> bool {
    byte == 0 || byte.is_ascii_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: usize = 1 << 20;

    /// Returns the kind of a body in a word, and its texts.
    fn read(
        content_type: Option<&str>,
        body: &[u8],
        chunk: usize,
    ) -> Result<(&'static str, Vec<String>), BodyFault> {
        let mut reader = BodyReader::new(LIMIT, content_type);
        let mut texts = Vec::new();
        for chunk in body.chunks(chunk) {
            texts.extend(reader.push(chunk)?.into_iter().map(|event| event.data));
        }
        Ok(match reader.finish()? {
            BodyEnd::Empty => ("empty", texts),
            BodyEnd::Json(json) => {
                texts.push(String::from_utf8_lossy(&json).into_owned());
                ("json", texts)
            }
            BodyEnd::Events(last) => {
                texts.extend(last.into_iter().map(|event| event.data));
                ("events", texts)
            }
        })
    }

    #[test]
    fn bodies_are_told_by_what_they_are() {
        const EVENTS: Option<&str> = Some("Text/Event-Stream; charset=utf-8");
        const JSON: Option<&str> = Some("application/json");
        const PLAIN: Option<&str> = Some("text/plain");
        let own = |texts: &[&str]| -> Vec<String> {
            texts.iter().map(|text| (*text).to_owned()).collect()
        };
        let cases: &[(Option<&str>, &str, &str, &[&str])] = &[
            (EVENTS, "data: a\n\ndata: b\n\n", "events", &["a", "b"]),
            (JSON, "data: a\n\ndata: b", "events", &["a", "b"]),
            (PLAIN, "event: x\ndata: a\n\n", "events", &["a"]),
            (None, ": ping\n\n: ping\n\ndata: a\n\n", "events", &["a"]),
            (JSON, "\u{feff}id: 7\ndata: a\n", "events", &["a"]),
            (EVENTS, "weird: a\ndata: a\n\n", "events", &["a"]),
            (EVENTS, "\n\n \n{\"a\":1}", "json", &["{\"a\":1}"]),
            (EVENTS, "{\"a\":1}", "json", &["{\"a\":1}"]),
            (None, "\u{feff} [1]", "json", &["[1]"]),
            (PLAIN, "{}", "json", &["{}"]),
            (JSON, "{\"a\":1}\n\0 \0", "json", &["{\"a\":1}"]),
            (EVENTS, "", "empty", &[]),
            (JSON, " \r\n", "empty", &[]),
        ];
        for (said, body, kind, texts) in cases {
            for chunk in [1, 3, 1_000] {
                let (found, read) = read(*said, body.as_bytes(), chunk).unwrap();
                assert_eq!(
                    (found, read.as_slice()),
                    (*kind, &own(texts)[..]),
                    "{body:?}"
                );
            }
        }
        for (said, body) in [
            (EVENTS, "<html>busy</html>"),
            (JSON, "busy, come again"),
            (None, "true"),
        ] {
            let fault = read(said, body.as_bytes(), 2).unwrap_err();
            assert!(matches!(fault, BodyFault::Foreign(_)), "{fault:?}");
        }
    }

    #[test]
    fn bodies_are_read_by_the_charset_that_their_content_type_names() {
        let json = Some("application/json; charset=iso-8859-1");
        let events = Some("text/event-stream; charset=latin1");
        for (said, body, texts) in [
            (json, &b"{\"a\":\"caf\xe9\"}"[..], ["{\"a\":\"café\"}"]),
            (json, "{\"a\":\"café\"}".as_bytes(), ["{\"a\":\"café\"}"]),
            (events, b"data: caf\xe9\n\n", ["café"]),
        ] {
            for chunk in [1, 7, 1_000] {
                let (_, read) = read(said, body, chunk).unwrap();
                assert_eq!(read, texts, "{said:?}");
            }
        }
        // What the characters become is bounded, too.
        let mut reader = BodyReader::new(10, json);
        assert_eq!(
            reader.push(b"[\"\xe9\xe9\xe9\xe9\xe9\"]"),
            Err(BodyFault::TooLarge)
        );
    }

    #[test]
    fn a_body_has_a_bound_whatever_it_is() {
        for piece in [
            &b"{\"a\": "[..],
            b"data: a\n\n",
            b": ping\n",
            b"data:",
            b"\n\n\n\n\n\n",
        ] {
            let mut reader = BodyReader::new(1_000, Some("text/event-stream"));
            let fault = (0..1_000).find_map(|_| reader.push(piece).err());
            assert_eq!(fault, Some(BodyFault::TooLarge));
        }
    }

    proptest! {
        #[test]
        fn chunks_change_nothing(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "data: ", "event: e", "\n", "\r\n", "\n\n", ": c", "{\"a\":1}", "[", "<", " ", "\u{feff}", "é", "x",
            ]), 0..30),
            chunk in 1_usize..20,
            is_event_stream in any::<bool>(),
        ) {
            let body = pieces.concat();
            let said = is_event_stream.then_some("text/event-stream");
            let whole = read(said, body.as_bytes(), LIMIT);
            let chunked = read(said, body.as_bytes(), chunk);
            match (whole, chunked) {
                // The head that is quoted is as long as what had come by then.
                (Err(BodyFault::Foreign(_)), Err(BodyFault::Foreign(_))) => {}
                (whole, chunked) => prop_assert_eq!(whole, chunked),
            }
        }
    }
}
