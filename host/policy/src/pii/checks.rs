//! Checksums and forms of numbers.

/// Digits of a text, as numbers.
pub(super) fn digits(text: &str) -> Vec<u32> {
    text.chars().filter_map(|c| c.to_digit(10)).collect()
}

/// ISO/IEC 7812, the checksum of payment cards.
pub(super) fn luhn(digits: &[u32]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| match (place % 2, digit * 2) {
            (0, _) => *digit,
            (_, double) if double > 9 => double - 9,
            (_, double) => double,
        })
        .sum();
    !digits.is_empty() && sum.is_multiple_of(10)
}

/// Whether an issuer of cards gives out numbers that begin and are as long as these.
pub(super) fn is_issued(digits: &[u32]) -> bool {
    let prefix = |length: usize| {
        let taken = digits.iter().take(length);
        taken.fold(0, |number, digit| number * 10 + digit)
    };
    let length = digits.len();
    match (prefix(1), prefix(2), prefix(3), prefix(4)) {
        (4, ..) => matches!(length, 13 | 16 | 19),
        (_, 51..=55, ..) | (_, _, _, 2221..=2720) => length == 16,
        (_, 34 | 37, ..) => length == 15,
        (_, 36 | 38 | 39, ..) | (_, _, 300..=305, _) => length == 14,
        (_, _, _, 3528..=3589 | 6011) | (_, 62 | 65, ..) | (_, _, 644..=649, _) => {
            (16..=19).contains(&length)
        }
        (_, 50 | 56..=58 | 60 | 61 | 63 | 64 | 66..=69, ..) => (13..=19).contains(&length),
        _ => false,
    }
}

/// The characters of an account number of a country, its checksum included: ISO 13616, the registry of SWIFT, release 97.
pub(super) fn iban_length(country: &str) -> Option<usize> {
    let lengths = [
        (15, "NO"),
        (16, "BE"),
        (18, "DK FI FK FO GL NL SD"),
        (19, "MK SI"),
        (20, "AT BA EE KZ LT LU MN XK"),
        (21, "CH HR LI LV"),
        (22, "BG BH CR DE GB GE IE ME RS VA"),
        (23, "AE GI IL IQ OM SO TL"),
        (24, "AD CZ ES MD PK RO SA SE SK TN VG"),
        (25, "LY PT ST"),
        (26, "IS TR"),
        (27, "BI DJ FR GR IT MC MR SM"),
        (28, "AL AZ BY CY DO GT HN HU LB NI PL SV"),
        (29, "BR EG PS QA UA"),
        (30, "JO KW MU YE"),
        (31, "MT SC"),
        (32, "LC"),
        (33, "RU"),
    ];
    let country = country.to_ascii_uppercase();
    lengths
        .iter()
        .find(|(_, countries)| countries.split(' ').any(|known| known == country))
        .map(|(length, _)| *length)
}

/// ISO 7064, mod 97, of an account number without spaces.
pub(super) fn iban(compact: &str) -> bool {
    let (head, rest) = compact.split_at_checked(4).unwrap_or((compact, ""));
    let mut remainder = 0;
    for c in rest.chars().chain(head.chars()) {
        let Some(value) = c.to_digit(36) else {
            return false;
        };
        let shift = if value > 9 { 100 } else { 10 };
        remainder = (remainder * shift + value) % 97;
    }
    remainder == 1
}

/// A US social security number: no area, group or serial of zeros, and no number that is never issued.
pub(super) fn ssn(digits: &[u32]) -> bool {
    let number = |range: std::ops::Range<usize>| {
        let taken = digits.get(range).unwrap_or_default();
        taken.iter().fold(0, |number, digit| number * 10 + digit)
    };
    let area = number(0..3);
    area != 0 && area != 666 && area < 900 && number(3..5) != 0 && number(5..9) != 0
}

/// A Spanish DNI or NIE: the letter follows from the number.
pub(super) fn dni(text: &str) -> bool {
    let Some((number, letter)) = text.char_indices().next_back().map(|(at, letter)| {
        let number = text.get(..at).unwrap_or_default();
        (number.to_ascii_uppercase(), letter.to_ascii_uppercase())
    }) else {
        return false;
    };
    let number = number.replacen('X', "0", 1);
    let number = number.replacen('Y', "1", 1).replacen('Z', "2", 1);
    let Ok(number) = number.parse::<usize>() else {
        return false;
    };
    "TRWAGMYFPDXBNJZSQVHLCKE".chars().nth(number % 23) == Some(letter)
}

/// An Italian codice fiscale: its last letter follows from the others.
pub(super) fn codice_fiscale(text: &str) -> bool {
    const ODD: [u32; 26] = [
        1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24,
        23,
    ];
    let place = |c: char| match c.to_digit(36) {
        Some(value) if value > 9 => value - 10,
        Some(value) => value,
        None => 0,
    };
    let sum: u32 = text
        .chars()
        .take(15)
        .enumerate()
        .map(|(index, c)| match index % 2 {
            0 => ODD.get(place(c) as usize).copied().unwrap_or_default(),
            _ => place(c),
        })
        .sum();
    let last = text.chars().nth(15).map(place);
    last == Some(sum % 26)
}

