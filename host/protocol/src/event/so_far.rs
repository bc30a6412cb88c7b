//! Replies that are being written, for readers that come while a model writes, or after it.

use super::kind::EventKind;
use super::record::Event;
use super::seal::Seal;
use crate::completion::{Completion, Delta};
use crate::reply_offset::ReplyOffset;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Text shown so far of a reply that is not complete. It is kept until the reply is recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplySoFar {
    /// Number of the Request's event.
    pub request: u64,
    pub step: u32,
    /// When the last piece was shown, in milliseconds since 1970 (UTC).
    pub at_ms: u64,
    pub text: Completion,
}

impl ReplySoFar {
    /// Takes the next event that a run shows. Those of sub-agents change nothing.
    pub fn take(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Request { step, .. } => {
                *self = Self {
                    request: event.seq,
                    step: *step,
                    ..Self::default()
                }
            }
            EventKind::Delta { delta, .. } => {
                self.text.add(delta);
                self.at_ms = event.at_ms;
            }
            EventKind::Reply { .. } | EventKind::ModelFailed { .. } | EventKind::Done { .. } => {
                self.text = Completion::default();
            }
            _ => {}
        }
    }
}

/// How much of its replies a reader of a run's events was shown. It makes the pieces that the reader lacks out of recorded
/// events and of replies that are being written: a reader gets each text of a reply once, and whole before its `reply`.
#[derive(Debug, Clone, Default)]
pub struct ShownText {
    /// Number of the event behind which the reply begins that is read: its Request, or the end of the reply before. 0 where
    /// the reader began in the middle of a reply.
    begins: u64,
    /// Number of the recorded event that was taken last.
    taken: u64,
    offset: ReplyOffset,
    /// True if the record has the pieces of this reply as events: they show all of it.
    has_recorded: bool,
}

impl ShownText {
    /// State of a reader that continues in the middle of a reply.
    pub fn at(offset: ReplyOffset) -> Self {
        Self {
            offset,
            ..Self::default()
        }
    }

    /// State of a reader of the reply that begins behind `event`.
    fn behind(event: &Event) -> Self {
        Self {
            begins: event.seq,
            taken: event.seq,
            ..Self::default()
        }
    }

    /// How much of the reply was shown that is being written.
    pub fn offset(&self) -> &ReplyOffset {
        &self.offset
    }

    /// Takes the next recorded event. Returns the pieces to show before it: none if it was taken already.
    pub fn before(&mut self, event: &Event) -> Vec<Event> {
        if self.taken > 0 && event.seq <= self.taken {
            return Vec::new();
        }
        self.taken = event.seq;
        match &event.kind {
            EventKind::Request { .. } | EventKind::ModelFailed { .. } => {
                *self = Self::behind(event);
                Vec::new()
            }
            // Of a record of an older version, in which it is an event itself.
            EventKind::Delta {
                delta, from: None, ..
            } => {
                self.offset.pass(delta);
                self.has_recorded = true;
                Vec::new()
            }
            EventKind::Written { step, from, pieces } => {
                let (mut at, mut lacking) = (from.clone(), Vec::new());
                for piece in pieces {
                    if let Some(rest) = self.offset.rest_of(piece, &at) {
                        lacking.push(self.show(event, *step, rest));
                    }
                    at.pass(piece);
                }
                lacking
            }
            EventKind::Reply { step, completion } => {
                let rest = if self.has_recorded {
                    Vec::new()
                } else {
                    self.offset.rest(completion)
                };
                let rest = rest.into_iter();
                let lacking = rest.map(|piece| self.show(event, *step, piece)).collect();
                // Pieces of this reply that come now were shown.
                *self = Self::behind(event);
                lacking
            }
            _ => Vec::new(),
        }
    }

    /// The pieces that the reader lacks of a reply that is being written. None, if it was not shown the Request yet, or
    /// a later one; `next` is the number of the next event.
    pub fn lacking(&mut self, reply: &ReplySoFar, run: Uuid, next: u64) -> Vec<Event> {
        if reply.request >= next || reply.request < self.begins {
            return Vec::new();
        }
        let before = Event {
            run,
            seq: next,
            at_ms: reply.at_ms,
            kind: EventKind::Notice {
                step: reply.step,
                message: String::new(),
            },
            removed: None,
            seal: Seal::default(),
        };
        let rest = self.offset.rest(&reply.text).into_iter();
        rest.map(|piece| self.show(&before, reply.step, piece))
            .collect()
    }

