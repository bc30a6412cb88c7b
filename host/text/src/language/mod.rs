//! Recognises the language of a short text where the evidence is certain.
//!
//! A task for a model is often three to eight words long. Statistics of letters guess wrong there: Russian is taken for
//! Bulgarian, Danish for Norwegian. So this module looks at evidence that a reader could check: the script, letters
//! that only some languages have, and words that are frequent in some languages (`lexicon`). A result
//! needs strong evidence against every other language of its script. Languages without a name in the list below are
//! rivals and never a result: they keep a text in Catalan from being taken for Spanish.
//!
//! Quotations, code, URLs, names and numbers are no evidence (`prose`).

mod alphabets;
mod endings;
mod evidence;
mod han;
mod lexicon;
mod prose;

#[cfg(test)]
mod tests;

use lexicon::Lexicon;
use prose::Word;
use unicode_normalization::UnicodeNormalization as _;
use unicode_script::Script;

/// Maximum number of bytes of a text that are looked at. The first lines of a task say what is asked.
const MAX_TEXT_BYTES: usize = 4_096;

/// Letters of Assamese, and of Yiddish, in scripts in which only Bengali and Hebrew can be told.
const RIVAL_LETTERS: [char; 5] = ['\u{9f0}', '\u{9f1}', '\u{5f0}', '\u{5f1}', '\u{5f2}'];

/// Tags of the languages that can be a result, with their English names.
const LANGUAGES: &[(&str, &str)] = &[
    ("ar", "Arabic"),
    ("bg", "Bulgarian"),
    ("bn", "Bengali"),
    ("cs", "Czech"),
    ("da", "Danish"),
    ("de", "German"),
    ("el", "Greek"),
    ("en", "English"),
    ("es", "Spanish"),
    ("fa", "Persian"),
    ("fi", "Finnish"),
    ("fr", "French"),
    ("he", "Hebrew"),
    ("hi", "Hindi"),
    ("hu", "Hungarian"),
    ("id", "Indonesian"),
    ("it", "Italian"),
    ("ja", "Japanese"),
    ("kk", "Kazakh"),
    ("ko", "Korean"),
    ("mr", "Marathi"),
    ("ms", "Malay"),
    ("nb", "Norwegian Bokmål"),
    ("nl", "Dutch"),
    ("pl", "Polish"),
    ("pt", "Portuguese"),
    ("ro", "Romanian"),
    ("ru", "Russian"),
    ("sk", "Slovak"),
    ("sr", "Serbian"),
    ("sv", "Swedish"),
    ("th", "Thai"),
    ("tr", "Turkish"),
    ("uk", "Ukrainian"),
    ("ur", "Urdu"),
    ("vi", "Vietnamese"),
    ("zh", "Chinese"),
];

/// English name of a language, by a tag that [`recognise`] returns.
pub fn name(tag: &str) -> Option<&'static str> {
    let mut languages = LANGUAGES.iter();
    let (_, name) = languages.find(|(known, _)| *known == tag)?;
    Some(name)
}

/// BCP 47 tag of the language of `text`. Absent if the text does not tell it with certainty.
pub fn recognise(text: &str) -> Option<&'static str> {
    let text = &text[..text.floor_char_boundary(MAX_TEXT_BYTES)];
    let text: String = text.nfc().collect();
    let whole = prose::plain(&text);
    let found = of_prose(&whole)?;
    // What is asked stands before the colon, what it is asked about behind it.
    match prose::head(&whole).and_then(of_prose) {
        Some(asked) if asked != found => None,
        _ => Some(found),
    }
}

/// Result for the words of one script in a text.
struct Recognised {
    tag: Option<&'static str>,
    /// Number of letters, by which scripts are compared.
    letters: usize,
}

fn of_prose(text: &str) -> Option<&'static str> {
    let words = prose::words(text);
    let mut scripts: Vec<Writing> = Vec::new();
    for word in &words {
        if let Some(writing) = Writing::of(word)
            && !scripts.contains(&writing)
        {
            scripts.push(writing);
        }
    }
    let certain: Vec<Recognised> = scripts
        .iter()
        .map(|writing| writing.recognise(&words))
        .filter(|found| found.tag.is_some())
        .collect();
    let first = certain.first()?;
    let largest = certain.iter().max_by_key(|found| found.letters)?;
    // A request about a text in another script begins in its own script and has most of the letters. Otherwise the text
    // that is asked about is longer than the request, and which is which cannot be told.
    let is_clear = certain.iter().all(|found| found.tag == first.tag) || largest.tag == first.tag;
    first.tag.filter(|_| is_clear)
}

/// Scripts with a recogniser of their own. Chinese and Japanese share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writing {
    Words(&'static Lexicon),
    EastAsian,
    /// Only one language that can be told uses this script.
    Single(Script, &'static str),
}

impl Writing {
    fn of(word: &Word<'_>) -> Option<Self> {
        let single = |tag| Some(Self::Single(word.script, tag));
        match word.script {
            Script::Latin => Some(Self::Words(&lexicon::LATIN)),
            Script::Cyrillic => Some(Self::Words(&lexicon::CYRILLIC)),
            Script::Arabic => Some(Self::Words(&lexicon::ARABIC)),
            Script::Devanagari => Some(Self::Words(&lexicon::DEVANAGARI)),
            Script::Han | Script::Hiragana | Script::Katakana => Some(Self::EastAsian),
            Script::Hangul => single("ko"),
            Script::Thai => single("th"),
            Script::Greek => single("el"),
            Script::Hebrew => single("he"),
            Script::Bengali => single("bn"),
            _ => None,
        }
    }

    fn recognise(self, words: &[Word<'_>]) -> Recognised {
        let own: Vec<&Word<'_>> = words
            .iter()
            .filter(|word| Self::of(word) == Some(self))
            .collect();
        let letters = own.iter().map(|word| word.text.chars().count()).sum();
        let tag = match self {
            Self::Words(family) => evidence::weigh(family, &own),
            Self::EastAsian => han::weigh(&own),
            Self::Single(..) if own.iter().any(|word| word.text.contains(RIVAL_LETTERS)) => None,
            // One letter alone is a symbol: π, Δ, א.
            Self::Single(_, tag) => own
                .iter()
                .any(|word| word.text.chars().nth(1).is_some())
                .then_some(tag),
        };
        Recognised { tag, letters }
    }
}
