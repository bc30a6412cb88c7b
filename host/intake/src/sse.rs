//! An incremental decoder of server-sent events, over bytes cut anywhere.

use std::mem;
use toolhold_json::scan::{JsonLexer, JsonToken};

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event` field; `None` for a plain message.
    pub name: Option<String>,
    /// The `data` lines, joined by line feeds.
    pub data: String,
}

/// An event grew beyond the decoder's bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTooLong;

/// Turns chunks into events. Holds at most one unfinished event.
#[derive(Debug)]
pub struct SseDecoder {
    /// Bytes of one event, its unfinished line included.
    limit: usize,
    /// The line that no terminator has been seen for.
    line: Vec<u8>,
    event: SseEvent,
    has_data: bool,
    /// The last byte was a carriage return, so a line feed that follows belongs to it.
    after_return: bool,
    /// No line has been read, so a byte order mark may still come.
    at_start: bool,
}

impl SseDecoder {
    /// `limit`: the most bytes one event may hold.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            event: SseEvent::default(),
            has_data: false,
            after_return: false,
            at_start: true,
        }
    }

    /// Takes the next bytes and returns the events that they complete.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<SseEvent>, EventTooLong> {
        let mut events = Vec::new();
        if self.after_return && !bytes.is_empty() {
            self.after_return = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend_line(&bytes[..end])?;
            let is_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if is_return {
                match bytes.first() {
                    Some(b'\n') => bytes = &bytes[1..],
                    Some(_) => {}
                    None => self.after_return = true,
                }
            }
            events.extend(self.end_line());
        }
        self.extend_line(bytes)?;
        Ok(events)
    }

    /// The event that the stream ended in, if any. The standard discards it; servers that forget
    /// the last blank line are common enough to read it. It may be cut in the middle.
    pub fn finish(&mut self) -> Option<SseEvent> {
        self.end_line().or_else(|| self.dispatch())
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), EventTooLong> {
        if self.line.len() + self.event.data.len() + bytes.len() > self.limit {
            return Err(EventTooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let bytes = mem::take(&mut self.line);
        // Invalid bytes become U+FFFD, as the standard says: one bad token must not cost the rest.
        let line = String::from_utf8_lossy(&bytes);
        let line = if mem::take(&mut self.at_start) {
            line.trim_start_matches('\u{feff}')
        } else {
            &line
        };
        if line.is_empty() {
            return self.dispatch();
        }
        // No field is called so: servers put an object, most often an error, among the events as it is.
        if !self.has_data && line.starts_with('{') && line.trim_end().ends_with('}') {
            return Some(SseEvent {
                name: self.event.name.take(),
                data: line.to_owned(),
            });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "event" => self.event.name = Some(value.to_owned()),
            // No field of the standard: llama.cpp's server told its errors so.
            "error" if value.starts_with('{') && !self.has_data => {
                self.event.name = Some(field.to_owned());
                self.event.data.push_str(value);
                self.has_data = true;
            }
            // Comments (an empty field), `id`, `retry` and unknown fields carry nothing for us.
            _ => {}
        }
        None
    }

    fn dispatch(&mut self) -> Option<SseEvent> {
        let event = mem::take(&mut self.event);
        mem::take(&mut self.has_data).then_some(event)
    }
}

/// The JSON objects that `data` begins with, one behind the other, and the text behind them without blanks around it. Some
/// proxies put several into one event, with the field's name between them or without it. The last one may be cut.
pub fn objects(data: &str) -> (Vec<&str>, &str) {
    let (mut objects, mut depth) = (Vec::new(), 0_usize);
    let mut begin = data.trim_start();
    let mut rest = begin;
    let mut lexer = JsonLexer::default();
    while begin.starts_with('{') {
        match lexer.next(&mut rest) {
            Some(JsonToken::Between('{' | '[')) => depth += 1,
            Some(JsonToken::Between('}' | ']')) => depth = depth.saturating_sub(1),
            Some(_) => continue,
            None => break,
        }
        if depth == 0 {
            let (object, behind) = begin.split_at(begin.len() - rest.len());
            objects.push(object);
            let behind = behind.trim_start();
            begin = behind.strip_prefix("data:").unwrap_or(behind).trim_start();
            rest = begin;
        }
    }
    (objects, begin.trim_end())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(chunks: &[&[u8]]) -> Vec<(Option<String>, String)> {
        let mut decoder = SseDecoder::new(1 << 20);
        let mut events: Vec<SseEvent> = chunks
            .iter()
            .flat_map(|chunk| decoder.push(chunk).unwrap())
            .collect();
        events.extend(decoder.finish());
        events
            .into_iter()
            .map(|event| (event.name, event.data))
            .collect()
    }

    fn data(events: &[(Option<String>, String)]) -> Vec<&str> {
        events.iter().map(|(_, data)| data.as_str()).collect()
    }

    #[test]
    fn reads_what_servers_write() {
        let cases: &[(&[u8], &[&str])] = &[
            (b"data: a\n\ndata: b\n\n", &["a", "b"]),
            (b"data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]),
            (b"data: a\r\rdata: b\r\r", &["a", "b"]),
            (b"data:a\n\n", &["a"]),
            (b"data:  a\n\n", &[" a"]),
            (b"data: a\ndata: b\n\n", &["a\nb"]),
            (b"data: a\ndata\ndata: b\n\n", &["a\n\nb"]),
            (b": ping\n\n: ping\n\ndata: a\n\n", &["a"]),
            (b"\xef\xbb\xbfdata: a\n\n", &["a"]),
            (b"id: 1\nretry: 10\ndata: a\nother: x\n\n", &["a"]),
            (b"data: a", &["a"]),
            (b"data: a\n", &["a"]),
            (b"event: lonely\n\n", &[]),
            (b"data:\n\n", &[""]),
            (b"\n\n\n", &[]),
            (b"", &[]),
            (b"data: \xff\xc3\n\n", &["\u{fffd}\u{fffd}"]),
            (
                b"data: a\n\n{\"error\": \"b\"}\n\n",
                &["a", "{\"error\": \"b\"}"],
            ),
            (b": ping\n\n{\"a\":1}", &["{\"a\":1}"]),
            (b"{\"a\":\n\n", &[]),
            (b"data: a\n{\"b\":1}\n\n", &["a"]),
            (b"{\"a\":1}\ndata: b\n\n", &["{\"a\":1}", "b"]),
            (b"data: a\n\nerror: {\"b\":1}\n\n", &["a", "{\"b\":1}"]),
            (b"error: words\ndata: a\n\n", &["a"]),
        ];
        for (bytes, expected) in cases {
            let text = String::from_utf8_lossy(bytes);
            assert_eq!(data(&decode(&[bytes])), *expected, "{text:?}");
        }
    }

    #[test]
    fn objects_of_one_event_are_told_apart() {
        for (data, expected, rest) in [
            ("{\"a\":1}", &["{\"a\":1}"][..], ""),
            (" {} {\"a\":\"}{\"}\n", &["{}", "{\"a\":\"}{\"}"], ""),
            ("{}\n[DONE]\n", &["{}"], "[DONE]"),
            ("{\"a\":[{}]}data: {}", &["{\"a\":[{}]}", "{}"], ""),
            ("{}{\"a\":[1", &["{}"], "{\"a\":[1"),
            ("{} x {}", &["{}"], "x {}"),
            ("[1]{}", &[], "[1]{}"),
            ("", &[], ""),
        ] {
            assert_eq!(objects(data), (expected.to_vec(), rest), "{data}");
        }
    }

    #[test]
    fn names_belong_to_their_event_only() {
        let events = decode(&[b"event: error\ndata: a\n\ndata: b\n\n"]);
        assert_eq!(
            events,
            [(Some("error".into()), "a".into()), (None, "b".into())]
        );
    }

    #[test]
    fn memory_is_bounded_in_one_line_and_over_many() {
        let mut decoder = SseDecoder::new(64);
        assert_eq!(decoder.push(&[b'x'; 65]), Err(EventTooLong));
        let mut decoder = SseDecoder::new(64);
        let result = (0..20).try_for_each(|_| decoder.push(b"data: 12345678\n").map(drop));
        assert_eq!(result, Err(EventTooLong));
        let mut decoder = SseDecoder::new(64);
        for _ in 0..20 {
            decoder.push(b"data: 12345678\n\n").unwrap();
        }
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_events(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "data: ", "data:", "event: e", "\n", "\r", "\r\n", "\n\n", "héllo 😀",
                    "{\"a\":1}", ":", "c", "\u{feff}", "[DONE]",
                ]), 0..40),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let bytes = pieces.concat().into_bytes();
            let mut places: Vec<usize> =
                cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            places.extend([0, bytes.len()]);
            places.sort_unstable();
            let chunks: Vec<&[u8]> =
                places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let singles: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(decode(&chunks), decode(&[&bytes]));
            prop_assert_eq!(decode(&singles), decode(&[&bytes]));
        }
    }
}