    /// Takes a piece that is shown as it comes, and leaves of it what the reader lacks. `Err`: the reader lacks text
    /// before it, which [`Self::lacking`] gives.
    ///
    /// # Errors
    /// [`TextMissing`].
    pub fn take_piece(&mut self, piece: &Event) -> Result<Option<Event>, TextMissing> {
        let EventKind::Delta {
            step,
            delta,
            from: Some(from),
        } = &piece.kind
        else {
            // A sub-agent's.
            return Ok(Some(piece.clone()));
        };
        // Of an earlier reply.
        if piece.seq < self.begins {
            return Ok(None);
        }
        if self.offset.lacks_before(delta, from) {
            return Err(TextMissing);
        }
        let Some(rest) = self.offset.rest_of(delta, from) else {
            return Ok(None);
        };
        let begins = self.offset.clone();
        self.offset.pass(&rest);
        Ok(Some(Event {
            kind: EventKind::Delta {
                step: *step,
                delta: rest,
                from: Some(begins),
            },
            ..piece.clone()
        }))
    }

    /// A piece that is shown before `event`.
    fn show(&mut self, event: &Event, step: u32, delta: Delta) -> Event {
        let from = self.offset.clone();
        self.offset.pass(&delta);
        Event {
            run: event.run,
            seq: event.seq.saturating_sub(1),
            at_ms: event.at_ms,
            kind: EventKind::Delta {
                step,
                delta,
                from: Some(from),
            },
            removed: None,
            seal: Seal::default(),
        }
    }
}