/// A French NIR: the last two digits follow from the thirteen before. Corsica's letters count as
/// digits.
pub(super) fn nir(text: &str) -> bool {
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let compact = compact.to_ascii_uppercase();
    let compact = compact.replacen("2A", "19", 1).replacen("2B", "18", 1);
    let (Some(number), Some(key)) = (compact.get(..13), compact.get(13..15)) else {
        return false;
    };
    match (number.parse::<u64>(), key.parse::<u64>()) {
        (Ok(number), Ok(key)) => 97 - number % 97 == key,
        _ => false,
    }
}

/// A Brazilian CPF: two digits follow from the nine before.
pub(super) fn cpf(digits: &[u32]) -> bool {
    let check = |length: u32| {
        let taken = digits.iter().take(length as usize);
        let sum: u32 = taken
            .zip(0..)
            .map(|(digit, place)| digit * (length + 1 - place))
            .sum();
        sum * 10 % 11 % 10
    };
    let all_same = digits.windows(2).all(|pair| pair.first() == pair.last());
    digits.len() == 11
        && !all_same
        && digits.get(9) == Some(&check(9))
        && digits.get(10) == Some(&check(10))
}

/// Verhoeff's checksum, that of Indian Aadhaar numbers.
pub(super) fn verhoeff(digits: &[u32]) -> bool {
    const TURN: [u32; 10] = [1, 5, 7, 6, 2, 8, 3, 0, 9, 4];
    // The dihedral group of order ten: turns of a pentagon, and mirrored ones from five on.
    let join = |a: u32, b: u32| match (a < 5, b < 5) {
        (true, true) => (a + b) % 5,
        (true, false) => 5 + (a + b - 5) % 5,
        (false, true) => 5 + (a - 5 + 5 - b) % 5,
        (false, false) => (a + 5 - b) % 5,
    };
    let sum = digits
        .iter()
        .rev()
        .enumerate()
        .fold(0, |sum, (place, digit)| {
            let turned = (0..place % 8).fold(*digit, |digit, _| {
                TURN.get(digit as usize).copied().unwrap_or_default()
            });
            join(sum, turned)
        });
    sum == 0
}

/// SNILS, the insurance number of Russia: nine digits weighted by nine to one, and the sum as two digits (0 for 100 and
/// 101). Numbers up to 001-001-998 have no check digits and are not taken.
pub(super) fn snils(digits: &[u32]) -> bool {
    let (Some(number), Some([tens, ones])) = (digits.get(..9), digits.get(9..11)) else {
        return false;
    };
    let value = number.iter().fold(0, |value, digit| value * 10 + digit);
    let sum: u32 = number
        .iter()
        .zip((1..=9).rev())
        .map(|(digit, weight)| digit * weight)
        .sum();
    digits.len() == 11 && value > 1_001_998 && sum % 101 % 100 == tens * 10 + ones
}

/// INN, the tax number of a person in Russia: the last two of twelve digits follow from those before them, mod 11.
pub(super) fn inn(digits: &[u32]) -> bool {
    const WEIGHTS: [u32; 11] = [3, 7, 2, 4, 10, 3, 5, 9, 4, 6, 8];
    let check = |length: usize| {
        let weights = WEIGHTS.iter().skip(WEIGHTS.len() - length);
        let sum: u32 = digits
            .iter()
            .zip(weights)
            .map(|(digit, weight)| digit * weight)
            .sum();
        sum % 11 % 10
    };
    let is_number = digits.iter().any(|digit| *digit != 0);
    digits.len() == 12
        && is_number
        && digits.get(10) == Some(&check(10))
        && digits.get(11) == Some(&check(11))
}

/// My Number of Japan: the last of twelve digits follows from the others, which are weighted from the right by two to
/// seven and two to six, mod 11 (ordinance 85 of 2014 of the Ministry of Internal Affairs).
pub(super) fn my_number(digits: &[u32]) -> bool {
    const WEIGHTS: [u32; 11] = [6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2];
    let sum: u32 = digits
        .iter()
        .zip(WEIGHTS)
        .map(|(digit, weight)| digit * weight)
        .sum();
    let check = match sum % 11 {
        0 | 1 => 0,
        rest => 11 - rest,
    };
    let is_number = digits.iter().any(|digit| *digit != 0);
    digits.len() == 12 && is_number && digits.get(11) == Some(&check)
}

/// A Chinese identity number: a day of birth, and a last character that follows from the others.
pub(super) fn resident_identity(text: &str) -> bool {
    const WEIGHTS: [u32; 17] = [7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2];
    let number = |range: std::ops::Range<usize>| {
        let part = text.get(range).unwrap_or_default();
        part.parse::<u32>().unwrap_or_default()
    };
    let is_day = (1900..2100).contains(&number(6..10))
        && (1..=12).contains(&number(10..12))
        && (1..=31).contains(&number(12..14));
    let sum: u32 = digits(text.get(..17).unwrap_or_default())
        .iter()
        .zip(WEIGHTS)
        .map(|(digit, weight)| digit * weight)
        .sum();
    let last = "10X98765432".chars().nth(sum as usize % 11);
    is_day && last == text.chars().next_back().map(|c| c.to_ascii_uppercase())
}
