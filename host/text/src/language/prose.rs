//! The words of a text that belong to its language: no code, URLs, file names, identifiers and quotations.

use super::has_own_syllables;
use unicode_script::{Script, UnicodeScript as _};

/// Pairs of marks around a quotation. A single quotation mark is an apostrophe, too.
const QUOTES: &[(char, char)] = &[
    ('"', '"'),
    ('`', '`'),
    ('“', '”'),
    ('„', '“'),
    ('„', '”'),
    ('«', '»'),
    ('「', '」'),
    ('『', '』'),
    ('《', '》'),
];

/// Mark before and behind a block of code.
pub(super) const FENCE: &str = "```";

/// Words with which a sentence of thanks begins. One that is missing here may leave the language of a text open.
const THANKS: &[&str] = &[
    "thanks",
    "thank",
    "thx",
    "danke",
    "merci",
    "gracias",
    "grazie",
    "obrigado",
    "obrigada",
    "bedankt",
    "tack",
    "takk",
    "dziękuję",
    "спасибо",
    "дякую",
    "شكرا",
    "谢谢",
    "谢谢你",
    "谢谢您",
    "多谢",
    "ありがとう",
    "ありがとうございます",
    "감사합니다",
    "고마워",
    "고마워요",
];

/// Maximum number of words of a sentence of thanks: `Thank you`, `Thanks, John`. Behind more of them a request may follow.
const MAX_THANKS_WORDS: usize = 2;

/// A word of a text, and its place in a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word<'t> {
    pub text: &'t str,
    pub script: Script,
    /// True if it has a capital letter and does not begin a sentence, or has one behind its first letter.
    pub is_name: bool,
}

/// The text without what is code or quoted. All of it if only quotations are left.
pub(super) fn plain(text: &str) -> String {
    let text = without_code(text);
    let unquoted = without_quotes(&text);
    if unquoted.chars().any(char::is_alphabetic) {
        unquoted
    } else {
        text
    }
}

/// Text before the first colon or line break, if words follow it.
pub(super) fn head(text: &str) -> Option<&str> {
    let (head, rest) = text.trim().split_once([':', '：', '\n'])?;
    rest.chars().any(char::is_alphabetic).then_some(head)
}

/// Sentences of a text. Text behind a colon belongs to the sentence before the colon, also on the next line. Where a comma or
/// a dash stands between words of different scripts, it ends a sentence, too.
pub(super) fn sentences(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut begin = 0;
    let mut before: Option<Script> = None;
    let mut comma: Option<usize> = None;
    let mut is_behind_colon = false;
    let mut is_behind_space = false;
    for (at, c) in text.char_indices() {
        let behind = at + c.len_utf8();
        match c {
            '\n' if is_behind_colon => {}
            '.' | '!' | '?' | '…' | ';' | '。' | '！' | '？' | '；' | '।' | '؟' | '\n' => {
                sentences.extend(text.get(begin..at));
                begin = behind;
                (before, comma) = (None, None);
            }
            ':' | '：' => is_behind_colon = true,
            ',' | '，' | '、' | '،' | '—' | '–' => comma = Some(behind),
            '-' if is_behind_space => comma = Some(behind),
            _ => {}
        }
        is_behind_space = c.is_whitespace();
        let Some(script) = letter(c).filter(|script| *script != Script::Inherited) else {
            continue;
        };
        let script = shared(script);
        if let Some(end) = comma.take()
            && before.is_some_and(|before| before != script)
        {
            sentences.extend(text.get(begin..end));
            begin = end;
        }
        before = Some(script);
        is_behind_colon = false;
    }
    sentences.extend(text.get(begin..));
    sentences
}

/// True if the sentence does no more than thank.
pub(super) fn is_thanks(sentence: &str) -> bool {
    let words = words(sentence);
    let Some(first) = words.first() else {
        return false;
    };
    // A word in characters may be a whole request.
    let most = if has_own_syllables(first.script) {
        1
    } else {
        MAX_THANKS_WORDS
    };
    words.len() <= most && THANKS.contains(&first.text.to_lowercase().as_str())
}

/// The script of Chinese characters for those that Japanese mixes with them.
fn shared(script: Script) -> Script {
    match script {
        Script::Hiragana | Script::Katakana => Script::Han,
        script => script,
    }
}

