//! Cards and account numbers whose groups stand farther apart than on a card: `4111  1111  1111  1111`, with tabs, ` - ` or
//! `·` between. Columns of numbers look alike. So the groups must be those of a card or an account, with its issuer or
//! country, length and check digits. A row with more groups is no card. With blanks alone between the groups, the number has
//! a name before it or stands where no columns are.

use super::bounds::{behind_placeholders, is_alone, is_whole_number, near_before, slice};
use super::checks;
use std::ops::Range;

/// Cards in groups of four, and in those of four, six, and four or five.
pub(super) const CARD: &str = r"[2-6][0-9]{3}(?:[ \t]{0,3}[·•‧∙⋅・･*_/—-][ \t]{0,3}[0-9]{4}|[ \t]{1,4}[0-9]{4}){3}|3[0-9]{3}(?:[ \t]{0,3}[·•‧∙⋅・･*_/—-][ \t]{0,3}|[ \t]{1,4})[0-9]{6}(?:[ \t]{0,3}[·•‧∙⋅・･*_/—-][ \t]{0,3}|[ \t]{1,4})[0-9]{4,5}";
/// Accounts in groups of four.
pub(super) const IBAN: &str = r"(?i)[a-z]{2}[0-9]{2}(?:[ \t]{0,3}[·•‧∙⋅・･*_/.—-][ \t]{0,3}[a-z0-9]{4}|[ \t]{1,4}[a-z0-9]{4}){2,7}(?:(?:[ \t]{0,3}[·•‧∙⋅・･*_/.—-][ \t]{0,3}|[ \t]{1,4})[a-z0-9]{1,3})?";

/// Characters before a number among which its name may be.
const MAX_NAME_CHARS: usize = 32;
/// Words before such numbers, in small letters.
const NAMES: [&str; 21] = [
    "card",
    "visa",
    "mastercard",
    "maestro",
    "amex",
    "карт",
    "卡",
    "カード",
    "카드",
    "บัตร",
    "بطاقة",
    "iban",
    "account",
    "konto",
    "cuenta",
    "compte",
    "счёт",
    "счет",
    "账",
    "口座",
    "계좌",
];
/// Digits of a group.
const GROUP: usize = 4;
/// Characters between two groups and in one: blanks, a sign, blanks, digits.
const MAX_STEP_CHARS: usize = 3 + 1 + 3 + GROUP;
/// Characters on each side of a number in which columns are looked for.
const MAX_NEAR_CHARS: usize = 200;

pub(super) fn card(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let written = slice(text, range.clone());
    let digits = checks::digits(written);
    let is_card = checks::is_issued(&digits) && checks::luhn(&digits);
    let has_groups = has_equal_signs(written) && !goes_on(text, &range);
    let is_free = || has_sign(written) || stands_apart(text, &range);
    (is_card && has_groups && is_whole_number(text, &range) && is_free()).then_some(range)
}

