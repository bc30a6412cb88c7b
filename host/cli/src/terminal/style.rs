//! Colours for people, none for pipes; and text from guests and models made safe to print.

use crate::terminal::stderr;
use std::ffi::OsStr;
use std::io::IsTerminal as _;
use std::sync::LazyLock;
use toolhold_policy::text;
use toolhold_runtime::causes::causes;

static COLOURS: LazyLock<bool> =
    LazyLock::new(|| obeys_sequences() && std::env::var_os("NO_COLOR").is_none());

/// Whether stderr is a terminal that obeys escape sequences.
pub fn obeys_sequences() -> bool {
    std::io::stderr().is_terminal() && is_obedient(std::env::var_os("TERM").as_deref())
}

/// Whether a terminal of this name obeys escape sequences. One without a name is taken for one that does not.
fn is_obedient(term: Option<&OsStr>) -> bool {
    term.is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// Whether stderr is a terminal whose user wants colours. Events of a log in JSON have none.
pub fn has_colours() -> bool {
    *COLOURS && !stderr::has_events()
}

fn paint(code: &str, text: &str) -> String {
    if has_colours() {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

pub fn bold(text: &str) -> String {
    paint("1", text)
}

pub fn dim(text: &str) -> String {
    paint("2", text)
}

pub fn good(text: &str) -> String {
    paint("32", text)
}

pub fn bad(text: &str) -> String {
    paint("31", text)
}

pub fn warn(text: &str) -> String {
    paint("33", text)
}

/// `text` with control, reordering and invisible characters shown as escapes: a terminal obeys what it is sent,
/// and this text comes from a guest, a model or an endpoint (host/ARCHITECTURE.md, "What always holds", 6).
/// It keeps its lines, and the joiners and selectors of its language and its emoji: only for what is the whole output, or
/// where each line is marked by the caller, and never for what a person decides about.
pub fn plain(text: &str) -> String {
    text::readable(text)
}

/// `text` on one line for reading: titles, passages and other text that no person decides about.
pub fn readable_line(text: &str) -> String {
    text::readable_line(text)
}

/// [`readable_line`] for several lines, marked as in [`block`].
pub fn readable_block(text: &str) -> String {
    text::readable_block(text, "  ")
}

/// `text` on one line, so that it cannot fake a line of the host, with every hidden character as its escape: the exact
/// form, in which a person decides.
pub fn line(text: &str) -> String {
    text::line(text)
}

/// The exact form of [`line()`] for several lines, with every line but the first marked as a part of the text.
pub fn block(text: &str) -> String {
    text::block(text, "  ")
}

/// An error with its causes in the exact form of [`block`].
pub fn chain(error: &anyhow::Error) -> String {
    block(&causes(error))
}

/// The first sentence of `text`, at most `max` characters of it.
pub fn headline(text: &str, max: usize) -> String {
    let first = text.lines().next().unwrap_or_default();
    let sentence = first
        .split_inclusive(". ")
        .next()
        .unwrap_or(first)
        .trim_end();
    let mut out: String = sentence.chars().take(max).collect();
    if out.len() < sentence.len() {
        out.push('…');
    }
    line(&out)
}

/// 1.2 ms, 35 µs, 2.4 s.
pub fn duration(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..999_950 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}

/// 812, 1.2 k, 3.4 M, 5.6 G.
pub fn count(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..999_950 => format!("{:.1} k", n as f64 / 1e3),
        999_950..999_950_000 => format!("{:.1} M", n as f64 / 1e6),
        _ => format!("{:.1} G", n as f64 / 1e9),
    }
}

/// 1 call, 2 calls; 1 retry, 2 retries.
pub fn plural(n: impl Into<u64>, what: &str) -> String {
    let stem = what.strip_suffix('y');
    // 2 days.
    let stem = stem.filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    match (n.into(), stem) {
        (1, _) => format!("1 {what}"),
        (n, Some(stem)) => format!("{n} {stem}ies"),
        (n, None) => format!("{n} {what}s"),
    }
}

/// Just now, 5 min ago, 3 h ago, 12 days ago.
pub fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => "just now".into(),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..172_800 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// 512 B, 1.1 MiB, 139.0 GiB.
pub fn bytes(n: u64) -> String {
    const KIB: f64 = 1_024.0;
    match n as f64 {
        b if b < KIB => format!("{n} B"),
        b if b < 1_023.95 * KIB => format!("{:.1} KiB", b / KIB),
        b if b < 1_023.95 * KIB * KIB => format!("{:.1} MiB", b / (KIB * KIB)),
        b => format!("{:.1} GiB", b / (KIB * KIB * KIB)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_without_a_name_and_a_dumb_one_get_no_escape_sequences() {
        for (term, is_obeyed) in [
            (None, false),
            (Some(""), false),
            (Some("dumb"), false),
            (Some("xterm-256color"), true),
            (Some("linux"), true),
        ] {
            assert_eq!(is_obedient(term.map(OsStr::new)), is_obeyed, "{term:?}");
        }
    }

    #[test]
    fn escapes_cannot_reach_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\u{202E}c\n"), "a\\u{1b}[2Jb\\u{202e}c\n");
        assert_eq!(
            plain("a\u{fe01}\u{e0041}\u{2800}"),
            "a\\u{fe01}\\u{e0041}\\u{2800}"
        );
    }

    /// Texts of strangers of any length and content.
    #[test]
    fn a_long_text_takes_its_own_length_only() {
        const BYTES: usize = 1 << 17;
        for piece in ["x", "\n", "a b ", "\x1b[2J", "\u{202e}", "❤\u{fe0f}"] {
            let text = piece.repeat(BYTES / piece.len());
            let begun = std::time::Instant::now();
            for shown in [plain, readable_line, readable_block, line, block] {
                let bytes = shown(&text).len();
                assert!(bytes <= text.len() * 12, "{piece:?}: {bytes}");
            }
            assert!(headline(&text, 80).len() <= 80 * 12, "{piece:?}");
            assert!(begun.elapsed().as_secs() < 10, "{piece:?}");
        }
    }

    #[test]
    fn headlines_are_one_sentence() {
        assert_eq!(headline("Does it. And more.", 80), "Does it.");
        assert_eq!(headline("abcdef", 3), "abc…");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            (duration(35), duration(1_234), duration(2_400_000)),
            ("35 µs".into(), "1.2 ms".into(), "2.4 s".into())
        );
        assert_eq!(
            (count(812), count(1_234_567)),
            ("812".into(), "1.2 M".into())
        );
        for (n, expect) in [
            (1_023, "1023 B"),
            (1_153_434, "1.1 MiB"),
            (1_048_575, "1.0 MiB"),
            (3 << 30, "3.0 GiB"),
        ] {
            assert_eq!(bytes(n), expect);
        }
        let rounded = (duration(999_950), count(999_950), count(999_950_000));
        assert_eq!(
            rounded,
            ("1.0 s".into(), "1.0 M".into(), "1.0 G".into()),
            "never 1000.0 of the smaller unit"
        );
        assert_eq!(
            (
                plural(1_u64, "call"),
                plural(0_u64, "call"),
                plural(2_u64, "reply")
            ),
            ("1 call".into(), "0 calls".into(), "2 replies".into())
        );
        for (seconds, expect) in [
            (59, "just now"),
            (60, "1 min ago"),
            (7_200, "2 h ago"),
            (200_000, "2 days ago"),
        ] {
            assert_eq!(ago(seconds), expect);
        }
    }
}