/// The words of a text without code.
pub(super) fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut begin: Option<(usize, Script)> = None;
    let mut is_first = true;
    for (at, c) in text.char_indices() {
        let script = letter(c);
        match (begin, script) {
            (Some((_, own)), Some(script)) if script == own || script == Script::Inherited => {
                continue;
            }
            (Some((_, Script::Cyrillic)), None) if is_apostrophe(c) => continue,
            (Some((from, own)), _) => {
                words.extend(word(&text[from..at], own, is_first));
                is_first = false;
                begin = None;
            }
            (None, _) => {}
        }
        if let Some(script) = script.filter(|script| *script != Script::Inherited) {
            begin = Some((at, script));
            continue;
        }
        // Only Spanish and a neighbour of it begin a question with a mark.
        if matches!(c, '¿' | '¡') {
            words.push(Word {
                text: &text[at..at + c.len_utf8()],
                script: Script::Latin,
                is_name: false,
            });
        }
        if matches!(c, '.' | '!' | '?' | '\n' | ':' | '…' | '¿' | '¡' | '•') {
            is_first = true;
        }
    }
    if let Some((from, own)) = begin {
        words.extend(word(&text[from..], own, is_first));
    }
    words
}

fn word(text: &str, script: Script, is_first: bool) -> Option<Word<'_>> {
    let text = text.trim_end_matches(is_apostrophe);
    let mut letters = text.chars();
    let begins_high = letters.next()?.is_uppercase();
    let is_name = begins_high && !is_first || letters.any(char::is_uppercase);
    Some(Word {
        text,
        script,
        is_name,
    })
}

/// The script of a letter, or of a sign that belongs to the letter before it.
fn letter(c: char) -> Option<Script> {
    let script = c.script();
    let is_sign =
        matches!(c, '\u{93c}' | '\u{94d}' | '\u{200c}' | '\u{200d}') || script == Script::Inherited;
    if is_sign {
        return Some(Script::Inherited);
    }
    // The mark of a long vowel in katakana is common to several scripts.
    c.is_alphabetic().then_some(match c {
        'ー' => Script::Katakana,
        _ => script,
    })
}

fn is_apostrophe(c: char) -> bool {
    matches!(c, '\'' | '’' | 'ʼ')
}

/// Leaves out runs of ASCII characters that no language writes: `main.rs`, `a_b`, `https://…`, `--flag`, `x=1`; and blocks
/// of code between fences.
fn without_code(text: &str) -> String {
    let mut left = String::with_capacity(text.len());
    for (index, part) in text.split(FENCE).enumerate() {
        if index % 2 == 1 {
            left.push(' ');
            continue;
        }
        let mut rest = part;
        while let Some(c) = rest.chars().next() {
            let is_of_run = |c: char| c.is_ascii_graphic();
            let end = if is_of_run(c) {
                rest.find(|c| !is_of_run(c)).unwrap_or(rest.len())
            } else {
                c.len_utf8()
            };
            let (run, after) = rest.split_at(end);
            left.push_str(if is_code(run) { " " } else { run });
            rest = if run.contains("://") {
                after.trim_start_matches(is_of_url)
            } else {
                after
            };
        }
    }
    left
}

/// True for letters that may be part of a URL. Text of a script without spaces may follow a URL directly.
fn is_of_url(c: char) -> bool {
    c.is_ascii_graphic()
        || matches!(
            c.script(),
            Script::Latin | Script::Cyrillic | Script::Greek | Script::Arabic | Script::Devanagari
        )
}

fn is_code(run: &str) -> bool {
    if !run.is_ascii() {
        return false;
    }
    let bare = run.trim_matches(|c: char| {
        matches!(
            c,
            '.' | ',' | ';' | ':' | '!' | '?' | '(' | ')' | '"' | '\''
        )
    });
    let has_letter = bare.bytes().any(|it| it.is_ascii_alphabetic());
    let has_digit = bare.bytes().any(|it| it.is_ascii_digit());
    bare.starts_with("--")
        || has_letter && has_digit
        || has_letter
            && bare.contains([
                '.', '/', '\\', '_', '=', '{', '}', '<', '>', '@', '#', '$', '&', '[', ']', '|',
                '(', ')', '*', '+', '~', '^',
            ])
}

fn without_quotes(text: &str) -> String {
    let mut left = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c| QUOTES.iter().any(|(open, _)| *open == c)) {
        let (before, quoted) = rest.split_at(at);
        left.push_str(before);
        let mut letters = quoted.chars();
        let open = letters.next();
        let after = letters.as_str();
        let ends = |c: char| {
            QUOTES
                .iter()
                .any(|(begin, end)| Some(*begin) == open && *end == c)
        };
        rest = match after.find(ends) {
            Some(end) => {
                let mut behind = after[end..].chars();
                behind.next();
                behind.as_str()
            }
            // No quotation: an inch, or the other half is missing.
            None => after,
        };
        left.push(' ');
    }
    left.push_str(rest);
    left
}
