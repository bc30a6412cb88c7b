//! Removes known secrets, in all forms in which they may come back, from bytes and streams.

mod forms;

use aho_corasick::{AhoCorasick, BuildError, MatchKind};
use forms::forms;
use std::fmt;
use std::sync::Arc;

/// Finds secrets in all their forms and puts `[secret NAME]` in their place. Without secrets it
/// costs nothing. Clones share the automaton.
#[derive(Clone, Default)]
pub struct Redactor(Option<Arc<Patterns>>);

struct Patterns {
    automaton: AhoCorasick,
    /// By pattern: its bytes, and what stands in its place.
    known: Vec<(Vec<u8>, Arc<str>)>,
    longest: usize,
}

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
    pub fn new<'a>(
        secrets: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, BuildError> {
        let known: Vec<_> = secrets
            .into_iter()
            .flat_map(|(name, secret)| {
                let marker: Arc<str> = format!("[secret {name}]").into();
                forms(secret)
                    .into_iter()
                    .map(move |form| (form, marker.clone()))
            })
            .collect();
        let Some(longest) = known.iter().map(|(form, _)| form.len()).max() else {
            return Ok(Self(None));
        };
        let automaton = AhoCorasick::builder()
            // Overlapping matches are only found so; two secrets may share an end.
            .match_kind(MatchKind::Standard)
            .ascii_case_insensitive(true)
            .build(known.iter().map(|(form, _)| form))?;
        Ok(Self(Some(Arc::new(Patterns {
            automaton,
            known,
            longest,
        }))))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether a secret is in `bytes`.
    pub fn finds(&self, bytes: &[u8]) -> bool {
        self.0
            .as_ref()
            .is_some_and(|known| known.automaton.is_match(bytes))
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
    pub fn stream(&self) -> Redaction {
        Redaction {
            patterns: self.0.clone(),
            held: Vec::new(),
            covered: 0,
        }
    }
}

/// A stream on its way through a [`Redactor`]. Holds back only what may be the beginning of a
/// secret, so that ordinary data is not delayed.
#[derive(Debug)]
pub struct Redaction {
    patterns: Option<Arc<Patterns>>,
    /// Seen, and not yet passed on.
    held: Vec<u8>,
    /// Bytes at the front of `held` whose replacement was passed on already.
    covered: usize,
}

impl Redaction {
    /// What can be passed on once `chunk` has come.
    pub fn push(&mut self, chunk: &[u8]) -> RedactedBytes {
        let Some(patterns) = self.patterns.clone() else {
            return RedactedBytes {
                bytes: chunk.to_vec(),
                redactions: 0,
            };
        };
        self.held.extend_from_slice(chunk);
        let undecided = patterns.undecided(&self.held);
        self.release(&patterns, self.held.len() - undecided)
    }

    /// What was held back: nothing more will come.
    pub fn finish(&mut self) -> RedactedBytes {
        match self.patterns.clone() {
            Some(patterns) => self.release(&patterns, self.held.len()),
            None => RedactedBytes::default(),
        }
    }

    /// Passes on the first `upto` bytes held. A secret that begins among them ends within `held`;
    /// one that begins later is found again next time.
    fn release(&mut self, patterns: &Patterns, upto: usize) -> RedactedBytes {
        let mut found: Vec<_> = patterns
            .automaton
            .find_overlapping_iter(&self.held)
            .filter(|found| found.start() < upto)
            .collect();
        found.sort_by_key(aho_corasick::Match::start);
        let mut cleaned = RedactedBytes::default();
        let mut done = self.covered;
        for found in found {
            if found.start() >= done {
                cleaned
                    .bytes
                    .extend_from_slice(&self.held[done..found.start()]);
                let (_, marker) = &patterns.known[found.pattern().as_usize()];
                cleaned.bytes.extend_from_slice(marker.as_bytes());
                cleaned.redactions += 1;
            }
            done = done.max(found.end());
        }
        if done < upto {
            cleaned.bytes.extend_from_slice(&self.held[done..upto]);
            done = upto;
        }
        self.held.drain(..upto);
        self.covered = done - upto;
        cleaned
    }
}

impl Patterns {
    /// How many bytes at the end of `held` may be the beginning of a pattern.
    fn undecided(&self, held: &[u8]) -> usize {
        let begins = |tail: &[u8]| {
            self.known.iter().any(|(form, _)| {
                form.len() > tail.len() && form[..tail.len()].eq_ignore_ascii_case(tail)
            })
        };
        (1..self.longest.min(held.len() + 1))
            .rev()
            .find(|length| begins(&held[held.len() - length..]))
            .unwrap_or(0)
    }
}

// By hand: a derived one would print the automaton, and with it the secrets.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patterns")
            .field("count", &self.known.len())
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
        #![proptest_config(ProptestConfig::with_cases(2_000))]

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
