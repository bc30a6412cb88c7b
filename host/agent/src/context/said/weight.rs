//! The weight of a statement by its own words and signs, without the statements beside it.

/// Weight of a statement of the user without any of the following. Statements of the assistant, who repeats the user's,
/// weigh one less.
pub(super) const PLAIN: u8 = 0;
/// Weight of a statement with a number or a name.
pub(super) const NAMED: u8 = 2;
/// Weight of a statement with an identifier or an amount.
pub(super) const IDENTIFIED: u8 = 3;
/// Weight of a decision, an introduction and a request to remember.
pub(super) const DECIDED: u8 = 4;
/// The weight of a statement that says something rises by one each time it is made again, up to this.
pub(super) const MAX_WEIGHT: u8 = 5;

/// Words by which decisions, introductions and requests to remember are known, in lower case.
#[rustfmt::skip]
pub(super) const CUES: &[&str] = &[
    // English
    "my name", "i am ", "i'm ", "call me", "remember", "keep in mind", "note that", "important", "decid", "agreed",
    "we agree", "let's ", "deadline", "budget", "prefer", "always", "never", "must ", "my ",
    // Russian
    "зовут", "запомни", "помни", "учти", "важно", "решил", "решен", "договор", "согласн", "срок", "бюджет",
    "предпочит", "всегда", "никогда", "мой ", "моя ", "моё ", "мое ", "мои ", "моего ", "моей ", "моему ", "мою ",
    // Chinese
    "我叫", "我是", "我的", "记住", "记得", "注意", "重要", "决定", "同意", "商定", "预算", "截止", "期限", "喜欢",
    "总是", "从不", "必须", "名字",
    // Japanese, Korean
    "私の", "名前", "覚えて", "決め", "決定", "予算", "締め切り", "기억", "이름", "결정", "예산", "마감",
    // Arabic, Hindi, Thai
    "تذكر", "اسمي", "قرر", "ميزانية", "याद", "मेरा", "मेरी", "नाम", "निर्णय", "จำ", "ชื่อ", "ตัดสินใจ",
    // German, French, Spanish, Portuguese, Italian
    "merke", "ich heiße", "mein ", "meine ", "beschlossen", "entschieden", "je m'appelle", "mon ", "ma ", "retiens",
    "décid", "rappelle", "me llamo", "mi ", "recuerda", "decid", "acord", "meu ", "minha ", "lembr", "mi chiamo",
    "mio ", "mia ", "ricord", "deciso",
];

/// Returns the weight of a statement of the user.
pub(super) fn weight(text: &str) -> u8 {
    let lower = text.to_lowercase();
    if CUES.iter().any(|cue| has_cue(&lower, cue)) {
        DECIDED
    } else {
        weight_of_signs(text)
    }
}

/// Returns the weight that a statement of the user has without its cues.
pub(super) fn weight_of_signs(text: &str) -> u8 {
    if has_identifier(text) {
        IDENTIFIED
    } else if text.chars().any(char::is_numeric) || has_name(text) {
        NAMED
    } else {
        PLAIN
    }
}

/// A cue begins with a word, where its script divides words by spaces.
pub(super) fn has_cue(lower: &str, cue: &str) -> bool {
    lower.match_indices(cue).any(|(at, _)| {
        let before = lower
            .get(..at)
            .and_then(|before| before.chars().next_back());
        let is_spaced = cue.chars().next().is_some_and(char::is_lowercase);
        !is_spaced || !before.is_some_and(char::is_alphanumeric)
    })
}

/// Whether a word has a digit beside a letter, an amount, an address, or a number of four digits or more.
fn has_identifier(text: &str) -> bool {
    if text.contains(['@', '€', '$', '£', '¥', '₽', '₹', '₩', '₺', '％', '%'])
        || text.contains("://")
    {
        return text.chars().any(char::is_numeric) || text.contains('@') || text.contains("://");
    }
    let mut digits = 0;
    let mut has_letter = false;
    for c in text.chars().chain([' ']) {
        match c {
            c if c.is_numeric() => digits += 1,
            c if c.is_ascii_alphabetic() || (c.is_alphabetic() && c.is_uppercase()) => {
                has_letter = true;
            }
            '-' | '_' | '/' | '.' | ':' | '№' | '#' => {}
            _ => {
                if digits >= 4 || (digits > 0 && has_letter) {
                    return true;
                }
                (digits, has_letter) = (0, false);
            }
        }
    }
    false
}

/// Whether a word that is not the first one begins with a capital letter.
fn has_name(text: &str) -> bool {
    let mut words = text.split_whitespace().skip(1);
    words.any(|word| {
        let mut letters = word.chars().filter(|c| c.is_alphabetic());
        letters.next().is_some_and(char::is_uppercase)
            && letters.next().is_some_and(char::is_lowercase)
    })
}

/// Whether a number is written in groups of three digits, such as `48 300`.
pub(super) fn has_grouped_number(text: &str) -> bool {
    let mut is_begun = false;
    for group in text.split([' ', '\u{a0}', '\u{202f}', '\'', '’', ',', '.']) {
        let digits = group.chars().take_while(char::is_ascii_digit).count();
        if is_begun && digits == 3 {
            return true;
        }
        let last = group.chars().rev().take_while(char::is_ascii_digit);
        is_begun = (1..=3).contains(&last.count());
    }
    false
}

/// Whether a statement ends with a question mark.
pub(super) fn is_question(text: &str) -> bool {
    let mut end = text.chars().rev().take_while(|c| !c.is_alphanumeric());
    end.any(|c| matches!(c, '?' | '？' | '؟'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_weigh_more_than_identifiers_and_these_more_than_talk() {
        for text in [
            "My name is Ada.",
            "We decided for the blue one.",
            "Меня зовут Ада",
            "Мою кошку зовут Пушок",
            "我的猫叫豆豆",
            "请记住这件事",
        ] {
            assert_eq!(weight(text), DECIDED, "{text}");
        }
        for text in [
            "the order A-17",
            "Заказ А-17",
            "订单A-17",
            "it costs 4 €",
            "in 2027",
            "a@b.example",
        ] {
            assert_eq!(weight(text), IDENTIFIED, "{text}");
        }
        for text in ["there are 3", "we met Ada there", "встретил Аду"] {
            assert_eq!(weight(text), NAMED, "{text}");
        }
        for text in [
            "Thank you, that is nice",
            "спасибо, хорошо",
            "好的，谢谢",
            "economy",
        ] {
            assert_eq!(weight(text), PLAIN, "{text}");
        }
    }

    #[test]
    fn groups_of_digits_and_questions_are_known_by_their_signs() {
        for (text, is_grouped) in [
            ("Сумма 48 300 рублей", true),
            ("it costs 1,249 in all", true),
            ("1’200 francs", true),
            ("topic 12, 345 items", false),
            ("3 of 20", false),
            ("in 2027", false),
            ("", false),
        ] {
            assert_eq!(has_grouped_number(text), is_grouped, "{text}");
        }
        for (text, is_asked) in [
            ("Why?", true),
            ("«Почему?»", true),
            ("为什么？", true),
            ("لماذا؟", true),
            ("Why? Because.", false),
            ("", false),
        ] {
            assert_eq!(is_question(text), is_asked, "{text}");
        }
    }
}