/// A piece of a reply came to a reader that lacks text before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextMissing;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::completion::ChatToolCall;
    use serde_json::json;

    fn event(seq: u64, kind: EventKind) -> Event {
        Event {
            run: Uuid::nil(),
            seq,
            at_ms: 7,
            kind,
            removed: None,
            seal: Seal::default(),
        }
    }

    fn request(seq: u64) -> Event {
        let kind = json!({"event": "request", "step": 1, "body": {}});
        event(seq, serde_json::from_value(kind).unwrap())
    }

    fn reply(seq: u64) -> Event {
        let kind = EventKind::Reply {
            step: 1,
            completion: whole(),
        };
        event(seq, kind)
    }

    fn whole() -> Completion {
        Completion {
            content: "aé🦀z".into(),
            reasoning: "hm".into(),
            tool_calls: vec![ChatToolCall {
                id: "i".into(),
                name: "f".into(),
                arguments: "{}".into(),
                ..ChatToolCall::default()
            }],
            ..Completion::default()
        }
    }

    /// The pieces of the whole reply, one character each, as they are shown behind the event `seq`.
    fn pieces(seq: u64) -> Vec<Event> {
        let begun = Delta::ToolCall {
            index: 0,
            id: Some("i".into()),
            name: Some("f".into()),
            arguments: String::new(),
        };
        let arguments = |text: &str| Delta::ToolCall {
            index: 0,
            id: None,
            name: None,
            arguments: text.into(),
        };
        let whole = whole();
        let reasoning = whole.reasoning.chars().map(|c| Delta::Reasoning(c.into()));
        let content = whole.content.chars().map(|c| Delta::Content(c.into()));
        let calls = [begun, arguments("{"), arguments("}")];
        let mut from = ReplyOffset::default();
        let shown = reasoning.chain(content).chain(calls).map(|delta| {
            let begins = from.clone();
            from.pass(&delta);
            let kind = EventKind::Delta {
                step: 1,
                delta,
                from: Some(begins),
            };
            event(seq, kind)
        });
        shown.collect()
    }

    fn read(read: &mut Completion, pieces: &[Event]) {
        for piece in pieces {
            let EventKind::Delta { delta, .. } = &piece.kind else {
                panic!("{piece:?}");
            };
            read.add(delta);
        }
    }

    #[test]
    fn a_reader_gets_each_text_once_wherever_it_comes_and_goes_on() {
        let all = pieces(3);
        for seen in 0..=all.len() {
            // Pieces while they come, up to `seen`; then it is gone, and its id says where.
            let mut shown = ShownText::default();
            assert!(shown.before(&request(3)).is_empty());
            let mut text = Completion::default();
            for piece in &all[..seen] {
                let piece = shown.take_piece(piece).unwrap().unwrap();
                read(&mut text, &[piece]);
            }
            for way in ["pieces", "so far", "reply", "written"] {
                let (mut text, mut shown) = (text.clone(), ShownText::at(shown.offset().clone()));
                match way {
                    "pieces" => {
                        for piece in &all {
                            let rest = shown.take_piece(piece).unwrap();
                            read(&mut text, rest.as_slice());
                        }
                    }
                    "so far" => {
                        let mut so_far = ReplySoFar::default();
                        so_far.take(&request(3));
                        for piece in &all {
                            so_far.take(piece);
                        }
                        let early = shown.lacking(&so_far, Uuid::nil(), 3);
                        assert!(early.is_empty(), "the Request was not shown yet");
                        read(&mut text, &shown.lacking(&so_far, Uuid::nil(), 4));
                    }
                    "written" => {
                        let deltas = all.iter().map(|piece| match &piece.kind {
                            EventKind::Delta { delta, .. } => delta.clone(),
                            other => panic!("{other:?}"),
                        });
                        let kind = EventKind::Written {
                            step: 1,
                            from: ReplyOffset::default(),
                            pieces: deltas.collect(),
                        };
                        read(&mut text, &shown.before(&event(4, kind)));
                    }
                    _ => {}
                }
                let rest = shown.before(&reply(5));
                assert_eq!(rest.is_empty(), way != "reply" || seen == all.len());
                read(&mut text, &rest);
                assert_eq!(text, whole(), "{way} after {seen}");
                assert!(shown.offset().is_beginning());
            }
        }
    }

    #[test]
    fn a_piece_behind_a_gap_or_of_an_earlier_reply_is_not_shown() {
        let mut shown = ShownText::default();
        let all = pieces(3);
        shown.before(&request(3));
        assert_eq!(shown.take_piece(&all[1]).unwrap_err(), TextMissing);
        shown.before(&request(6));
        assert!(shown.take_piece(&all[0]).unwrap().is_none());
    }

    #[test]
    fn a_reply_that_is_taken_again_shows_nothing_again() {
        let mut shown = ShownText::default();
        assert!(shown.before(&request(3)).is_empty());
        assert!(!shown.before(&reply(5)).is_empty());
        assert!(shown.before(&reply(5)).is_empty());
    }

    /// Pieces of a call without arguments move no offset.
    #[test]
    fn a_written_text_that_is_taken_again_shows_nothing_again() {
        let call = |id: Option<&str>, name: Option<&str>| Delta::ToolCall {
            index: 0,
            id: id.map(str::to_owned),
            name: name.map(str::to_owned),
            arguments: String::new(),
        };
        let written = EventKind::Written {
            step: 1,
            from: ReplyOffset::default(),
            pieces: vec![call(None, Some("f")), call(Some("x"), None)],
        };
        let written = event(4, written);
        let mut shown = ShownText::default();
        shown.before(&request(3));
        assert_eq!(shown.before(&written).len(), 2);
        assert!(shown.before(&written).is_empty());
    }

    /// Pieces wait in a channel while the reader reads the whole reply from the record.
    #[test]
    fn pieces_of_a_reply_that_was_shown_are_not_shown_again() {
        let all = pieces(3);
        let mut so_far = ReplySoFar::default();
        so_far.take(&request(3));
        for piece in &all {
            so_far.take(piece);
        }
        let failure = json!({"class": "retryable", "message": "m"});
        let failed = json!({"event": "model_failed", "step": 1, "failure": failure});
        let failed = event(5, serde_json::from_value(failed).unwrap());
        for (end, lacking) in [(reply(5), 3), (failed, 0)] {
            let mut shown = ShownText::default();
            shown.before(&request(3));
            assert_eq!(shown.before(&end).len(), lacking);
            for piece in &all {
                assert!(shown.take_piece(piece).unwrap().is_none());
            }
            assert!(shown.lacking(&so_far, Uuid::nil(), 6).is_empty());
            // The next reply.
            shown.before(&request(6));
            let first = pieces(6).swap_remove(0);
            assert!(shown.take_piece(&first).unwrap().is_some());
        }
    }

    /// A reader that begins between the pieces of an older record does not know how much was before them.
    #[test]
    fn recorded_pieces_show_their_reply() {
        let recorded = EventKind::Delta {
            step: 1,
            delta: Delta::Content("z".into()),
            from: None,
        };
        let mut shown = ShownText::default();
        assert!(shown.before(&event(4, recorded)).is_empty());
        assert!(shown.before(&reply(5)).is_empty());
        shown.before(&request(6));
        assert_eq!(shown.before(&reply(7)).len(), 3);
    }

    #[test]
    fn pieces_have_no_seal_and_others_need_one() {
        let piece = serde_json::to_value(&pieces(3)[0]).unwrap();
        assert_eq!(
            piece,
            json!({"run": Uuid::nil(), "seq": 3, "at_ms": 7, "event": "delta", "step": 1, "reasoning": "h", "from": {}})
        );
        let read: Event = serde_json::from_value(piece).unwrap();
        assert!(read.kind.is_shown_only());
        let old = json!({"run": Uuid::nil(), "seq": 3, "at_ms": 7, "event": "delta", "step": 1, "content": "h", "seal": "x"});
        let read: Event = serde_json::from_value(old).unwrap();
        assert!(!read.kind.is_shown_only());
    }
}
