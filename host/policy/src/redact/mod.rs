//! Removes known secrets, in all forms in which they may come back, from bytes and streams.
//!
//! `forms` makes the texts that are looked for, `automaton` finds them in symbols, `escapes` says which bytes
//! are one symbol, and `scan` reads bytes in all these ways at once. What is found is taken out of the bytes as they
//! were, escapes and line breaks included.

mod automaton;
mod escapes;
mod forms;
mod scan;

pub use automaton::TooLong;

use automaton::{Automaton, CODED, StateId, TEXT};
use scan::{Held, Scanner};
use std::fmt;
use std::sync::Arc;

/// Finds secrets in all their forms and puts `[secret NAME]` in their place. Without secrets it
/// costs nothing. Clones share the automaton.
#[derive(Clone, Default)]
pub struct Redactor(Option<Arc<Automaton>>);

/// Bytes that passed, and how many secrets were taken out of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RedactedBytes {
    pub bytes: Vec<u8>,
    pub redactions: u64,
}

impl Redactor {
    /// From pairs of name and secret.
    ///
    /// # Errors
    /// If the forms of all secrets together are more than an automaton can hold.
    pub fn new<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, TooLong> {
        let mut automaton = Automaton::new();
        let mut is_empty = true;
        for (name, secret) in secrets {
            if secret.is_empty() {
                continue;
            }
            let marker: Arc<str> = format!("[secret {name}]").into();
            automaton.add(TEXT, &marker, forms::texts(secret))?;
            automaton.add(CODED, &marker, forms::coded(secret))?;
            is_empty = false;
        }
        automaton.link();
        Ok(Self((!is_empty).then(|| Arc::new(automaton))))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether a secret is in `bytes`.
    pub fn finds(&self, bytes: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|automaton| {
            let mut scanner = Scanner::default();
            scanner.read(automaton, bytes);
            !scanner.ended().is_empty()
        })
    }

    /// `bytes` as a whole, if there was a secret in them.
    pub fn clean(&self, bytes: &[u8]) -> Option<RedactedBytes> {
        if !self.finds(bytes) {
            return None;
        }
        let mut stream = self.stream();
        let mut cleaned = stream.push(bytes);
        let rest = stream.finish();
        cleaned.bytes.extend(rest.bytes);
        cleaned.redactions += rest.redactions;
        Some(cleaned)
    }

    /// Cleans what comes in pieces.
    pub fn stream(&self) -> StreamRedaction {
        StreamRedaction {
            automaton: self.0.clone(),
            scanner: Scanner::default(),
            held: Vec::new(),
            from: 0,
            found: Vec::new(),
        }
    }
}

/// A stream on its way through a [`Redactor`]. Holds back only what may be the beginning of a
/// secret, so that ordinary data is not delayed.
pub struct StreamRedaction {
    automaton: Option<Arc<Automaton>>,
    scanner: Scanner,
    /// Seen, and not yet passed on.
    held: Vec<u8>,
    /// Where in the stream `held` begins.
    from: usize,
    /// Secrets that are not yet passed, in their order. They do not overlap.
    found: Vec<FoundSecret>,
}

/// The place of a secret in the stream.
#[derive(Debug)]
struct FoundSecret {
    start: usize,
    end: usize,
    /// The state of the automaton at its end, which says whose it is.
    state: StateId,
    /// Its replacement was passed on.
    is_replaced: bool,
}

impl StreamRedaction {
    /// What can be passed on once `chunk` has come.
    pub fn push(&mut self, chunk: &[u8]) -> RedactedBytes {
        let Some(automaton) = self.automaton.clone() else {
            return RedactedBytes {
                bytes: chunk.to_vec(),
                redactions: 0,
            };
        };
        self.held.extend_from_slice(chunk);
        let mut read = 0;
        while read < chunk.len() {
            read += self.scanner.read(&automaton, &chunk[read..]);
            for at in 0..self.scanner.ended().len() {
                self.find(&automaton, self.scanner.ended()[at]);
            }
        }
        let upto = self.scanner.undecided(&automaton, self.held());
        self.release(&automaton, upto)
    }

