//! The words of a statement, for comparisons with others. A summary is a part of the record, so its words come of rules that
//! are fixed here: neither of a dictionary nor of the endings of a language, which other versions may know better.

/// Characters of scripts that are written without spaces between words, or with endings on each: Thai, Lao, Burmese, Khmer,
/// Japanese, Chinese, Korean.
const WITHOUT_SPACES: &[(char, char)] = &[
    ('\u{e00}', '\u{eff}'),
    ('\u{1000}', '\u{109f}'),
    ('\u{1780}', '\u{17ff}'),
    ('\u{3040}', '\u{30ff}'),
    ('\u{3400}', '\u{4dbf}'),
    ('\u{4e00}', '\u{9fff}'),
    ('\u{ac00}', '\u{d7af}'),
    ('\u{f900}', '\u{faff}'),
    ('\u{20000}', '\u{3ffff}'),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CharKind {
    Between,
    Spaced,
    WithoutSpaces,
}

/// Calls `found` with each word of a text, in lower case: letters and digits beside each other. Of scripts without spaces
/// each two neighbouring characters are a word, and one that stands alone.
pub(super) fn each_word(text: &str, mut found: impl FnMut(&str)) {
    let mut run = String::new();
    let mut kind = CharKind::Between;
    let chars = text.chars().flat_map(char::to_lowercase);
    // The last word ends as others do.
    for c in chars.chain([' ']) {
        let next = kind_of(c);
        if next != kind {
            each_word_of(&run, kind, &mut found);
            run.clear();
            kind = next;
        }
        if next != CharKind::Between {
            run.push(c);
        }
    }
}

fn each_word_of(run: &str, kind: CharKind, found: &mut impl FnMut(&str)) {
    if run.is_empty() {
        return;
    }
    if kind == CharKind::Spaced || run.chars().nth(1).is_none() {
        found(run);
        return;
    }
    let ends = run.char_indices().map(|(at, c)| at + c.len_utf8());
    for ((begin, _), end) in run.char_indices().zip(ends.skip(1)) {
        found(run.get(begin..end).unwrap_or_default());
    }
}

fn kind_of(c: char) -> CharKind {
    if !c.is_alphanumeric() {
        CharKind::Between
    } else if WITHOUT_SPACES
        .iter()
        .any(|(first, last)| (*first..=*last).contains(&c))
    {
        CharKind::WithoutSpaces
    } else {
        CharKind::Spaced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_runs_of_letters_and_pairs_where_no_spaces_are() {
        for (text, expected) in [
            ("The cover, No. 5!", vec!["the", "cover", "no", "5"]),
            ("Обложка ЗЕЛЁНАЯ", vec!["обложка", "зелёная"]),
            ("订单A-17是蓝鲸", vec!["订单", "a", "17", "是蓝", "蓝鲸"]),
            ("我", vec!["我"]),
            ("암호는 데이지", vec!["암호", "호는", "데이", "이지"]),
            ("… —", vec![]),
            ("", vec![]),
        ] {
            let mut words = Vec::new();
            each_word(text, |word| words.push(word.to_owned()));
            assert_eq!(words, expected, "{text}");
        }
    }
}