/// `found`: the part of the text that is an account.
pub(super) fn account(text: &str, found: Range<usize>) -> Option<Range<usize>> {
    let written = slice(text, found.clone());
    let has_groups = has_equal_signs(written) && is_alone(text, &found);
    let is_free = || has_sign(written) || stands_apart(text, &found);
    (has_groups && is_free()).then_some(found)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

fn has_sign(written: &str) -> bool {
    written.contains(|c: char| !c.is_ascii_alphanumeric() && !is_blank(c))
}

/// True if all groups have the same sign between them, or none.
fn has_equal_signs(written: &str) -> bool {
    let between = written.split(|c: char| c.is_ascii_alphanumeric());
    let mut signs = between
        .filter(|between| !between.is_empty())
        .map(|between| between.trim_matches(is_blank));
    let first = signs.next();
    signs.all(|sign| Some(sign) == first)
}

/// True if a further group stands on either side, as far away as the groups of a number do: a row of numbers. A card's last
/// month or the three digits on its back are no group.
fn goes_on(text: &str, range: &Range<usize>) -> bool {
    let is_sign = |c: Option<char>| c.is_some_and(|c| !c.is_alphanumeric() && !c.is_control());
    let group_comes = |beside: &mut dyn Iterator<Item = char>| {
        let mut beside = beside.take(MAX_STEP_CHARS).skip_while(|c| is_blank(*c));
        let mut first = beside.next();
        if is_sign(first) {
            first = beside.find(|c| !is_blank(*c));
        }
        let is_digit = first.is_some_and(|c| c.is_ascii_digit());
        is_digit && beside.take_while(char::is_ascii_digit).count() + 1 >= GROUP
    };
    group_comes(&mut slice(text, range.end..text.len()).chars())
        || group_comes(&mut slice(text, 0..range.start).chars().rev())
}

/// True if a name of such numbers goes before, or if no columns are around.
fn stands_apart(text: &str, range: &Range<usize>) -> bool {
    let near = near_before(text, range.start, MAX_NAME_CHARS);
    let near = behind_placeholders(&near);
    if NAMES.iter().any(|name| near.contains(name)) {
        return true;
    }
    let behind = slice(text, range.end..text.len()).chars();
    let before = slice(text, 0..range.start).chars().rev();
    !has_columns(behind) && !has_columns(before)
}

/// True if the rest of this line, or the next one, has digits or columns.
fn has_columns(beside: impl Iterator<Item = char>) -> bool {
    let (mut lines, mut has_word, mut blanks) = (0, false, 0);
    for c in beside.take(MAX_NEAR_CHARS) {
        match c {
            '\n' if lines == 1 => return false,
            '\n' => (lines, has_word, blanks) = (1, false, 0),
            ' ' => blanks += 1,
            '\t' => blanks += 2,
            _ if c.is_ascii_digit() || c == '|' || has_word && blanks > 1 => return true,
            _ => (has_word, blanks) = (true, 0),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, find};

    fn found(text: &str) -> Vec<&str> {
        let wanted = |kind| matches!(kind, Kind::Card | Kind::Iban);
        let found = find(text, wanted);
        found
            .iter()
            .map(|finding| &text[finding.start..finding.end])
            .collect()
    }

    #[test]
    fn groups_far_apart_are_found_alone_and_behind_a_name() {
        for number in [
            "4111  1111  1111  1111",
            "4111\t1111\t1111\t1111",
            "4111 - 1111 - 1111 - 1111",
            "4111·1111·1111·1111",
            "4111 · 1111 · 1111 · 1111",
            "4111_1111_1111_1111",
            "5500/0055/5555/5559",
            "4111  1111 1111  1111",
            "3782  822463  10005",
            "DE89  3704  0044  0532  0130  00",
            "DE89\t3704\t0044\t0532\t0130\t00",
            "DE89 - 3704 - 0044 - 0532 - 0130 - 00",
            "de89·3704·0044·0532·0130·00",
            "DE89.3704.0044.0532.0130.00",
            "AT61  1904  3002  3457  3201",
        ] {
            for text in [
                number.to_owned(),
                format!("Pay with\n    {number}\nplease."),
                format!("卡号 {number}，谢谢"),
                format!("Card or account:\t{number}\t12/27"),
            ] {
                assert_eq!(found(&text), [number], "{text:?}");
            }
        }
    }

    /// Each of these rows passes the checks of a card or an account.
    #[test]
    fn columns_of_numbers_stay() {
        let (card, account) = ("4111\t1111\t1111\t1111", "AT61\t1904\t3002\t3457\t3201");
        for row in [card, account] {
            assert_eq!(found(row), [row]);
            let spaced = row.replace('\t', "  ");
            let aligned = row.replace('\t', "    ");
            for row in [row, spaced.as_str(), aligned.as_str()] {
                for table in [
                    format!("2019\t2020\t2021\t2022\n{row}\n"),
                    format!("north\tsouth\teast\twest\n{row}"),
                    format!("north  south  east  west\n{row}"),
                    format!("{row}\n1200\t1300\t1400\t1500"),
                    format!("sales\t{row}\t17"),
                    format!("{row}\t1200"),
                    format!("1200\t{row}"),
                    format!("{row} 1200"),
                    format!("| a | b |\n{row}\n"),
                ] {
                    assert_eq!(found(&table), [""; 0], "{table:?}");
                }
            }
        }
        for row in [
            // Other check digits, other lengths, other issuers, other signs, a row that goes on, CSV and a table of Markdown.
            "4111  1111  1111  1112",
            "4111 - 1111 - 1111",
            "7111  1111  1111  1118",
            "4111 - 1111 · 1111 - 1111",
            "4111 - 1111 - 1111 - 1111 - 1111",
            "1111 - 4111 - 1111 - 1111 - 1111",
            "4111,1111,1111,1111",
            "4111, 1111, 1111, 1111",
            "| 4111 | 1111 | 1111 | 1111 |",
            "4111\n1111\n1111\n1111",
            "4111.1111 1111.1111",
            "4111.1111-1111.1111",
            "41111 1111  1111  1111",
            "AT61 - 1904 - 3002 - 3457 - 3202",
            "ZZ61 - 1904 - 3002 - 3457 - 3201",
            "+49 171  1234  5678",
            "2024/1231/2359/5959",
            "978-4-1111-1111-1",
        ] {
            assert_eq!(found(row), [""; 0], "{row:?}");
        }
    }
}