    /// What was held back: nothing more will come.
    pub fn finish(&mut self) -> RedactedBytes {
        match self.automaton.clone() {
            Some(automaton) => self.release(&automaton, self.scanner.at()),
            None => RedactedBytes::default(),
        }
    }

    fn held(&self) -> Held<'_> {
        Held {
            bytes: &self.held,
            from: self.from,
        }
    }

    /// Notes the secret that ends at the node that the scanner reached.
    fn find(&mut self, automaton: &Automaton, state: StateId) {
        let end = self.scanner.at();
        // Of two matches of one pattern, the later one does not begin earlier. So its beginning is of no interest once
        // it lies in the other, which keeps a secret such as "aaaaaaaa" from costing its length at every byte.
        let enough = match self.found.last() {
            Some(last) if last.state == state => last.end,
            _ => 0,
        };
        let start = self
            .scanner
            .began(automaton, self.held(), state, end, enough);
        let mut found = FoundSecret {
            start,
            end,
            state,
            is_replaced: false,
        };
        while let Some(last) = self.found.pop_if(|last| found.start < last.end) {
            if last.start <= found.start {
                found.start = last.start;
                found.state = last.state;
            }
            found.is_replaced |= last.is_replaced;
        }
        self.found.push(found);
    }

    /// Passes on what lies before the node `upto`. A secret that begins there was found.
    fn release(&mut self, automaton: &Automaton, upto: usize) -> RedactedBytes {
        let mut cleaned = RedactedBytes::default();
        let mut done = self.from;
        for found in &mut self.found {
            if found.start >= upto {
                break;
            }
            if found.start > done {
                let plain = done - self.from..found.start - self.from;
                cleaned.bytes.extend_from_slice(&self.held[plain]);
            }
            if !std::mem::replace(&mut found.is_replaced, true) {
                let marker = automaton.name(found.state).map_or("", |name| name);
                cleaned.bytes.extend_from_slice(marker.as_bytes());
                cleaned.redactions += 1;
            }
            done = done.max(found.end);
        }
        if done < upto {
            let plain = done - self.from..upto - self.from;
            cleaned.bytes.extend_from_slice(&self.held[plain]);
        }
        self.held.drain(..upto - self.from);
        self.from = upto;
        self.found.retain(|found| found.end > upto);
        self.scanner.forget(upto);
        cleaned
    }
}

