//! Numbers in a text, as people and models write them.

/// Every number in `text`: `12`, `-3.5`, `1,234.5`, `2e10`. A sign after a digit or a letter is none, so
/// that `2024-02-27` holds 2024, 2 and 27.
pub fn numbers(text: &str) -> Vec<f64> {
    let letters: Vec<char> = text.chars().collect();
    let at = |index: usize| letters.get(index).copied().unwrap_or(' ');
    let is_digit = |index: usize| at(index).is_ascii_digit();
    let mut found = Vec::new();
    let mut index = 0;
    while index < letters.len() {
        if !is_digit(index) {
            index += 1;
            continue;
        }
        let mut number = String::new();
        if index > 0 && matches!(at(index - 1), '-' | '−') {
            let before = index.checked_sub(2).map_or(' ', at);
            if !before.is_alphanumeric() {
                number.push('-');
            }
        }
        while is_digit(index) {
            number.push(at(index));
            index += 1;
            let group = (1..=3).all(|ahead| is_digit(index + ahead)) && !is_digit(index + 4);
            if at(index) == ',' && group {
                index += 1;
            }
        }
        if at(index) == '.' && is_digit(index + 1) {
            number.push('.');
            index += 1;
            while is_digit(index) {
                number.push(at(index));
                index += 1;
            }
        }
        let sign = usize::from(matches!(at(index + 1), '+' | '-'));
        if matches!(at(index), 'e' | 'E') && is_digit(index + 1 + sign) {
            number.extend(&letters[index..=index + sign]);
            index += 1 + sign;
            while is_digit(index) {
                number.push(at(index));
                index += 1;
            }
        }
        found.extend(number.parse::<f64>().ok());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_found_as_they_are_written() {
        for (text, expected) in [
            ("It is 62.", vec![62.0]),
            ("1,234,567.5 or 1,23", vec![1_234_567.5, 1.0, 23.0]),
            ("from -3 to −4.25", vec![-3.0, -4.25]),
            ("2024-02-27", vec![2024.0, 2.0, 27.0]),
            ("6.02e23, 1e-3, 5e", vec![6.02e23, 1e-3, 5.0]),
            ("**391** (17·23)", vec![391.0, 17.0, 23.0]),
            ("none", vec![]),
        ] {
            assert_eq!(numbers(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn written_number_is_found(number in any::<i32>(), before in "[a-z ]{0,5} ", after in "( [a-z]{0,5})?") {
            prop_assert_eq!(numbers(&format!("{before}{number}{after}")), vec![f64::from(number)]);
        }

        #[test]
        fn no_text_is_too_much(text in ".{0,200}") {
            numbers(&text);
        }
    }
}
