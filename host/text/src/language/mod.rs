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

/// Maximum number of bytes of a text that are looked at. The first lines of a task say what is asked, or the last ones do.
const MAX_TEXT_BYTES: usize = 4_096;

/// Bytes at the end of a longer text that are looked at, with the rest at its beginning.
const END_BYTES: usize = 1_024;

/// Maximum number of words in Latin letters that stand together as a term in a sentence of another script, such as `pull
/// request`. More of them may be a text that the sentence is about.
const MAX_TERM_WORDS: usize = 3;

/// Maximum number of letters of a term in another script at the end of a sentence. More may be what is asked.
const MAX_TERM_LETTERS: usize = 10;

/// Maximum number of characters of such a term, in scripts with a character for each syllable or word.
const MAX_TERM_CHARACTERS: usize = 4;

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
///
/// A request may stand before the text that it is about, or behind it. So a text tells none where its first and its last sentence
/// do not tell the same language and one of its sentences tells another. Thanks at its end do not count.
pub fn recognise(text: &str) -> Option<&'static str> {
    let prose = prose_of(text);
    let found = of_prose(&prose)?;
    // What is asked stands before the colon, what it is asked about behind it.
    let is_asked_otherwise = prose::head(&prose).is_some_and(|head| found.contradicts(head));
    let is_clear =
        !is_asked_otherwise && (found.is_before_colon(&prose) || found.is_of_ends(&prose));
    found.tag.filter(|_| is_clear)
}

/// Both ends of a text, without what belongs to no language.
fn prose_of(text: &str) -> String {
    let plain = |part: &str| prose::plain(&part.nfc().collect::<String>());
    if text.len() <= MAX_TEXT_BYTES {
        return plain(text);
    }
    let (begin, rest) = text.split_at(text.floor_char_boundary(MAX_TEXT_BYTES - END_BYTES));
    let (middle, end) = rest.split_at(rest.ceil_char_boundary(rest.len() - END_BYTES));
    let fences = [begin, middle].map(|part| part.matches(prose::FENCE).count());
    // The end may begin within a block of code.
    let opened = match fences.iter().sum::<usize>() % 2 {
        0 => String::new(),
        _ => prose::FENCE.to_owned(),
    };
    format!("{}\n{}", plain(begin), plain(&(opened + end)))
}

/// Result for the words of one script in a text.
#[derive(Clone, Copy)]
struct Recognised {
    tag: Option<&'static str>,
    writing: Writing,
    /// Number of letters, by which scripts are compared.
    letters: usize,
}

impl Recognised {
    /// True if this part of the text tells the same language.
    fn is_told_by(&self, part: &str) -> bool {
        of_prose(part).is_some_and(|told| told.tag == self.tag)
    }

    /// True if the text before the first colon tells this language, and right behind the colon is another: then all that follows
    /// is what is asked about.
    fn is_before_colon(&self, text: &str) -> bool {
        let Some((head, rest)) = text.split_once([':', '：']) else {
            return false;
        };
        let behind = prose::sentences(rest);
        let mut behind = behind.iter().filter(|one| !one.trim().is_empty());
        let heads = prose::sentences(head);
        self.is_told_by(head)
            && !heads.iter().any(|one| self.contradicts(one))
            && behind.next().is_some_and(|next| self.contradicts(next))
    }

    /// True if the first sentence and the last one tell this language, so that the request is in it wherever it stands, or if no
    /// sentence is in another.
    fn is_of_ends(&self, text: &str) -> bool {
        let mut sentences = prose::sentences(text);
        sentences.retain(|one| one.contains(char::is_alphabetic));
        while sentences.len() > 1 && sentences.last().is_some_and(|last| prose::is_thanks(last)) {
            sentences.pop();
        }
        match sentences.as_slice() {
            [] | [_] => true,
            [first, .., last] if self.is_told_by(first) && self.is_told_by(last) => true,
            all => !all.iter().any(|one| self.contradicts(one)),
        }
    }

    /// True if this part of the text is in another language: it tells one, or all of its words are in a script that the
    /// language does not have. Names and terms in Latin letters stand in texts of all scripts.
    fn contradicts(&self, part: &str) -> bool {
        if let Some(other) = of_prose(part) {
            return other.tag != self.tag;
        }
        let words = prose::words(part);
        words.iter().any(|word| word.text.chars().nth(1).is_some())
            && words.iter().all(|word| {
                let is_everywhere = matches!(word.script, Script::Latin | Script::Common);
                !is_everywhere && Writing::of(word) != Some(self.writing)
            })
    }
}

fn of_prose(text: &str) -> Option<Recognised> {
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
    // A request about a text in another script begins in its own script and has most of the letters, or has its words around
    // terms. Otherwise the text that is asked about is longer than the request, and which is which cannot be told.
    let is_clear = certain.iter().all(|found| found.tag == first.tag)
        || largest.tag == first.tag
        || has_terms_alone(first.writing, &words);
    let is_whole = !is_framed(first.writing, &words);
    (is_clear && is_whole).then_some(*first)
}

/// True if all other words are in Latin letters, a few at a time, and words of this writing stand behind some of them.
fn has_terms_alone(writing: Writing, words: &[Word<'_>]) -> bool {
    let is_own = |word: &Word<'_>| Writing::of(word) == Some(writing);
    let runs: Vec<&[Word<'_>]> = words
        .chunk_by(|one, next| is_own(one) == is_own(next))
        .collect();
    let is_term = |run: &&[Word<'_>]| {
        run.len() <= MAX_TERM_WORDS && run.iter().all(|word| word.script == Script::Latin)
    };
    let (own, others): (Vec<_>, Vec<_>) = runs
        .into_iter()
        .partition(|run| run.first().is_some_and(is_own));
    own.len() > 1 && others.iter().all(is_term)
}

/// True if the text begins or ends with more words of another script than `writing` than a term has: then these may be what is
/// asked. Latin letters do not count. At the beginning, one letter is a term and a few characters are.
fn is_framed(writing: Writing, words: &[Word<'_>]) -> bool {
    let is_other = |word: &&Word<'_>| {
        let is_everywhere = matches!(word.script, Script::Latin | Script::Common);
        !is_everywhere && Writing::of(word) != Some(writing)
    };
    let begins: Vec<&Word<'_>> = words.iter().take_while(is_other).collect();
    let ends: Vec<&Word<'_>> = words.iter().rev().take_while(is_other).collect();
    let is_over = |side: &[&Word<'_>], most: usize, has_characters: bool| {
        let of_kind = side
            .iter()
            .filter(|word| has_own_syllables(word.script) == has_characters);
        of_kind.map(|word| word.text.chars().count()).sum::<usize>() > most
    };
    is_over(&begins, 1, false)
        || is_over(&begins, MAX_TERM_CHARACTERS, true)
        || is_over(&ends, MAX_TERM_LETTERS, false)
        || is_over(&ends, MAX_TERM_CHARACTERS, true)
}

/// True for scripts whose characters are syllables or words.
fn has_own_syllables(script: Script) -> bool {
    matches!(
        script,
        Script::Han | Script::Hiragana | Script::Katakana | Script::Hangul
    )
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
        Recognised {
            tag,
            writing: self,
            letters,
        }
    }
}