// By hand: a derived one would print the automaton, and with it the secrets.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Automaton {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Automaton")
            .field("states", &self.states())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for StreamRedaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamRedaction")
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
    use proptest::prelude::*;

    fn streamed(redactor: &Redactor, text: &[u8], cuts: &[usize]) -> Vec<u8> {
        let mut stream = redactor.stream();
        let mut out = Vec::new();
        let mut rest = text;
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, next) = rest.split_at((*cut).clamp(1, rest.len()));
            out.extend(stream.push(chunk).bytes);
            rest = next;
        }
        out.extend(stream.finish().bytes);
        out
    }

    #[test]
    fn a_secret_is_replaced_by_its_name() {
        let redactor = Redactor::new([("api-key", "s3cret/token")]).unwrap();
        for (text, clean) in [
            ("key=s3cret/token.", "key=[secret api-key]."),
            ("S3CRET%2FTOKEN", "[secret api-key]"),
            ("s3crets3cret/tokens3cret", "s3cret[secret api-key]s3cret"),
            (
                "s3cret/tokens3cret/token",
                "[secret api-key][secret api-key]",
            ),
        ] {
            for cut in 1..=text.len() {
                let out = streamed(&redactor, text.as_bytes(), &[cut]);
                assert_eq!(String::from_utf8(out).unwrap(), clean, "in pieces of {cut}");
            }
        }
        assert_eq!(redactor.clean(b"nothing here"), None);
    }

    #[test]
    fn secrets_that_overlap_are_both_covered() {
        let redactor = Redactor::new([("a", "aaaabbbb"), ("b", "bbbbcccc")]).unwrap();
        for cut in 1..14 {
            assert_eq!(
                streamed(&redactor, b"xaaaabbbbccccx", &[cut]),
                b"x[secret a]x",
                "{cut}"
            );
        }
        let periodic = Redactor::new([("p", "abababab")]).unwrap();
        assert_eq!(
            streamed(&periodic, b"-ababababababab-", &[3]),
            b"-[secret p]-"
        );
    }

    #[test]
    fn ordinary_data_is_not_delayed() {
        let redactor = Redactor::new([("k", "s3cret/token")]).unwrap();
        let mut stream = redactor.stream();
        assert_eq!(stream.push(b"data: 1\n\n").bytes, b"data: 1\n\n");
        assert_eq!(stream.push(b"data: s3cr").bytes, b"data: ");
        assert_eq!(stream.push(b"aped\n").bytes, b"s3craped\n");
    }

    #[test]
    fn debugging_shows_no_secret() {
        let redactor = Redactor::new([("k", "s3cret/token")]).unwrap();
        let shown = format!("{redactor:?} {:?}", redactor.stream());
        assert!(!redactor.finds(shown.as_bytes()), "{shown}");
    }

    /// How servers write back what they were sent.
    fn encoded(secret: &str, before: &str, after: &str, how: usize) -> String {
        let whole = format!("{before}{secret}{after}");
        let each = |form: fn(char) -> String| whole.chars().map(form).collect::<String>();
        let hex = |upper: bool| {
            let byte = |b: u8| {
                if upper {
                    format!("{b:02X}")
                } else {
                    format!("{b:02x}")
                }
            };
            whole.bytes().map(byte).collect::<String>()
        };
        let query: String = url::form_urlencoded::byte_serialize(whole.as_bytes()).collect();
        match how {
            0 => whole,
            1 => STANDARD.encode(whole),
            2 => URL_SAFE.encode(whole),
            3 => STANDARD_NO_PAD.encode(whole),
            4 => URL_SAFE_NO_PAD.encode(whole),
            5 => hex(false),
            6 => hex(true),
            7 => each(|c| format!("%{:02X}", c as u32)),
            8 => each(|c| format!("%{:02x}", c as u32)),
            9 => query,
            10 => query.to_ascii_lowercase(),
            11 => serde_json::to_string(&whole).unwrap(),
            12 => each(|c| format!("\\u{:04X}", c as u32)),
            13 => serde_json::to_string(&whole).unwrap().replace('/', "\\/"),
            _ => whole
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('"', "&quot;"),
        }
    }
    const WAYS: usize = 15;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(2_000)))]

        /// Whatever the secret, the text around it, the encoding and the chunking: it does not come
        /// out, in any encoding.
        #[test]
        fn a_secret_never_comes_out(
            secret in "[ -~]{8,40}",
            before in "[ -~]{0,12}",
            after in "[ -~]{0,12}",
            how in 0..WAYS,
            cuts in prop::collection::vec(1..30_usize, 1..6),
        ) {
            let redactor = Redactor::new([("canary", secret.as_str())]).unwrap();
            let sent = encoded(&secret, &before, &after, how);
            prop_assert!(redactor.finds(sent.as_bytes()), "{sent} is not seen");
            let out = streamed(&redactor, sent.as_bytes(), &cuts);
            // A marker may complete a secret that begins or ends like one: cut there, as a reader would.
            let text = String::from_utf8_lossy(&out).into_owned();
            for part in text.split("[secret canary]") {
                prop_assert!(!redactor.finds(part.as_bytes()), "{sent} became {text}");
            }
            let whole = redactor.clean(sent.as_bytes()).map(|cleaned| cleaned.bytes);
            prop_assert_eq!(whole, Some(out), "in one piece and in many");
        }

        /// What has no secret in it is not touched.
        #[test]
        fn other_bytes_pass_unchanged(
            secret in "[a-z]{16}",
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            cuts in prop::collection::vec(1..30_usize, 1..6),
        ) {
            let redactor = Redactor::new([("canary", secret.as_str())]).unwrap();
            prop_assume!(!redactor.finds(&bytes));
            prop_assert_eq!(streamed(&redactor, &bytes, &cuts), bytes);
        }
    }
}
