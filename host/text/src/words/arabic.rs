//! Arabic words without the article, conjunctions and endings that are written onto them.
//!
//! The rules are those of light10 (Larkey, Ballesteros and Connell, "Light Stemming for Arabic Information Retrieval",
//! 2007), as Lucene has them. Snowball's take the first letter off بطاقة ("card") and not off البطاقة ("the card").

/// Articles and conjunctions, of which a word loses the first that it begins with.
const BEGINNINGS: [&str; 7] = ["ال", "وال", "بال", "كال", "فال", "لل", "و"];
/// Endings, in the order in which a word loses them.
const ENDINGS: [&str; 8] = ["ها", "ان", "ات", "ون", "ين", "يه", "ه", "ي"];

/// Minimum number of letters that are left of a word.
const LEFT_LETTERS: usize = 2;
/// Minimum number of letters that are left behind `و`, with which many words begin by nature.
const LEFT_BEHIND_AND: usize = 3;

/// The word without what is written onto it, and with one form for each letter.
pub(super) fn stem(word: &str) -> String {
    let letters: String = word.chars().filter_map(letter).collect();
    let is_left = |rest: &&str, least: usize| rest.chars().count() >= least;
    let mut stem = letters.as_str();
    let bare = BEGINNINGS.iter().find_map(|beginning| {
        let least = match *beginning {
            "و" => LEFT_BEHIND_AND,
            _ => LEFT_LETTERS,
        };
        stem.strip_prefix(*beginning)
            .filter(|rest| is_left(rest, least))
    });
    stem = bare.unwrap_or(stem);
    for ending in ENDINGS {
        let bare = stem.strip_suffix(ending);
        stem = bare
            .filter(|rest| is_left(rest, LEFT_LETTERS))
            .unwrap_or(stem);
    }
    stem.to_owned()
}

/// The plain form of a letter; none for short vowels and for the stroke that makes words longer.
fn letter(c: char) -> Option<char> {
    match c {
        '\u{622}' | '\u{623}' | '\u{625}' | '\u{671}' => Some('\u{627}'),
        '\u{649}' => Some('\u{64a}'),
        '\u{629}' => Some('\u{647}'),
        '\u{640}' | '\u{64b}'..='\u{652}' => None,
        _ => Some(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_word_have_one_stem() {
        for forms in [
            &["بطاقة", "البطاقة", "والبطاقة", "بطاقات", "البطاقات"][..],
            &["ترجمة", "الترجمة", "للترجمة", "بالترجمة", "تَرْجَمَة"],
            &["ملف", "الملف", "وملف", "الملفات"],
        ] {
            let stems: Vec<String> = forms.iter().map(|form| stem(form)).collect();
            assert!(stems.iter().all(|it| *it == stems[0]), "{stems:?}");
        }
        assert_eq!(stem("و"), "و");
        assert_eq!(stem("ولد"), "ولد");
        assert_eq!(stem("\u{64b}"), "");
    }
}
